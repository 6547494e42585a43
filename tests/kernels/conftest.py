from __future__ import annotations

import numpy as np
import pytest

from softermax import kernels
from softermax.spec import SoftermaxSpec

from .native_build import SPECS

WITHOUT_CORE = ("test_native_check", "test_kernel_install")


@pytest.fixture(autouse=True)
def core(request: pytest.FixtureRequest) -> None:
    if not kernels.usable() and not request.module.__name__.endswith(WITHOUT_CORE):
        pytest.skip("the native core is not built here: `softermax info` says why")


@pytest.fixture(params=kernels.usable())
def path(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Each path that runs here, forced."""
    monkeypatch.setenv("SOFTERMAX_ISA", request.param)
    return str(request.param)


@pytest.fixture(params=SPECS)
def spec(request: pytest.FixtureRequest) -> SoftermaxSpec:
    return SPECS[request.param]


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(7)
