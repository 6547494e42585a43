"""One lane of the rows that wait between two units, in flip-flops instead of a memory."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Array, Module, unsigned
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from softermax.rtl.pipeline import register


class KeptLane(wiring.Component):
    """``depth`` words of ``bits`` bits: one is written and one is read in every cycle. Each word has a clock gate."""

    def __init__(self, bits: int, depth: int) -> None:
        self._bits, self._depth = bits, depth
        super().__init__(
            {
                "word": In(unsigned(bits)),
                "write_at": In(range(depth)),
                "read_at": In(range(depth)),
                "kept": Out(unsigned(bits)),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        words = Array(
            register(m, self.word, self.write_at == place, f"word_{place}") for place in range(self._depth)
        )
        m.d.comb += self.kept.eq(words[self.read_at])
        return m
