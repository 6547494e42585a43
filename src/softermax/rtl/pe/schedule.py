"""The schedule of a run: weights stay for all queries, accumulators wait in the collector."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Module, Signal, unsigned
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from softermax.rtl.pe.config import PEConfig
from softermax.rtl.pe.payloads import MAX_CHUNKS, row_bits


class Schedule(wiring.Component):
    """One step per cycle: for each group of keys, for each chunk of their vectors, for each query.

    The weights of a group's chunk are read once and serve all queries, the vector of a query is read in
    every step. `start` takes the counts; ``step`` is 1 while there are steps, and `advance` goes to the next.
    """

    def __init__(self, config: PEConfig) -> None:
        self._config = config
        super().__init__(
            {
                "start": In(1),
                "queries": In(unsigned(config.rows.bit_length())),
                "groups": In(unsigned(config.tiles.bit_length())),
                "chunks": In(unsigned(MAX_CHUNKS.bit_length())),
                "advance": In(1),
                "step": Out(1),
                "row": Out(unsigned(row_bits(config))),
                "input_address": Out(unsigned(ceil_log2(config.vectors))),
                "weight_address": Out(unsigned(ceil_log2(config.tiles))),
                "first_row": Out(1),
                "last_row": Out(1),
                "first_chunk": Out(1),
                "last_chunk": Out(1),
                "first_group": Out(1),
                "last_group": Out(1),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        queries, groups, chunks = (
            Signal.like(port, reset_less=True) for port in (self.queries, self.groups, self.chunks)
        )
        row = Signal.like(queries)
        chunk = Signal.like(chunks)
        group = Signal.like(groups)
        m.d.comb += [
            self.row.eq(row),
            self.first_row.eq(row == 0),
            self.last_row.eq(row + 1 == queries),
            self.first_chunk.eq(chunk == 0),
            self.last_chunk.eq(chunk + 1 == chunks),
            self.first_group.eq(group == 0),
            self.last_group.eq(group + 1 == groups),
        ]
        with m.If(self.start):
            m.d.sync += [
                queries.eq(self.queries),
                groups.eq(self.groups),
                chunks.eq(self.chunks),
                self.step.eq(1),
                row.eq(0),
                chunk.eq(0),
                group.eq(0),
                self.input_address.eq(0),
                self.weight_address.eq(0),
            ]
        with m.Elif(self.step & self.advance):
            # A query's vectors lie side by side, so the next query's is as many words away.
            m.d.sync += [row.eq(row + 1), self.input_address.eq(self.input_address + chunks)]
            with m.If(self.last_row):
                m.d.sync += [
                    row.eq(0),
                    chunk.eq(chunk + 1),
                    self.input_address.eq(chunk + 1),
                    self.weight_address.eq(self.weight_address + 1),
                ]
                with m.If(self.last_chunk):
                    m.d.sync += [chunk.eq(0), self.input_address.eq(0), group.eq(group + 1)]
                    with m.If(self.last_group):
                        m.d.sync += self.step.eq(0)
        return m
