"""Tiles with the FP16 baselines, one PE each: operands in, probabilities in half precision out."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Module, Signal
from amaranth.lib import data, fifo, stream, wiring
from amaranth.lib.wiring import In, Out

from softermax.rtl.baseline.generic import normalization as generic_normalization
from softermax.rtl.baseline.generic import unnormed as generic_unnormed
from softermax.rtl.baseline.normalization import Normalization
from softermax.rtl.baseline.online import OnlineUnnormed
from softermax.rtl.baseline.online_normalization import OnlineNormalization
from softermax.rtl.baseline.payloads import HALF, halves, output_layout
from softermax.rtl.baseline.unnormed import Unnormed
from softermax.rtl.pe.config import PEConfig, Softmax
from softermax.rtl.pe.counters import counts_layout, row_ends, show_counts
from softermax.rtl.pe.payloads import command_layout
from softermax.rtl.pe.post_processing import Requantization, around, half_content, rows_of
from softermax.rtl.pe.processing_element import ProcessingElement
from softermax.rtl.pe.tile_store import TileStore


def _ports(config: PEConfig, softmax: Softmax) -> dict[str, Any]:
    return {
        "commands_0": In(stream.Signature(command_layout(config))),
        "probabilities": Out(stream.Signature(output_layout(config.lanes))),
        "counts": Out(stream.Signature(counts_layout(softmax))),
    }


class BaselineTile(wiring.Component):
    """The baseline of two passes: a row's scores are read back from the global buffer for its max, then again
    for its exponentials, which wait there for the division. Its units are lean ones, or of generic components."""

    def __init__(self, config: PEConfig, depth: int, generic: bool = False) -> None:
        self.config, self.depth = config, depth
        lanes = config.lanes
        self.processing = ProcessingElement(config)
        self.requantization = Requantization(config, None)
        self.store = TileStore(half_content(lanes), config.rows, depth, readers=2)
        self.unnormed: Unnormed = generic_unnormed.Unnormed(lanes) if generic else Unnormed(lanes)
        self.normalization = (generic_normalization.Normalization if generic else Normalization)(lanes)
        super().__init__(_ports(config, "two-pass"))

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        m.submodules.processing = processing = self.processing
        m.submodules.requantization = requantization = self.requantization
        m.submodules.store = store = self.store
        m.submodules.unnormed = unnormed = self.unnormed
        m.submodules.normalization = division = self.normalization
        wiring.connect(m, wiring.flipped(self.commands_0), processing.commands)
        wiring.connect(m, processing.scores, requantization.scores)
        words = requantization.requantized
        m.d.comb += [
            words.ready.eq(store.write.ready),
            store.write.valid.eq(words.valid),
            store.write.p.word.x.eq(words.p.x),
            store.write.p.word.mask.eq(words.p.mask),
            *(getattr(store.write.p, name).eq(words.p[name]) for name in ("row", "last", "ends_tile")),
        ]
        for read, into in ((store.read_0, unnormed.first_pass), (store.read_1, unnormed.second_pass)):
            m.d.comb += [
                into.valid.eq(read.valid),
                read.ready.eq(into.ready),
                into.p.x.eq(read.p.word.x),
                into.p.mask.eq(read.p.word.mask),
                into.p.first.eq(read.p.first),
                into.p.last.eq(read.p.last),
            ]
        # A row's exponentials wait for its sum, which comes after its last slice: room for two rows.
        width = unnormed.unnormed.p.shape().size
        m.submodules.waiting = waiting = fifo.SyncFIFOBuffered(
            width=width, depth=2 * self.depth + unnormed.sum_latency
        )
        m.d.comb += [
            waiting.w_data.eq(unnormed.unnormed.p.as_value()),
            waiting.w_en.eq(unnormed.unnormed.valid),
            unnormed.unnormed.ready.eq(waiting.w_rdy),
            division.unnormed.p.eq(waiting.r_data),
            division.unnormed.valid.eq(waiting.r_rdy),
            waiting.r_en.eq(division.unnormed.ready),
        ]
        wiring.connect(m, unnormed.sums, division.sums)
        wiring.connect(m, division.probabilities, wiring.flipped(self.probabilities))
        waits = [waiting.w_en & waiting.w_rdy, waiting.r_en & waiting.r_rdy]
        ends = row_ends(self.probabilities)
        show_counts(m, self.counts, "two-pass", processing, [*store.accesses, *waits], ends)
        return m


class OnlineTile(wiring.Component):
    """The baseline of one pass: exponentials wait in the global buffer, with the running max of their slice, until
    their row is finished. The maxima are read ahead of them."""

    def __init__(self, config: PEConfig, depth: int) -> None:
        self.config = config
        lanes = config.lanes
        self.processing = ProcessingElement(config)
        self.requantization = Requantization(config, None)
        self.unnormed = OnlineUnnormed(lanes, config.rows)
        content = data.StructLayout({"u": halves(lanes), "max": HALF})
        self.store = TileStore(content, config.rows, depth, readers=2)
        self.normalization = OnlineNormalization(lanes)
        super().__init__(_ports(config, "online"))

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        m.submodules.processing = processing = self.processing
        m.submodules.requantization = requantization = self.requantization
        m.submodules.unnormed = unnormed = self.unnormed
        m.submodules.store = store = self.store
        m.submodules.normalization = normalization = self.normalization
        wiring.connect(m, wiring.flipped(self.commands_0), processing.commands)
        wiring.connect(m, processing.scores, requantization.scores)
        moves = Signal()
        room = rows_of(m, unnormed, normalization.rows, moves, 2 * self.config.rows)
        around(m, requantization.requantized, unnormed, store.write, moves, room)
        maxima, numerators = normalization.maxima, normalization.unnormed
        m.d.comb += [
            store.write.p.word.u.eq(unnormed.unnormed.p.u),
            maxima.valid.eq(store.read_0.valid),
            maxima.p.max.eq(store.read_0.p.word.max),
            maxima.p.last.eq(store.read_0.p.last),
            store.read_0.ready.eq(maxima.ready),
            numerators.valid.eq(store.read_1.valid),
            numerators.p.u.eq(store.read_1.p.word.u),
            numerators.p.last.eq(store.read_1.p.last),
            store.read_1.ready.eq(numerators.ready),
        ]
        wiring.connect(m, normalization.probabilities, wiring.flipped(self.probabilities))
        ends = row_ends(self.probabilities)
        show_counts(m, self.counts, "online", processing, list(store.accesses), ends)
        return m
