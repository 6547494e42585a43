"""The generic components, word by word, in NumPy.

Max, difference, sum and quotient are NumPy's own of `float16`, which are IEEE's. Any NaN is `NAN`, whatever it came from: the
standard leaves its payload open, and NumPy's depends on the processor. IEEE does not define the bits of an exponential, so its
algorithm is here.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from softermax.fixedpoint import IntArray
from softermax.rtl.baseline.model import LOG2E_TERMS, BoolArray, bits_of, half, slices

NAN, INFINITY, MINUS_INFINITY = 0x7E00, 0x7C00, 0xFC00

PARTIAL_SUMS = 4
"""Cycles from a sum of the row to the next; with so many sums in turn a row takes a slice per cycle."""

# The exponential: e^x = 2^(x·log2 e) = 2^n · 2^f.

ARGUMENT_INTEGER, ARGUMENT_FRACTION = 5, 13
"""Bits kept of x's magnitude; from 32 on e^x is beyond the format on either side."""
PRODUCT_FRACTION = 15
"""Fraction bits of each term of x·log2 e; what a shift pushes below is dropped."""
POWER_FRACTION = 13
"""Those that f has."""
INDEX_BITS = 6
"""The first bits of f choose a line, the rest run along it."""
GUARD = 3
"""Bits below the ten of a fraction that 2^f comes with: they round it."""
LINE_FRACTION = 5
"""Bits below those, of offset and slope of a line."""


def power_lines() -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Offset and slope of 2^f - 1 for each value of f's first bits: a chord, halfway between the extremes of what it leaves."""
    steps = 1 << (POWER_FRACTION - INDEX_BITS)
    scale = 1 << (10 + GUARD + LINE_FRACTION)
    offsets, slopes = [], []
    for index in range(1 << INDEX_BITS):
        # f was cut off: on the average it is half a step more.
        f = (index * steps + np.arange(steps) + 0.5) / (steps << INDEX_BITS)
        values = (np.exp2(f) - 1) * scale
        slope = round(float(values[-1] - values[0]) / (steps - 1))
        rests = values - slope * np.arange(steps)
        offsets.append(math.floor(float(rests.min() + rests.max()) / 2 + 0.5))
        slopes.append(slope)
    return tuple(offsets), tuple(slopes)


def exponential(x: IntArray) -> IntArray:
    """``e^x`` of any half: less than 0.84 units in the last place from the exact value, subnormal results too, never
    falling as x grows; 1 for either zero."""
    x = np.asarray(x, dtype=np.int64)
    negative, exponent, fraction = x >> 15 == 1, x >> 10 & 31, x & 0x3FF
    beyond = exponent >= 15 + ARGUMENT_INTEGER
    significand = np.where(exponent > 0, fraction + 1024, fraction)
    shift = np.where(beyond, 0, np.maximum(exponent, 1) - 25 + ARGUMENT_FRACTION)
    magnitude = (significand << np.maximum(shift, 0)) >> np.maximum(-shift, 0)
    scaled = magnitude << (PRODUCT_FRACTION - ARGUMENT_FRACTION)
    product = sum((sign * (scaled >> right) for right, sign in LOG2E_TERMS), np.zeros_like(x))
    # The complement is a unit below the negative, which is less than what was cut off.
    power = np.where(negative, ~product, product) >> (PRODUCT_FRACTION - POWER_FRACTION)
    n, f = power >> POWER_FRACTION, power & ((1 << POWER_FRACTION) - 1)

    rest_bits = POWER_FRACTION - INDEX_BITS
    offset, slope = (np.array(values)[f >> rest_bits] for values in power_lines())
    line = (offset + slope * (f & ((1 << rest_bits) - 1))) >> LINE_FRACTION
    below = np.clip(-14 - n, 0, 15)
    places = line + (1 << (10 + GUARD))
    kept, sticky = places >> below, places & ((1 << below) - 1) != 0
    whole, guard, rest = kept >> GUARD, kept >> (GUARD - 1) & 1, kept & ((1 << (GUARD - 1)) - 1)
    up = guard & ((rest != 0) | sticky | (whole & 1))
    # The leading place adds one to the exponent, where there is one.
    rounded = ((np.maximum(n, -14) + 14) << 10) + whole + up
    result = np.where(n > 15, INFINITY, np.minimum(rounded, INFINITY))
    result = np.where(beyond, np.where(negative, 0, INFINITY), result)
    return np.where(is_nan(x), NAN, result)


def is_nan(x: IntArray) -> BoolArray:
    return np.asarray(x) & 0x7FFF > INFINITY


def _ieee(operation: Callable[..., NDArray[np.float16]], a: IntArray, b: IntArray) -> IntArray:
    with np.errstate(all="ignore"):
        result = operation(half(np.asarray(a)), half(np.asarray(b)))
    return np.where(np.isnan(result), NAN, bits_of(result))


def larger(a: IntArray, b: IntArray) -> IntArray:
    """The larger of two, a where they are equal; NaN if either is."""
    return _ieee(np.maximum, a, b)


def add(a: IntArray, b: IntArray) -> IntArray:
    return _ieee(np.add, a, b)


def subtract(a: IntArray, b: IntArray) -> IntArray:
    return _ieee(np.subtract, a, b)


def divide(a: IntArray, b: IntArray) -> IntArray:
    return _ieee(np.divide, a, b)


def tree(operation: Callable[[IntArray, IntArray], IntArray], terms: IntArray) -> IntArray:
    """All of the last axis by a tree: neighbours first, an odd one goes up as it is."""
    while terms.shape[-1] > 1:
        paired = terms.shape[-1] // 2 * 2
        made = operation(terms[..., 0:paired:2], terms[..., 1:paired:2])
        terms = np.concatenate([made, terms[..., paired:]], axis=-1)
    return terms[..., 0]


def maximum(x: IntArray, width: int) -> IntArray:
    """The largest of a row: a tree within a slice, then slice after slice."""
    found = tree(larger, slices(x, width, MINUS_INFINITY))
    largest = found[..., 0]
    for index in range(1, found.shape[-1]):
        largest = larger(largest, found[..., index])
    return largest


def row_sum(terms: IntArray) -> IntArray:
    """The sum of (..., slices, width): a tree within a slice; slices in turn to the partial sums; and a tree of these."""
    totals = tree(add, terms)
    partial = [np.zeros(totals.shape[:-1], dtype=np.int64) for _ in range(PARTIAL_SUMS)]
    for index in range(totals.shape[-1]):
        at = index % PARTIAL_SUMS
        partial[at] = add(partial[at], totals[..., index])
    return tree(add, np.stack(partial, axis=-1))


def unnormed(x: IntArray, mask: BoolArray, width: int) -> tuple[IntArray, IntArray]:
    """Two passes over rows (..., columns): the exponentials (..., columns) and the sums (...). What is masked is -inf when the
    max is taken, and again as a difference."""
    x = np.asarray(x, dtype=np.int64)
    largest = maximum(np.where(mask, x, MINUS_INFINITY), width)[..., None]
    difference = subtract(x, np.broadcast_to(largest, x.shape))
    e = exponential(np.where(mask, difference, MINUS_INFINITY))
    return e, row_sum(slices(e, width))


def softmax(x: IntArray, mask: BoolArray, width: int) -> IntArray:
    """Probabilities of rows (..., columns); NaN where a row has NaN, +inf or nothing but -inf."""
    e, total = unnormed(x, mask, width)
    return divide(e, np.broadcast_to(total[..., None], e.shape))
