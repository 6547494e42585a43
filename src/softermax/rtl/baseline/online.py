"""A stronger baseline: half precision, one pass over a row with a running max."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from amaranth.hdl import Cat, Module, Signal, Value, unsigned
from amaranth.lib import data, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from softermax.rtl.baseline.accumulation import add_tree, tree_stages
from softermax.rtl.baseline.add import align_and_add, round_sum
from softermax.rtl.baseline.exponential import Exponential
from softermax.rtl.baseline.max import Max
from softermax.rtl.baseline.multiply import multiply
from softermax.rtl.baseline.payloads import check_lanes, online_layout, slice_layout, sum_layout
from softermax.rtl.baseline.subtract import Subtract
from softermax.rtl.payloads import row_id
from softermax.rtl.pipeline import follow, register, stages
from softermax.rtl.sizes import MAX_ROWS, check_count

LOOP = 4
"""Cycles from reading a row's sum to writing it: two to multiply, two to add."""


@dataclass(frozen=True)
class _Flow:
    """When registers take what is before them, and where the slices stand."""

    enables: list[Signal]
    loop_enables: list[Signal]
    into_sums: Signal
    where: list[Signal]
    """First, last and row of the slice in each stage."""
    row_summed: Value


class OnlineUnnormed(wiring.Component):
    """Slices of scores in, once; ``e^(x - max)`` out, with the running max that each slice refers to, and
    the sum of each row that ends.

    With every slice the row's sum is renormalised: times ``e^(old max - new max)``, which one lane more
    than there are scores computes. That loop takes four cycles, so slices of one row may come every
    fourth cycle (`cycles_per_slice`); between them there is room for other rows, up to ``rows`` of them, and
    with four or more in turn the unit takes a slice per cycle. A slice that comes too early waits.
    """

    def __init__(self, lanes: int, rows: int = 1) -> None:
        self.lanes = check_lanes(lanes)
        self.rows = check_count("rows", rows, MAX_ROWS)
        self.cycles_per_slice = max(1, -(-LOOP // rows))
        """Cycles for each slice if rows take turns."""
        super().__init__(
            {
                "slices": In(stream.Signature(slice_layout(lanes, rows))),
                "unnormed": Out(stream.Signature(online_layout(lanes, rows))),
                "sums": Out(stream.Signature(sum_layout(rows))),
            }
        )
        self.max = Max(lanes, rows)
        self.subtract = Subtract(lanes + 1)
        self.exponential = Exponential(lanes + 1)
        self.accumulation = OnlineAccumulation(lanes, rows)
        self.latency = self.max.stages + 1 + self.subtract.stages + self.exponential.stages
        """Cycles from a slice to its exponentials."""
        self.sum_latency = self.latency + tree_stages(lanes) + LOOP
        """Cycles from a row's last slice to its sum."""

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        m.submodules.max = self.max
        m.submodules.subtract = subtract = self.subtract
        m.submodules.exponential = exponential = self.exponential
        m.submodules.accumulation = accumulation = self.accumulation
        slices, unnormed, sums = self.slices, self.unnormed, self.sums
        flow = self._flow(m)
        enables, tree, to_max = flow.enables, self.max.stages, self.max.stages + 1
        first, last = to_max + subtract.stages, self.latency

        # The scores wait for their max.
        waiting = follow(m, Cat(slices.p.x, slices.p.mask), enables[:to_max], "waiting")
        x = Signal(data.ArrayLayout(unsigned(16), self.lanes))
        maxima = follow(m, Cat(self.max.maximum, self.max.before), enables[tree:to_max], "maximum")
        marked = Cat(waiting[-1][16 * self.lanes :], ~flow.where[to_max - 1][0])
        masks = follow(m, marked, enables[to_max:first], "mask")
        running = follow(m, maxima[-1][:16], enables[to_max:last], "running")
        m.d.comb += [
            self.max.x.eq(slices.p.x),
            self.max.mask.eq(slices.p.mask),
            self.max.enable.eq(Cat(*enables[:tree])),
            self.max.first.eq(flow.where[tree - 1][0]),
            self.max.enable_row.eq(enables[tree]),
            x.as_value().eq(waiting[-1]),
            subtract.maximum.eq(maxima[-1][:16]),
            subtract.enable.eq(Cat(*enables[to_max:first])),
            exponential.significand.eq(subtract.significand),
            exponential.exponent.eq(subtract.exponent),
            exponential.mask.eq(masks[-1]),
            exponential.enable.eq(Cat(*enables[first:last])),
            accumulation.terms.eq(exponential.result),
            accumulation.enable.eq(Cat(*enables[last:], *flow.loop_enables)),
            unnormed.p.max.eq(running[-1]),
            unnormed.p.last.eq(flow.where[last - 1][1]),
            sums.p.powsum.eq(register(m, accumulation.total, flow.into_sums, "powsum")),
        ]
        m.d.comb += [subtract.x[lane].eq(x[lane]) for lane in range(self.lanes)]
        m.d.comb += subtract.x[self.lanes].eq(maxima[-1][16:])
        m.d.comb += [unnormed.p.u[lane].eq(exponential.result[lane]) for lane in range(self.lanes)]
        if self.rows > 1:
            m.d.comb += [
                self.max.row.eq(flow.where[tree - 1][2:]),
                accumulation.row.eq(flow.where[-1][2:]),
                unnormed.p.row.eq(flow.where[last - 1][2:]),
                sums.p.row.eq(register(m, flow.row_summed, flow.into_sums, "sum_row")),
            ]
        return m

    def _flow(self, m: Module) -> _Flow:
        """The loop goes on while a slice before it waits for its row; both stop for the outputs."""
        slices, unnormed, sums, accumulation = self.slices, self.unnormed, self.sums, self.accumulation
        held, moving, advance, sum_waits = Signal(), Signal(), Signal(), Signal()
        valids, enables = stages(m, slices.valid, advance, self.latency + tree_stages(self.lanes), "stage")
        into_loop, sum_ends = Signal(), Signal()
        m.d.comb += [
            held.eq(valids[-1] & accumulation.busy),
            sum_waits.eq(sum_ends & sums.valid & ~sums.ready),
            unnormed.valid.eq(valids[self.latency - 1] & ~sum_waits & ~held),
            moving.eq(~sum_waits & (~unnormed.valid | unnormed.ready)),
            advance.eq(moving & ~held),
            slices.ready.eq(advance),
            into_loop.eq(valids[-1] & ~held),
        ]
        loop_valids, loop_enables = stages(m, into_loop, moving, LOOP - 1, "loop")
        written = Signal()
        m.d.comb += written.eq(loop_valids[-1] & moving)

        # Where a slice stands in its row goes along, and so does its row.
        ids = [getattr(slices.p, name) for name in row_id(self.rows)]
        where = follow(m, Cat(slices.p.first, slices.p.last, *ids), enables, "where")
        in_loop = follow(m, where[-1][1:], loop_enables, "in_loop")
        m.d.comb += sum_ends.eq(loop_valids[-1] & in_loop[-1][0])
        into_sums = Signal()
        m.d.comb += [into_sums.eq(sum_ends & moving), accumulation.in_flight.eq(Cat(*loop_valids))]
        with m.If(into_sums | sums.ready):
            m.d.sync += sums.valid.eq(into_sums)
        return _Flow(enables, [*loop_enables, written], into_sums, where, in_loop[-1][1:])


class OnlineAccumulation(wiring.Component):
    """Adds the lanes of each slice by a tree, and to it the row's sum times the lane after the others.

    stages   the tree, see `add_tree`                     | sum of the slice
    then     the row's sum multiplied, in two stages      | product
             added                                        | before rounding
             rounded                                      | sum of the row
    """

    def __init__(self, lanes: int, rows: int) -> None:
        self._lanes = lanes
        self._rows = rows
        super().__init__(
            {
                "terms": In(data.ArrayLayout(unsigned(14), lanes + 1)),
                **{name: In(field) for name, field in row_id(rows).items()},  # of the slice after the tree
                "enable": In(tree_stages(lanes) + LOOP),
                "in_flight": In(LOOP - 1),  # which stages of the loop hold a slice
                "busy": Out(1),  # the row of the slice after the tree is one of those
                "total": Out(15),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        depth = tree_stages(self._lanes)
        tree_enables = [self.enable[stage] for stage in range(depth)]
        enable = [self.enable[depth + stage] for stage in range(LOOP)]
        slice_sum = add_tree(m, [self.terms[lane] for lane in range(self._lanes)], self.enable)
        factor = [self.terms[self._lanes], *follow(m, self.terms[self._lanes], tree_enables, "factor")][-1]

        so_far = Signal(15)
        product = multiply(m, so_far, factor, (enable[0], enable[1]), "renormed")
        waiting = follow(m, slice_sum, enable[:2], "slice_sum")[-1]
        raw = align_and_add(m, product, waiting, "row").registered(m, enable[2], "row_raw")
        m.d.comb += self.total.eq(round_sum(m, raw, 15, "row_sum"))
        if self._rows == 1:
            m.d.comb += [
                self.busy.eq(self.in_flight.any()),
                so_far.eq(register(m, self.total, enable[3], "row")),
            ]
            return m

        rows = follow(m, self.row, enable[:3], "row_id")
        same: list[Value] = [(row == self.row) & self.in_flight[stage] for stage, row in enumerate(rows)]
        m.submodules.row_sum = words = Memory(shape=unsigned(15), depth=self._rows, init=[])
        read, write = words.read_port(domain="comb"), words.write_port()
        m.d.comb += [
            self.busy.eq(Cat(*same).any()),
            read.addr.eq(self.row),
            so_far.eq(read.data),
            write.addr.eq(rows[-1]),
            write.data.eq(self.total),
            write.en.eq(enable[3]),
        ]
        return m
