"""The linear piece-wise tables: the paper's words, the minimax property, errors, width."""

from __future__ import annotations

from fractions import Fraction

import mpmath
import numpy as np
import pytest

from softermax.spec import PRESETS, DeferredSpec, SoftermaxSpec
from softermax.tables import PiecewiseTable, pow2_table, reciprocal_table


def table(function: str, argument: int, segments: int, fraction: int) -> PiecewiseTable:
    if function == "pow2":
        word = (max(2, 6 - max(0, argument - 26)), argument)
        return pow2_table(
            SoftermaxSpec(
                input=word, unnormed=(1, fraction), pow2_segments=segments, powsum=(10, 1), output=(1, 1)
            )
        )
    return reciprocal_table(
        SoftermaxSpec(
            powsum=(argument, 1), reciprocal=(1, fraction), reciprocal_segments=segments, output=(1, 1)
        )
    )


def exact(t: PiecewiseTable, z: int) -> Fraction:
    x = Fraction(z, 1 << t.argument_bits)
    if t.function == "reciprocal":
        return 1 / (1 + x)
    with mpmath.workprec(120):
        power = mpmath.power(2, mpmath.mpf(x.numerator) / x.denominator)
        return Fraction(int(mpmath.floor(power * 2**100)), 2**100)


def test_the_papers_power_of_two() -> None:
    t = pow2_table(PRESETS["paper"])
    assert t.c_lut == (32768, 38968, 46341, 55109)
    assert t.c_lut == tuple(round(2 ** (i / 4) * 2**15) for i in range(4))
    assert not t.uses_m
    assert t(np.arange(4)).tolist() == list(t.c_lut)


def test_the_papers_reciprocal() -> None:
    t = reciprocal_table(PRESETS["paper"])
    assert (t.argument_bits, t.used_bits, t.rest_bits, t.shift) == (15, 9, 7, 9)
    assert t.uses_m
    r = t(np.arange(1 << 15))
    assert (r.min(), r.max()) == (64, 127)


@pytest.mark.parametrize("function", ["pow2", "reciprocal"])
@pytest.mark.parametrize("segments", [1, 4, 16])
@pytest.mark.parametrize("fraction", [7, 15, 23])
def test_no_other_line_is_better(function: str, segments: int, fraction: int) -> None:
    """In every segment, over all its points: the stored line (before its result is cut to a word) has at
    most the largest error of any perturbed line, but for the rounding of its words. The offset's costs
    one unit at most. The slope's matters beside the chord's slope only: half a unit of slope moves the
    ends of the segment apart by half its points, a quarter of which remains with the best offset."""
    t = table(function, 10, segments, fraction)
    line_bits = t.shift + t.fraction
    points = np.arange(1 << t.rest_bits)
    half = 1 << (t.shift - 1) if t.shift else 0
    for i, (m, c) in enumerate(zip(t.m_lut, t.c_lut, strict=True)):
        first = i << (t.argument_bits - t.index_bits)
        step = t.argument_bits - t.used_bits
        # In units of 2^-line_bits, to 30 bits below.
        values = [int(exact(t, first + (int(j) << step)) * 2 ** (line_bits + 30)) for j in points]

        def worst(m: int, c: int, values: list[int] = values) -> Fraction:
            at = ((m * int(j) + c) << 30 for j in points)
            return Fraction(max(abs(v - line) for v, line in zip(values, at, strict=True)), 1 << 30)

        ours = worst(m, c - half)
        for slope in (m - 2, m - 1, m, m + 1, m + 2):
            # For a given slope the best offset halves the residuals' extremes.
            residuals = [v - ((slope * int(j)) << 30) for v, j in zip(values, points, strict=True)]
            best = (max(residuals) + min(residuals)) // 2 >> 30
            for offset in (best - 1, best, best + 1, c - half - 1, c - half + 1):
                rounding = 1 + (Fraction(len(points), 4) if abs(slope - m) == 1 else 0)
                assert ours <= worst(slope, offset) + rounding, (i, slope - m, offset - c + half)


@pytest.mark.parametrize("function", ["pow2", "reciprocal"])
@pytest.mark.parametrize("fraction", [7, 12, 15, 23])
def test_errors_shrink_fourfold_with_twice_the_segments(function: str, fraction: int) -> None:
    """A line over a segment of width h is off by h²·max|f''|/16; beyond that, the words' own rounding:
    half a unit of the result (at the top of 2^x a whole one, for 2 has no word), the bits dropped from
    the argument, the slope's rounding."""
    curvature = 2 * np.log(2) ** 2 if function == "pow2" else 2.0
    steepest = 2 * np.log(2) if function == "pow2" else 1.0
    for segments in (1, 2, 4, 8, 16, 32):
        t = table(function, 14, segments, fraction)
        h = 1 / segments
        slope_bits = t.shift + t.fraction - t.used_bits
        allowed = (
            h * h * curvature / 16
            + 2.0 ** -(fraction + 1)
            + steepest * (2.0**-t.used_bits - 2.0**-t.argument_bits)
            + (h * 2.0 ** -(slope_bits + 2) if t.uses_m else 0)
            + 2.0 ** -(t.shift + t.fraction)
        )
        if function == "pow2":
            allowed = max(allowed, 2.0**-fraction)
        assert t.max_error() <= allowed
        assert t.max_error() >= h * h * curvature / 64 or not t.uses_m or fraction < 12


def test_max_error_is_the_largest_of_all() -> None:
    for t in (table("pow2", 9, 4, 15), table("reciprocal", 9, 4, 15), pow2_table(PRESETS["paper"])):
        errors = [
            abs(Fraction(int(t(z)), 1 << t.fraction) - exact(t, z)) for z in range(1 << t.argument_bits)
        ]
        assert t.max_error() == pytest.approx(float(max(errors)), rel=1e-9)


@pytest.mark.parametrize("function", ["pow2", "reciprocal"])
@pytest.mark.parametrize("fraction", [1, 4, 7, 15])
def test_all_points_resolved_means_rounded_values(function: str, fraction: int) -> None:
    """With as many segments as points there is no m-table, and every result is the nearest word."""
    for argument in (1, 3, 6):
        t = table(function, argument, 1 << argument, fraction)
        assert not t.uses_m
        for z in range(1 << argument):
            nearest = round(exact(t, z) * 2**fraction)
            assert int(t(z)) == min(max(nearest, t.low), t.high)


@pytest.mark.parametrize("function", ["pow2", "reciprocal"])
@pytest.mark.parametrize("segments", [1, 2, 4, 16, 64])
def test_monotone_within_segments(function: str, segments: int) -> None:
    """Within a segment a line is monotone. From one to the next a result may step back, by the error of
    the two lines at most."""
    for fraction in (3, 7, 15, 23):
        t = table(function, 12, segments, fraction)
        sign = 1 if function == "pow2" else -1
        steps = sign * np.diff(t(np.arange(1 << t.argument_bits)))
        inside = (np.arange(1, 1 << t.argument_bits) & ((1 << (t.argument_bits - t.index_bits)) - 1)) != 0
        assert (steps[inside] >= 0).all()
        assert steps.min() * 2.0**-fraction >= -2 * t.max_error()


@pytest.mark.parametrize("spec", PRESETS.values(), ids=PRESETS)
def test_the_presets_tables_are_monotone(spec: SoftermaxSpec) -> None:
    for t, sign in ((pow2_table(spec), 1), (reciprocal_table(spec), -1)):
        assert (sign * np.diff(t(np.arange(1 << t.argument_bits))) >= 0).all()


def test_the_deferred_reciprocal() -> None:
    """Sixteen segments in Q(1,15): right to 2^-11, and never back by more than two units, between segments."""
    t = reciprocal_table(DeferredSpec())
    assert t.max_error() < 2.0**-11
    used = np.arange(1 << t.used_bits) << (t.argument_bits - t.used_bits)
    steps = np.diff(t(used))
    assert steps.max() <= 2


@pytest.mark.parametrize("function", ["pow2", "reciprocal"])
@pytest.mark.parametrize("segments", [1, 2, 16, 256, pytest.param(4096, marks=pytest.mark.slow)])
@pytest.mark.parametrize("fraction", [1, 8, 16, 24, 31])
@pytest.mark.parametrize("argument", [1, 8, 20, 30])
def test_any_width_without_overflow(function: str, segments: int, fraction: int, argument: int) -> None:
    """Products and sums computed in Python's integers are those of the 64-bit evaluation; results are in
    the function's range and near it."""
    t = table(function, argument, segments, fraction)
    assert len(t.c_lut) == len(t.m_lut) == segments
    rng = np.random.default_rng(0)
    z = np.unique(np.append(rng.integers(0, 1 << argument, 200), [0, (1 << argument) - 1]))
    results = t(z)
    assert results.min() >= t.low
    assert results.max() <= t.high
    x = z * 2.0**-argument
    values = np.exp2(x) if function == "pow2" else 1 / (1 + x)
    # A lone line is 1/16 of the curvature off; half a unit, and for 2^x a whole one where 2 has no word.
    assert np.abs(results * 2.0**-fraction - values).max() <= 2 / 16 + 2.0**-fraction
    for argument_raw, result in zip(z.tolist(), results.tolist(), strict=True):
        used = argument_raw >> (t.argument_bits - t.used_bits)
        index = (used >> t.rest_bits) << max(t.index_bits - t.used_bits, 0)
        rest = used & ((1 << t.rest_bits) - 1)
        line = t.m_lut[index] * rest + t.c_lut[index]
        assert abs(line) < 2**63
        assert result == min(max(line >> t.shift, t.low), t.high)


def test_no_fraction_bits() -> None:
    assert pow2_table(SoftermaxSpec(input="Q(6,0)"))(np.zeros(3, dtype=np.int64)).tolist() == [32768] * 3


def test_a_scalar_argument() -> None:
    assert int(pow2_table(PRESETS["paper"])(2)) == 46341
