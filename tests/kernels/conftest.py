from __future__ import annotations

import numpy as np
import pytest
from native_build import SPECS
from numpy.typing import NDArray

from softermax import kernels
from softermax.spec import SoftermaxSpec

if not kernels.usable():
    collect_ignore_glob = [
        "test_rows.py",
        "test_operators.py",
        "test_threads.py",
        "test_attention.py",
        "test_bench.py",
    ]


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


def words(rng: np.random.Generator, *shape: int, spread: float = 16.0) -> NDArray[np.int8]:
    return np.clip(np.rint(rng.normal(0, spread, shape)), -128, 127).astype(np.int8)
