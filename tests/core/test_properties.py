"""What Softermax promises of every row, in words of the golden model."""

from __future__ import annotations

import numpy as np
import pytest
from drawn import draw_rows, draw_spec
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import NDArray

from softermax import golden
from softermax.fixedpoint import IntArray
from softermax.spec import PRESETS, SoftermaxSpec
from softermax.tables import pow2_table, reciprocal_table

FIFTEEN_BITS = SoftermaxSpec(output="Q(1,15)")

preset_specs = st.sampled_from(list(PRESETS.values()))
drawn_specs = st.integers(0, 10**6).map(lambda seed: draw_spec(np.random.default_rng(seed)))
specs = st.one_of(preset_specs, drawn_specs)


@st.composite
def rows(draw: st.DrawFn, spec: SoftermaxSpec, low: int | None = None, high: int | None = None) -> IntArray:
    low = spec.input.low if low is None else low
    high = spec.input.high if high is None else high
    columns = draw(st.integers(1, 80))
    return draw(arrays(np.int64, columns, elements=st.integers(low, high)))


@st.composite
def masked_rows(draw: st.DrawFn, spec: SoftermaxSpec) -> tuple[IntArray, NDArray[np.bool_]]:
    x = draw(rows(spec))
    return x, draw(arrays(np.bool_, x.shape))


@given(st.data())
def test_adding_an_integer_changes_nothing(data: st.DataObject) -> None:
    """Nothing saturates: both rows stay below the largest integer of the input word, where IntMax
    still finds a ceiling. (A row starts from the smallest max, but an empty sum renormalises to
    itself, so the distance to that start does not matter.)"""
    spec = data.draw(specs)
    one = 1 << spec.input.fraction
    top = ((1 << (spec.input.integer - 1)) - 1) * one
    x = data.draw(rows(spec, high=top))
    added = data.draw(st.integers(-((int(x.min()) - spec.input.low) // one), (top - int(x.max())) // one))
    before, after = golden.softermax(x, spec), golden.softermax(x + added * one, spec)
    np.testing.assert_array_equal(before.words, after.words)
    np.testing.assert_array_equal(before.exponent, after.exponent)


@given(st.data())
def test_appending_masked_elements_changes_nothing(data: st.DataObject) -> None:
    spec = data.draw(specs)
    x, mask = data.draw(masked_rows(spec))
    more = data.draw(rows(spec))
    longer = golden.softermax(np.append(x, more), spec, np.append(mask, np.zeros(more.size, dtype=bool)))
    alone = golden.softermax(x, spec, mask)
    np.testing.assert_array_equal(longer.words[: x.size], alone.words)
    assert not longer.words[x.size :].any()
    assert longer.exponent == alone.exponent


@given(st.data())
def test_masked_scores_have_no_influence(data: st.DataObject) -> None:
    spec = data.draw(specs)
    x, mask = data.draw(masked_rows(spec))
    other = np.where(mask, x, data.draw(arrays(np.int64, x.shape, elements=st.integers(-(2**40), 2**40))))
    words = golden.softermax(x, spec, mask).words
    np.testing.assert_array_equal(golden.softermax(other, spec, mask).words, words)
    assert not words[~mask].any()


@given(st.data())
def test_permuting_within_a_slice_permutes_the_output(data: st.DataObject) -> None:
    spec = data.draw(specs)
    x, mask = data.draw(masked_rows(spec))
    width = spec.slice_width or x.size
    order = np.concatenate(
        [
            data.draw(st.permutations(range(start, min(start + width, x.size))))
            for start in range(0, x.size, width)
        ]
    )
    before, after = golden.softermax(x, spec, mask), golden.softermax(x[order], spec, mask[order])
    np.testing.assert_array_equal(after.words, before.words[order])
    assert after.exponent == before.exponent


@given(st.data())
def test_outputs_are_monotonic_in_the_scores(data: st.DataObject) -> None:
    """A larger score never has a smaller output, wherever in the row the two stand.

    Between slices this needs ``unnormed_rounding`` = truncate, where shifting by k and later by n is
    shifting by k + n; any other rounding may round up a late element and cut an early one. And it
    needs a table of 2^x that rises, which most have (test_tables says more).
    """
    spec = data.draw(specs)
    table = pow2_table(spec)
    arguments = np.arange(1 << table.used_bits) << (table.argument_bits - table.used_bits)
    assume((np.diff(table(arguments)) >= 0).all())
    x, mask = data.draw(masked_rows(spec))
    words = golden.softermax(x, spec, mask).words
    whole = spec.unnormed_rounding == "truncate"
    width = x.size if whole or spec.slice_width is None else spec.slice_width
    for start in range(0, x.size, width):
        part = slice(start, start + width)
        live = mask[part]
        order = np.argsort(x[part][live], kind="stable")
        scores, outputs = x[part][live][order], words[part][live][order]
        assert (np.diff(outputs) >= 0).all()
        assert (outputs[:-1] == outputs[1:])[np.diff(scores) == 0].all()


@given(st.data())
def test_equal_scores_are_uniform(data: st.DataObject) -> None:
    """Every element of the row gets the same word, across slices and whatever the score."""
    spec = data.draw(specs)
    score = data.draw(st.integers(spec.input.low, spec.input.high))
    count = data.draw(st.integers(1, 400))
    words = golden.softermax(np.full(count, score), spec).words
    assert (words == words[0]).all()


@pytest.mark.parametrize("name", ["paper", "paper-32", "whole-row"])
def test_a_single_element_is_one_within_a_unit(name: str) -> None:
    """All 256 lone scores give 1.0 within one unit, 2^-7, of the output.

    Off are: integers, 127/128, because the first segment's minimax line passes 0.62 units of 2^-7
    below 1 at d = 1, so that r is 127 there; fractions of .5, 129/128, because PowSum rounds 0.7071
    to 45/64, 0.56% less, and the quotient is 128.7 units; and of those 31.5, 127/128, whose max
    saturated to 31, so that PowSum rounds 1.4142 to 91/64, 0.54% more. Fractions of .25 and .75
    give 1.0.
    """
    spec = PRESETS[name]
    raw = np.arange(spec.input.low, spec.input.high + 1)
    words = golden.softermax(raw[:, None], spec).words[:, 0]
    expected = np.array([127, 128, 129, 128])[raw % 4]
    expected[raw == 126] = 127
    np.testing.assert_array_equal(words, expected)


def test_a_single_element_of_row_scaled_output() -> None:
    """Row-scaled words are twice as fine as the reciprocal, so it is the reciprocal's unit, 2^-7, that
    bounds the error; where the exponent is 0, 1.0 has no word and becomes 255/256."""
    spec = PRESETS["row-scaled"]
    raw = np.arange(spec.input.low, spec.input.high + 1)
    out = golden.softermax(raw[:, None], spec)
    assert (np.abs(out.value - 1) <= spec.reciprocal.lsb).all()
    assert set(out.words[raw % 4 == 0, 0]) == {254}


def row_sum_bound(out: golden.Output, mask: NDArray[np.bool_]) -> NDArray[np.float64]:
    """How far the probabilities of a row may be from adding up to 1, for truncated unnormed words.

    Let N elements in S live slices take part, n_i be the numerators, A = Σ n_i, and d the last
    PowSum, not saturated. In units of value:

    * *Truncation of u* costs nothing by itself: numerators and PowSum add up the same words. Only
      where a slice is renormalised do they part: PowSum shifts the sum, the numerators are shifted
      one by one, each losing less than 2^-Fu. So the exact sum exceeds A by less than N·2^-Fu.
    * *Rounding to PowSum*: each live slice is off by at most 2^-(Fd+1), together S·2^-(Fd+1).
    * *Renormalising PowSum* truncates less than 2^-Fd each time the max grows with a sum there, at
      most S - 1 times; each such loss is halved at least by the next, so all of them together stay
      below 2·2^-Fd, and below 2^-Fd if it happens once.

      Hence |d - A| <= E = S·2^-(Fd+1) + (0, 1 or 2)·2^-Fd + N·2^-Fu (the last where it is renormalised).
    * *Reciprocal*: r·2^-(e-Fd) = (1 + η)/d, |η| <= ε, the largest relative error of the table over all
      mantissas (0.0125 for 4 segments and Q(1,7)).
    * *Output rounding*: each y_i is n_i·r·2^-(e-Fd) within 2^-(Fy+1), and exactly 0 where n_i is.

    Σy = (1 + η)·A/d + N·2^-(Fy+1)·(-1 ... 1), and A/d lies within E/d of 1:

        |Σy - 1| <= ε + (1 + ε)·E/d + N·2^-(Fy+1).

    With the 15-bit output of `paper` and d >= 1/2 that is for one slice of 16 at most
    0.0125 + 1.0125/64 + 16/65536 < 0.0286; for a row of 384 whose d is above 12, as rows of
    standard Gaussian scores have it, 0.0125 + 1.0125·(14/64 + 384/32768)/12 + 384/65536 < 0.0379.
    """
    spec, trace = out.spec, out.trace
    assert trace is not None
    assert spec.unnormed_rounding == "truncate"
    table = reciprocal_table(spec)
    z = np.arange(1 << table.argument_bits)
    mantissa = 1 + z * 2.0**-table.argument_bits
    epsilon = float(np.abs(table(z) * 2.0**-table.fraction * mantissa - 1).max())
    elements = mask.sum(axis=-1)
    live = (trace.slice_sum > 0).sum(axis=-1)
    before = np.concatenate([np.zeros_like(trace.powsum[..., :1]), trace.powsum[..., :-1]], axis=-1)
    grown = ((trace.renorm_shift > 0) & (before > 0)).sum(axis=-1)
    unit = spec.powsum.lsb
    error = (
        live * unit / 2 + np.minimum(grown, 2) * unit + np.where(grown > 0, elements, 0) * spec.unnormed.lsb
    )
    d = trace.powsum[..., -1] * unit
    return np.asarray(epsilon + (1 + epsilon) * error / d + elements * spec.output.lsb / 2)


def assert_row_sums(x: IntArray, mask: NDArray[np.bool_], spec: SoftermaxSpec) -> NDArray[np.float64]:
    """Check rows against the bound; how much of it each row used."""
    alive = mask.any(axis=1)
    x, mask = x[alive], mask[alive]
    out = golden.softermax(x, spec, mask, trace=True)
    assert out.trace is not None
    fits = (out.trace.powsum < spec.powsum.high).all(axis=1)
    off = np.abs(out.value.sum(axis=1) - 1)
    bound = row_sum_bound(out, mask)
    assert (off <= bound)[fits].all(), (off / bound)[fits].max()
    return np.asarray((off / bound)[fits])


@given(st.data())
def test_row_sums_stay_within_the_bound(data: st.DataObject) -> None:
    x, mask = data.draw(masked_rows(FIFTEEN_BITS))
    assert_row_sums(x[None], mask[None], FIFTEEN_BITS)


@pytest.mark.parametrize("columns", [1, 2, 16, 17, 128, 384])
def test_row_sums_of_many_rows(columns: int) -> None:
    """No row leaves the bound, and the bound is no idle one: some row uses a third of it or more."""
    rng = np.random.default_rng(columns)
    used = assert_row_sums(*draw_rows(rng, FIFTEEN_BITS, 4000, columns), FIFTEEN_BITS)
    assert used.max() > 1 / 3


def test_the_stated_bounds_for_fifteen_bits() -> None:
    """The two figures at the end of the derivation."""
    rng = np.random.default_rng(0)
    x, _ = draw_rows(rng, FIFTEEN_BITS, 20000, 16)
    out = golden.softermax(x, FIFTEEN_BITS, trace=True)
    bound = row_sum_bound(out, np.ones(x.shape, dtype=bool))
    assert bound.max() < 0.0286
    assert (np.abs(out.value.sum(axis=1) - 1) < 0.0286).all()
    out = FIFTEEN_BITS.run(rng.standard_normal((400, 384)), trace=True)
    assert out.trace is not None
    assert (out.trace.powsum[:, -1] > 12 * 64).all()
    assert (row_sum_bound(out, np.ones(out.words.shape, dtype=bool)) < 0.0379).all()
    assert (np.abs(out.value.sum(axis=1) - 1) < 0.0379).all()


@settings(max_examples=30)
@given(st.integers(0, 10**6))
def test_row_sums_of_drawn_specs(seed: int) -> None:
    """The derivation names no format, so it holds for other specs as well."""
    rng = np.random.default_rng(seed)
    spec = draw_spec(rng, widest=20).replace(unnormed_rounding="truncate", output_mode="fixed")
    # An output of less than two integer bits could saturate below a sum of 1; half-even is as near as half-up.
    assume(spec.output.integer >= 1 and spec.output_rounding != "truncate")
    assume(spec.powsum_rounding != "truncate")
    assert_row_sums(*draw_rows(rng, spec, 50, int(rng.integers(1, 80))), spec)
