"""A tile with deferred normalisation (A8), one PE: queries, keys and values in, attention's outputs out."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Cat, Const, Module, signed
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from softermax.rtl.deferred import DeferredTail
from softermax.rtl.payloads import VALUE_BITS
from softermax.rtl.pe.config import PEConfig
from softermax.rtl.pe.counters import counts_layout, show_counts
from softermax.rtl.pe.payloads import command_layout
from softermax.rtl.pe.post_processing import DeferredPostProcessing, weight_content
from softermax.rtl.pe.processing_element import ProcessingElement
from softermax.rtl.pe.tile_store import TileStore
from softermax.spec import DeferredSpec


class DeferredTile(wiring.Component):
    """Weights wait in the global buffer for P·V, which `DeferredTail` does: ``values`` brings it the values of
    each slice, row after row. ``finished`` has the rows' max and PowSum as the PE's unit found them."""

    def __init__(self, config: PEConfig, spec: DeferredSpec, depth: int, columns: int) -> None:
        self.config, self.spec = config, spec
        lanes = config.lanes
        self.processing = ProcessingElement(config)
        self.post_processing = DeferredPostProcessing(config, spec)
        self.store = TileStore(weight_content(spec, lanes), config.rows, depth)
        self.tail = DeferredTail(spec, columns)
        values = data.ArrayLayout(data.ArrayLayout(signed(VALUE_BITS), columns), lanes)
        super().__init__(
            {
                "commands_0": In(stream.Signature(command_layout(config))),
                "values": In(stream.Signature(data.StructLayout({"v": values}))),
                "outputs": Out(self.tail.outputs.signature),
                "finished": Out(self.post_processing.finished.signature),
                "counts": Out(stream.Signature(counts_layout("deferred"))),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        m.submodules.processing = processing = self.processing
        m.submodules.post_processing = post = self.post_processing
        m.submodules.store = store = self.store
        m.submodules.tail = tail = self.tail
        wiring.connect(m, wiring.flipped(self.commands_0), processing.commands)
        wiring.connect(m, processing.scores, post.scores)
        wiring.connect(m, post.weights, store.write)
        wiring.connect(m, post.finished, wiring.flipped(self.finished))
        weights, values, slices = store.read_0, self.values, tail.slices
        # The tail rounds unnormed words itself: a weight with zeros below it stays what it is.
        below = self.spec.scores.unnormed.fraction - self.spec.weight.fraction
        m.d.comb += [
            slices.valid.eq(weights.valid & values.valid),
            weights.ready.eq(values.valid & slices.ready),
            values.ready.eq(weights.valid & slices.ready),
            slices.p.max.eq(weights.p.word.max),
            slices.p.last.eq(weights.p.last),
            slices.p.v.eq(values.p.v),
            *(
                slices.p.u[lane].eq(Cat(Const(0, below), weights.p.word.w[lane]))
                for lane in range(self.config.lanes)
            ),
        ]
        wiring.connect(m, tail.outputs, wiring.flipped(self.outputs))
        ends = self.outputs.valid & self.outputs.ready
        show_counts(m, self.counts, "deferred", processing, list(store.accesses), ends)
        return m
