"""One unit for several PEs: rows take turns, and each keeps the unit until its last slice."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from softermax.rtl.payloads import finished_row_layout, output_layout
from softermax.rtl.pe.config import PEConfig
from softermax.rtl.pe.post_processing import score_content
from softermax.rtl.pe.score_normalization import ScoreNormalization
from softermax.rtl.pe.tile_store import replayed_layout
from softermax.rtl.product_normalization import ProductNormalization
from softermax.rtl.sizes import check_count
from softermax.spec import SoftermaxSpec

MAX_PES = 64


class SharedNormalization(wiring.Component):
    """Streams ``finished_p`` and ``slices_p``, scores, of each PE p in, probabilities out.

    The row id of a probability is the PE's row with the PE's number above it. PEs with a finished
    row are served in turn.
    """

    def __init__(self, config: PEConfig, spec: SoftermaxSpec, pes: int = 1) -> None:
        self.pes = check_count("pes", pes, MAX_PES)
        self.rows = config.rows << ceil_log2(pes)
        self._row_bits = ceil_log2(config.rows)
        inputs = {}
        for pe in range(pes):
            inputs[f"finished_{pe}"] = In(stream.Signature(finished_row_layout(spec, config.rows)))
            inputs[f"slices_{pe}"] = In(
                stream.Signature(replayed_layout(score_content(spec, config.lanes), config.rows))
            )
        super().__init__(
            {**inputs, "probabilities": Out(stream.Signature(output_layout(spec, config.lanes, self.rows)))}
        )
        self._with_products = spec.normalization == "row-products"
        unit = ProductNormalization if self._with_products else ScoreNormalization
        self.normalization = unit(spec, config.lanes, self.rows)

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        m.submodules.normalization = unit = self.normalization
        wiring.connect(m, unit.probabilities, wiring.flipped(self.probabilities))
        owner = Signal(range(self.pes))
        busy, known, ends = Signal(), Signal(), Signal()
        row_max = Signal.like(unit.finished.p.max, reset_less=True)
        m.d.comb += ends.eq(unit.slices.valid & unit.slices.ready & unit.slices.p.last)
        with m.If(unit.finished.valid & unit.finished.ready):
            m.d.sync += [known.eq(1), row_max.eq(unit.finished.p.max)]
        with m.If(ends):
            m.d.sync += [busy.eq(0), known.eq(0)]
        waiting = [getattr(self, f"finished_{pe}").valid for pe in range(self.pes)]
        with m.If(~busy & Cat(*waiting).any()):
            m.d.sync += busy.eq(1)
            with m.Switch(owner):
                for pe in range(self.pes):
                    with m.Case(pe):
                        # The next in turn wins: later assignments come first.
                        for step in reversed(range(1, self.pes + 1)):
                            candidate = (pe + step) % self.pes
                            with m.If(waiting[candidate]):
                                m.d.sync += owner.eq(candidate)
        if not self._with_products:
            # Numerators are made anew of the scores and the row's max.
            m.d.comb += unit.slices.p.max.eq(row_max)
        with m.Switch(owner):
            for pe in range(self.pes):
                with m.Case(pe):
                    row, slices = getattr(self, f"finished_{pe}"), getattr(self, f"slices_{pe}")
                    m.d.comb += [
                        unit.finished.valid.eq(row.valid & busy & ~known),
                        row.ready.eq(unit.finished.ready & busy & ~known),
                        unit.finished.p.max.eq(row.p.max),
                        unit.finished.p.powsum.eq(row.p.powsum),
                        unit.finished.p.row.eq(row.p.row | (pe << self._row_bits)),
                        unit.slices.valid.eq(slices.valid & busy & known),
                        slices.ready.eq(unit.slices.ready & busy & known),
                        unit.slices.p.x.eq(slices.p.word.x),
                        unit.slices.p.mask.eq(slices.p.word.mask),
                        unit.slices.p.last.eq(slices.p.last),
                    ]
        return m
