"""Operands in, probabilities out: PEs, their part of the global buffer, and Normalization between."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Const, Module, Signal, unsigned
from amaranth.lib import data, fifo, stream, wiring
from amaranth.lib.wiring import In, Out

from softermax.rtl.baseline.normalization import Normalization as Division
from softermax.rtl.baseline.unnormed import Unnormed
from softermax.rtl.baseline.words import output_layout as quotient_layout
from softermax.rtl.pe.config import PEConfig
from softermax.rtl.pe.post_processing import (
    HalfPostProcessing,
    PostProcessing,
    score_content,
    unnormed_content,
)
from softermax.rtl.pe.processing_element import BUFFERS, ProcessingElement
from softermax.rtl.pe.shared_normalization import SharedNormalization
from softermax.rtl.pe.tile_store import TileStore
from softermax.rtl.pe.words import command_layout
from softermax.rtl.words import output_layout
from softermax.spec import SoftermaxSpec

COUNT_BITS = 32
COUNTED = tuple(f"{name}_{port}" for name in BUFFERS for port in ("reads", "writes"))
STORES = {
    "softermax": ("unnormed_writes", "unnormed_reads"),
    "two-pass": ("scores_writes", "scores_max_reads", "scores_reads", "unnormed_writes", "unnormed_reads"),
}
"""Accesses to the global buffer, a slice each."""


def counts_layout(softmax: str) -> data.StructLayout:
    """How often each port was used, in cycles in which it was, and all cycles."""
    names = (*COUNTED, *STORES[softmax], "cycles")
    return data.StructLayout({name: unsigned(COUNT_BITS) for name in names})


def _show_counts(
    m: Module, counts: Any, processing: ProcessingElement, stores: dict[str, Any], row_ends: Any
) -> None:
    """Counters, offered behind every row: the last ones are those of the whole job."""
    accesses = dict(zip(COUNTED, processing.accesses, strict=True)) | stores | {"cycles": Const(1)}
    for name, access in accesses.items():
        counter = Signal(COUNT_BITS, name=f"count_{name}")
        with m.If(access):
            m.d.sync += counter.eq(counter + 1)
        m.d.comb += getattr(counts.p, name).eq(counter)
    with m.If(row_ends):
        m.d.sync += counts.valid.eq(1)
    with m.Elif(counts.ready):
        m.d.sync += counts.valid.eq(0)


class AttentionTile(wiring.Component):
    """``pes`` PEs with Softermax and one Normalization unit. ``depth`` is the number of slices that a row
    may have.

    Each PE p takes its ``commands_p``. Probabilities come row by row, the PE's number in the upper bits of
    the row id. ``counts`` shows, behind each row, how often PE 0 used each memory so far.
    """

    def __init__(self, config: PEConfig, spec: SoftermaxSpec, depth: int, pes: int = 1) -> None:
        self.config, self.spec, self.pes = config, spec, pes
        self.processing = [ProcessingElement(config) for _ in range(pes)]
        self.post_processing = [PostProcessing(config, spec) for _ in range(pes)]
        self.stores = [
            TileStore(unnormed_content(spec, config.lanes), config.rows, depth) for _ in range(pes)
        ]
        self.normalization = SharedNormalization(config, spec, pes)
        commands = {f"commands_{pe}": In(stream.Signature(command_layout(config))) for pe in range(pes)}
        super().__init__(
            {
                **commands,
                "probabilities": Out(
                    stream.Signature(output_layout(spec, config.lanes, self.normalization.rows))
                ),
                "counts": Out(stream.Signature(counts_layout("softermax"))),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        m.submodules.normalization = normalization = self.normalization
        for pe, (processing, post, store) in enumerate(
            zip(self.processing, self.post_processing, self.stores, strict=True)
        ):
            m.submodules[f"processing_{pe}"] = processing
            m.submodules[f"post_processing_{pe}"] = post
            m.submodules[f"store_{pe}"] = store
            wiring.connect(m, wiring.flipped(getattr(self, f"commands_{pe}")), processing.commands)
            wiring.connect(m, processing.scores, post.scores)
            wiring.connect(m, post.unnormed, store.write)
            wiring.connect(m, post.finished, getattr(normalization, f"finished_{pe}"))
            slices = getattr(normalization, f"slices_{pe}")
            m.d.comb += [
                slices.valid.eq(store.read_0.valid),
                store.read_0.ready.eq(slices.ready),
                slices.p.u.eq(store.read_0.p.word.u),
                slices.p.max.eq(store.read_0.p.word.max),
                slices.p.last.eq(store.read_0.p.last),
            ]
        wiring.connect(m, normalization.probabilities, wiring.flipped(self.probabilities))
        stores = dict(zip(STORES["softermax"], self.stores[0].accesses, strict=True))
        _show_counts(m, self.counts, self.processing[0], stores, _row_ends(self.probabilities))
        return m


class BaselineTile(wiring.Component):
    """The same with the FP16 baseline of two passes, one PE: a row's scores are read back from the global
    buffer for its max, then again for its exponentials, which wait there for the division.
    """

    def __init__(self, config: PEConfig, depth: int) -> None:
        self.config, self.depth = config, depth
        lanes = config.lanes
        self.processing = ProcessingElement(config)
        self.post_processing = HalfPostProcessing(config)
        self.store = TileStore(score_content(lanes), config.rows, depth, readers=2)
        self.unnormed = Unnormed(lanes)
        self.normalization = Division(lanes)
        super().__init__(
            {
                "commands_0": In(stream.Signature(command_layout(config))),
                "probabilities": Out(stream.Signature(quotient_layout(lanes))),
                "counts": Out(stream.Signature(counts_layout("two-pass"))),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        m.submodules.processing = processing = self.processing
        m.submodules.post_processing = post = self.post_processing
        m.submodules.store = store = self.store
        m.submodules.unnormed = unnormed = self.unnormed
        m.submodules.normalization = division = self.normalization
        wiring.connect(m, wiring.flipped(self.commands_0), processing.commands)
        wiring.connect(m, processing.scores, post.scores)
        wiring.connect(m, post.halves, store.write)
        for read, into in ((store.read_0, unnormed.first_pass), (store.read_1, unnormed.second_pass)):
            m.d.comb += [
                into.valid.eq(read.valid),
                read.ready.eq(into.ready),
                into.p.x.eq(read.p.word.x),
                into.p.mask.eq(read.p.word.mask),
                into.p.first.eq(read.p.first),
                into.p.last.eq(read.p.last),
            ]
        # A row's exponentials wait for its sum, which comes behind its last slice: room for two rows.
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
        written, read = waiting.w_en & waiting.w_rdy, waiting.r_en & waiting.r_rdy
        stores = dict(zip(STORES["two-pass"], [*store.accesses, written, read], strict=True))
        _show_counts(m, self.counts, processing, stores, _row_ends(self.probabilities))
        return m


def _row_ends(probabilities: Any) -> Any:
    return probabilities.valid & probabilities.ready & probabilities.p.last
