"""Half-precision division by a number that all lanes share, rounded to nearest even."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Cat, Module, Mux, Signal, Value, signed, unsigned
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from softermax.rtl.pipeline import follow, register

QUOTIENT_BITS = 13
"""One before the point; eleven from the first that is not zero are kept and the next one rounds."""
BITS_PER_STAGE = 2


class Divide(wiring.Component):
    """``dividend / divisor`` for 0 <= dividend <= divisor, lane by lane, correctly rounded.

    Digit by digit without restoring: each row adds or subtracts the divisor as the remainder before
    was negative or not. The quotient of two 11-bit significands never lies halfway between two
    numbers, so the bit after the last tells how to round and the remainder is not needed; nor does a
    quotient ever round up to the next power of two, so its exponent is known from the first bit.

    Quotients below 2^-14 are zero, and so is one of a zero dividend, whatever the divisor. The results'
    sign and upper exponent bit are zero and not stored, as are those of the dividends: neither exceeds 1.

    stages   `BITS_PER_STAGE` bits of the quotient each    | remainder, quotient so far, exponent
    last     rounded                                     | quotient
    """

    stages = -(-QUOTIENT_BITS // BITS_PER_STAGE)

    def __init__(self, lanes: int) -> None:
        self._lanes = lanes
        super().__init__(
            {
                "dividend": In(data.ArrayLayout(unsigned(14), lanes)),
                "divisor": In(15),
                "enable": In(self.stages),
                "quotient": Out(data.ArrayLayout(unsigned(14), lanes)),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        enables = [self.enable[stage] for stage in range(self.stages)]
        significand = Cat(self.divisor[:10], 1)
        divisors = [significand, *follow(m, significand, enables[:-1], "divisor")]
        for lane in range(self._lanes):
            self._lane(m, divisors, lane)
        return m

    def _lane(self, m: Module, divisors: list[Value], lane: int) -> None:
        dividend = self.dividend[lane]
        # The exponent of the quotient, should its first bit be zero.
        exponent = Signal(signed(7), name=f"exponent_{lane}")
        m.d.comb += exponent.eq(dividend[10:] + 14 - self.divisor[10:])
        remainder = Signal(12, name=f"remainder_0_{lane}")
        m.d.comb += remainder.eq(Cat(dividend[:10], 1) - divisors[0])
        scale: Value = Cat(exponent[:4], exponent[6] | ~dividend[10:].any())
        bits: list[Value] = [~remainder[11]]
        for stage in range(self.stages):
            while len(bits) < min(BITS_PER_STAGE * (stage + 1), QUOTIENT_BITS):
                remainder = _row(m, remainder, divisors[stage], f"remainder_{len(bits)}_{lane}")
                bits.append(~remainder[11])
            if stage == self.stages - 1:
                break
            # From the second row on the remainder's last place is the divisor's.
            kept = register(m, Cat(scale, remainder[1:], *bits), self.enable[stage], f"stage_{stage}_{lane}")
            scale, bits = kept[:5], list(kept[16:])
            remainder = Cat(divisors[stage + 1][0], kept[5:16])

        # One place down if the first bit is zero, rounded.
        whole = bits[0]
        fraction, up = Signal(10, name=f"fraction_{lane}"), Signal(name=f"up_{lane}")
        top, rounded = Signal(4, name=f"top_{lane}"), Signal(10, name=f"rounded_{lane}")
        m.d.comb += [
            fraction.eq(Mux(whole, Cat(*reversed(bits[1:11])), Cat(*reversed(bits[2:12])))),
            up.eq(Mux(whole, bits[11], bits[12])),
            rounded.eq(fraction + up),
            top.eq(scale[:4] + whole),
        ]
        result = Mux(scale[4] | ~top.any(), 0, Cat(rounded, top))
        m.d.comb += self.quotient[lane].eq(register(m, result, self.enable[-1], f"quotient_{lane}"))


def _row(m: Module, remainder: Value, divisor: Value, name: str) -> Value:
    """Twice the remainder, less the divisor, or plus it after a negative one.

    Twice anything is even, so the last place is the divisor's, and all it does to the others is a carry.
    """
    following = Signal(11, name=name)
    subtract = ~remainder[11]
    operand = Cat(divisor[1:], 0) ^ subtract.replicate(11)
    carry = subtract & ~divisor[0]
    m.d.comb += following.eq((Cat(1, remainder[:11]) + Cat(carry, operand))[1:])
    return Cat(divisor[0], following)
