"""Half-precision products of numbers that are not negative, rounded to nearest even."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value, signed, unsigned
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from softermax.rtl.arithmetic.columns import sum_of
from softermax.rtl.pipeline import register

STAGES = 2


def multiply(m: Module, a: Value, b: Value, enable: tuple[Value, Value], name: str) -> Signal:
    """``a·b`` after two registers, below 2^-14 zero. Numbers are exponent and ten bits of fraction; one is
    at most 1, so that the product does not exceed the other. The result is as long as the longer one.

    stage 1   significands multiplied, exponents added   | product, exponent
    stage 2   one place up or not, rounded               | result
    """
    bits = max(len(a), len(b))
    left, right = Cat(a[:10], 1), Cat(b[:10], 1)
    rows = [(left & bit.replicate(11), place) for place, bit in enumerate(right)]
    exponent = Signal(signed(8), name=f"{name}_exponent")
    # Less one, for a product below 2.
    m.d.comb += exponent.eq(a[10:] + b[10:] - 15)
    zero = ~a[10:].any() | ~b[10:].any() | exponent[7]
    kept = register(
        m, Cat(sum_of(m, rows, 0, 22, name), zero, exponent[: bits - 10]), enable[0], f"{name}_product"
    )
    product, zero, low = kept[:22], kept[22], kept[23:]

    carry = product[21]
    fraction, up = Signal(10, name=f"{name}_fraction"), Signal(name=f"{name}_up")
    rounded = Signal(bits, name=f"{name}_rounded")
    m.d.comb += [
        fraction.eq(Mux(carry, product[11:21], product[10:20])),
        up.eq(
            Mux(
                carry,
                product[10] & (product[:10].any() | product[11]),
                product[9] & (product[:9].any() | product[10]),
            )
        ),
        rounded.eq(Cat(fraction, low) + Cat(up, Const(0, 9), carry)),
    ]
    return register(m, Mux(zero | ~rounded[10:].any(), 0, rounded), enable[1], name)


class Multiply(wiring.Component):
    """Each lane times a factor that all share; none exceeds 1, so sign and upper exponent bit are left out."""

    stages = STAGES

    def __init__(self, lanes: int) -> None:
        self._lanes = lanes
        super().__init__(
            {
                "terms": In(data.ArrayLayout(unsigned(14), lanes)),
                "factor": In(14),
                "enable": In(STAGES),
                "products": Out(data.ArrayLayout(unsigned(14), lanes)),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        enable = (self.enable[0], self.enable[1])
        for lane in range(self._lanes):
            product = multiply(m, self.terms[lane], self.factor, enable, f"product_{lane}")
            m.d.comb += self.products[lane].eq(product)
        return m
