"""A lane of the vector MACs: a dot product a cycle, added to an accumulator in the next."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Module, Mux, Signal, signed
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from softermax.rtl.pe.config import ACCUMULATOR_BITS, OPERAND_BITS


class VectorMac(wiring.Component):
    """``accumulated = (first ? 0 : collected) + vector · weights`` of the cycles before.

    stage 1   products of 8 bits and their sum                   | the dot product
    stage 2   added to what the collector holds, without a register

    Accumulators wrap at 24 bits; the dot products of queries and keys of up to 512 elements fit.
    """

    def __init__(self, vector_size: int) -> None:
        self._vector_size = vector_size
        operands = data.ArrayLayout(signed(OPERAND_BITS), vector_size)
        super().__init__(
            {
                "vector": In(operands),
                "weights": In(operands),
                "enable": In(1),
                "first": In(1),
                "collected": In(signed(ACCUMULATOR_BITS)),
                "accumulated": Out(signed(ACCUMULATOR_BITS)),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        dot = Signal(signed(2 * OPERAND_BITS + ceil_log2(self._vector_size)), reset_less=True)
        with m.If(self.enable):
            m.d.sync += dot.eq(sum(self.vector[i] * self.weights[i] for i in range(self._vector_size)))
        m.d.comb += self.accumulated.eq(Mux(self.first, 0, self.collected) + dot)
        return m
