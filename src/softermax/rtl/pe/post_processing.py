"""The post-processing unit: accumulators requantised, and the Unnormed Softmax unit behind it.

Both units take a whole query's scores of a group a cycle, NLanes of them. With the weights staying for
all queries, that is how fast the lanes finish scores while they work on the last chunk of a group, so a
narrower unit would hold the lanes up there.
"""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import data, fifo, stream, wiring
from amaranth.lib.wiring import In, Out

from softermax.rtl.baseline.pipeline import follow, stages
from softermax.rtl.baseline.words import halves
from softermax.rtl.pe.config import PEConfig
from softermax.rtl.pe.requantize import Requantize
from softermax.rtl.pe.requantize_half import RequantizeHalf
from softermax.rtl.pe.tile_store import stored_layout
from softermax.rtl.pe.words import scores_layout
from softermax.rtl.unnormed_softmax import UnnormedSoftmax
from softermax.rtl.words import finished_row_layout, integer_max, lanes_of
from softermax.spec import SoftermaxSpec


def unnormed_content(spec: SoftermaxSpec, lanes: int) -> data.StructLayout:
    """What the global buffer holds of a slice: unnormed words and the max that they refer to."""
    return data.StructLayout({"u": lanes_of(spec.unnormed, lanes), "max": integer_max(spec)})


def score_content(lanes: int) -> data.StructLayout:
    """What the global buffer holds of a slice of the baseline: scores in half precision."""
    return data.StructLayout({"x": halves(lanes), "mask": lanes})


class PostProcessing(wiring.Component):
    """Scores in; unnormed slices for the global buffer out, and each finished row's max and PowSum."""

    def __init__(self, config: PEConfig, spec: SoftermaxSpec) -> None:
        if spec.slice_width != config.lanes:
            raise ValueError(
                f"slice_width = {spec.slice_width}: allowed is the PE's number of lanes, {config.lanes}"
            )
        self.config, self.spec = config, spec
        super().__init__(
            {
                "scores": In(stream.Signature(scores_layout(config))),
                "unnormed": Out(
                    stream.Signature(stored_layout(unnormed_content(spec, config.lanes), config.rows))
                ),
                "finished": Out(stream.Signature(finished_row_layout(spec, config.rows))),
            }
        )
        self.unnormed_softmax = UnnormedSoftmax(spec, config.rows)

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        m.submodules.unnormed_softmax = softmax = self.unnormed_softmax
        scores, unnormed, finished, slices = self.scores, self.unnormed, self.finished, softmax.slices

        # Requantisation: two registers in front of the softmax unit.
        m.submodules.marks = marks = fifo.SyncFIFO(width=1, depth=8)
        advance = Signal()
        valids, enables = stages(m, scores.valid, advance, 2, "requantize")
        valid = valids[-1]
        m.d.comb += [advance.eq(~valid | (slices.valid & slices.ready)), scores.ready.eq(advance)]
        kept = {name: follow(m, getattr(scores.p, name), enables, name)[-1]
                for name in ("mask", "row", "first", "last", "ends_tile", "shift")}  # fmt: skip
        mantissa = follow(m, scores.p.mantissa, enables[:1], "mantissa")[0]
        for lane in range(self.config.lanes):
            m.submodules[f"requantize_{lane}"] = requantize = Requantize(self.config, self.spec)
            m.d.comb += [
                requantize.acc.eq(scores.p.acc[lane]),
                requantize.mantissa.eq(mantissa),
                requantize.enable.eq(Cat(*enables)),
                requantize.shift.eq(kept["shift"]),
                slices.p.x[lane].eq(requantize.x),
            ]

        # The softmax unit does not know of tiles: their ends' marks go round it.
        m.d.comb += [
            slices.valid.eq(valid & marks.w_rdy),
            *(getattr(slices.p, name).eq(kept[name]) for name in ("mask", "row", "first", "last")),
            marks.w_data.eq(kept["ends_tile"]),
            marks.w_en.eq(slices.valid & slices.ready),
        ]
        # A row's max goes with its last slice; its PowSum follows.
        m.submodules.maxima = maxima = fifo.SyncFIFO(width=len(finished.p.max), depth=8)
        out = softmax.unnormed
        moves = Signal()
        m.d.comb += [
            unnormed.p.word.u.eq(out.p.u),
            unnormed.p.word.max.eq(out.p.max),
            unnormed.p.row.eq(out.p.row),
            unnormed.p.last.eq(out.p.last),
            unnormed.p.ends_tile.eq(marks.r_data),
            unnormed.valid.eq(out.valid & maxima.w_rdy),
            out.ready.eq(unnormed.ready & maxima.w_rdy),
            moves.eq(out.valid & out.ready),
            marks.r_en.eq(moves),
            maxima.w_data.eq(out.p.max),
            maxima.w_en.eq(moves & out.p.last),
        ]
        m.submodules.rows = rows = fifo.SyncFIFOBuffered(
            width=finished.p.shape().size, depth=2 * self.config.rows
        )
        row = Signal(finished.p.shape())
        m.d.comb += [
            row.max.eq(maxima.r_data),
            row.powsum.eq(softmax.sums.p.powsum),
            row.row.eq(softmax.sums.p.row),
            softmax.sums.ready.eq(rows.w_rdy & maxima.r_rdy),
            rows.w_en.eq(softmax.sums.valid & softmax.sums.ready),
            rows.w_data.eq(row),
            maxima.r_en.eq(rows.w_en),
            finished.p.eq(rows.r_data),
            finished.valid.eq(rows.r_rdy),
            rows.r_en.eq(finished.ready),
        ]
        return m


class HalfPostProcessing(wiring.Component):
    """The baseline's: scores in half precision go to the global buffer, for the unit needs a row twice."""

    def __init__(self, config: PEConfig) -> None:
        self.config = config
        super().__init__(
            {
                "scores": In(stream.Signature(scores_layout(config))),
                "halves": Out(stream.Signature(stored_layout(score_content(config.lanes), config.rows))),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        scores, out = self.scores, self.halves
        advance = Signal()
        valids, enables = stages(m, scores.valid, advance, 3, "requantize")
        kept = {name: follow(m, getattr(scores.p, name), enables, name)[-1]
                for name in ("mask", "row", "last", "ends_tile")}  # fmt: skip
        mantissa = follow(m, scores.p.mantissa, enables[:1], "mantissa")[0]
        shift = follow(m, scores.p.shift, enables[:2], "shift")[-1]
        m.d.comb += [
            advance.eq(~out.valid | out.ready),
            scores.ready.eq(advance),
            out.valid.eq(valids[-1]),
            out.p.word.mask.eq(kept.pop("mask")),
            *(getattr(out.p, name).eq(value) for name, value in kept.items()),
        ]
        for lane in range(self.config.lanes):
            m.submodules[f"requantize_{lane}"] = requantize = RequantizeHalf(self.config)
            m.d.comb += [
                requantize.acc.eq(scores.p.acc[lane]),
                requantize.mantissa.eq(mantissa),
                requantize.enable.eq(Cat(*enables)),
                requantize.shift.eq(shift),
                out.p.word.x[lane].eq(requantize.x),
            ]
        return m
