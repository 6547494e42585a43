"""The largest integer score of a row."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Module, Mux, Shape, Signal, unsigned
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from softermax.rtl.int_max import flip_sign, largest_key
from softermax.rtl.pipeline import register


class RowMax(wiring.Component):
    """The running max of a row, which is searched with the scores of a slice as one lane more: one stage.

    Inside and outside, a score is its distance from the lowest one (`flip_sign`), unsigned: a row without an element has 0.
    """

    stages = 1

    def __init__(self, score: Shape, lanes: int) -> None:
        bits = unsigned(score.width)
        super().__init__(
            {
                "x": In(data.ArrayLayout(score, lanes)),
                "mask": In(lanes),
                "first": In(1),
                "enable": In(1),  # the slice goes on to the next stage
                "found": Out(bits),  # the running max with the slice at hand
                "running": Out(bits),  # the same, of the slice that went on last
                "before": Out(bits),  # what it was before that slice; anything in a row's first slice
            }
        )

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        keys = [flip_sign(self.x[lane]) for lane in range(len(self.mask))]
        m.d.comb += [
            self.found.eq(largest_key(m, [*keys, self.running], [*self.mask, ~self.first])),
            self.running.eq(register(m, self.found, self.enable, "row_max")),
            self.before.eq(register(m, self.running, self.enable, "max_before")),
        ]
        return m


class WideRowMax(wiring.Component):
    """The same for wide scores, in three stages: the upper half of the slice's largest score, its lower half, and the
    comparison with the row so far. ``maximum`` is that of the slice after the second register and of its row."""

    stages = 2
    """Registers between a slice and the comparison with its row."""

    def __init__(self, score: Shape, lanes: int) -> None:
        self._bits = score.width
        super().__init__(
            {
                "x": In(data.ArrayLayout(score, lanes)),
                "mask": In(lanes),
                "enable": In(self.stages),
                "first": In(1),  # of the slice after the second register
                "enable_row": In(1),
                "maximum": Out(unsigned(score.width)),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        half = self._bits // 2
        lanes = range(len(self.mask))
        keys = [flip_sign(self.x[lane]) for lane in lanes]
        upper = Signal(self._bits - half)
        m.d.comb += upper.eq(largest_key(m, [key[half:] for key in keys], list(self.mask)))
        upper_1 = register(m, upper, self.enable[0], "upper_1")
        # Only who has the largest upper half is asked for the lower one.
        alive = [
            register(m, self.mask[lane] & (keys[lane][half:] == upper), self.enable[0], f"alive_{lane}")
            for lane in lanes
        ]
        lower = [register(m, keys[lane][:half], self.enable[0], f"lower_{lane}") for lane in lanes]
        found = Signal(self._bits)
        m.d.comb += [found[half:].eq(upper_1), found[:half].eq(largest_key(m, lower, alive))]
        largest = register(m, found, self.enable[1], "largest")
        running = register(m, self.maximum, self.enable_row, "row_max")
        m.d.comb += self.maximum.eq(Mux(self.first | (largest > running), largest, running))
        return m
