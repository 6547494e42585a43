"""The sum of a row's words: a slice in carry-save form, then added to what the row has."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Module, Mux, Signal, Value, unsigned
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from softermax.rtl.arithmetic.carry_save import carry_save
from softermax.rtl.pipeline import register

LEVELS = 4
"""Rows of full adders between two registers."""
_LAST = 3
"""Words that the last stage adds to the row's sum."""


def stages_of(lanes: int, levels: int = LEVELS) -> int:
    """Registers of the tree: as many as it takes until few words are left."""
    words, count = lanes, 0
    while words > _LAST:
        for _ in range(levels):
            words = words // 3 * 2 + words % 3 if words > 2 else words
        count += 1
    return count


class Total(wiring.Component):
    """Adds the words of each slice up, and slices to their row's sum. ``tree_stages`` registers stand before the row's.

    With ``slice_first`` a slice is one word before it meets the row's sum: where that is so long that both do not fit into a cycle.
    """

    def __init__(
        self, word_bits: int, lanes: int, bits: int, levels: int = LEVELS, slice_first: bool = False
    ) -> None:
        self._lanes = lanes
        self._levels = levels
        self._bits = bits
        self._slice_bits = (lanes * ((1 << word_bits) - 1)).bit_length()
        self._slice_first = slice_first
        self.tree_stages = stages_of(lanes, levels) + slice_first
        super().__init__(
            {
                "terms": In(data.ArrayLayout(unsigned(word_bits), lanes)),
                "first": In(1),  # of the slice after the tree
                "enable": In(self.tree_stages + 1),
                "total": Out(bits),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        words: list[Value] = [self.terms[lane] for lane in range(self._lanes)]
        for stage in range(self.tree_stages):
            added = carry_save(m, words, self._slice_bits, f"tree_{stage}", self._levels)
            if self._slice_first and stage == self.tree_stages - 1:
                added = [sum(added)[: self._slice_bits]]
            words = [
                register(m, word, self.enable[stage], f"partial_{stage}_{i}") for i, word in enumerate(added)
            ]
        so_far = Signal(self._bits)
        m.d.comb += [
            so_far.eq(Mux(self.first, 0, self.total)),
            self.total.eq(
                register(
                    m,
                    sum(carry_save(m, [*words, so_far], self._bits, "row"))[: self._bits],
                    self.enable[self.tree_stages],
                    "row_total",
                )
            ),
        ]
        return m
