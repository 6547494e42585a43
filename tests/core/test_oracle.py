"""The golden model against the independent oracle: every word of every step, zero mismatches."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import oracle
import pytest
from drawn import draw_rows, draw_spec
from numpy.typing import NDArray

from softermax import golden, tables
from softermax.spec import PRESETS, SoftermaxSpec

NEAREST = ("truncate", "half-up", "half-even")


def assert_same(x: NDArray[np.int64], mask: NDArray[np.bool_], spec: SoftermaxSpec) -> int:
    """Compare every intermediate and output word; the number of (row, slice) pairs compared."""
    ours = golden.softermax(x, spec, mask, trace=True)
    theirs = oracle.softermax(x, mask, spec)
    assert ours.trace is not None
    compared = {name: getattr(ours.trace, name) for name in golden.Trace.__dataclass_fields__}
    compared["words"] = ours.words
    if spec.output_mode == "row-scaled":
        compared["exponent"] = ours.exponent
    for name, words in compared.items():
        expected = getattr(theirs, name)
        assert words.shape == expected.shape, name
        if not np.array_equal(words, expected):
            at = tuple(int(i) for i in np.argwhere(words != expected)[0])
            pytest.fail(
                f"{name}: {int((words != expected).sum())} of {words.size} words differ, the first at {at}: "
                f"golden {words[at]}, oracle {expected[at]}, with {spec.to_json()}"
            )
    return ours.trace.local_max.size


def test_every_trace_word_is_compared() -> None:
    names = {field.name for field in dataclasses.fields(oracle.Oracle)}
    assert names == set(golden.Trace.__dataclass_fields__) | {"words", "exponent"}


@pytest.mark.parametrize("max_rounding", ["ceil", "truncate"])
@pytest.mark.parametrize("rounding", NEAREST)
def test_all_pairs_of_score_and_max(max_rounding: Any, rounding: Any) -> None:
    """Every (x, m) that can meet: m is an integer of the max word, at least x's own."""
    spec = SoftermaxSpec(max_rounding=max_rounding, unnormed_rounding=rounding)
    x = np.arange(spec.input.low, spec.input.high + 1)
    np.testing.assert_array_equal(golden.int_max(x, spec), oracle.int_max(x, spec))
    pairs = [(score, m) for score in x for m in range(-32, 32) if m >= oracle.int_max(np.array(score), spec)]
    assert len(pairs) > 8000
    scores, maxima = np.array(pairs).T
    np.testing.assert_array_equal(
        golden.power_of_two(scores, maxima, spec), oracle.power_of_two(scores, maxima, spec)
    )


@pytest.mark.parametrize(
    "spec",
    [
        SoftermaxSpec(),
        SoftermaxSpec(powsum="Q(16,6)"),
        SoftermaxSpec(reciprocal="Q(1,15)", reciprocal_segments=16),
        SoftermaxSpec(reciprocal="Q(1,31)", reciprocal_segments=1),
        SoftermaxSpec(reciprocal="Q(1,3)", reciprocal_segments=64),
    ],
    ids=["paper", "long rows", "deferred", "wide", "narrow"],
)
def test_all_powsum_words(spec: SoftermaxSpec) -> None:
    d = np.arange(1 << min(spec.powsum.bits, 16))
    d = np.append(d, spec.powsum.high - d)
    for ours, theirs in zip(golden.reciprocal(d, spec), oracle.reciprocal(d, spec), strict=True):
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("base", ["paper", "fold"])
@pytest.mark.parametrize("rounding", NEAREST)
@pytest.mark.parametrize("word", ["Q(6,2)", "Q(4,0)", "Q(6,20)", "Q(6,26)"])
def test_input_words(dtype: type[np.floating[Any]], base: Any, rounding: Any, word: Any) -> None:
    """A1 for random scores, ties, their neighbours, and scores beyond the word."""
    spec = SoftermaxSpec(input=word, base=base, input_rounding=rounding)
    rng = np.random.default_rng(0)
    ties = (np.arange(-600, 600) + 0.5) * 2.0**-spec.input.fraction
    scores = np.concatenate([rng.normal(0, 16, 500), ties, [60000.0, -60000.0, 31.99, 0.0, -0.0]]).astype(
        dtype
    )
    scores = np.concatenate(
        [scores, np.nextafter(scores, dtype(np.inf)), np.nextafter(scores, dtype(-np.inf))]
    )
    np.testing.assert_array_equal(golden.quantize(scores, spec), oracle.input_words(scores, spec))


@pytest.mark.parametrize("argument", [0, 1, 3, 7, 10, pytest.param(15, marks=pytest.mark.slow)])
def test_tables(argument: int) -> None:
    """Slopes and offsets of the closed form equal those found by trying every point."""
    for segments in (1, 2, 4, 16, 64):
        for fraction in (1, 2, 7, 15, 23, 31):
            spec = SoftermaxSpec(
                input=(6, argument),
                unnormed=(1, fraction),
                pow2_segments=segments,
                powsum=(argument + 1, 1),
                reciprocal=(1, fraction),
                reciprocal_segments=segments,
                output=(1, 1),
            )
            for ours, theirs in (
                (tables.pow2_table(spec), oracle.pow2_table(spec)),
                (tables.reciprocal_table(spec), oracle.reciprocal_table(spec)),
            ):
                assert ours.used_bits == theirs.used_bits
                assert ours.m_lut == theirs.m_lut
                assert ours.c_lut == theirs.c_lut
                z = np.arange(1 << ours.argument_bits)
                np.testing.assert_array_equal(ours(z), theirs(z))


@pytest.mark.parametrize("name", PRESETS)
def test_presets(name: str) -> None:
    spec = PRESETS[name]
    rng = np.random.default_rng(1)
    pairs = 0
    for columns, rows in ((384, 400), (1, 300), (37, 500), (1500, 20)):
        pairs += assert_same(*draw_rows(rng, spec, rows, columns), spec)
    assert pairs >= 1000


@pytest.mark.parametrize("seed", range(40))
def test_drawn_specs(seed: int) -> None:
    rng = np.random.default_rng([2, seed])
    spec = draw_spec(rng, most_points=1 << 12)
    for columns in rng.integers(1, 130, 3):
        assert_same(*draw_rows(rng, spec, 100, int(columns)), spec)


@pytest.mark.parametrize("rounding", NEAREST)
@pytest.mark.parametrize("powsum", ["Q(31,1)", "Q(16,16)", "Q(5,27)", "Q(2,30)"])
@pytest.mark.parametrize("output", ["Q(1,1)", "Q(1,31)"])
@pytest.mark.parametrize("mode", ["fixed", "row-scaled"])
def test_widest_words(rounding: Any, powsum: Any, output: Any, mode: Any) -> None:
    """The product of two 32-bit words takes 63 bits, and the output's shift may exceed 63."""
    spec = SoftermaxSpec(
        input="Q(6,8)", unnormed="Q(1,31)", powsum=powsum, reciprocal="Q(1,31)", reciprocal_segments=1,
        output=output, output_rounding=rounding, output_mode=mode, slice_width=8,
    )  # fmt: skip
    rng = np.random.default_rng(3)
    near_high = spec.input.high - rng.integers(0, 5, (60, 40)) * rng.integers(0, 5, (60, 1))
    mask = rng.random(near_high.shape) < rng.random((60, 1))
    assert_same(near_high, mask, spec)
    assert_same(*draw_rows(rng, spec, 60, 40), spec)


def test_a_hundred_thousand_rows_by_slices() -> None:
    """A quarter for each preset that cuts rows, at their slice widths, and a quarter for a drawn spec."""
    rng = np.random.default_rng(4)
    pairs = 0
    for spec in (PRESETS["paper"], PRESETS["paper-32"], PRESETS["row-scaled"], draw_spec(rng)):
        columns = 8 * (spec.slice_width or 16)
        for _ in range(8):
            pairs += assert_same(*draw_rows(rng, spec, 400, columns), spec)
    assert pairs >= 100_000


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_ten_million_rows_by_slices() -> None:
    """Two millions for each preset (whole-row: rows of 16) and two over a hundred drawn specs."""
    rng = np.random.default_rng(5)
    total = 0
    for name, spec in PRESETS.items():
        width = spec.slice_width or 16
        pairs = 0
        while pairs < 2_000_000:
            slices = 1 if name == "whole-row" else int(rng.integers(1, 25))
            columns = max(1, slices * width - int(rng.integers(0, width)))
            pairs += assert_same(*draw_rows(rng, spec, (1 << 20) // columns, columns), spec)
        total += pairs
    for _ in range(100):
        spec = draw_spec(rng, most_points=1 << 14)
        pairs = 0
        while pairs < 20_000:
            columns = max(1, int(rng.integers(1, 9)) * (spec.slice_width or 16))
            pairs += assert_same(*draw_rows(rng, spec, (1 << 17) // columns, columns), spec)
        total += pairs
    assert total >= 10_000_000
