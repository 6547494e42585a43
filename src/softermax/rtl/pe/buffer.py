"""A memory of the processing element: one read port, one write port."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Module, unsigned
from amaranth.lib import wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2


class Buffer(wiring.Component):
    """``depth`` words. What is read stands at ``read_data`` from the next cycle on, until the next reading;
    a word read in the cycle in which it is written is the new one."""

    def __init__(self, shape: Any, depth: int) -> None:
        self._shape, self._depth = shape, depth
        address = unsigned(ceil_log2(depth))
        super().__init__(
            {
                "read": In(1),
                "read_address": In(address),
                "read_data": Out(shape),
                "write": In(1),
                "write_address": In(address),
                "write_data": In(shape),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        m.submodules.words = words = Memory(shape=self._shape, depth=self._depth, init=[])
        writing = words.write_port()
        reading = words.read_port(transparent_for=(writing,))
        m.d.comb += [
            reading.en.eq(self.read),
            reading.addr.eq(self.read_address),
            self.read_data.eq(reading.data),
            writing.en.eq(self.write),
            writing.addr.eq(self.write_address),
            writing.data.eq(self.write_data),
        ]
        return m
