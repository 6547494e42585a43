"""The Unnormed Softmax unit: IntMax, Power of Two and Reduction in a pipeline of five stages."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from softermax.rtl.int_max import IntMax
from softermax.rtl.power_of_two import PowerOfTwo
from softermax.rtl.reduction import Reduction
from softermax.rtl.words import (
    MAX_ROWS,
    check_buildable,
    check_count,
    slice_layout,
    sum_layout,
    unnormed_layout,
)
from softermax.spec import SoftermaxSpec


class UnnormedSoftmax(wiring.Component):
    """Slices of scores in; unnormed words out, and the PowSum of each row that ends.

    One slice a cycle, of any open row: slices of one row may follow each other or be interleaved
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

    latency = 2
    """Cycles from a slice to its unnormed words."""
    sum_latency = 5
    """Cycles from a row's last slice to its PowSum."""
    cycles_per_slice = 1

    def __init__(self, spec: SoftermaxSpec, rows: int = 1) -> None:
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
        self.power_of_two = PowerOfTwo(spec, self.lanes)
        self.reduction = Reduction(spec, rows)

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        m.submodules.int_max = int_max = self.int_max
        m.submodules.power_of_two = power_of_two = self.power_of_two
        m.submodules.reduction = reduction = self.reduction
        slices, unnormed, sums = self.slices, self.unnormed, self.sums

        # Each stage takes a slice when it is empty or passes its own on.
        valid = {stage: Signal(name=f"valid_{stage}") for stage in (2, 3, 4, 5)}
        free = {stage: Signal(name=f"free_{stage}") for stage in (2, 3, 4, 5)}
        into = {stage: Signal(name=f"into_{stage}") for stage in (2, 3, 4, 5)}
        into_sums = Signal()
        m.d.comb += [
            into_sums.eq(valid[5] & (~sums.valid | sums.ready)),
            free[5].eq(~valid[5] | into_sums),
            into[5].eq(valid[4] & free[5]),
            free[4].eq(~valid[4] | into[5]),
            unnormed.valid.eq(valid[3] & free[4]),
            into[4].eq(unnormed.valid & unnormed.ready),
            free[3].eq(~valid[3] | into[4]),
            into[3].eq(valid[2] & free[3]),
            free[2].eq(~valid[2] | into[3]),
            slices.ready.eq(free[2]),
            into[2].eq(slices.valid & slices.ready),
        ]
        for stage in (2, 3, 4, 5):
            with m.If(free[stage]):
                m.d.sync += valid[stage].eq(into[stage])

        # What travels beside the lanes.
        carried = {
            "first": slices.p.first,
            "last": slices.p.last,
            **({"row": slices.p.row} if self.rows > 1 else {}),
        }
        at_2, at_3 = (
            {
                name: Signal.like(value, reset_less=True, name=f"{name}_{stage}")
                for name, value in carried.items()
            }
            for stage in (2, 3)
        )
        last_4 = Signal(reset_less=True)
        last_5 = Signal(reset_less=True)
        renorm_shift_3 = Signal.like(int_max.renorm_shift, reset_less=True)
        with m.If(into[2]):
            m.d.sync += [at_2[name].eq(value) for name, value in carried.items()]
        with m.If(into[3]):
            m.d.sync += [at_3[name].eq(value) for name, value in at_2.items()]
            m.d.sync += renorm_shift_3.eq(int_max.renorm_shift)
        with m.If(into[4]):
            m.d.sync += last_4.eq(at_3["last"])
        with m.If(into[5]):
            m.d.sync += last_5.eq(last_4)
        with m.If(into_sums | sums.ready):
            m.d.sync += sums.valid.eq(into_sums & last_5)

        m.d.comb += [
            int_max.x.eq(slices.p.x),
            int_max.mask.eq(slices.p.mask),
            int_max.enable_2.eq(into[2]),
            int_max.first.eq(at_2["first"]),
            int_max.enable_3.eq(into[3]),
            power_of_two.x.eq(slices.p.x),
            power_of_two.mask.eq(slices.p.mask),
            power_of_two.enable_2.eq(into[2]),
            power_of_two.running_max.eq(int_max.running_max),
            power_of_two.enable_3.eq(into[3]),
            unnormed.p.u.eq(power_of_two.unnormed),
            unnormed.p.max.eq(int_max.max_3),
            unnormed.p.last.eq(at_3["last"]),
            reduction.unnormed.eq(power_of_two.unnormed),
            reduction.renorm_shift.eq(renorm_shift_3),
            reduction.first.eq(at_3["first"]),
            reduction.enable_4.eq(into[4]),
            reduction.enable_5.eq(into[5]),
            reduction.enable_sum.eq(into_sums),
            sums.p.powsum.eq(reduction.powsum),
        ]
        if self.rows > 1:
            m.d.comb += [
                int_max.row.eq(at_2["row"]),
                unnormed.p.row.eq(at_3["row"]),
                reduction.row.eq(at_3["row"]),
                sums.p.row.eq(reduction.row_summed),
            ]
        return m
