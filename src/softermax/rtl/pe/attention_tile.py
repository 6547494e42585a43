"""Operands in, probabilities out: PEs, their part of the global buffer, and Normalization between."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Module
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from softermax.rtl.payloads import output_layout
from softermax.rtl.pe.config import PEConfig
from softermax.rtl.pe.counters import counts_layout, row_ends, show_counts
from softermax.rtl.pe.payloads import command_layout
from softermax.rtl.pe.post_processing import PostProcessing, score_content
from softermax.rtl.pe.processing_element import ProcessingElement
from softermax.rtl.pe.shared_normalization import SharedNormalization
from softermax.rtl.pe.tile_store import TileStore
from softermax.spec import SoftermaxSpec


class AttentionTile(wiring.Component):
    """``pes`` PEs with Softermax and one Normalization unit. ``depth`` is the number of slices that a row
    may have.

    Each PE p takes its ``commands_p``. Probabilities come row by row, the PE's number in the upper bits of
    the row id. ``counts`` shows, after each row, how often PE 0 used each memory so far.
    """

    def __init__(self, config: PEConfig, spec: SoftermaxSpec, depth: int, pes: int = 1) -> None:
        self.config, self.spec, self.pes = config, spec, pes
        self.processing = [ProcessingElement(config) for _ in range(pes)]
        self.post_processing = [PostProcessing(config, spec) for _ in range(pes)]
        self.stores = [TileStore(score_content(spec, config.lanes), config.rows, depth) for _ in range(pes)]
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
            wiring.connect(m, post.kept, store.write)
            wiring.connect(m, post.finished, getattr(normalization, f"finished_{pe}"))
            wiring.connect(m, store.read_0, getattr(normalization, f"slices_{pe}"))
        wiring.connect(m, normalization.probabilities, wiring.flipped(self.probabilities))
        ends = row_ends(self.probabilities)
        show_counts(m, self.counts, "softermax", self.processing[0], list(self.stores[0].accesses), ends)
        return m
