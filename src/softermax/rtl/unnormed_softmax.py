"""The Unnormed Softmax unit: IntMax, Power of Two and Reduction in a pipeline of five stages."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Module, Signal
from amaranth.lib import stream
from amaranth.lib.wiring import In, Out

from softermax.rtl.int_max import IntMax
from softermax.rtl.payloads import slice_layout, sum_layout, unnormed_layout
from softermax.rtl.pipeline import Elastic, follow, register
from softermax.rtl.power_of_two import PowerOfTwo
from softermax.rtl.reduction import Reduction
from softermax.rtl.sizes import MAX_ROWS, check_buildable, check_count
from softermax.rtl.unit import Event, Unit
from softermax.spec import SoftermaxSpec


class UnnormedSoftmax(Unit):
    """Slices of scores in; unnormed words out, and the PowSum of each row that ends.

    One slice per cycle, of any open row: slices of one row may follow each other or be interleaved
    with those of other rows. The first slice of a row has ``first`` set, the last one ``last``.

    ``unnormed`` carries every slice, `latency` cycles after it came in; its ``max`` is the running
    max of the slice, in a row's last slice the row's max. ``sums`` carries the PowSum of each
    finished row, in the order in which rows finish, ``sum_latency`` cycles after the last slice came
    in. Each may be held up on its own; ``unnormed.valid`` waits for a sum that is held up.

    stage 1   IntMax: the slice's largest score                      | scores, the largest
    stage 2   IntMax: the row's max; Power of Two: k of every lane   | k and f of every lane, max
    stage 3   Power of Two: 2^f >> k, the unnormed words; Reduction  | partial sums
    stage 4   Reduction: the slice's sum, rounded                    | slice's PowSum
    stage 5   Reduction: added to the row's renormalised PowSum      | row's PowSum
    """

    name = "unnormed-softmax"
    module_name = "unnormed_softmax"
    options = ("rows",)
    latency = 2
    """Cycles from a slice to its unnormed words."""
    sum_latency = 5
    """Cycles from a row's last slice to its PowSum."""

    spec: SoftermaxSpec

    def __init__(self, spec: SoftermaxSpec, rows: int = 1, power_of_two: Any = None) -> None:
        """``power_of_two`` is another component with the ports of `PowerOfTwo` to take its place."""
        self.spec = spec
        self.rows = check_count("rows", rows, MAX_ROWS)
        self.lanes = check_buildable(spec)
        super().__init__(
            {
                "slices": In(stream.Signature(slice_layout(spec, rows))),
                "unnormed": Out(stream.Signature(unnormed_layout(spec, rows))),
                "sums": Out(stream.Signature(sum_layout(spec, rows))),
            }
        )
        self.int_max = IntMax(spec, rows)
        self.power_of_two = power_of_two or PowerOfTwo(spec, self.lanes)
        self.reduction = Reduction(spec, rows)

    def parameters(self) -> dict[str, Any]:
        return {"lanes": self.lanes, "rows": self.rows, **self.spec.to_dict()}

    def timing(self) -> list[Event]:
        out, done = self.latency, 1 + self.sum_latency
        return [
            Event("slices", (0, 1), "a row of two slices enters in cycles 0 and 1"),
            Event("unnormed", (out, 1 + out), f"unnormed words {out} cycles after their slice"),
            Event("sums", (done,), f"PowSum {self.sum_latency} cycles after the row's last slice"),
        ]

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        m.submodules.int_max = int_max = self.int_max
        m.submodules.power_of_two = power_of_two = self.power_of_two
        m.submodules.reduction = reduction = self.reduction
        slices, unnormed, sums = self.slices, self.unnormed, self.sums
        into_sums = Signal()
        into = self._flow(m, into_sums)

        # What travels beside the lanes.
        first = follow(m, slices.p.first, [into[2], into[3]], "first", 2)
        last = follow(m, slices.p.last, into.values(), "last", 2)
        renorm_shift_3 = register(m, int_max.renorm_shift, into[3], "renorm_shift_3")
        with m.If(into_sums | sums.ready):
            m.d.sync += sums.valid.eq(into_sums & last[-1])

        m.d.comb += [
            int_max.x.eq(slices.p.x),
            int_max.mask.eq(slices.p.mask),
            int_max.enable_2.eq(into[2]),
            int_max.first.eq(first[0]),
            int_max.enable_3.eq(into[3]),
            power_of_two.x.eq(slices.p.x),
            power_of_two.mask.eq(slices.p.mask),
            power_of_two.enable_2.eq(into[2]),
            power_of_two.running_max.eq(int_max.running_max),
            power_of_two.enable_3.eq(into[3]),
            unnormed.p.u.eq(power_of_two.unnormed),
            unnormed.p.max.eq(int_max.max_3),
            unnormed.p.last.eq(last[1]),
            reduction.unnormed.eq(power_of_two.unnormed),
            reduction.renorm_shift.eq(renorm_shift_3),
            reduction.first.eq(first[1]),
            reduction.enable_4.eq(into[4]),
            reduction.enable_5.eq(into[5]),
            reduction.enable_sum.eq(into_sums),
            sums.p.powsum.eq(reduction.powsum),
        ]
        if self.rows > 1:
            row = follow(m, slices.p.row, [into[2], into[3]], "row", 2)
            m.d.comb += [
                int_max.row.eq(row[0]),
                unnormed.p.row.eq(row[1]),
                reduction.row.eq(row[1]),
                sums.p.row.eq(reduction.row_summed),
            ]
        return m

    def _flow(self, m: Module, into_sums: Signal) -> dict[int, Signal]:
        """When each stage takes a slice. Unnormed words leave between stages 3 and 4."""
        slices, unnormed, sums = self.slices, self.unnormed, self.sums
        pipeline = Elastic((2, 3, 4, 5))
        valid, free = pipeline.valid, pipeline.free
        m.d.comb += into_sums.eq(valid[5] & (~sums.valid | sums.ready))
        pipeline.connect(m, slices.valid, into_sums, takes={4: unnormed.valid & unnormed.ready})
        m.d.comb += [unnormed.valid.eq(valid[3] & free[4]), slices.ready.eq(free[2])]
        return pipeline.into
