"""The baseline's Unnormed Softmax unit: half precision, two passes over a row."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from softermax.rtl.baseline.accumulation import Accumulation
from softermax.rtl.baseline.exponential import Exponential
from softermax.rtl.baseline.max import Max
from softermax.rtl.baseline.payloads import check_lanes, slice_layout, sum_layout, unnormed_layout
from softermax.rtl.baseline.subtract import Subtract
from softermax.rtl.pipeline import follow, stages


class Unnormed(wiring.Component):
    """Each row comes twice: its slices through ``first_pass``, then again through ``second_pass``.

    The first pass finds the row's max; the second one gives ``e^(x - max)`` of every slice in
    ``unnormed`` and the row's sum in ``sums``. Both passes take a slice per cycle and run at the same time, the
    second one a row later: a max waits until the row's last slice has come again, and until then
    the next row's max has to wait.

    ``unnormed`` comes `latency` cycles after its slice, a sum `sum_latency` cycles after the row's last
    slice of the second pass. Each may be held up on its own; ``unnormed.valid`` waits for a sum that
    is held up. With ``base_two`` the powers are those of two.
    """

    cycles_per_slice = 1

    def __init__(self, lanes: int, base_two: bool = False) -> None:
        self.lanes = check_lanes(lanes)
        super().__init__(
            {
                "first_pass": In(stream.Signature(slice_layout(lanes))),
                "second_pass": In(stream.Signature(slice_layout(lanes))),
                "unnormed": Out(stream.Signature(unnormed_layout(lanes))),
                "sums": Out(stream.Signature(sum_layout())),
            }
        )
        self.max, self.subtract, self.exponential, self.accumulation = self._parts(base_two)
        self.max_latency = self.max.stages + 1
        """Cycles from a row's last slice of the first pass until the second pass may begin."""
        self.latency = self.subtract.stages + self.exponential.stages
        self.sum_latency = self.latency + self.accumulation.stages

    def _parts(self, base_two: bool) -> tuple[Any, Any, Any, Any]:
        """Max, subtraction, exponential and accumulation of all lanes."""
        lanes = self.lanes
        return Max(lanes), Subtract(lanes), Exponential(lanes, base_two), Accumulation(lanes)

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        m.submodules.max = self.max
        m.submodules.subtract = self.subtract
        m.submodules.exponential = self.exponential
        m.submodules.accumulation = self.accumulation
        released = Signal()
        maximum, maximum_valid = self._first_pass(m, released)
        self._second_pass(m, maximum, maximum_valid, released)
        return m

    def _first_pass(self, m: Module, released: Signal) -> tuple[Signal, Signal]:
        slices, unit = self.first_pass, self.max
        advance, into_row = Signal(), Signal()
        maximum, maximum_valid = Signal(16, reset_less=True), Signal()
        valids, enable = stages(m, slices.valid, advance, unit.stages, "first_pass")
        flags = follow(m, Cat(slices.p.first, slices.p.last), enable, "first_pass_flags")
        valid, first, last = valids[-1], flags[-1][0], flags[-1][1]
        m.d.comb += [
            advance.eq(~(valid & last & maximum_valid & ~released)),
            into_row.eq(valid & advance),
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
        return maximum, maximum_valid

    def _second_pass(self, m: Module, maximum: Signal, maximum_valid: Signal, released: Signal) -> None:
        slices, unnormed, sums = self.second_pass, self.unnormed, self.sums
        subtract, exponential, accumulation = self.subtract, self.exponential, self.accumulation
        to_unnormed, to_row_sum = self.latency, self.latency + accumulation.row_stages
        advance, sum_waits, taken, row_ends = Signal(), Signal(), Signal(), Signal()

        valids, enables = stages(m, taken, advance, to_row_sum, "second_pass")
        lasts = follow(m, slices.p.last, enables, "last")
        # Beyond the row's own sum only a whole row goes on.
        m.d.comb += row_ends.eq(valids[-1] & lasts[-1])
        merge_valids, merge_enables = stages(m, row_ends, advance, accumulation.merge_stages - 1, "merge")
        into_sums = Signal()
        m.d.comb += [
            sum_waits.eq(merge_valids[-1] & sums.valid & ~sums.ready),
            into_sums.eq(merge_valids[-1] & advance),
            advance.eq(~sum_waits & (~unnormed.valid | unnormed.ready)),
            unnormed.valid.eq(valids[to_unnormed - 1] & ~sum_waits),
            slices.ready.eq(maximum_valid & advance),
            taken.eq(slices.valid & maximum_valid),
            released.eq(slices.valid & slices.ready & slices.p.last),
        ]
        with m.If(into_sums | sums.ready):
            m.d.sync += sums.valid.eq(into_sums)

        masks = follow(m, slices.p.mask, enables[: subtract.stages], "mask")
        firsts = follow(m, slices.p.first, enables[: to_unnormed + accumulation.tree_stages], "first")
        m.d.comb += [
            subtract.x.eq(slices.p.x),
            subtract.maximum.eq(maximum),
            subtract.enable.eq(Cat(*enables[: subtract.stages])),
            *self._differences(),
            exponential.mask.eq(masks[-1]),
            exponential.enable.eq(Cat(*enables[subtract.stages : to_unnormed])),
            accumulation.terms.eq(exponential.result),
            accumulation.first.eq(firsts[-1]),
            accumulation.enable.eq(Cat(*enables[to_unnormed:], *merge_enables, into_sums)),
            unnormed.p.last.eq(lasts[to_unnormed - 1]),
            sums.p.powsum.eq(accumulation.total),
        ]
        m.d.comb += [unnormed.p.u[lane].eq(exponential.result[lane]) for lane in range(self.lanes)]

    def _differences(self) -> list[Any]:
        """What hands the differences on to the exponential."""
        subtract, exponential = self.subtract, self.exponential
        return [
            exponential.significand.eq(subtract.significand),
            exponential.exponent.eq(subtract.exponent),
        ]
