"""Normalization of any rival: one factor per row, and lanes that apply it."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Cat, Module, Shape, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from softermax.rtl.pipeline import follow, register, stages
from softermax.rtl.rivals.parts.payloads import output_layout


class RowUnit(wiring.Component):
    """Finds what the lanes need of a row. A subclass's `elaborate` keeps to this:

    With ``start`` it takes ``finished``. For ``cycles`` cycles after that ``working`` is set, and ``step`` counts them from 0. Then
    ``factor`` stands, until the next start. Registers take something with ``start`` and ``working`` only.
    """

    def __init__(self, finished: data.StructLayout, factor: data.StructLayout, cycles: int) -> None:
        self.cycles = cycles
        super().__init__(
            {
                "finished": In(finished),
                "start": In(1),
                "working": In(1),
                "step": In(range(max(cycles, 2))),
                "factor": Out(factor),
            }
        )


class LaneUnit(wiring.Component):
    """Output words of a slice and its row's factor. A subclass's `elaborate` keeps to this:

    ``kept`` and ``factor`` stand for the slice before the first of ``stages`` registers, whose enables are ``enable``; ``y``
    follows the last register. The next slice's factor may be another row's: what a later stage needs goes through registers.
    """

    def __init__(
        self, kept: data.StructLayout, factor: data.StructLayout, output: Shape, lanes: int, stages: int
    ) -> None:
        self.stages = stages
        self.lanes = lanes
        self.output = output
        super().__init__(
            {
                "kept": In(kept),
                "factor": In(factor),
                "enable": In(stages),
                "y": Out(data.ArrayLayout(output, lanes)),
            }
        )


class RowNormalization(wiring.Component):
    """Finished rows and their slices in, probabilities out, one slice per cycle, `latency` cycles later.

    ``finished`` brings what is known of a row, ``kept`` then all slices of that row, the last one with ``last`` set. A row's
    factor is found while the row before goes through: no slice waits where rows have at least ``row.cycles + 1`` of them.

    row      `RowUnit`, in cycles of its own           | factor
             once the row before has ended             | the factor again, for the lanes
    stages   `LaneUnit`
    """

    def __init__(self, row: RowUnit, lane: LaneUnit) -> None:
        self.lanes = lane.lanes
        self.row_unit = row
        self.lane_unit = lane
        self.latency = lane.stages
        self.row_latency = row.cycles + 2
        """Cycles from a finished row until its first slice can be taken."""
        self.row_interval = row.cycles + 1
        """Slices that a row must have for no slice to wait."""
        super().__init__(
            {
                "finished": In(stream.Signature(row.finished.shape())),
                "kept": In(stream.Signature(lane.kept.shape())),
                "probabilities": Out(stream.Signature(output_layout(lane.output, lane.lanes))),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        m.submodules.row = row = self.row_unit
        m.submodules.lanes = lane = self.lane_unit
        kept, out = self.kept, self.probabilities
        row_valid, row_ends = Signal(), Signal()
        into_row = self._find_factor(m, row_valid, row_ends)
        factor = Signal(row.factor.shape(), reset_less=True)
        with m.If(into_row):
            m.d.sync += factor.eq(row.factor)
        with m.If(into_row | row_ends):
            m.d.sync += row_valid.eq(into_row)

        advance, taken = Signal(), Signal()
        valids, enables = stages(m, taken, advance, lane.stages, "lanes")
        lasts = follow(m, kept.p.last, enables, "last")
        m.d.comb += [
            advance.eq(~out.valid | out.ready),
            taken.eq(kept.valid & row_valid),
            kept.ready.eq(row_valid & advance),
            row_ends.eq(kept.valid & kept.ready & kept.p.last),
            lane.kept.eq(kept.p),
            lane.factor.eq(factor),
            lane.enable.eq(Cat(*enables)),
            out.valid.eq(valids[-1]),
            out.p.last.eq(lasts[-1]),
        ]
        m.d.comb += [out.p.y[i].eq(lane.y[i]) for i in range(self.lanes)]
        return m

    def _find_factor(self, m: Module, row_valid: Signal, row_ends: Signal) -> Signal:
        """The row unit at work; set when its factor goes to the lanes."""
        row, finished = self.row_unit, self.finished
        found, into_row = Signal(), Signal()
        m.d.comb += [
            into_row.eq(found & (~row_valid | row_ends)),
            finished.ready.eq(~row.working & (~found | into_row)),
            row.start.eq(finished.valid & finished.ready),
            row.finished.eq(finished.p),
        ]
        if not row.cycles:
            with m.If(finished.ready):
                m.d.sync += found.eq(row.start)
            return into_row
        working, ends = Signal(), Signal()
        step = Signal.like(row.step, reset_less=True)
        m.d.comb += [row.working.eq(working), row.step.eq(step), ends.eq(working & (step == row.cycles - 1))]
        with m.If(row.start | ends):
            m.d.sync += working.eq(row.start)
        with m.If(row.start):
            m.d.sync += step.eq(0)
        with m.Elif(working):
            m.d.sync += step.eq(step + 1)
        with m.If(ends | into_row):
            m.d.sync += found.eq(ends)
        return into_row


class Passed(RowUnit):
    """A row unit that finds nothing: what is known of the row is the factor."""

    def __init__(self, finished: data.StructLayout) -> None:
        super().__init__(finished, finished, 0)

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        m.d.comb += self.factor.eq(register(m, self.finished.as_value(), self.start, "known"))
        return m
