"""The largest score of a row by generic comparators."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Const, Module, Mux, Signal, Value, unsigned
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from softermax.rtl.baseline.generic.larger import Larger
from softermax.rtl.baseline.generic.model import MINUS_INFINITY
from softermax.rtl.baseline.payloads import halves
from softermax.rtl.pipeline import register

LEVELS_PER_STAGE = 2
"""Comparators in a row within a cycle."""


class Max(wiring.Component):
    """A tree of comparators over the lanes of a slice, and one more with the row so far. A masked lane is -inf.

    ``maximum`` belongs to the slice that stands after the last register of the tree and to its row.
    """

    def __init__(self, lanes: int) -> None:
        self._lanes = lanes
        self.stages = max(1, -(-ceil_log2(lanes) // LEVELS_PER_STAGE))
        """Registers between a slice and the comparison with its row."""
        super().__init__(
            {
                "x": In(halves(lanes)),
                "mask": In(unsigned(lanes)),
                "enable": In(self.stages),  # the registers of each stage take what is before them
                "first": In(1),  # of the slice after the tree
                "enable_row": In(1),
                "maximum": Out(16),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        terms: list[Value] = [
            Mux(self.mask[lane], self.x[lane], Const(MINUS_INFINITY, 16)) for lane in range(self._lanes)
        ]
        for stage in range(self.stages):
            for level in range(LEVELS_PER_STAGE):
                terms = self._pairs(m, terms, stage * LEVELS_PER_STAGE + level)
            terms = [
                register(m, term, self.enable[stage], f"stage_{stage}_{i}") for i, term in enumerate(terms)
            ]
        row = Signal(16, reset_less=True)
        with m.If(self.enable_row):
            m.d.sync += row.eq(self.maximum)
        m.d.comb += self.maximum.eq(Mux(self.first, terms[0], self._larger(m, row, terms[0], "row")))
        return m

    def _pairs(self, m: Module, terms: list[Value], level: int) -> list[Value]:
        pairs = enumerate(zip(terms[::2], terms[1::2], strict=False))
        above = [self._larger(m, a, b, f"level_{level}_{pair}") for pair, (a, b) in pairs]
        return above + terms[len(terms) // 2 * 2 :]

    def _larger(self, m: Module, a: Value, b: Value, name: str) -> Value:
        m.submodules[f"larger_{name}"] = unit = Larger()
        m.d.comb += [unit.a.eq(a), unit.b.eq(b)]
        larger: Value = unit.larger
        return larger
