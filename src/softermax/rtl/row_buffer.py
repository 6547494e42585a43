"""What a unit remembers of every open row."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Module, Shape, Signal
from amaranth.lib import wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from softermax.rtl.payloads import row_id


class RowBuffer(wiring.Component):
    """One word per row, read and written in the same cycle, so that successive slices may belong to
    the same row. For a single row it is a register."""

    def __init__(self, shape: Shape, rows: int) -> None:
        self._shape = shape
        self._rows = rows
        ids = {name: In(field) for name, field in row_id(rows).items()}
        super().__init__({"read": Out(shape), "write": In(shape), "enable": In(1), **ids})

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        if self._rows == 1:
            state = Signal(self._shape, reset_less=True)
            with m.If(self.enable):
                m.d.sync += state.eq(self.write)
            m.d.comb += self.read.eq(state)
            return m
        m.submodules.words = words = Memory(shape=self._shape, depth=self._rows, init=[])
        read, write = words.read_port(domain="comb"), words.write_port()
        m.d.comb += [
            read.addr.eq(self.row),
            self.read.eq(read.data),
            write.addr.eq(self.row),
            write.data.eq(self.write),
            write.en.eq(self.enable),
        ]
        return m
