"""What the golden model takes: shapes, masks, dtypes; and how it refuses what it does not."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import oracle
import pytest

from softermax import golden
from softermax.spec import PRESETS, SoftermaxSpec
from softermax.verify import score_cases

PAPER = PRESETS["paper"]
all_presets = pytest.mark.parametrize("spec", PRESETS.values(), ids=PRESETS)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_scores_that_are_not_finite_are_named(value: float) -> None:
    x = np.zeros((2, 3), dtype=np.float32)
    x[1, 2] = value
    with pytest.raises(ValueError, match=rf"finite where they are not masked, got {value} at \(1, 2\)"):
        golden.quantize(x, PAPER)
    with pytest.raises(ValueError, match="use mask= to leave an element out"):
        PAPER.compute(x, mask=[[True], [True]])


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_masked_positions_may_hold_anything(value: float) -> None:
    mask = np.array([True, False, True])
    np.testing.assert_array_equal(
        PAPER.compute([1.0, value, 2.0], mask), PAPER.compute([1.0, 0.0, 2.0], mask)
    )


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_huge_scores_saturate(dtype: Any) -> None:
    largest = np.finfo(dtype).max
    for base in ("paper", "fold"):
        spec = PAPER.replace(base=base)
        with np.errstate(all="raise"):
            assert golden.quantize(np.array([largest, -largest]), spec).tolist() == [127, -128]


@pytest.mark.parametrize("word", ["Q(6,20)", "Q(6,26)", "Q(32,0)"], ids=["26 bits", "32 bits", "no fraction"])
def test_single_precision_saturates_to_wide_words(word: Any) -> None:
    """2^25 - 1 and 2^31 - 1 have no single, so saturating has to happen in integers."""
    spec = SoftermaxSpec(input=word, max=("Q(32,0)"))
    raw = golden.quantize(np.array([1e30, -1e30], dtype=np.float32), spec)
    assert raw.tolist() == [spec.input.high, spec.input.low]
    golden.softermax(raw, spec)


@pytest.mark.parametrize("dtype", [np.int8, np.int64, np.uint8, np.uint64])
def test_integer_scores_are_numbers(dtype: Any) -> None:
    assert golden.quantize(np.array([1, 2, 100], dtype=dtype), PAPER).tolist() == [4, 8, 127]


@pytest.mark.parametrize(
    "x", [[True, False], ["1.0"], [1j], [None], np.array(["2020"], dtype="datetime64")], ids=repr
)
def test_scores_of_the_wrong_dtype(x: Any) -> None:
    with pytest.raises(TypeError, match="scores must be real numbers, got dtype"):
        golden.quantize(x, PAPER)


@pytest.mark.parametrize("x", [[1.0, 2.0], [True], ["a"], [2**70]], ids=repr)
def test_raw_words_of_the_wrong_dtype(x: Any) -> None:
    with pytest.raises(
        TypeError, match=r"raw words must be integers, got dtype .*golden\.quantize makes them"
    ):
        golden.softermax(x, PAPER)


@pytest.mark.parametrize("bad", [-129, 128, 2**62, -(2**62)])
def test_raw_words_that_do_not_fit(bad: int) -> None:
    message = rf"raw word {bad} does not fit the input word Q\(6,2\): must be -128 to 127"
    with pytest.raises(ValueError, match=message):
        golden.softermax([0, bad, 1], PAPER)
    golden.softermax([0, bad, 1], PAPER, [True, False, True])


def test_unsigned_raw_words_do_not_wrap() -> None:
    with pytest.raises(ValueError, match="raw word 18446744073709551615 does not fit"):
        golden.softermax(np.array([2**64 - 1], dtype=np.uint64), PAPER)
    out = golden.softermax(np.array([3, 4], dtype=np.uint64), PAPER)
    np.testing.assert_array_equal(out.words, golden.softermax([3, 4], PAPER).words)


def test_scalars() -> None:
    with pytest.raises(ValueError, match="at least one dimension, got a scalar"):
        golden.softermax(3, PAPER)
    with pytest.raises(ValueError, match="at least one dimension, got a scalar"):
        PAPER.compute(3.0)


@pytest.mark.parametrize("mask", [[1, 0, 1], [1.0, 0.0, 1.0], "yes", [None, None, None]], ids=repr)
def test_masks_of_the_wrong_dtype(mask: Any) -> None:
    for call in (golden.softermax, lambda x, spec, m: golden.quantize(np.asarray(x, float), spec, m)):
        with pytest.raises(
            TypeError, match="mask must be boolean, True where an element takes part, got dtype"
        ):
            call([1, 2, 3], PAPER, mask)


@pytest.mark.parametrize("shape", [(2,), (4,), (3, 1), (1, 2, 3), (0,)], ids=str)
def test_masks_of_the_wrong_shape(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"mask of shape \(.*\) does not broadcast to the scores' \(2, 3\)"):
        golden.softermax(np.zeros((2, 3), dtype=np.int64), PAPER, np.ones(shape, dtype=bool))


@all_presets
@pytest.mark.parametrize("shape", [(), (1,), (3,), (2, 3), (1, 3), (2, 1), (2, 5, 1, 3)], ids=str)
def test_masks_that_broadcast(spec: SoftermaxSpec, shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(0)
    x = rng.integers(-128, 128, (2, 5, 2, 3))
    mask = rng.random(shape) < 0.5
    full = np.broadcast_to(mask, x.shape)
    np.testing.assert_array_equal(
        golden.softermax(x, spec, mask).words, golden.softermax(x, spec, full.copy()).words
    )


@all_presets
@pytest.mark.parametrize("lead", [(), (1,), (7,), (2, 3), (2, 0), (0,), (1, 2, 3, 4)], ids=str)
@pytest.mark.parametrize("columns", [0, 1, 16, 40])
def test_any_leading_shape(spec: SoftermaxSpec, lead: tuple[int, ...], columns: int) -> None:
    """Words, exponents and every trace word of each row are those of the row alone."""
    rng = np.random.default_rng(1)
    x = rng.integers(-128, 128, (*lead, columns))
    mask = rng.random(x.shape) < 0.8
    out = golden.softermax(x, spec, mask, trace=True)
    slices = spec.slices(columns)
    lanes = spec.slice_width or columns
    shapes = {"words": (columns,), "exponent": ()}
    shapes |= dict.fromkeys(golden.Trace.__dataclass_fields__, (slices,))
    shapes |= {"unnormed": (slices, lanes), "numerator": (slices, lanes), "leading_one": (), "reciprocal": ()}
    shapes["products"] = (4,) if spec.normalization == "row-products" else (0,)
    for name, shape in shapes.items():
        words = getattr(out, name) if name in ("words", "exponent") else getattr(out.trace, name)
        assert words.shape == lead + shape, name
        assert words.dtype == np.int64, name
    assert out.value.shape == x.shape
    for at in np.ndindex(lead):
        alone = golden.softermax(x[at], spec, mask[at], trace=True)
        np.testing.assert_array_equal(out.words[at], alone.words)
        assert out.exponent[at] == alone.exponent
        for name in golden.Trace.__dataclass_fields__:
            np.testing.assert_array_equal(getattr(out.trace, name)[at], getattr(alone.trace, name))


def test_blocks_join() -> None:
    """More rows than are worked on at a time, and rows longer than that."""
    rng = np.random.default_rng(2)
    x = rng.integers(-128, 128, (3000, 48))
    out = golden.softermax(x, PAPER, trace=True)
    for start in (0, 1300, 2900):
        part = golden.softermax(x[start : start + 100], PAPER, trace=True)
        np.testing.assert_array_equal(out.words[start : start + 100], part.words)
        assert out.trace is not None
        assert part.trace is not None
        np.testing.assert_array_equal(out.trace.powsum[start : start + 100], part.trace.powsum)
    wide = PRESETS["whole-row"].run(np.zeros((2, 70000)))
    assert wide.words.shape == (2, 70000)


@all_presets
def test_rows_without_an_element_are_zero(spec: SoftermaxSpec) -> None:
    x = np.full((3, 40), 127)
    mask = np.zeros(x.shape, dtype=bool)
    mask[1, 5] = True
    out = golden.softermax(x, spec, mask, trace=True)
    assert not out.words[[0, 2]].any()
    assert not out.value[[0, 2]].any()
    assert out.words[1].nonzero()[0].tolist() == [5]
    assert out.trace is not None
    assert not out.trace.powsum[[0, 2]].any()
    assert (out.trace.running_max[[0, 2]] == spec.max_low).all()


def test_no_trace_unless_asked() -> None:
    assert golden.softermax([1, 2], PAPER).trace is None


def test_the_input_is_left_alone() -> None:
    x = np.array([1.0, np.inf, 3.0])
    mask = np.array([True, False, True])
    before = x.copy(), mask.copy()
    PAPER.compute(x, mask)
    np.testing.assert_array_equal(x, before[0])
    np.testing.assert_array_equal(mask, before[1])


def test_powsum_saturates_from_1024_equal_scores_on() -> None:
    for count, saturated in ((1023, False), (1024, True), (5000, True)):
        out = golden.softermax(np.zeros(count, dtype=np.int64), PAPER, trace=True)
        assert out.trace is not None
        assert (out.trace.powsum[-1] == PAPER.powsum.high) == saturated


@pytest.mark.parametrize("base", ["paper", "fold"])
@pytest.mark.parametrize("rounding", ["truncate", "half-up", "half-even"])
def test_a_score_saturates_where_its_rounded_word_does_not_fit(rounding: Any, base: Any) -> None:
    """By exact fractions, for scores at both ends of the word and beside them."""
    spec = PAPER.replace(input_rounding=rounding, base=base)
    for case in score_cases(spec, 2, "float32"):
        got = golden.saturates(case.scores, spec, case.mask)
        scaled = np.where(case.mask, np.clip(case.scores, -1e6, 1e6), np.float32(0)) * np.float32(
            spec.input_scale
        )
        words = [oracle.whole(Fraction(float(one)), rounding) for one in scaled.ravel()]
        assert got.ravel().tolist() == [not -128 <= word <= 127 for word in words]


def test_the_largest_words_own_tie_saturates_unless_it_is_truncated() -> None:
    ends = [31.875, -32.125]
    for rounding, saturated in (
        ("truncate", [False, True]),
        ("half-up", [True, False]),
        ("half-even", [True, False]),
    ):
        assert golden.saturates(ends, PAPER.replace(input_rounding=rounding)).tolist() == saturated
