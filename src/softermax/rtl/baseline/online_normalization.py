"""The online baseline's Normalization unit: half precision, with what is left of each slice's max."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from softermax.rtl.baseline.divide import Divide
from softermax.rtl.baseline.exponential import Exponential
from softermax.rtl.baseline.multiply import Multiply
from softermax.rtl.baseline.payloads import (
    check_lanes,
    finished_row_layout,
    output_layout,
    slice_max_layout,
    unnormed_layout,
)
from softermax.rtl.baseline.subtract import Subtract
from softermax.rtl.pipeline import follow, stages


class OnlineNormalization(wiring.Component):
    """``u·(e^(slice max - row max) / sum)``: one factor per slice, and one multiplication per lane.

    The factor takes an exponential and a division, so the max of each slice comes ahead of its
    exponentials, in a stream of its own, and the exponentials need not be kept meanwhile. ``rows`` has the
    max and the sum of each row, taken with the max of its last slice. A slice per cycle; probabilities
    come `latency` cycles after their exponentials, if these come at least `ahead` cycles after their max.

    With the row's max for every slice this divides by multiplying with the reciprocal: less to build
    than a divider in each lane, but rounded twice.
    """

    latency = Multiply.stages
    cycles_per_slice = 1

    def __init__(self, lanes: int) -> None:
        self.lanes = check_lanes(lanes)
        super().__init__(
            {
                "maxima": In(stream.Signature(slice_max_layout())),
                "rows": In(stream.Signature(finished_row_layout())),
                "unnormed": In(stream.Signature(unnormed_layout(lanes))),
                "probabilities": Out(stream.Signature(output_layout(lanes))),
            }
        )
        self.subtract = Subtract(1)
        self.exponential = Exponential(1)
        self.division = Divide(1)
        self.multiplication = Multiply(lanes)
        self.ahead = self.subtract.stages + self.exponential.stages + self.division.stages

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        m.submodules.subtract = subtract = self.subtract
        m.submodules.exponential = exponential = self.exponential
        m.submodules.division = division = self.division
        m.submodules.multiplication = multiplication = self.multiplication
        maxima, rows, unnormed, probabilities = self.maxima, self.rows, self.unnormed, self.probabilities

        # The factors: they wait in the divider's last register for their slice.
        moving, used = Signal(), Signal()
        valids, enables = stages(m, maxima.valid & rows.valid, moving, self.ahead, "factor")
        to_division = subtract.stages + exponential.stages
        sums = follow(m, rows.p.powsum[:15], enables[:to_division], "sum")
        m.d.comb += [
            moving.eq(~valids[-1] | used),
            maxima.ready.eq(rows.valid & moving),
            rows.ready.eq(maxima.valid & maxima.p.last & moving),
            subtract.x[0].eq(maxima.p.max),
            subtract.maximum.eq(rows.p.max),
            subtract.enable.eq(Cat(*enables[: subtract.stages])),
            exponential.significand.eq(subtract.significand),
            exponential.exponent.eq(subtract.exponent),
            exponential.mask.eq(1),
            exponential.enable.eq(Cat(*enables[subtract.stages : to_division])),
            division.dividend.eq(exponential.result),
            division.divisor.eq(sums[-1]),
            division.enable.eq(Cat(*enables[to_division:])),
        ]

        # The lanes.
        advance, taken = Signal(), Signal()
        lane_valids, lane_enables = stages(m, taken, advance, self.latency, "lanes")
        lasts = follow(m, unnormed.p.last, lane_enables, "last")
        m.d.comb += [
            advance.eq(~probabilities.valid | probabilities.ready),
            taken.eq(unnormed.valid & valids[-1]),
            used.eq(taken & advance),
            unnormed.ready.eq(valids[-1] & advance),
            multiplication.factor.eq(division.quotient[0]),
            multiplication.enable.eq(Cat(*lane_enables)),
            probabilities.valid.eq(lane_valids[-1]),
            probabilities.p.last.eq(lasts[-1]),
        ]
        for lane in range(self.lanes):
            m.d.comb += [
                multiplication.terms[lane].eq(unnormed.p.u[lane]),
                probabilities.p.y[lane].eq(multiplication.products[lane]),
            ]
        return m
