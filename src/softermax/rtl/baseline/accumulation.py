"""The baseline's sum of exponentials: a tree of half-precision adders, and the sum of a row."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Module, Mux, Signal, Value, unsigned
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from softermax.rtl.baseline.add import align_and_add, round_sum
from softermax.rtl.pipeline import register


class Accumulation(wiring.Component):
    """Adds the lanes of each slice by a tree and slices to their row's sum, every step rounded to half.

    An addition takes two cycles, so even and odd slices have a sum of their own, and these
    are added when the row ends: a slice per cycle, also of one row. The order is that of `model.row_sum`.

    for each level of the tree   neighbours added                         | before rounding
                                 rounded                                  | sums
    then                         added to the row's even or odd slices    | before rounding
                                 rounded                                  | even or odd sum
    after the last slice         both added                               | before rounding
                                 rounded                                  | sum of the row
    """

    def __init__(self, lanes: int) -> None:
        self._lanes = lanes
        self.tree_stages = tree_stages(lanes)
        self.row_stages = self.tree_stages + 2
        self.merge_stages = 2
        self.stages = self.row_stages + self.merge_stages
        super().__init__(
            {
                "terms": In(data.ArrayLayout(unsigned(14), lanes)),
                "first": In(1),  # of the slice after the tree
                "enable": In(self.stages),  # the registers of each stage take what is before them
                "total": Out(15),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        enable = self.enable
        slice_sum = Signal(15)
        m.d.comb += slice_sum.eq(add_tree(m, [self.terms[i] for i in range(self._lanes)], enable))

        # A slice is even or odd by its place in the row.
        odd, other = Signal(reset_less=True), Signal(reset_less=True)
        even_sum, odd_sum = Signal(15, reset_less=True), Signal(15, reset_less=True)
        now_odd = Signal()
        so_far = Signal(15)
        m.d.comb += [
            now_odd.eq(~self.first & ~odd),
            so_far.eq(Mux(self.first | (now_odd & ~other), 0, Mux(now_odd, odd_sum, even_sum))),
        ]
        into, out, merge = (
            enable[self.tree_stages],
            enable[self.tree_stages + 1],
            enable[self.tree_stages + 2],
        )
        with m.If(into):
            # ``other``: the row has an odd slice, so that odd_sum is its own.
            m.d.sync += [odd.eq(now_odd), other.eq(now_odd | (~self.first & other))]
        raw = align_and_add(m, so_far, slice_sum, "row").registered(m, into, "row_raw")
        row_sum = round_sum(m, raw, 15, "row_sum")
        two = Signal(reset_less=True)
        with m.If(out):
            m.d.sync += two.eq(other)
            with m.If(odd):
                m.d.sync += odd_sum.eq(row_sum)
            with m.Else():
                m.d.sync += even_sum.eq(row_sum)

        raw_total = align_and_add(m, even_sum, Mux(two, odd_sum, 0), "both").registered(m, merge, "both_raw")
        total = round_sum(m, raw_total, 15, "row_total")
        m.d.comb += self.total.eq(register(m, total, enable[self.tree_stages + 3], "total_register"))
        return m


def tree_stages(lanes: int) -> int:
    return 2 * int(ceil_log2(lanes))


def add_tree(m: Module, terms: list[Value], enable: Value) -> Value:
    """The sum of a slice after `tree_stages` registers: neighbours first, an odd one goes up as it is."""
    for level in range(tree_stages(len(terms)) // 2):
        first, second = enable[2 * level], enable[2 * level + 1]
        sums: list[Value] = []
        for pair, (a, b) in enumerate(zip(terms[::2], terms[1::2], strict=False)):
            name = f"sum_{level}_{pair}"
            raw = align_and_add(m, a, b, name).registered(m, first, f"{name}_raw")
            sums.append(round_sum(m, raw, 15, name))
        sums += [register(m, odd, first, f"odd_{level}") for odd in terms[len(terms) // 2 * 2 :]]
        terms = [register(m, value, second, f"level_{level}_{i}") for i, value in enumerate(sums)]
    return terms[0]
