"""The Softermax top: from a stream of slices of scores to a stream of probabilities."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Module
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from softermax.rtl.normalization import Normalization
from softermax.rtl.payloads import output_layout, slice_layout
from softermax.rtl.product_normalization import ProductNormalization
from softermax.rtl.slice_buffer import SliceBuffer
from softermax.rtl.unit import Event, Unit
from softermax.rtl.unnormed_softmax import UnnormedSoftmax
from softermax.rtl.unnormed_sum import UnnormedSum
from softermax.spec import SoftermaxSpec


class Softermax(Unit):
    """Both units with the buffer between them; one slice per cycle in and out.

    Up to ``rows`` rows may be open at a time, their slices interleaved in any way. The probabilities
    of a row come out together, slice by slice, in the order in which rows finish. A row may have
    up to ``depth`` slices; when it is finished, its row id may be used for the next row at once.
    """

    name = "top"
    module_name = "softermax_top"
    options = ("depth", "rows")
    spec: SoftermaxSpec

    def __init__(self, spec: SoftermaxSpec, rows: int = 2, depth: int = 32) -> None:
        self.spec = spec
        self._row_products = spec.normalization == "row-products"
        self.unnormed_softmax = UnnormedSum(spec, rows) if self._row_products else UnnormedSoftmax(spec, rows)
        self.slice_buffer = SliceBuffer(spec, rows, depth)
        self.rows, self.depth, self.lanes = rows, self.slice_buffer.depth, self.slice_buffer.lanes
        normalization = ProductNormalization if self._row_products else Normalization
        self.normalization = normalization(spec, self.lanes, rows)
        self.latency = (
            self.unnormed_softmax.sum_latency
            + SliceBuffer.latency
            + self.normalization.row_latency
            + self.normalization.latency
        )
        """Cycles from a row's last slice to its first probabilities, if no other row is ahead of it."""
        super().__init__(
            {
                "slices": In(stream.Signature(slice_layout(spec, rows))),
                "probabilities": Out(stream.Signature(output_layout(spec, self.lanes, rows))),
            }
        )

    @property
    def longest_row(self) -> int:
        return int(self.depth * self.lanes)

    def parameters(self) -> dict[str, Any]:
        made = {"lanes": self.lanes, "rows": self.rows, "depth (slices per row)": self.depth}
        return {**made, **self.spec.to_dict()}

    def timing(self) -> list[Event]:
        done = 1 + self.latency
        first = f"the row's first probabilities {self.latency} cycles after its last slice"
        return [
            Event("slices", (0, 1), "a row of two slices enters in cycles 0 and 1"),
            Event("probabilities", (done, done + 1), first),
        ]

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        m.submodules.unnormed_softmax = unnormed_softmax = self.unnormed_softmax
        m.submodules.slice_buffer = slice_buffer = self.slice_buffer
        m.submodules.normalization = normalization = self.normalization
        if self._row_products:
            self._fork(m)
            wiring.connect(m, unnormed_softmax.finished, slice_buffer.ended)
        else:
            wiring.connect(m, wiring.flipped(self.slices), unnormed_softmax.slices)
            wiring.connect(m, unnormed_softmax.unnormed, slice_buffer.unnormed)
            wiring.connect(m, unnormed_softmax.sums, slice_buffer.sums)
        wiring.connect(m, slice_buffer.finished, normalization.finished)
        wiring.connect(m, slice_buffer.slices, normalization.slices)
        wiring.connect(m, normalization.probabilities, wiring.flipped(self.probabilities))
        return m

    def _fork(self, m: Module) -> None:
        """Scores go into both the unit and the buffer, when both can take them."""
        slices, unit, buffer = self.slices, self.unnormed_softmax.slices, self.slice_buffer.scores
        m.d.comb += [
            unit.p.eq(slices.p),
            buffer.p.eq(slices.p),
            unit.valid.eq(slices.valid & buffer.ready),
            buffer.valid.eq(slices.valid & unit.ready),
            slices.ready.eq(unit.ready & buffer.ready),
        ]
