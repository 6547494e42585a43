"""The Unnormed Softmax unit: IntMax, Power of Two and Reduction in a pipeline of three stages."""

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
    integer_max,
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

    stage 1   max of the slice and of the row, k = max - integer of x     | f, k of each lane
    stage 2   2^f >> k: the unnormed words; their sum in carry-save form  | sum and carry bits
    stage 3   rounded and added to the row's renormalised PowSum          | PowSum
    """

    latency = 1
    """Cycles from a slice to its unnormed words."""
    sum_latency = 3
    """Cycles from a row's last slice to its PowSum."""
    cycles_per_slice = 1

    def __init__(self, spec: SoftermaxSpec, rows: int = 1) -> None:
        self.spec = spec
        self.rows = check_count("rows", rows, MAX_ROWS)
        super().__init__(
            {
                "slices": In(stream.Signature(slice_layout(spec, rows))),
                "unnormed": Out(stream.Signature(unnormed_layout(spec, rows))),
                "sums": Out(stream.Signature(sum_layout(spec, rows))),
            }
        )
        self.int_max = IntMax(spec, rows)
        self.power_of_two = PowerOfTwo(spec, check_buildable(spec))
        self.reduction = Reduction(spec, rows)

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        m.submodules.int_max = int_max = self.int_max
        m.submodules.power_of_two = power_of_two = self.power_of_two
        m.submodules.reduction = reduction = self.reduction
        slices, unnormed, sums = self.slices, self.unnormed, self.sums

        # Each stage takes a slice when it is empty or passes its own on.
        valid_2 = Signal()
        valid_3 = Signal()
        into_2 = Signal()
        into_3 = Signal()
        into_sums = Signal()
        stage_3_free = Signal()
        last_2 = Signal(reset_less=True)
        last_3 = Signal(reset_less=True)
        m.d.comb += [
            into_sums.eq(valid_3 & (~sums.valid | sums.ready)),
            stage_3_free.eq(~valid_3 | into_sums),
            unnormed.valid.eq(valid_2 & stage_3_free),
            into_3.eq(unnormed.valid & unnormed.ready),
            slices.ready.eq(~valid_2 | into_3),
            into_2.eq(slices.valid & slices.ready),
        ]
        with m.If(slices.ready):
            m.d.sync += valid_2.eq(slices.valid)
        with m.If(stage_3_free):
            m.d.sync += valid_3.eq(into_3)
        with m.If(into_sums | sums.ready):
            m.d.sync += sums.valid.eq(into_sums & last_3)

        # Stage 1.
        first = Signal(reset_less=True)
        running_max = Signal(integer_max(self.spec), reset_less=True)
        renorm_shift = Signal.like(int_max.renorm_shift, reset_less=True)
        m.d.comb += [
            int_max.x.eq(slices.p.x),
            int_max.mask.eq(slices.p.mask),
            int_max.first.eq(slices.p.first),
            int_max.enable.eq(into_2),
            power_of_two.x.eq(slices.p.x),
            power_of_two.mask.eq(slices.p.mask),
            power_of_two.running_max.eq(int_max.running_max),
            power_of_two.enable.eq(into_2),
        ]
        with m.If(into_2):
            m.d.sync += [
                first.eq(slices.p.first),
                last_2.eq(slices.p.last),
                running_max.eq(int_max.running_max),
                renorm_shift.eq(int_max.renorm_shift),
            ]

        # Stage 2.
        m.d.comb += [
            unnormed.p.u.eq(power_of_two.unnormed),
            unnormed.p.max.eq(running_max),
            unnormed.p.last.eq(last_2),
            reduction.unnormed.eq(power_of_two.unnormed),
            reduction.renorm_shift.eq(renorm_shift),
            reduction.first.eq(first),
            reduction.enable.eq(into_3),
        ]
        with m.If(into_3):
            m.d.sync += last_3.eq(last_2)

        # Stage 3.
        m.d.comb += [reduction.enable_sum.eq(into_sums), sums.p.powsum.eq(reduction.powsum)]

        if self.rows > 1:
            row = Signal.like(slices.p.row, reset_less=True)
            with m.If(into_2):
                m.d.sync += row.eq(slices.p.row)
            m.d.comb += [
                int_max.row.eq(slices.p.row),
                unnormed.p.row.eq(row),
                reduction.row.eq(row),
                sums.p.row.eq(reduction.row_summed),
            ]
        return m
