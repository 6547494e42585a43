"""Requantisation for the FP16 baseline: an accumulator times the scale, as a half-precision number."""

from __future__ import annotations

from typing import Any

import numpy as np
from amaranth.hdl import Cat, Const, Module, Mux, Signal, signed, unsigned
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from softermax.fixedpoint import IntArray
from softermax.rtl.baseline.shifter import shift_right_sticky
from softermax.rtl.pe.config import ACCUMULATOR_BITS, PEConfig
from softermax.rtl.pe.requantize import magnitude_product
from softermax.rtl.pe.words import SHIFT_BITS

LARGEST = 0x7BFF
UNITS = 24
"""The smallest half-precision number is 2^-24."""
FRACTION_BITS = 10


class RequantizeHalf(wiring.Component):
    """One lane: the exact product rounded once, half to even; what is too large becomes the largest number.

    stage 1   magnitude                                                     | magnitude and sign
    stage 2   times mantissa                                                | product
    stage 3   shifted to units of half precision                            | units, sticky
    stage 4   normalised and rounded, without a register
    """

    def __init__(self, config: PEConfig) -> None:
        super().__init__(
            {
                "acc": In(signed(ACCUMULATOR_BITS)),
                "mantissa": In(unsigned(config.scale_bits)),
                "enable": In(3),  # the registers of each stage take what is in front of them
                "shift": In(unsigned(SHIFT_BITS)),
                "x": Out(unsigned(16)),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        product, negative = magnitude_product(m, self.acc, self.mantissa, self.enable)
        # One place behind the smallest number, so that even that is rounded.
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
        magnitude = Signal(16)
        # Below 2^-14 the units are the number's bits; above, the leading one is implied.
        lowest = FRACTION_BITS + 1
        with m.If(units[lowest:] == 0):
            m.d.comb += magnitude.eq(units[1:] + (units[0] & (sticky | units[1])))
        for place in range(lowest, len(units)):
            with m.Elif(units[place:] == 1):
                kept = units[place - FRACTION_BITS : place]
                half, rest = units[place - FRACTION_BITS - 1], units[: place - FRACTION_BITS - 1]
                up = half & (sticky | rest.any() | kept[0])
                m.d.comb += magnitude.eq(Cat(kept, Const(place - lowest + 1, 5)) + up)
        m.d.comb += self.x.eq(Cat(Mux(over | (magnitude > LARGEST), LARGEST, magnitude)[:15], minus))
        return m


def half_scores(scores: IntArray, factor: float) -> IntArray:
    """What the lane computes, as bits: exact in double precision, so rounded once."""
    with np.errstate(over="ignore"):
        halves = (scores.astype(np.float64) * factor).astype(np.float16)
    largest = np.array(LARGEST, dtype=np.uint16).view(np.float16)
    return np.clip(halves, -largest, largest).view(np.uint16).astype(np.int64)
