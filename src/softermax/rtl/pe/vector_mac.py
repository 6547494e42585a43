"""A lane of the vector MACs: a dot product per cycle, and its addition to an accumulator.

Operands are words of sign and magnitude. Those of a real model are small numbers of either sign: in two's
complement every change of sign switches all upper bits, and the partial products of a multiplier with them.
"""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value, signed, unsigned
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from softermax.rtl.arithmetic.columns import sum_of
from softermax.rtl.pe.config import ACCUMULATOR_BITS, OPERAND_BITS

MAGNITUDE_BITS = OPERAND_BITS - 1
PRODUCT_BITS = 2 * OPERAND_BITS
BIAS = 1 << (PRODUCT_BITS - 1)


class Multiplier(wiring.Component):
    """The product of two words of sign and magnitude, in one's complement: where it is ``negative``, a unit
    is missing. The sign alone stands for the lowest number, -128, which has no magnitude of seven bits.
    """

    def __init__(self) -> None:
        operand = In(unsigned(OPERAND_BITS))
        super().__init__({"a": operand, "b": operand, "product": Out(signed(PRODUCT_BITS))})

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        last = MAGNITUDE_BITS - 1
        a, b = self.a[:MAGNITUDE_BITS], self.b[:MAGNITUDE_BITS]
        lowest_a, lowest_b = Signal(), Signal()
        sign_a, sign_b = self.a[MAGNITUDE_BITS], self.b[MAGNITUDE_BITS]
        m.d.comb += [lowest_a.eq(sign_a & ~a.any()), lowest_b.eq(sign_b & ~b.any())]
        bits: list[list[Value]] = [
            [a[j] & b[i] for j in range(MAGNITUDE_BITS)] for i in range(MAGNITUDE_BITS)
        ]
        # The lowest number has no other bits: its row and column share the places of their neighbours.
        for i in range(last):
            bits[last][i + 1] |= a[i] & lowest_b
            bits[i + 1][last] |= lowest_a & b[i]
        beyond = Cat((a[last] & lowest_b) | (lowest_a & b[last]), lowest_a & lowest_b)
        rows = [(Cat(*row), i) for i, row in enumerate(bits)] + [(beyond, 2 * MAGNITUDE_BITS - 1)]
        magnitude = sum_of(m, rows, 0, PRODUCT_BITS - 1, "magnitude")
        negative = sign_a ^ sign_b
        m.d.comb += self.product.eq(Cat(magnitude ^ negative.replicate(PRODUCT_BITS - 1), negative))
        return m


class VectorMac(wiring.Component):
    """``accumulated = (first ? 0 : collected) + vector · weights`` of the cycles before.

    stage 1   products of 8 bits, in one's complement             | products
    stage 2   their sum                                           | the dot product
    stage 3   added to what the collector holds, without a register

    Accumulators wrap at 24 bits; the dot products of queries and keys of up to 512 elements fit.
    """

    def __init__(self, vector_size: int) -> None:
        self._vector_size = vector_size
        operands = data.ArrayLayout(unsigned(OPERAND_BITS), vector_size)
        super().__init__(
            {
                "vector": In(operands),
                "weights": In(operands),
                "enable": In(2),  # the registers of each stage take what is before them
                "first": In(1),
                "collected": In(signed(ACCUMULATOR_BITS)),
                "accumulated": Out(signed(ACCUMULATOR_BITS)),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        products: list[tuple[Value, int]] = []
        for i in range(self._vector_size):
            m.submodules[f"multiplier_{i}"] = multiplier = Multiplier()
            product = Signal(signed(PRODUCT_BITS), reset_less=True, name=f"product_{i}")
            m.d.comb += [multiplier.a.eq(self.vector[i]), multiplier.b.eq(self.weights[i])]
            with m.If(self.enable[0]):
                m.d.sync += product.eq(multiplier.product)
            # With the sign turned round a product is never negative and BIAS too large; a negative one lacks a unit.
            sign = product[-1]
            products += [(Cat(product[:-1], ~sign), 0), (sign, 0)]
        dot = Signal(signed(PRODUCT_BITS + ceil_log2(self._vector_size)), reset_less=True)
        unbiased = -self._vector_size * BIAS % (1 << len(dot))
        total = sum_of(m, products, unbiased, len(dot), "dot")
        with m.If(self.enable[1]):
            m.d.sync += dot.eq(total)
        m.d.comb += self.accumulated.eq(Mux(self.first, Const(0), self.collected) + dot)
        return m
