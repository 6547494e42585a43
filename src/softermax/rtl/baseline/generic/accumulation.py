"""The sum of exponentials by generic adders."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Array, Cat, Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from softermax.rtl.baseline.generic.add import Add
from softermax.rtl.baseline.generic.model import PARTIAL_SUMS
from softermax.rtl.baseline.payloads import halves
from softermax.rtl.pipeline import follow


class Accumulation(wiring.Component):
    """Adds the lanes of each slice by a tree and slices to their row's sum, every step rounded to half.

    An addition and the register of its sum take `PARTIAL_SUMS` cycles, so a row has as many sums, its slices go to them in
    turn, and a tree adds these when the row ends: a slice per cycle, also of one row. The order is that of `model.row_sum`.

    for each level of the tree   neighbours added, `Add.stages`           | sums
    then                         added to a sum of the row, `Add.stages`  | sum of row and slice
                                                                          | the sums of the row
    after the last slice         these added by a tree                    | sum of the row
    """

    def __init__(self, lanes: int) -> None:
        self._lanes = lanes
        self.tree_stages = _tree_stages(lanes)
        self.row_stages = self.tree_stages + PARTIAL_SUMS
        self.merge_stages = _tree_stages(PARTIAL_SUMS)
        self.stages = self.row_stages + self.merge_stages
        super().__init__(
            {
                "terms": In(halves(lanes)),
                "first": In(1),  # of the slice after the tree
                "enable": In(self.stages),  # the registers of each stage take what is before them
                "total": Out(16),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        enables = list(self.enable)
        tree, row, merge = (
            enables[: self.tree_stages],
            enables[self.tree_stages : self.row_stages],
            enables[self.row_stages :],
        )
        slice_sum = _tree(m, [self.terms[lane] for lane in range(self._lanes)], tree, "tree")

        # Slices go to the sums in turn; in a row's first round a sum begins with zero.
        turn, later = Signal(range(PARTIAL_SUMS), reset_less=True), Signal(reset_less=True)
        now, now_later, so_far = Signal(range(PARTIAL_SUMS)), Signal(), Signal(16)
        sums = Array(Signal(16, reset_less=True, name=f"sum_{i}") for i in range(PARTIAL_SUMS))
        m.d.comb += [
            now.eq(Mux(self.first | (turn == PARTIAL_SUMS - 1), 0, turn + 1)),
            now_later.eq(~self.first & (later | (turn == PARTIAL_SUMS - 1))),
            so_far.eq(Mux(now_later, sums[now], 0)),
        ]
        with m.If(row[0]):
            m.d.sync += [turn.eq(now), later.eq(now_later)]
        added = _add(m, so_far, slice_sum, row[: Add.stages], "row")
        of_slice = follow(m, Cat(now, self.first), row[: Add.stages], "of_slice")[-1]
        with m.If(row[-1]):
            # What the row before left in the others is gone.
            with m.If(of_slice[-1]):
                m.d.sync += [partial.eq(0) for partial in sums]
            m.d.sync += sums[of_slice[:-1]].eq(added)

        m.d.comb += self.total.eq(_tree(m, list(sums), merge, "merge"))
        return m


def _tree_stages(terms: int) -> int:
    return Add.stages * int(ceil_log2(terms))


def _add(m: Module, a: Value, b: Value, enables: list[Value], name: str) -> Value:
    m.submodules[f"add_{name}"] = unit = Add()
    m.d.comb += [unit.a.eq(a), unit.b.eq(b), unit.enable.eq(Cat(*enables))]
    total: Value = unit.total
    return total


def _tree(m: Module, terms: list[Value], enables: list[Value], name: str) -> Value:
    """The sum after `_tree_stages` registers: neighbours first, an odd one goes up as it is."""
    for level in range(len(enables) // Add.stages):
        own = enables[Add.stages * level : Add.stages * (level + 1)]
        pairs = enumerate(zip(terms[::2], terms[1::2], strict=False))
        sums = [_add(m, a, b, own, f"{name}_{level}_{pair}") for pair, (a, b) in pairs]
        odd = terms[len(terms) // 2 * 2 :]
        terms = sums + [follow(m, term, own, f"{name}_{level}_odd")[-1] for term in odd]
    return terms[0]
