"""Requantisation for the FP16 baseline: an accumulator times the scale, as a half-precision number."""

from __future__ import annotations

from typing import Any

import numpy as np
from amaranth.hdl import Cat, Const, Module, Mux, Signal, signed, unsigned
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from softermax.fixedpoint import IntArray
from softermax.rtl.arithmetic.shifter import shift_right_sticky
from softermax.rtl.pe.config import ACCUMULATOR_BITS, PEConfig
from softermax.rtl.pe.payloads import SHIFT_BITS
from softermax.rtl.pe.requantize import magnitude_product
from softermax.rtl.pipeline import register

LARGEST = 0x7BFF
UNITS = 24
"""The smallest half-precision number is 2^-24."""
FRACTION_BITS = 10


class RequantizeHalf(wiring.Component):
    """One lane: the exact product rounded once, half to even; what is too large becomes the largest number.

    stage 1   magnitude                                                     | magnitude and sign
    stage 2   times mantissa                                                | product
    stage 3   shifted to units of half precision                            | units, sticky
    stage 4   normalised                                                    | exponent, fraction, what is below it
    stage 5   rounded, without a register
    """

    registers = 4

    def __init__(self, config: PEConfig) -> None:
        super().__init__(
            {
                "acc": In(signed(ACCUMULATOR_BITS)),
                "mantissa": In(unsigned(config.scale_bits)),
                "enable": In(self.registers),  # each stage's take what is before them
                "shift": In(unsigned(SHIFT_BITS)),
                "x": Out(unsigned(16)),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        product, negative = magnitude_product(m, self.acc, self.mantissa, self.enable)
        # One place below the smallest number, so that even that is rounded.
        fixed, lost = shift_right_sticky(m, Cat(Const(0, UNITS + 1), product), self.shift, "fixed")
        units = Signal(16 + UNITS + 1, reset_less=True)
        over, sticky, minus = (Signal(reset_less=True, name=name) for name in ("over", "sticky", "minus"))
        with m.If(self.enable[2]):
            m.d.sync += [
                units.eq(fixed),
                over.eq(fixed[len(units) :].any()),
                sticky.eq(lost),
                minus.eq(negative),
            ]

        # Below 2^-14 the units are the number's bits; above, the leading one is implied.
        lowest = FRACTION_BITS + 1
        kept = Signal(15)
        half, rest = Signal(), Signal()
        with m.If(units[lowest:] == 0):
            m.d.comb += [kept.eq(units[1:]), half.eq(units[0]), rest.eq(sticky)]
        for place in range(lowest, len(units)):
            with m.Elif(units[place:] == 1):
                end = place - FRACTION_BITS
                m.d.comb += [
                    kept.eq(Cat(units[end:place], Const(place - lowest + 1, 5))),
                    half.eq(units[end - 1]),
                    rest.eq(sticky | units[: end - 1].any()),
                ]
        found = register(m, Cat(kept, half & (rest | kept[0]), over, minus), self.enable[3], "found")
        magnitude, up = found[:15], found[15]
        rounded = Signal(16)
        m.d.comb += rounded.eq(magnitude + up)
        too_large = found[16] | (rounded > LARGEST)
        m.d.comb += self.x.eq(Cat(Mux(too_large, LARGEST, rounded)[:15], found[17]))
        return m


def half_scores(scores: IntArray, factor: float) -> IntArray:
    """What the lane computes, as bits: exact in double precision, so rounded once."""
    with np.errstate(over="ignore"):
        halves = (scores.astype(np.float64) * factor).astype(np.float16)
    largest = np.array(LARGEST, dtype=np.uint16).view(np.float16)
    return np.clip(halves, -largest, largest).view(np.uint16).astype(np.int64)
