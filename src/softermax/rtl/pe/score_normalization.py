"""Normalization of scores instead of unnormed words: Power of Two once more, with the row's max.

An unnormed word is ``2^f >> k``, k counted from the running max, and Normalization shifts it on to the row's
max; shifts that truncate compose, so that is ``2^f`` shifted by the distance to the row's max (A3, A5). Two bits of a
table and a shifter per lane make it from the score, which has half the bits to wait with and needs no max beside it.
"""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Module, Signal, unsigned
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from softermax.rtl.normalization import Normalization
from softermax.rtl.payloads import finished_row_layout, integer_max, lanes_of, output_layout
from softermax.rtl.pipeline import follow
from softermax.rtl.power_of_two import PowerOfTwo
from softermax.spec import SoftermaxSpec


def scored_layout(spec: SoftermaxSpec, lanes: int) -> data.StructLayout:
    """A slice of scores of a finished row, and the row's max."""
    return data.StructLayout(
        {"x": lanes_of(spec.input, lanes), "mask": unsigned(lanes), "max": integer_max(spec), "last": 1}
    )


class ScoreNormalization(wiring.Component):
    """`Normalization` after a Power of Two: finished rows and the slices of their scores in, probabilities out.

    stage 1   scores                                    | scores, mask, max
    stage 2   k of every lane                           | k and f of every lane, max
    then      2^f >> k and Normalization's own stages
    """

    latency = 2 + Normalization.latency
    """Cycles from a slice to its probabilities."""

    def __init__(self, spec: SoftermaxSpec, lanes: int, rows: int = 1) -> None:
        if spec.unnormed_rounding != "truncate":
            raise ValueError(
                f"unnormed_rounding = {spec.unnormed_rounding}: shifts compose only if they truncate; "
                "must be truncate"
            )
        super().__init__(
            {
                "finished": In(stream.Signature(finished_row_layout(spec, rows))),
                "slices": In(stream.Signature(scored_layout(spec, lanes))),
                "probabilities": Out(stream.Signature(output_layout(spec, lanes, rows))),
            }
        )
        self.power_of_two = PowerOfTwo(spec, lanes)
        self.normalization = Normalization(spec, lanes, rows)

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        m.submodules.power_of_two = power_of_two = self.power_of_two
        m.submodules.normalization = normalization = self.normalization
        slices, numerators = self.slices, normalization.slices
        valid_2, valid_3, into_2, into_3 = (
            Signal(name=name) for name in ("valid_2", "valid_3", "into_2", "into_3")
        )
        m.d.comb += [
            into_3.eq(valid_2 & (~valid_3 | numerators.ready)),
            slices.ready.eq(~valid_2 | into_3),
            into_2.eq(slices.valid & slices.ready),
            numerators.valid.eq(valid_3),
        ]
        with m.If(slices.ready):
            m.d.sync += valid_2.eq(into_2)
        with m.If(~valid_3 | numerators.ready):
            m.d.sync += valid_3.eq(into_3)
        row_max = follow(m, slices.p.max, [into_2, into_3], "max", 2)
        last = follow(m, slices.p.last, [into_2, into_3], "last", 2)
        m.d.comb += [
            power_of_two.x.eq(slices.p.x),
            power_of_two.mask.eq(slices.p.mask),
            power_of_two.enable_2.eq(into_2),
            power_of_two.running_max.eq(row_max[0]),
            power_of_two.enable_3.eq(into_3),
            numerators.p.u.eq(power_of_two.unnormed),
            numerators.p.max.eq(row_max[1]),
            numerators.p.last.eq(last[1]),
        ]
        wiring.connect(m, wiring.flipped(self.finished), normalization.finished)
        wiring.connect(m, normalization.probabilities, wiring.flipped(self.probabilities))
        return m
