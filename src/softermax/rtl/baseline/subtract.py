"""How far each score lies below the row's largest, in half precision, rounded to nearest even."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Cat, Const, Module, Mux, Signal, unsigned
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from softermax.rtl.baseline.shifter import shift_right_sticky


class Subtract(wiring.Component):
    """``maximum - x`` for x <= maximum, lane by lane.

    The value is the IEEE difference, its encoding is leaner: ``significand·2^(exponent-25)``, where
    the significand has leading zeros after cancellation. Such a difference is exact, so nothing has to
    be counted and shifted up to round it, and the exponential aligns it in any case. What is known of
    the operands saves more: the sign of the result, which is the larger magnitude where they are
    subtracted (the one whose order the signs tell), and any step of negation.

    Subnormal scores have their value. An infinity or a NaN counts as the number that its exponent and
    fraction would make: -inf is far below any finite score.

    stage 1   exponents compared, smaller one aligned, added or subtracted | 15 bits and exponent
    (behind the register) one place up or down, rounded
    """

    def __init__(self, lanes: int) -> None:
        self._lanes = lanes
        super().__init__(
            {
                "x": In(data.ArrayLayout(unsigned(16), lanes)),
                "maximum": In(16),
                "enable": In(1),
                "significand": Out(data.ArrayLayout(unsigned(11), lanes)),
                "exponent": Out(data.ArrayLayout(unsigned(5), lanes)),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        for lane in range(self._lanes):
            self._lane(m, lane)
        return m

    def _lane(self, m: Module, lane: int) -> None:
        def signal(bits: int, name: str) -> Signal:
            return Signal(bits, name=f"{name}_{lane}")

        x, top = self.x[lane], self.maximum
        x_exponent, x_significand = _unpack(x)
        top_exponent, top_significand = _unpack(top)

        # Stage 1. Of two positive numbers the maximum is the larger magnitude, of two negative ones x;
        # of different signs the exponents tell.
        apart, apart_swapped = signal(6, "apart"), signal(6, "apart_swapped")
        same_sign, swap = signal(1, "same_sign"), signal(1, "swap")
        larger, smaller = signal(11, "larger"), signal(11, "smaller")
        exponent, by = signal(5, "larger_exponent"), signal(5, "by")
        m.d.comb += [
            apart.eq(top_exponent - x_exponent),
            apart_swapped.eq(x_exponent - top_exponent),
            same_sign.eq(~(x[15] ^ top[15])),
            swap.eq(Mux(same_sign, top[15], apart[5])),
            larger.eq(Mux(swap, x_significand, top_significand)),
            smaller.eq(Mux(swap, top_significand, x_significand)),
            exponent.eq(Mux(swap, x_exponent, top_exponent)),
            by.eq(Mux(swap, apart_swapped[:5], apart[:5])),
        ]
        aligned, sticky = shift_right_sticky(m, Cat(Const(0, 2), smaller), by, f"aligned_{lane}")
        operand, total = signal(14, "operand"), signal(16, "total")
        m.d.comb += [
            operand.eq(Cat(sticky, aligned) ^ same_sign.replicate(14)),
            # The lowest place carries the one of the two's complement in.
            total.eq(Cat(Const(1, 1), Const(0, 3), larger) + Cat(same_sign, operand)),
        ]
        places = Signal(14, reset_less=True, name=f"places_{lane}")
        carry = Signal(reset_less=True, name=f"carry_{lane}")
        before = Signal(5, reset_less=True, name=f"before_{lane}")
        with m.If(self.enable):
            m.d.sync += [
                places.eq(total[1:15]),
                carry.eq(total[15] & ~same_sign),
                before.eq(exponent - 1),
            ]

        # Behind the register: the leading place of the sum, or the one below if that is empty.
        whole = signal(1, "whole")
        kept, guard, rest = signal(11, "kept"), signal(1, "guard"), signal(1, "rest")
        packed = signal(15, "packed")
        m.d.comb += [
            whole.eq(places[13]),
            kept.eq(Mux(carry, Cat(places[4:14], 1), Mux(whole, places[3:14], places[2:13]))),
            guard.eq(Mux(carry, places[3], Mux(whole, places[2], places[1]))),
            rest.eq(places[0] | ((carry | whole) & places[1]) | (carry & places[2])),
            packed.eq(
                Cat(kept[:10], before) + Cat(guard & (rest | kept[0]), Const(0, 9), whole & ~carry, carry)
            ),
            self.significand[lane].eq(Cat(packed[:10], kept[10])),
            self.exponent[lane].eq(packed[10:]),
        ]


def _unpack(word: Any) -> tuple[Any, Any]:
    """Exponent and significand of a half; subnormal numbers have exponent 1 and no leading one."""
    normal = word[10:15].any()
    return Cat(word[10] | ~normal, word[11:15]), Cat(word[:10], normal)
