"""A generic adder and subtractor of halves."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from softermax.rtl.arithmetic.leading_zeros import leading_zeros
from softermax.rtl.arithmetic.shifter import shift_right_sticky
from softermax.rtl.baseline.generic.fields import pack, unpack
from softermax.rtl.pipeline import register


class Add(wiring.Component):
    """``a + b``, or ``a - b`` where ``subtract`` is set: any two halves, rounded to nearest even.

    stage 1   unpacked, magnitudes compared and swapped        | larger, smaller, how far apart, exponent
    stage 2   smaller one aligned, added or subtracted         | 15 places and exponent
    stage 3   leading zeros counted, normalised, rounded       | the sum
    """

    stages = 3

    def __init__(self) -> None:
        super().__init__(
            {"a": In(16), "b": In(16), "subtract": In(1), "enable": In(self.stages), "total": Out(16)}
        )

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        a, b = unpack(m, self.a, "a"), unpack(m, self.b, "b")

        # Stage 1.
        swap, differ, nan = Signal(), Signal(), Signal()
        by, sign_b = Signal(5), Signal()
        larger, smaller, exponent, lower = Signal(11), Signal(11), Signal(5), Signal(5)
        m.d.comb += [
            sign_b.eq(b.sign ^ self.subtract),
            swap.eq(self.a[:15] < self.b[:15]),
            differ.eq(a.sign ^ sign_b),
            larger.eq(Mux(swap, b.significand, a.significand)),
            smaller.eq(Mux(swap, a.significand, b.significand)),
            exponent.eq(Mux(swap, b.exponent, a.exponent)),
            lower.eq(Mux(swap, a.exponent, b.exponent)),
            by.eq(exponent - lower),
            nan.eq(a.is_nan | b.is_nan | (a.is_infinite & b.is_infinite & differ)),
        ]
        flags = Cat(Mux(swap, sign_b, a.sign), differ, nan, a.is_infinite | b.is_infinite)
        held = register(m, Cat(larger, smaller, by, exponent, flags), self.enable[0], "stage_1")
        larger, smaller, by, exponent, flags = held[:11], held[11:22], held[22:27], held[27:32], held[32:]

        # Stage 2. Three places below the last one: two, and one for all that are shifted out.
        aligned, sticky = shift_right_sticky(m, Cat(Const(0, 2), smaller), by, "aligned")
        operand, places = Signal(15), Signal(16)
        m.d.comb += [
            operand.eq(Cat(sticky, aligned, 0) ^ flags[1].replicate(15)),
            # The lowest place carries the one of the two's complement in.
            places.eq(Cat(Const(1, 1), Const(0, 3), larger) + Cat(flags[1], operand)),
        ]
        # The exponent of a sum that carried.
        top = (exponent + 1)[:5]
        held = register(m, Cat(places[1:], top, flags), self.enable[1], "stage_2")
        places, top, flags = held[:15], held[15:20], held[20:]
        sign, differ, nan, infinite = flags

        # Stage 3. No further up than the exponent reaches: a one that stands there stops the count.
        stop, zeros, normed = Signal(15), Signal(4), Signal(15)
        m.d.comb += [
            stop.eq(Cat(1, *(top == 15 - place for place in range(1, 15)))),
            zeros.eq(leading_zeros(m, places | stop, "lead")),
            normed.eq((places << zeros)[:15]),
        ]
        above, up, magnitude = Signal(5), Signal(), Signal(15)
        m.d.comb += [
            above.eq(Mux(normed[14], top - zeros, 0)),
            up.eq(normed[3] & (normed[4] | normed[:3].any())),
            magnitude.eq(Cat(normed[4:14], above) + up),
        ]
        # A difference of equals is +0.
        sign = sign & ~(differ & ~places.any())
        total = pack(sign, magnitude, infinite | (top.all() & places[14]), nan)
        m.d.comb += self.total.eq(register(m, total, self.enable[2], "sum"))
        return m
