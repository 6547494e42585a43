"""The post-processing unit: accumulators requantised, and the Unnormed Softmax unit after it.

All units take a whole query's scores of a group per cycle, NLanes of them. With the weights staying for
all queries, that is how fast the lanes finish scores while they work on the last chunk of a group, so a
narrower unit would hold the lanes up there.
"""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Cat, Module, Signal, unsigned
from amaranth.lib import data, fifo, stream, wiring
from amaranth.lib.wiring import In, Out

from softermax.rtl.baseline.payloads import halves
from softermax.rtl.payloads import finished_row_layout, integer_max, lanes_of
from softermax.rtl.pe.config import PEConfig
from softermax.rtl.pe.payloads import row_bits, scores_layout
from softermax.rtl.pe.requantize import Requantize
from softermax.rtl.pe.requantize_half import RequantizeHalf
from softermax.rtl.pe.tile_store import stored_layout
from softermax.rtl.pe.weight_softmax import WeightSoftmax
from softermax.rtl.pipeline import follow, stages
from softermax.rtl.unnormed_softmax import UnnormedSoftmax
from softermax.rtl.unnormed_sum import UnnormedSum
from softermax.spec import DeferredSpec, SoftermaxSpec


def score_content(spec: SoftermaxSpec, lanes: int) -> data.StructLayout:
    """What the global buffer holds of a slice until its row is finished: scores."""
    return data.StructLayout({"x": lanes_of(spec.input, lanes), "mask": lanes})


def half_content(lanes: int) -> data.StructLayout:
    """The same of the baseline: scores in half precision."""
    return data.StructLayout({"x": halves(lanes), "mask": lanes})


def weight_content(spec: DeferredSpec, lanes: int) -> data.StructLayout:
    """What the global buffer holds for P·V with deferred normalisation: weights, and the max that they refer to."""
    return data.StructLayout({"w": lanes_of(spec.weight, lanes), "max": integer_max(spec.scores)})


def requantized_layout(x: Any, config: PEConfig) -> data.StructLayout:
    """Scores of one query in the softmax unit's words, and where they stand."""
    return data.StructLayout(
        {
            "x": x,
            "mask": unsigned(config.lanes),
            "row": unsigned(row_bits(config)),
            "first": 1,
            "last": 1,
            "ends_tile": 1,
        }
    )


class Requantization(wiring.Component):
    """Scores of the lanes in, the softmax unit's words out, a register for each stage of a requantisation lane."""

    def __init__(self, config: PEConfig, spec: SoftermaxSpec | None) -> None:
        """Without a spec: half precision."""
        self.lanes: list[Any]
        if spec is None:
            self.lanes, x = [RequantizeHalf(config) for _ in range(config.lanes)], halves(config.lanes)
        else:
            if spec.slice_width != config.lanes:
                raise ValueError(
                    f"slice_width = {spec.slice_width}: must be the PE's number of lanes, {config.lanes}"
                )
            self.lanes = [Requantize(config, spec) for _ in range(config.lanes)]
            x = lanes_of(spec.input, config.lanes)
        super().__init__(
            {
                "scores": In(stream.Signature(scores_layout(config))),
                "requantized": Out(stream.Signature(requantized_layout(x, config))),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        scores, out = self.scores, self.requantized
        advance = Signal()
        valids, enables = stages(m, scores.valid, advance, self.lanes[0].registers, "requantize")
        names = ("mask", "row", "first", "last", "ends_tile")
        kept = {name: follow(m, getattr(scores.p, name), enables, name)[-1] for name in names}
        # The mantissa is taken in stage 2, the shift in stage 3.
        mantissa = follow(m, scores.p.mantissa, enables[:1], "mantissa")[-1]
        shift = follow(m, scores.p.shift, enables[:2], "shift")[-1]
        m.d.comb += [
            advance.eq(~out.valid | out.ready),
            scores.ready.eq(advance),
            out.valid.eq(valids[-1]),
            *(getattr(out.p, name).eq(value) for name, value in kept.items()),
        ]
        for i, lane in enumerate(self.lanes):
            m.submodules[f"requantize_{i}"] = lane
            m.d.comb += [
                lane.acc.eq(scores.p.acc[i]),
                lane.mantissa.eq(mantissa),
                lane.enable.eq(Cat(*enables)),
                lane.shift.eq(shift),
                out.p.x[i].eq(lane.x),
            ]
        return m


def rows_of(m: Module, softmax: Any, finished: Any, moves: Any, depth: int) -> Any:
    """Pairs the max of a row's last slice with its sum, which follows; whether there is room for a max."""
    unnormed, sums = softmax.unnormed, softmax.sums
    m.submodules.maxima = maxima = fifo.SyncFIFO(width=len(finished.p.max), depth=16)
    m.submodules.rows = rows = fifo.SyncFIFOBuffered(width=finished.p.shape().size, depth=depth)
    row = Signal(finished.p.shape())
    m.d.comb += [
        maxima.w_data.eq(unnormed.p.max),
        maxima.w_en.eq(moves & unnormed.p.last),
        row.max.eq(maxima.r_data),
        row.powsum.eq(sums.p.powsum),
        sums.ready.eq(rows.w_rdy & maxima.r_rdy),
        rows.w_en.eq(sums.valid & sums.ready),
        rows.w_data.eq(row),
        maxima.r_en.eq(rows.w_en),
        finished.p.eq(rows.r_data),
        finished.valid.eq(rows.r_rdy),
        rows.r_en.eq(finished.ready),
    ]
    if "row" in row.shape().members:
        m.d.comb += row.row.eq(sums.p.row)
    return maxima.w_rdy


class PostProcessing(wiring.Component):
    """Scores in; each finished row's max and PowSum out, and the scores themselves, which wait for them in the
    global buffer: Normalization takes them from there."""

    def __init__(self, config: PEConfig, spec: SoftermaxSpec) -> None:
        self.config, self.spec = config, spec
        self.requantization = Requantization(config, spec)
        self.sums_only = spec.normalization == "row-products"
        self.unnormed_softmax = (UnnormedSum if self.sums_only else UnnormedSoftmax)(spec, config.rows)
        super().__init__(
            {
                "scores": In(stream.Signature(scores_layout(config))),
                "kept": Out(stream.Signature(stored_layout(score_content(spec, config.lanes), config.rows))),
                "finished": Out(stream.Signature(finished_row_layout(spec, config.rows))),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        m.submodules.requantization = requantization = self.requantization
        m.submodules.unnormed_softmax = softmax = self.unnormed_softmax
        wiring.connect(m, wiring.flipped(self.scores), requantization.scores)
        words, kept, slices = requantization.requantized, self.kept, softmax.slices
        if self.sums_only:
            self._finished(m, softmax.finished)
        else:
            moves, out = Signal(), softmax.unnormed
            room = rows_of(m, softmax, self.finished, moves, 2 * self.config.rows)
            m.d.comb += [out.ready.eq(room), moves.eq(out.valid & out.ready)]
        # A slice goes to the softmax unit and to the global buffer in the same cycle.
        m.d.comb += [
            words.ready.eq(kept.ready & slices.ready),
            slices.valid.eq(words.valid & kept.ready),
            kept.valid.eq(words.valid & slices.ready),
            *(getattr(slices.p, name).eq(words.p[name]) for name in ("x", "mask", "row", "first", "last")),
            kept.p.word.x.eq(words.p.x),
            kept.p.word.mask.eq(words.p.mask),
            *(getattr(kept.p, name).eq(words.p[name]) for name in ("row", "last", "ends_tile")),
        ]
        return m

    def _finished(self, m: Module, finished: Any) -> None:
        """Rows wait for Normalization, those of two tiles at most."""
        out = self.finished
        m.submodules.rows = rows = fifo.SyncFIFOBuffered(width=out.p.shape().size, depth=2 * self.config.rows)
        m.d.comb += [
            rows.w_data.eq(finished.p.as_value()),
            rows.w_en.eq(finished.valid),
            finished.ready.eq(rows.w_rdy),
            out.p.eq(rows.r_data),
            out.valid.eq(rows.r_rdy),
            rows.r_en.eq(out.ready),
        ]


class DeferredPostProcessing(wiring.Component):
    """Scores in; weights for P·V out, and each finished row's max and PowSum (A8)."""

    def __init__(self, config: PEConfig, spec: DeferredSpec) -> None:
        self.config, self.spec = config, spec
        self.requantization = Requantization(config, spec.scores)
        self.weight_softmax = WeightSoftmax(spec, config.rows)
        super().__init__(
            {
                "scores": In(stream.Signature(scores_layout(config))),
                "weights": Out(
                    stream.Signature(stored_layout(weight_content(spec, config.lanes), config.rows))
                ),
                "finished": Out(stream.Signature(finished_row_layout(self.weight_softmax.spec, config.rows))),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        m.submodules.requantization = requantization = self.requantization
        m.submodules.weight_softmax = softmax = self.weight_softmax
        wiring.connect(m, wiring.flipped(self.scores), requantization.scores)
        moves = Signal()
        room = rows_of(m, softmax, self.finished, moves, 2 * self.config.rows)
        around(m, requantization.requantized, softmax, self.weights, moves, room)
        out, kept = softmax.unnormed, self.weights
        m.d.comb += [kept.p.word.w[i].eq(out.p.u[i]) for i in range(self.config.lanes)]
        return m


def around(m: Module, words: Any, softmax: Any, kept: Any, moves: Any, room: Any) -> None:
    """Slices through a softmax unit into the global buffer. The unit does not know of tiles: the marks of
    their ends go round it."""
    slices, out = softmax.slices, softmax.unnormed
    m.submodules.marks = marks = fifo.SyncFIFO(width=1, depth=64)
    m.d.comb += [
        words.ready.eq(marks.w_rdy & slices.ready),
        slices.valid.eq(words.valid & marks.w_rdy),
        *(getattr(slices.p, name).eq(words.p[name]) for name in ("x", "mask", "row", "first", "last")),
        marks.w_data.eq(words.p.ends_tile),
        marks.w_en.eq(slices.valid & slices.ready),
        kept.p.word.max.eq(out.p.max),
        kept.p.row.eq(out.p.row),
        kept.p.last.eq(out.p.last),
        kept.p.ends_tile.eq(marks.r_data),
        kept.valid.eq(out.valid & room),
        out.ready.eq(kept.ready & room),
        moves.eq(out.valid & out.ready),
        marks.r_en.eq(moves),
    ]
