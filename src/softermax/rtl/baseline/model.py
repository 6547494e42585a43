"""The FP16 baseline, bit by bit, in NumPy: what its hardware and netlists are compared with.

Words are the bits of IEEE half-precision numbers in integer arrays: a sign, five bits of exponent,
ten of fraction. Max, difference, sum and quotient are the correctly rounded ones, to nearest, ties to
even. NumPy computes them in single precision and rounds once more to half; with 24 bits against 11
(at least 2·11 + 2) this double rounding never changes a sum, difference or quotient.

The format ends at 2^-14, as that of DesignWare's components does by default: exponentials and quotients
below are zero. Subnormal scores and differences keep their value, which costs less than flushing them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from softermax.fixedpoint import IntArray

BoolArray = NDArray[np.bool_]

ONE = 0x3C00
"""The bits of 1.0."""

# The exponential: widths and constants of e^-d = 2^(-d·log2 e) = 2^(integer) · 2^g.

DISTANCE_FRACTION = 12
"""Fraction bits kept of d, which has four integer bits: at d = 16 e^-d is long zero."""
LOG2E_TERMS = ((0, 1), (1, 1), (4, -1), (8, 1), (10, 1), (12, 1), (14, 1))
"""log2(e) = 1 + 2^-1 - 2^-4 + 2^-8 + 2^-10 + 2^-12 + 2^-14 + 7e-6, as (shift, sign)."""
PRODUCT_FRACTION = 13
"""Fraction bits of each term; what a shift pushes below is dropped."""
POWER_FRACTION = 11
"""Fraction bits of d·log2(e) and so of g, rounded up."""
INDEX_BITS = 5
"""The first bits of g choose a line, the rest run along it."""
SLOPE_FRACTION = 5
"""Fraction bits, below the result's ten, of offset and slope of a line."""


@dataclass(frozen=True)
class Lines:
    """2^g in [1, 2) by lines: ``(offset[i] + slope[i]·rest) >> SLOPE_FRACTION`` are the ten bits of fraction."""

    offset: tuple[int, ...]
    slope: tuple[int, ...]


def power_lines() -> Lines:
    """A line for each value of g's first bits: a chord's slope, the offset halfway between the
    extremes of what that leaves, half a unit more so that truncation rounds."""
    steps = 1 << (POWER_FRACTION - INDEX_BITS)
    offsets, slopes = [], []
    for index in range(1 << INDEX_BITS):
        scale = 1024 << SLOPE_FRACTION
        values = [(2 ** ((index * steps + j) / (steps << INDEX_BITS)) - 1) * scale for j in range(steps)]
        slope = round((values[-1] - values[0]) / (steps - 1))
        rests = [value - slope * j for j, value in enumerate(values)]
        middle = (min(rests) + max(rests)) / 2
        offsets.append(math.floor(middle + (1 << SLOPE_FRACTION) / 2 + 0.5))
        slopes.append(slope)
    return Lines(tuple(offsets), tuple(slopes))


def half(bits: IntArray) -> NDArray[np.float16]:
    return bits.astype(np.uint16).view(np.float16)


def bits_of(values: NDArray[np.float16]) -> IntArray:
    return np.array(values, dtype=np.float16, order="C").view(np.uint16).astype(np.int64)


def order(bits: IntArray) -> IntArray:
    """Unsigned integers in the order of the numbers; -0 comes before +0, infinities and NaNs by their bits."""
    bits = np.asarray(bits, dtype=np.int64)
    return np.where(bits & 0x8000, bits ^ 0xFFFF, bits | 0x8000)


def maximum(x: IntArray, mask: BoolArray) -> IntArray:
    """The largest along the last axis of those that take part; 0xFFFF if none does."""
    key = np.where(mask, order(x), 0).max(axis=-1)
    largest: IntArray = np.where(key & 0x8000, key ^ 0x8000, key ^ 0xFFFF)
    return largest


def subtract(x: IntArray, largest: IntArray) -> IntArray:
    """``largest - x``, which is not negative. Infinite when it exceeds the format; equal infinities cancel."""
    x, largest = np.asarray(x, dtype=np.int64), np.asarray(largest, dtype=np.int64)
    with np.errstate(over="ignore", invalid="ignore"):
        difference = bits_of(np.abs(half(largest) - half(x)))
    return np.where(x == largest, 0, difference)


def exponential(distance: IntArray, base_two: bool = False) -> IntArray:
    """``e^-d``, or ``2^-d``, for d >= 0: at most a unit in the last place from the correctly rounded value, 1 for d = 0."""
    distance = np.asarray(distance, dtype=np.int64)
    exponent, fraction = distance >> 10, distance & 0x3FF
    significand = np.where(exponent > 0, fraction + 1024, fraction)
    shift = np.maximum(exponent, 1) - 25 + DISTANCE_FRACTION
    # 16 and above underflows; keep it from overflowing the shift.
    large = exponent >= 19
    shift = np.where(large, 0, shift)
    d = np.where(shift >= 0, significand << np.maximum(shift, 0), significand >> np.maximum(-shift, 0))
    power = np.zeros_like(d)
    for right, sign in ((0, 1),) if base_two else LOG2E_TERMS:
        power -= sign * ((d << (PRODUCT_FRACTION - DISTANCE_FRACTION)) >> right)
    power >>= PRODUCT_FRACTION - POWER_FRACTION
    return np.where(large, 0, _power_of_two(power))


def _power_of_two(power: IntArray) -> IntArray:
    lines = power_lines()
    rest_bits = POWER_FRACTION - INDEX_BITS
    g = power & ((1 << POWER_FRACTION) - 1)
    index, rest = g >> rest_bits, g & ((1 << rest_bits) - 1)
    fraction = (np.array(lines.offset)[index] + np.array(lines.slope)[index] * rest) >> SLOPE_FRACTION
    exponent = (power >> POWER_FRACTION) + 15
    return np.where(exponent >= 1, (exponent << 10) + fraction, 0)


def add(a: IntArray, b: IntArray) -> IntArray:
    """The sum of numbers that are not negative."""
    with np.errstate(over="ignore"):
        return bits_of(half(a) + half(b))


def multiply(a: IntArray, b: IntArray) -> IntArray:
    """The product of numbers that are not negative, zero below the format even if it would round up to it
    on the grid of subnormal numbers."""
    fraction, exponent = np.frexp(half(a).astype(np.float64) * half(b).astype(np.float64))
    rounded = np.ldexp(np.rint(np.ldexp(fraction, 11)), exponent - 11)
    return np.where(rounded < 2.0**-14, 0, bits_of(rounded.astype(np.float16)))


def divide(a: IntArray, b: IntArray) -> IntArray:
    """``a / b`` for 0 <= a <= b, zero below the format, even if it would round up to it on the grid of subnormal
    numbers, and for a = 0, whatever b."""
    dividend, divisor = half(a), half(np.where(np.asarray(a) == 0, ONE, b))
    below = dividend.astype(np.float64) < divisor.astype(np.float64) * 2.0**-14
    return np.where(below, 0, bits_of(dividend / divisor))


def slices(row: IntArray, width: int, fill: int = 0) -> IntArray:
    """The rows (..., columns) as (..., slices, width), filled up at the end."""
    missing = -row.shape[-1] % width
    padded = np.concatenate([row, np.full((*row.shape[:-1], missing), fill, dtype=row.dtype)], axis=-1)
    return padded.reshape(*row.shape[:-1], -1, width)


def tree_sum(terms: IntArray) -> IntArray:
    """The sum along the last axis by a tree: neighbours first, an odd one goes up as it is."""
    while terms.shape[-1] > 1:
        paired = terms.shape[-1] // 2 * 2
        sums = add(terms[..., 0:paired:2], terms[..., 1:paired:2])
        terms = np.concatenate([sums, terms[..., paired:]], axis=-1)
    return terms[..., 0]


def row_sum(unnormed: IntArray) -> IntArray:
    """The sum of (..., slices, width): a tree within a slice, then even and odd slices each in order."""
    totals = tree_sum(unnormed)
    partial = [np.zeros(totals.shape[:-1], dtype=np.int64) for _ in range(2)]
    for index in range(totals.shape[-1]):
        partial[index % 2] = add(partial[index % 2], totals[..., index])
    return add(partial[0], partial[1])


def unnormed(x: IntArray, mask: BoolArray, width: int, base_two: bool = False) -> tuple[IntArray, IntArray]:
    """Two passes over rows (..., columns): the exponentials (..., columns) and the sums (...)."""
    x = np.asarray(x, dtype=np.int64)
    largest = maximum(x, mask)[..., None]
    e = np.where(mask, exponential(subtract(x, np.broadcast_to(largest, x.shape)), base_two), 0)
    return e, row_sum(slices(e, width))


def softmax(x: IntArray, mask: BoolArray, width: int) -> IntArray:
    """Probabilities of rows (..., columns) by `unnormed` and `divide`."""
    e, total = unnormed(x, mask, width)
    return divide(e, np.broadcast_to(total[..., None], e.shape))


@dataclass(frozen=True)
class Online:
    """One pass over rows: what the online unit gives."""

    e: IntArray  # (..., slices, width), each slice relative to the running max
    largest: IntArray  # (..., slices), the running max
    total: IntArray  # (...), relative to the row's max


def online(x: IntArray, mask: BoolArray, width: int) -> Online:
    """One pass over rows (..., columns). The running sum is renormalised with every slice."""
    xs = slices(np.asarray(x, dtype=np.int64), width)
    masks = slices(np.asarray(mask).astype(np.int64), width).astype(np.bool_)
    key = np.maximum.accumulate(np.where(masks, order(xs), 0).max(axis=-1), axis=-1)
    largest = np.where(key & 0x8000, key ^ 0x8000, key ^ 0xFFFF)
    e = np.where(masks, exponential(subtract(xs, np.broadcast_to(largest[..., None], xs.shape))), 0)
    sums = tree_sum(e)
    total = sums[..., 0]
    for index in range(1, sums.shape[-1]):
        factor = exponential(subtract(largest[..., index - 1], largest[..., index]))
        total = add(multiply(total, factor), sums[..., index])
    return Online(e, largest, total)


def online_softmax(x: IntArray, mask: BoolArray, width: int) -> IntArray:
    """Probabilities (..., columns) by `online`: each slice times what is left of its max over the sum."""
    row = online(x, mask, width)
    left = exponential(subtract(row.largest, np.broadcast_to(row.largest[..., -1:], row.largest.shape)))
    # A row without elements has no sum, and nothing to be multiplied.
    left = np.where(row.total[..., None] == 0, 0, left)
    factor = divide(left, np.broadcast_to(row.total[..., None], left.shape))
    y = multiply(row.e, np.broadcast_to(factor[..., None], row.e.shape))
    return y.reshape(*y.shape[:-2], -1)[..., : np.asarray(x).shape[-1]]
