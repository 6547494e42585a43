"""A lane of the vector MACs: a dot product a cycle, and its addition to an accumulator."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value, signed, unsigned
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from softermax.rtl.baseline.columns import sum_of
from softermax.rtl.pe.config import ACCUMULATOR_BITS, OPERAND_BITS

PRODUCT_BITS = 2 * OPERAND_BITS
BIAS = 1 << (PRODUCT_BITS - 1)


class Multiplier(wiring.Component):
    """``a * b + BIAS`` of signed operands: never negative, so that adding many needs no sign bits.

    Baugh and Wooley's scheme: partial products with one sign bit are inverted instead of subtracted.
    """

    def __init__(self) -> None:
        operand = In(signed(OPERAND_BITS))
        super().__init__({"a": operand, "b": operand, "product": Out(unsigned(PRODUCT_BITS))})

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        top = OPERAND_BITS - 1
        rows: list[tuple[Value, int]] = []
        for i in range(OPERAND_BITS):
            row = [self.a[j] & self.b[i] for j in range(OPERAND_BITS)]
            signs = range(top) if i == top else (top,)
            for j in signs:
                row[j] = ~row[j]
            rows.append((Cat(*row), i))
        m.d.comb += self.product.eq(sum_of(m, rows, 1 << OPERAND_BITS, PRODUCT_BITS, "product"))
        return m


class VectorMac(wiring.Component):
    """``accumulated = (first ? 0 : collected) + vector · weights`` of the cycles before.

    stage 1   products of 8 bits                                  | products
    stage 2   their sum                                           | the dot product
    stage 3   added to what the collector holds, without a register

    Accumulators wrap at 24 bits; the dot products of queries and keys of up to 512 elements fit.
    """

    def __init__(self, vector_size: int) -> None:
        self._vector_size = vector_size
        operands = data.ArrayLayout(signed(OPERAND_BITS), vector_size)
        super().__init__(
            {
                "vector": In(operands),
                "weights": In(operands),
                "enable": In(2),  # the registers of each stage take what is in front of them
                "first": In(1),
                "collected": In(signed(ACCUMULATOR_BITS)),
                "accumulated": Out(signed(ACCUMULATOR_BITS)),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        products = []
        for i in range(self._vector_size):
            m.submodules[f"multiplier_{i}"] = multiplier = Multiplier()
            product = Signal(PRODUCT_BITS, reset_less=True, name=f"product_{i}")
            m.d.comb += [multiplier.a.eq(self.vector[i]), multiplier.b.eq(self.weights[i])]
            with m.If(self.enable[0]):
                m.d.sync += product.eq(multiplier.product)
            products.append((product, 0))
        dot = Signal(signed(PRODUCT_BITS + ceil_log2(self._vector_size)), reset_less=True)
        unbiased = -self._vector_size * BIAS % (1 << len(dot))
        total = sum_of(m, products, unbiased, len(dot), "dot")
        with m.If(self.enable[1]):
            m.d.sync += dot.eq(total)
        m.d.comb += self.accumulated.eq(Mux(self.first, Const(0), self.collected) + dot)
        return m
