"""The Unnormed Softmax unit of row products (A10): unnormed words are added up and never leave it."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Module, Signal
from amaranth.lib import stream
from amaranth.lib.wiring import In, Out

from softermax.rtl.int_max import RunningMax, flip_sign
from softermax.rtl.payloads import finished_row_layout, slice_layout
from softermax.rtl.pipeline import Elastic, follow, register
from softermax.rtl.power_of_two import PowerTable
from softermax.rtl.reduction import RowReduction
from softermax.rtl.sizes import MAX_ROWS, check_buildable, check_count
from softermax.rtl.unit import Event, Unit
from softermax.spec import SoftermaxSpec


class UnnormedSum(Unit):
    """Slices of scores in; max and PowSum of each row that ends out.

    One slice per cycle, of any open row: slices of one row may follow each other or be interleaved
    with those of other rows. The first slice of a row has ``first`` set, the last one ``last``. ``finished`` carries
    each row ``sum_latency`` cycles after its last slice came in, in the order in which rows finish.

    stage 1   IntMax: the row's max with this slice                      | scores, the row's max
    stage 2   Power of Two: k, 2^f >> k; Reduction: the lanes added up   | the slice's sum in two words
    stage 3   Reduction: added to the row's renormalised PowSum          | row's PowSum
    """

    name = "unnormed-softmax"
    module_name = "unnormed_softmax"
    options = ("rows",)
    sum_latency = 3
    """Cycles from a row's last slice to its PowSum."""

    spec: SoftermaxSpec

    def __init__(self, spec: SoftermaxSpec, rows: int = 1) -> None:
        self.spec = spec
        self.rows = check_count("rows", rows, MAX_ROWS)
        self.lanes = check_buildable(spec)
        super().__init__(
            {
                "slices": In(stream.Signature(slice_layout(spec, rows))),
                "finished": Out(stream.Signature(finished_row_layout(spec, rows))),
            }
        )
        self.int_max = RunningMax(spec, rows)
        self.power_of_two = PowerTable(spec, self.lanes)
        self.reduction = RowReduction(spec, rows)

    def parameters(self) -> dict[str, Any]:
        return {"lanes": self.lanes, "rows": self.rows, **self.spec.to_dict()}

    def timing(self) -> list[Event]:
        done = 1 + self.sum_latency
        return [
            Event("slices", (0, 1), "a row of two slices enters in cycles 0 and 1"),
            Event(
                "finished", (done,), f"max and PowSum {self.sum_latency} cycles after the row's last slice"
            ),
        ]

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        m.submodules.int_max = int_max = self.int_max
        m.submodules.power_of_two = power_of_two = self.power_of_two
        m.submodules.reduction = reduction = self.reduction
        slices, finished = self.slices, self.finished
        pipeline, into_sum = Elastic((2, 3)), Signal()
        into = pipeline.into
        m.d.comb += into_sum.eq(pipeline.valid[3] & (~finished.valid | finished.ready))
        pipeline.connect(m, slices.valid, into_sum)

        # What travels beside the lanes: of a row's last slice also the max.
        first = register(m, slices.p.first, into[2], "first_2")
        last = follow(m, slices.p.last, into.values(), "last", 2)
        max_3 = register(m, int_max.running_max, into[3] & last[0], "max_3")
        max_out = register(m, max_3, into_sum & last[1], "max_out")
        with m.If(into_sum | finished.ready):
            m.d.sync += finished.valid.eq(into_sum & last[1])

        m.d.comb += [
            slices.ready.eq(pipeline.free[2]),
            int_max.x.eq(slices.p.x),
            int_max.mask.eq(slices.p.mask),
            int_max.first.eq(slices.p.first),
            int_max.enable_2.eq(into[2]),
            power_of_two.x.eq(slices.p.x),
            power_of_two.mask.eq(slices.p.mask),
            power_of_two.enable_2.eq(into[2]),
            power_of_two.running_max.eq(int_max.found),
            reduction.unnormed.eq(power_of_two.unnormed),
            reduction.running_max.eq(int_max.running_max),
            reduction.before.eq(int_max.before),
            reduction.first.eq(first),
            reduction.enable_3.eq(into[3]),
            reduction.enable_sum.eq(into_sum),
            finished.p.max.eq(flip_sign(max_out)),
            finished.p.powsum.eq(reduction.powsum),
        ]
        if self.rows > 1:
            m.d.comb += [
                int_max.row.eq(slices.p.row),
                reduction.row.eq(register(m, slices.p.row, into[2], "row_2")),
                finished.p.row.eq(reduction.row_summed),
            ]
        return m
