"""Linear piece-wise tables for 2^x on [0,1) and 1/x on [1,2).

A table is evaluated as the paper writes it, ``m_lut[i] * rest + c_lut[i]``, in integers: ``i`` is
the top bits of the argument's fraction, ``rest`` the bits below them. Each segment carries the
minimax line over the points that the argument can take, so where the segments resolve every
point, ``rest`` is always zero, ``m_lut`` is unused and ``c_lut`` holds the function itself.

The half unit of the final rounding is part of ``c_lut``, so evaluating is one multiplication, one
addition and a truncation.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Context, Decimal, localcontext
from functools import cache, lru_cache
from typing import Literal

import numpy as np

from softermax.fixedpoint import IntArray
from softermax.spec import DeferredSpec, SoftermaxSpec

_EXACT = Context(prec=50)
"""Tables are made in decimal arithmetic, so that every platform makes the same bits."""


@dataclass(frozen=True)
class PiecewiseTable:
    """One function's table. Arguments are raw fractions of ``argument_bits`` bits."""

    function: Literal["pow2", "reciprocal"]
    segments: int
    argument_bits: int
    """Fraction bits that come in; of these the top ``used_bits`` matter."""
    used_bits: int
    fraction: int
    """Fraction bits of the result."""
    m_lut: tuple[int, ...]
    c_lut: tuple[int, ...]
    shift: int
    """Fraction bits of the line beyond those of the result."""
    low: int
    high: int
    """The result is clipped to this range, that of the function itself."""

    @property
    def index_bits(self) -> int:
        return self.segments.bit_length() - 1

    @property
    def rest_bits(self) -> int:
        return max(self.used_bits - self.index_bits, 0)

    @property
    def uses_m(self) -> bool:
        return self.rest_bits > 0

    def line(self, fraction: IntArray | int) -> IntArray:
        """The result before clipping."""
        used = np.asarray(fraction, dtype=np.int64) >> (self.argument_bits - self.used_bits)
        index = (used >> self.rest_bits) << max(self.index_bits - self.used_bits, 0)
        c = np.array(self.c_lut, dtype=np.int64)[index]
        if not self.uses_m:
            return np.asarray(c)
        m = np.array(self.m_lut, dtype=np.int64)[index]
        rest = used & ((1 << self.rest_bits) - 1)
        return np.asarray((m * rest + c) >> self.shift)

    def __call__(self, fraction: IntArray | int) -> IntArray:
        return np.clip(self.line(fraction), self.low, self.high)

    def max_error(self) -> float:
        """Largest |table - function|, over all arguments or, past 2^20 of them, an even sample."""
        step = max(1, (1 << self.argument_bits) >> 20)
        z = np.append(np.arange(0, 1 << self.argument_bits, step), (1 << self.argument_bits) - 1)
        f = z * 2.0**-self.argument_bits
        exact = np.exp2(f) if self.function == "pow2" else 1.0 / (1.0 + f)
        return float(np.abs(self(z) * 2.0**-self.fraction - exact).max())


def pow2_table(spec: SoftermaxSpec) -> PiecewiseTable:
    """2^f for the fraction of a score, as an unnormed word.

    >>> pow2_table(SoftermaxSpec()).c_lut
    (32768, 38968, 46341, 55109)
    """
    return _table("pow2", spec.input.fraction, spec.pow2_segments, spec.unnormed.fraction)


def reciprocal_table(spec: SoftermaxSpec | DeferredSpec) -> PiecewiseTable:
    """1/(1+f) for the fraction of PowSum's mantissa, as a reciprocal word."""
    return _table("reciprocal", spec.powsum.bits - 1, spec.reciprocal_segments, spec.reciprocal.fraction)


def _pow2(numerator: int, bits: int) -> Decimal:
    """2^(numerator · 2^-bits), a product of roots of two: a tenth of the time of Decimal's own power."""
    power = Decimal(1)
    while numerator:
        if numerator & 1:
            power *= _root_of_two(bits)
        numerator >>= 1
        bits -= 1
    return power


@cache
def _root_of_two(bits: int) -> Decimal:
    """2^(2^-bits), with digits to spare for the products."""
    with localcontext(_EXACT) as context:
        context.prec += 10
        return Decimal(2) ** (Decimal(1) / (1 << bits))


def _pow2_argument(slope: float) -> float:
    """Where d(2^f) equals ``slope``."""
    return math.log2(slope / math.log(2))


def _reciprocal(numerator: int, bits: int) -> Decimal:
    return Decimal(1 << bits) / ((1 << bits) + numerator)


def _reciprocal_argument(slope: float) -> float:
    return math.sqrt(-1 / slope) - 1


@lru_cache(maxsize=256)
def _table(
    function: Literal["pow2", "reciprocal"], argument_bits: int, segments: int, fraction: int
) -> PiecewiseTable:
    index_bits = segments.bit_length() - 1
    # A line over 2^-index_bits is off by about 2^-(2*index_bits + 4): argument and slope carry
    # enough bits to add little to that, and no more than the result can show.
    used_bits = min(argument_bits, max(index_bits, min(fraction + 2, 2 * index_bits + 8)))
    rest_bits = max(used_bits - index_bits, 0)
    slope_bits = (
        max(min(fraction + 2 - index_bits, index_bits + 7), fraction - used_bits, 1) if rest_bits else 0
    )
    line_bits = slope_bits + used_bits if rest_bits else fraction
    f, argument = (_pow2, _pow2_argument) if function == "pow2" else (_reciprocal, _reciprocal_argument)
    m_lut: list[int] = []
    c_lut: list[int] = []
    with localcontext(_EXACT):
        for index in range(segments):
            if rest_bits:
                m, c = _minimax(f, argument, index, rest_bits, used_bits, slope_bits)
                half = Decimal(1 << (line_bits - fraction)) / 2
            else:
                m, c, half = 0, f(index, index_bits), Decimal(0)
            m_lut.append(m)
            c_lut.append(int((c * (1 << line_bits) + half).to_integral_value(ROUND_HALF_UP)))
    one = 1 << fraction
    low, high = (one, 2 * one - 1) if function == "pow2" else (one >> 1, one)
    return PiecewiseTable(
        function, segments, argument_bits, used_bits, fraction, tuple(m_lut), tuple(c_lut),
        line_bits - fraction, low, high,
    )  # fmt: skip


def _minimax(
    f: Callable[[int, int], Decimal],
    argument: Callable[[float], float],
    index: int,
    rest_bits: int,
    used_bits: int,
    slope_bits: int,
) -> tuple[int, Decimal]:
    """The raw slope of the best line over one segment's points and its offset at the first of them.

    The functions are convex, so the best slope is the chord's; once it is rounded to a word, the
    best offset halves the distance between the residual's extremes, which lie at the ends and
    beside the point where the derivative equals the slope. That point is only looked for in
    floats: where it is so near to one of the points that they err, that one is taken all the same.
    """
    first = index << rest_bits
    last = (1 << rest_bits) - 1
    at_first, at_last = f(first, used_bits), f(first + last, used_bits)
    chord = (at_last - at_first) * (1 << used_bits) / last
    m = int((chord * (1 << slope_bits)).to_integral_value(ROUND_HALF_UP))
    step = Decimal(m) / (1 << (slope_bits + used_bits))
    residuals = [at_first, at_last - step * last]
    if m:
        touching = math.floor(argument(m / (1 << slope_bits)) * (1 << used_bits)) - first
        beside = {min(max(point, 0), last) for point in (touching, touching + 1)} - {0, last}
        residuals += [f(first + point, used_bits) - step * point for point in beside]
    return m, (max(residuals) + min(residuals)) / 2
