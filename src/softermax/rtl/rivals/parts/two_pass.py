"""Two passes over a row, around any pipelined lanes: the max, then exponentials and their sum."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Cat, Module, Shape, Signal, unsigned
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from softermax.rtl.int_max import flip_sign
from softermax.rtl.pipeline import follow, stages
from softermax.rtl.rivals.parts.payloads import INT8, check_lanes, slice_layout, words_layout
from softermax.rtl.rivals.parts.row_max import RowMax, WideRowMax
from softermax.rtl.rivals.parts.total import LEVELS, Total


class ExponentialLanes(wiring.Component):
    """Exponentials of a slice. A subclass's `elaborate` keeps to this:

    ``distance`` and ``mask`` stand before the first of ``stages`` registers, whose enables are ``enable``. ``u`` and ``terms`` follow
    the last one: what waits for the row's sum, and what is added up, which may be another word. Masked lanes give what
    normalises to 0, and the term 0. A distance comes from a subtraction in the same cycle.
    """

    def __init__(self, distance_bits: int, word_bits: int, term_bits: int, lanes: int, stages: int) -> None:
        self.lanes = lanes
        self.stages = stages
        self.word_bits = word_bits
        self.term_bits = term_bits
        super().__init__(
            {
                "distance": In(data.ArrayLayout(unsigned(distance_bits), lanes)),
                "mask": In(lanes),
                "enable": In(stages),
                "u": Out(data.ArrayLayout(unsigned(word_bits), lanes)),
                "terms": Out(data.ArrayLayout(unsigned(term_bits), lanes)),
            }
        )


def finished_layout(total_bits: int) -> data.StructLayout:
    """What is known of a row that ended."""
    return data.StructLayout({"total": unsigned(total_bits)})


class TwoPassSum(wiring.Component):
    """Each row comes twice: its slices through ``first_pass``, then again through ``second_pass``.

    The first pass finds the row's max; the second one gives the words of every slice in ``kept`` and the row's sum in
    ``finished``. Both passes take a slice per cycle and run at the same time, the second one a row later: a max waits until the
    row's last slice has come again, and until then the next row's max has to wait. ``kept`` comes `latency` cycles after its
    slice of the second pass, a sum `sum_latency` cycles after the row's last. Each may be held up on its own.
    """

    def __init__(
        self,
        lanes: ExponentialLanes,
        total_bits: int,
        score: Shape = INT8,
        levels: int = LEVELS,
        slice_first: bool = False,
    ) -> None:
        self.lanes = check_lanes(lanes.lanes)
        super().__init__(
            {
                "first_pass": In(stream.Signature(slice_layout(score, self.lanes))),
                "second_pass": In(stream.Signature(slice_layout(score, self.lanes))),
                "kept": Out(stream.Signature(words_layout(unsigned(lanes.word_bits), self.lanes))),
                "finished": Out(stream.Signature(finished_layout(total_bits))),
            }
        )
        self._score = score
        self._wide = score.width > 8
        self.max = WideRowMax(score, self.lanes) if self._wide else RowMax(score, self.lanes)
        self.exponential = lanes
        self.total = Total(lanes.term_bits, self.lanes, total_bits, levels, slice_first)
        self.max_latency = self.max.stages + 1
        """Cycles from a row's last slice of the first pass until the second pass may begin."""
        self.latency = lanes.stages
        self.sum_latency = lanes.stages + self.total.tree_stages + 1

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        m.submodules.max = self.max
        m.submodules.exponential = self.exponential
        m.submodules.total = self.total
        released, maximum = Signal(), Signal(self._score.width, reset_less=True)
        valid = (
            self._first_pass_wide(m, maximum, released)
            if self._wide
            else self._first_pass(m, maximum, released)
        )
        self._second_pass(m, maximum, valid, released)
        return m

    def _first_pass(self, m: Module, maximum: Signal, released: Signal) -> Signal:
        """The running max is in `RowMax`'s register; with the row's last slice it goes to ``maximum``."""
        slices, unit = self.first_pass, self.max
        advance, ended, maximum_valid, into_max = Signal(), Signal(), Signal(), Signal()
        m.d.comb += [
            advance.eq(~ended | into_max),
            into_max.eq(ended & (~maximum_valid | released)),
            slices.ready.eq(advance),
            unit.x.eq(slices.p.x),
            unit.mask.eq(slices.p.mask),
            unit.first.eq(slices.p.first),
            unit.enable.eq(slices.valid & advance),
        ]
        with m.If(advance):
            m.d.sync += ended.eq(slices.valid & slices.p.last)
        with m.If(into_max):
            m.d.sync += maximum.eq(unit.running)
        with m.If(into_max | released):
            m.d.sync += maximum_valid.eq(into_max)
        return maximum_valid

    def _first_pass_wide(self, m: Module, maximum: Signal, released: Signal) -> Signal:
        slices, unit = self.first_pass, self.max
        advance, into_row, maximum_valid = Signal(), Signal(), Signal()
        valids, enable = stages(m, slices.valid, advance, unit.stages, "first_pass")
        flags = follow(m, Cat(slices.p.first, slices.p.last), enable, "first_pass_flags")
        first, last = flags[-1][0], flags[-1][1]
        m.d.comb += [
            advance.eq(~(valids[-1] & last & maximum_valid & ~released)),
            into_row.eq(valids[-1] & advance),
            slices.ready.eq(advance),
            unit.x.eq(slices.p.x),
            unit.mask.eq(slices.p.mask),
            unit.enable.eq(Cat(*enable)),
            unit.first.eq(first),
            unit.enable_row.eq(into_row & ~last),
        ]
        with m.If(into_row & last):
            m.d.sync += [maximum.eq(unit.maximum), maximum_valid.eq(1)]
        with m.Elif(released):
            m.d.sync += maximum_valid.eq(0)
        return maximum_valid

    def _second_pass(self, m: Module, maximum: Signal, maximum_valid: Signal, released: Signal) -> None:
        slices, kept, finished = self.second_pass, self.kept, self.finished
        exponential, total = self.exponential, self.total
        to_kept, to_row = exponential.stages, exponential.stages + total.tree_stages
        advance, sum_waits, taken, into_sum = Signal(), Signal(), Signal(), Signal()
        valids, enables = stages(m, taken, advance, to_row, "second_pass")
        lasts = follow(m, slices.p.last, enables, "last")
        firsts = follow(m, slices.p.first, enables, "first")
        m.d.comb += [
            # A row's sum is its own output register: it stays until it is taken.
            sum_waits.eq(valids[-1] & finished.valid & ~finished.ready),
            into_sum.eq(valids[-1] & advance),
            advance.eq(~sum_waits & (~kept.valid | kept.ready)),
            kept.valid.eq(valids[to_kept - 1] & ~sum_waits),
            slices.ready.eq(maximum_valid & advance),
            taken.eq(slices.valid & maximum_valid),
            released.eq(slices.valid & slices.ready & slices.p.last),
            exponential.mask.eq(slices.p.mask),
            exponential.enable.eq(Cat(*enables[:to_kept])),
            total.terms.eq(exponential.terms),
            total.first.eq(firsts[-1]),
            total.enable.eq(Cat(*enables[to_kept:], into_sum)),
            kept.p.last.eq(lasts[to_kept - 1]),
            finished.p.total.eq(total.total),
        ]
        with m.If(into_sum | finished.ready):
            m.d.sync += finished.valid.eq(into_sum & lasts[-1])
        for lane in range(self.lanes):
            m.d.comb += [
                exponential.distance[lane].eq(maximum - flip_sign(slices.p.x[lane])),
                kept.p.u[lane].eq(exponential.u[lane]),
            ]
