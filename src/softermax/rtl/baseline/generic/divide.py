"""A generic divider of halves."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value, signed
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from softermax.rtl.arithmetic.leading_zeros import leading_zeros
from softermax.rtl.arithmetic.shifter import shift_right_sticky
from softermax.rtl.baseline.generic.fields import Unpacked, pack, unpack
from softermax.rtl.pipeline import follow, register

QUOTIENT_BITS = 13
"""One before the point; eleven from the first that is not zero are kept, and the next one rounds."""
BITS_PER_STAGE = 2
DIGIT_STAGES = -(-QUOTIENT_BITS // BITS_PER_STAGE)


class Divide(wiring.Component):
    """``a / b`` of any two halves, rounded to nearest even.

    stage 1      unpacked, both significands normalised        | significands, exponents
    stages       two bits of the quotient each, restoring      | remainder, divisor, quotient so far, exponent
    last stage   normalised, shifted down if subnormal, rounded | the quotient
    """

    stages = 1 + DIGIT_STAGES + 1

    def __init__(self) -> None:
        super().__init__({"a": In(16), "b": In(16), "enable": In(self.stages), "quotient": Out(16)})

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        a, b = unpack(m, self.a, "a"), unpack(m, self.b, "b")
        enables = list(self.enable)

        # Stage 1.
        dividend, exponent_a = _normalised(m, a, "a")
        divisor, exponent_b = _normalised(m, b, "b")
        nan = Signal()
        m.d.comb += nan.eq(a.is_nan | b.is_nan | (a.is_zero & b.is_zero) | (a.is_infinite & b.is_infinite))
        flags = Cat(a.sign ^ b.sign, a.is_zero | b.is_infinite, a.is_infinite | b.is_zero, nan)
        exponents = register(m, Cat(exponent_a, exponent_b), enables[0], "exponents")
        remainder: Value = register(m, dividend, enables[0], "dividend")
        divisors = follow(m, divisor, enables[: 1 + DIGIT_STAGES], "divisor")
        flags = follow(m, flags, enables[:-1], "flags")[-1]

        # Digits. The exponent is that of a quotient of one or more.
        exponent = Signal(signed(8))
        m.d.comb += exponent.eq(exponents[:6].as_signed() - exponents[6:].as_signed() + 15)
        bits: list[Value] = []
        for stage in range(DIGIT_STAGES):
            while len(bits) < min(BITS_PER_STAGE * (stage + 1), QUOTIENT_BITS):
                remainder, bit = _digit(m, remainder, divisors[stage], len(bits))
                bits.append(bit)
            if stage == 1:
                less = Signal(signed(8))
                m.d.comb += less.eq(exponent - ~bits[0])
                exponent = less
            scale = exponent if stage < DIGIT_STAGES - 1 else _scale(m, exponent)
            kept = register(m, Cat(remainder, *bits, scale), enables[1 + stage], f"stage_{stage + 2}")
            remainder, bits, scale = kept[:12], list(kept[12 : 12 + len(bits)]), kept[12 + len(bits) :]
            exponent = scale.as_signed()

        # Last stage.
        above, below, over = scale[:5], scale[5:9], scale[9]
        normed, up, magnitude = Signal(QUOTIENT_BITS), Signal(), Signal(15)
        whole = Cat(*reversed(bits))
        m.d.comb += normed.eq(Mux(bits[0], whole, whole << 1))
        places, sticky = shift_right_sticky(m, normed, below, "shifted")
        m.d.comb += [
            up.eq(places[1] & (places[0] | sticky | remainder.any() | places[2])),
            magnitude.eq(Cat(places[2:12], above) + up),
        ]
        sign, zero, infinite, nan = flags
        result = pack(sign, Mux(zero, Const(0, 15), magnitude), infinite | (~zero & over), nan)
        m.d.comb += self.quotient.eq(register(m, result, enables[-1], "result"))
        return m


def _normalised(m: Module, number: Unpacked, name: str) -> tuple[Value, Value]:
    """The significand with its first one in front, and the exponent that belongs to it, signed."""
    zeros = leading_zeros(m, number.significand, f"{name}_lead")
    significand, exponent = Signal(11, name=f"{name}_normalised"), Signal(signed(6), name=f"{name}_exponent")
    m.d.comb += [significand.eq((number.significand << zeros)[:11]), exponent.eq(number.exponent - zeros)]
    return significand, exponent


def _scale(m: Module, exponent: Value) -> Value:
    """The exponent to be stored, how far a subnormal quotient is shifted down, and whether it is beyond the format."""
    down, below = Signal(signed(9)), Signal(4)
    m.d.comb += [down.eq(1 - exponent), below.eq(Mux(down < 0, 0, Mux(down > 15, 15, down)))]
    return Cat(Mux(down > 0, Const(0, 5), exponent[:5]), below, exponent > 30)


def _digit(m: Module, remainder: Value, divisor: Value, number: int) -> tuple[Value, Value]:
    """Whether the divisor goes into the remainder; twice what is left of it."""
    rest = Signal(13, name=f"rest_{number}")
    following = Signal(12, name=f"remainder_{number}")
    m.d.comb += [
        rest.eq(remainder - divisor),
        following.eq(Mux(rest[12], remainder, rest[:12]) << 1),
    ]
    return following, ~rest[12]
