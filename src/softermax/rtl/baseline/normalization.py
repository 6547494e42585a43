"""The baseline's Normalization unit: half precision, each exponential divided by its row's sum."""

from __future__ import annotations

from typing import Any, ClassVar

from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from softermax.rtl.baseline.divide import Divide
from softermax.rtl.baseline.payloads import check_lanes, output_layout, sum_layout, unnormed_layout
from softermax.rtl.pipeline import follow, stages


class Normalization(wiring.Component):
    """Slices of a row's exponentials and its sum in; probabilities out, `latency` cycles later, a slice per cycle.

    The sum is taken with the last slice of its row. Back-pressure stops the pipeline as a whole.
    """

    divider: ClassVar[Any] = Divide
    """What divides the lanes."""
    latency: ClassVar[int] = Divide.stages
    cycles_per_slice = 1

    def __init__(self, lanes: int) -> None:
        self.lanes = check_lanes(lanes)
        super().__init__(
            {
                "unnormed": In(stream.Signature(unnormed_layout(lanes))),
                "sums": In(stream.Signature(sum_layout())),
                "probabilities": Out(stream.Signature(output_layout(lanes))),
            }
        )
        self.division = self.divider(lanes)

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        m.submodules.division = division = self.division
        unnormed, sums, probabilities = self.unnormed, self.sums, self.probabilities
        advance, taken = Signal(), Signal()
        valids, enables = stages(m, taken, advance, self.latency, "stage")
        lasts = follow(m, unnormed.p.last, enables, "last")
        m.d.comb += [
            advance.eq(~probabilities.valid | probabilities.ready),
            taken.eq(unnormed.valid & sums.valid),
            unnormed.ready.eq(sums.valid & advance),
            sums.ready.eq(unnormed.valid & unnormed.p.last & advance),
            division.divisor.eq(sums.p.powsum),
            division.enable.eq(Cat(*enables)),
            probabilities.valid.eq(valids[-1]),
            probabilities.p.last.eq(lasts[-1]),
        ]
        for lane in range(self.lanes):
            m.d.comb += [
                division.dividend[lane].eq(unnormed.p.u[lane]),
                probabilities.p.y[lane].eq(division.quotient[lane]),
            ]
        return m
