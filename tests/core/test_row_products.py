"""A10: what a row's products may change against A5's numerators, over everything that can meet."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from softermax import golden
from softermax.fixedpoint import IntArray, shift_right
from softermax.spec import PRESETS, SoftermaxSpec

PAPER = PRESETS["paper"]
EXACT = PAPER.replace(normalization="row-products", product="Q(1,22)")
"""Every bit of a power of two times a reciprocal."""


def all_words(spec: SoftermaxSpec) -> tuple[IntArray, IntArray, Any]:
    """Output words by A10 and by A5, and the real quotient in units of the output: for every reciprocal, fraction of a
    score, distance below the max and exponent of PowSum that a row can have."""
    r = np.arange(1 << (spec.reciprocal.fraction - 1), (1 << spec.reciprocal.fraction) + 1)
    f = np.arange(1 << spec.input.fraction)
    k = np.arange(spec.unnormed.bits + 2)
    e = np.arange(-1, spec.powsum.integer)
    r, f, k, e = np.meshgrid(r, f, k, e, indexing="ij")
    met = k + e >= 0
    r, f, k, e = r[met], f[met], k[met], e[met]
    x = f - (k << spec.input.fraction)
    leading_one = e + spec.powsum.fraction
    products = golden.row_products(r, spec)
    by_products, _ = golden.normalize_scores(x[:, None], 0, leading_one[:, None], products, spec)
    by_numerators = golden.normalize(golden.power_of_two(x, 0, PAPER), leading_one, r, PAPER)
    exact = np.exp2(f / 2.0**spec.input.fraction - k - e + spec.output.fraction) * (
        r / 2.0**spec.reciprocal.fraction
    )
    return by_products[:, 0], by_numerators, np.minimum(exact, spec.output.high)


def test_exact_products_are_the_more_accurate_ones() -> None:
    by_products, by_numerators, exact = all_words(EXACT)
    assert len(exact) > 40_000
    differing = by_products != by_numerators
    assert 0 < differing.mean() < 0.0002
    assert np.abs(by_products - by_numerators).max() == 1
    assert (np.abs(by_products - exact) < np.abs(by_numerators - exact))[differing].all()
    # Half a unit, but for the words of 2^f.
    assert np.abs(by_products - exact).max() < 0.5001 < np.abs(by_numerators - exact).max()


def test_a_word_differs_by_one_unit_at_most() -> None:
    shares = {}
    for fraction in range(7, 23):
        spec = PAPER.replace(normalization="row-products", product=(1, fraction))
        by_products, by_numerators, _ = all_words(spec)
        assert np.abs(by_products - by_numerators).max() <= 1
        shares[fraction] = float((by_products != by_numerators).mean())
    # As docs/arithmetic.md says.
    assert round(100 * shares[9], 2) == 0.29
    assert round(100 * shares[22], 3) == 0.012


def test_the_stated_example() -> None:
    """The products that docs/arithmetic.md writes out."""
    spec = PAPER.replace(normalization="row-products")
    assert golden.row_products(np.array([128, 100]), spec).tolist() == [
        [512, 609, 724, 861],
        [400, 476, 566, 673],
    ]


def test_slices_leave_a_trace_in_the_sum_alone() -> None:
    """An element's word is that of its score, its row's max, sum and products, whatever slice it lies in."""
    rng = np.random.default_rng(0)
    x = np.sort(rng.integers(-60, 60, (50, 64)), axis=1)
    spec = PAPER.replace(normalization="row-products", slice_width=8)
    out = golden.softermax(x, spec, trace=True)
    trace = out.trace
    assert trace is not None
    np.testing.assert_array_equal(trace.products, golden.row_products(trace.reciprocal, spec))
    again, _ = golden.normalize_scores(
        x, trace.running_max[:, -1:], trace.leading_one[:, None], trace.products, spec
    )
    np.testing.assert_array_equal(out.words, again)


def test_unnormed_words_only_serve_the_sum() -> None:
    """One fraction bit of u leaves words below it, which A5 cannot have."""
    x = np.array([[0, -4, -8, -12, -16]])
    coarse = PAPER.replace(
        unnormed="Q(1,1)", powsum="Q(10,1)", normalization="row-products", product="Q(1,8)"
    )
    assert (golden.softermax(x, coarse).words[0, 2:] > 0).all()


@pytest.mark.parametrize("mode", ["fixed", "row-scaled"])
def test_a_row_without_elements_is_zero(mode: Any) -> None:
    spec = PAPER.replace(normalization="row-products", output_mode=mode)
    out = golden.softermax(np.full((2, 20), 127), spec, np.zeros((2, 20), dtype=np.bool_))
    assert not out.words.any()


def test_products_saturate() -> None:
    """A table of one segment reaches the last word below 2; rounded to fewer bits it would be 2."""
    spec = SoftermaxSpec(
        input="Q(6,4)", pow2_segments=16, normalization="row-products", product="Q(1,7)", output="Q(1,1)"
    )
    products = golden.row_products(np.array(128), spec)
    powers = np.exp2(np.arange(16) / 16)
    np.testing.assert_array_equal(
        products, np.minimum(shift_right(np.rint(powers * 2**15), 8, "half-up"), 255)
    )
    narrow = spec.replace(product="Q(1,1)")
    assert golden.row_products(np.array(128), narrow).max() == narrow.product.high == 3
