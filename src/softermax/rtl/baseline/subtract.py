"""How far each score lies below the row's largest, in half precision, rounded to nearest even."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Cat, Const, Module, Mux, Signal, unsigned
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from softermax.rtl.arithmetic.shifter import shift_right_sticky
from softermax.rtl.pipeline import register


class Subtract(wiring.Component):
    """``maximum - x`` for x <= maximum, lane by lane.

    The value is the IEEE difference, its encoding is leaner: ``significand·2^(exponent-26)`` with the
    exponent of the larger operand. The significand has leading zeros after cancellation, which leaves
    an exact difference, and a place to either side for what else may happen; so nothing is counted or
    shifted to normalise it, and the exponential aligns it in any case. What is known of the operands
    saves more: the sign of the result, which one is larger where they are subtracted (their sign
    tells), and any negation.

    Subnormal scores have their value. An infinity or a NaN counts as the number that its exponent and
    fraction would make: -inf is far below any finite score.

    stage 1   exponents compared, significands swapped            | larger, smaller, how far apart
    stage 2   smaller one aligned, added or subtracted            | 15 places and exponent
    after it  one place up or down, rounded, without a register
    """

    stages = 2

    def __init__(self, lanes: int) -> None:
        self._lanes = lanes
        super().__init__(
            {
                "x": In(data.ArrayLayout(unsigned(16), lanes)),
                "maximum": In(16),
                "enable": In(self.stages),
                "significand": Out(data.ArrayLayout(unsigned(13), lanes)),
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
        kept = register(m, Cat(larger, smaller, by, exponent, same_sign), self.enable[0], f"stage_1_{lane}")
        larger, smaller, by, exponent, same_sign = kept[:11], kept[11:22], kept[22:27], kept[27:32], kept[32]

        # Stage 2.
        aligned, sticky = shift_right_sticky(m, Cat(Const(0, 2), smaller), by, f"aligned_{lane}")
        operand, total = signal(14, "operand"), signal(16, "total")
        m.d.comb += [
            operand.eq(Cat(sticky, aligned) ^ same_sign.replicate(14)),
            # The lowest place carries the one of the two's complement in.
            total.eq(Cat(Const(1, 1), Const(0, 3), larger) + Cat(same_sign, operand)),
        ]
        summed = register(
            m, Cat(total[1:15], total[15] & ~same_sign, exponent), self.enable[1], f"stage_2_{lane}"
        )
        places, carry = summed[:15], summed[14]

        # After the register. Eleven places count, from the carry, the one below it or the next one.
        whole, neither = signal(1, "whole"), signal(1, "neither")
        up_carry, up_whole, up = signal(1, "up_carry"), signal(1, "up_whole"), signal(1, "up")
        m.d.comb += [
            whole.eq(places[13] & ~carry),
            neither.eq(~(places[13] | carry)),
            up_carry.eq(carry & places[3] & (places[:3].any() | places[4])),
            up_whole.eq(whole & places[2] & (places[:2].any() | places[3])),
            up.eq(neither & places[1] & (places[0] | places[2])),
            self.significand[lane].eq(
                Cat(places[2] & neither, places[3] & ~carry, places[4:15]) + Cat(up, up_whole, up_carry)
            ),
            self.exponent[lane].eq(summed[15:20]),
        ]


def _unpack(word: Any) -> tuple[Any, Any]:
    """Exponent and significand of a half; subnormal numbers have exponent 1 and no leading one."""
    normal = word[10:15].any()
    return Cat(word[10] | ~normal, word[11:15]), Cat(word[:10], normal)
