"""The int8 softmax of CMSIS-NN and TensorFlow Lite: gemmlowp's exponential and reciprocal in 32-bit fixed point."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from softermax.rivals.designs.arrays import Array, cast, leading_one, namespace, row_sum
from softermax.rivals.designs.interface import About, Needs, Normalised

INTEGER_BITS = 5
"""Of a scaled distance: Q5.26."""
HEADROOM = 12
"""Bits that an exponential is shifted to the right before it is added up."""
HIGHEST = 2**31 - 1
POWERS = (1672461947, 1302514674, 790015084, 290630308, 39332535, 720401, 242)
"""exp(-1/4), exp(-1/2), ... exp(-16) in Q0.31."""
EIGHTH = 1895147668
"""exp(-1/8) in Q0.31."""
THIRD = 715827883


def high_product(a: Array, b: Array | int) -> Array:
    """VQRDMULH: twice the product's high half, rounded to nearest, ties away from 0. No operand is -2^31."""
    product = a * b
    negative = cast(product < 0, "int64")
    # The rounding term has the product's sign, and the division truncates.
    rounded = product + (2**30) + negative * (1 - 2**31)
    return (rounded + negative * HIGHEST) >> 31


def divided_by_power(x: Array, exponent: Array | int) -> Array:
    """x / 2^exponent rounded to nearest, ties away from 0."""
    rest = x & ((1 << exponent) - 1)
    quotient = x >> exponent
    threshold = (((1 << exponent) - 1) >> 1) + cast(quotient < 0, "int64")
    return quotient + cast(rest > threshold, "int64")


def exponential(x: NDArray[np.int64]) -> NDArray[np.int64]:
    """exp of Q5.26 numbers up to 0, in Q0.31."""
    quarter = (x & (2**24 - 1)) - 2**24
    rest = quarter - x
    y = (quarter << 5) + 2**28
    y2 = high_product(y, y)
    cubic = high_product(divided_by_power(high_product(y2, y2), 2) + high_product(y2, y), THIRD)
    value = EIGHTH + high_product(y + divided_by_power(cubic + y2, 1), EIGHTH)
    for bit, power in enumerate(POWERS, start=24):
        value = np.where(rest & (1 << bit), high_product(value, power), value)
    found: NDArray[np.int64] = np.where(x == 0, HIGHEST, value)
    return found


def saturated_shift(x: Array, by: int) -> Array:
    return namespace(x).clip(x << by, -(2**31), HIGHEST)


def reciprocal(x: Array) -> Array:
    """1 / (1 + x) of Q0.31 numbers from 0 to 1, by three Newton steps."""
    half = (x + HIGHEST + 1) // 2
    y = 1515870810 + high_product(half, -1010580540)
    for _ in range(3):
        y = y + saturated_shift(high_product(y, 2**29 - high_product(half, y)), 2)
    return saturated_shift(y, 1)


@dataclass(frozen=True)
class CmsisNn(Normalised):
    """ARM's library for microcontrollers. Words are the s8 output plus 128."""

    name: str = "cmsis-nn"
    bits: int = 8

    about: About = About(
        title="CMSIS-NN / TFLite int8",
        sources=(
            "ARM-software/CMSIS-NN@99f736a6 Source/SoftmaxFunctions/arm_nn_softmax_common_s8.c",
            "TensorFlow Lite, kernels/internal/reference/softmax.h (gemmlowp fixed point)",
        ),
        confidence="same bits as the authors' code",
        needs=Needs(multipliers=14),
    )

    @property
    def gives(self) -> str:
        return f"s{self.bits}, p = (y + {1 << (self.bits - 1)}) / {1 << self.bits}"

    @property
    def unit(self) -> int:
        return HIGHEST

    @property
    def lsb(self) -> float:
        return 2.0**-self.bits

    def exponentials(self) -> NDArray[np.int64]:
        real = min(self.step * 2 ** (31 - INTEGER_BITS), HIGHEST)
        mantissa, shift = math.frexp(real)
        multiplier = math.floor(mantissa * 2**31 + 0.5)
        if multiplier == 2**31:
            multiplier, shift = 2**30, shift + 1
        if shift < 0:
            raise ValueError(f"{self.name}: scale = {self.step}: must be at least {2.0**-27}")
        furthest = math.floor((2**INTEGER_BITS - 1) * 2 ** (31 - INTEGER_BITS) / 2**shift)
        distance = np.arange(256)
        reached = np.minimum(distance, furthest)
        return np.where(distance <= furthest, exponential(high_product(-reached << shift, multiplier)), 0)

    def total(self, e: Array) -> Array:
        # The C code's int32 has room for 4096 equal scores.
        return namespace(e).clip(row_sum(divided_by_power(e, HEADROOM)), 0, HIGHEST)

    def normalize(self, e: Array, total: Array) -> Array:
        headroom = 31 - leading_one(total)
        inverse = reciprocal((total << headroom) - 2**31)
        # From a sum of 512 exponentials of 1 on, the C code shifts by more than 31 bits, which C does not define; the
        # quotient then is below half a step, and here it is 0.
        found = divided_by_power(high_product(e, inverse), HEADROOM - headroom + 31 - self.bits)
        return namespace(e).clip(found, 0, (1 << self.bits) - 1)


DESIGNS = (CmsisNn(),)
