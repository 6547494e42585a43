"""A3's split exponential in RTL: two tables and a product per lane, one division per row, a product with its reciprocal.

Beyond the sixteenth entry of the upper table every product is 0: it has no more here. exp(0) is the one word of 17 bits; it waits as
the largest of 16, which no other exponential is.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from amaranth.hdl import Cat, Const, Module, Mux, Shape, Signal, Value, unsigned
from amaranth.lib import data

from softermax.fixedpoint import IntArray
from softermax.golden import BoolArray
from softermax.rivals.designs.split_exponential import ONE, RECIPROCAL_BITS, SplitExponential
from softermax.rtl.arithmetic.columns import addends
from softermax.rtl.arithmetic.rounding import saturate
from softermax.rtl.pipeline import register
from softermax.rtl.rivals.parts import LONGEST
from softermax.rtl.rivals.parts.division import Reciprocal
from softermax.rtl.rivals.parts.interface import UNNORMED, Kept, TwoPassHardware
from softermax.rtl.rivals.parts.live import live_enables
from softermax.rtl.rivals.parts.payloads import words_layout
from softermax.rtl.rivals.parts.row_factor import partial_products, recoded
from softermax.rtl.rivals.parts.row_normalization import LaneUnit, RowNormalization
from softermax.rtl.rivals.parts.two_pass import ExponentialLanes, TwoPassSum, finished_layout

SCORE = Shape(16, True)
WORD_BITS = ONE.bit_length() - 1
_UPPER = 16
"""Entries of the upper table that leave something of any lower one."""
_TOTAL_BITS = (ONE * LONGEST).bit_length()
_GROUP = 4
"""Lanes with registers of their own for the row's factor, which could not reach more in time."""


class SplitLanes(ExponentialLanes):
    """The product of two tables' entries.

    stage 1   distance                                    | its 12 bits that count
    stage 2   both table entries                          | entries
    stage 3   partial products                            | product in two words
    stage 4   added                                       | its upper half
    A lane whose exponential is 0 stands still.
    """

    def __init__(self, design: SplitExponential, lanes: int) -> None:
        self._tables = design.tables()
        super().__init__(SCORE.width, WORD_BITS, WORD_BITS + 1, lanes, stages=4)

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        for lane in range(self.lanes):
            self._lane(m, lane)
        return m

    def _lane(self, m: Module, lane: int) -> None:
        distance = self.distance[lane]
        bits = 8 + (_UPPER - 1).bit_length()
        moves = self.mask[lane] & ~distance[bits:].any()
        enables, live = live_enables(m, moves, self.enable, f"lane_{lane}")
        at = register(m, distance[:bits], enables[0], f"distance_1_{lane}")
        high, low = (table.tolist() for table in self._tables)
        upper = register(m, _entry(m, high[:_UPPER], at[8:], f"high_{lane}"), enables[1], f"upper_{lane}")
        lower = register(m, _entry(m, low, at[:8], f"low_{lane}"), enables[1], f"lower_{lane}")
        rows = [(lower & bit.replicate(len(lower)), place) for place, bit in enumerate(upper)]
        size = 2 * WORD_BITS + 1
        words = addends(m, rows, 0, size, f"product_{lane}")
        a, b = (register(m, word, enables[2], f"addend_{lane}_{i}") for i, word in enumerate(words))
        product = Signal(size, name=f"product_{lane}")
        m.d.comb += product.eq(a + b)
        # exp(0), and nothing else, has a bit more than waits.
        word = product[WORD_BITS:-1] | product[-1].replicate(WORD_BITS)
        kept = register(m, word, enables[3], f"word_{lane}")
        u = Signal(WORD_BITS, name=f"u_{lane}")
        m.d.comb += [u.eq(Mux(live, kept, 0)), self.u[lane].eq(u), self.terms[lane].eq(exponential_of(u))]


def _entry(m: Module, table: list[int], index: Value, name: str) -> Value:
    """A table's entry as a tree of multiplexers, bit by bit, in which equal branches are one."""
    branches: dict[tuple[int, ...], Value] = {}

    def chosen(column: tuple[int, ...]) -> Value:
        if len(set(column)) == 1:
            return Const(column[0], 1)
        if column not in branches:
            # The index's highest bit halves the column.
            half = len(column) // 2
            low, high = chosen(column[:half]), chosen(column[half:])
            found = Signal(name=f"{name}_{len(branches)}")
            m.d.comb += found.eq(Mux(index[half.bit_length() - 1], high, low))
            branches[column] = found
        return branches[column]

    return Cat(chosen(tuple(word >> place & 1 for word in table)) for place in range(WORD_BITS + 1))


def exponential_of(word: Value) -> Value:
    """What a word that waits stands for, in 17 bits."""
    whole = word.all()
    return Cat(word & ~whole.replicate(len(word)), whole)


class TimesReciprocal(LaneUnit):
    """Exponentials times the row's reciprocal, shifted by the leading one of its sum, rounded half up, saturated.

    stage 1   words; the reciprocal's digits, once for a few lanes        | exponentials, digits
    stage 2   partial products                                            | product in two words
    stage 3   added                                                       | its bits that count
    then      the shift
    A lane whose exponential is 0 stands still.
    """

    def __init__(self, lanes: int, factor: data.StructLayout) -> None:
        super().__init__(words_layout(unsigned(WORD_BITS), lanes), factor, unsigned(16), lanes, stages=3)

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        digits = recoded(m, self.factor.quotient, "digits")
        for start in range(0, self.lanes, _GROUP):
            lanes = range(start, min(start + _GROUP, self.lanes))
            words = [self.kept.u[lane] for lane in lanes]
            live = [word.any() for word in words]
            enables, _ = live_enables(m, Cat(live).any(), self.enable, f"some_{start}")
            factor = register(m, digits.as_value(), enables[0], f"factor_{start}")
            # A sum's leading one stands at that of exp(0) or above.
            beyond = self.factor.one
            for stage, enable in enumerate(enables):
                beyond = register(m, beyond, enable, f"beyond_{stage}_{start}")
            for lane, word, moves in zip(lanes, words, live, strict=True):
                self._lane(m, lane, word, moves, data.View(digits.shape(), factor), beyond)
        return m

    def _lane(
        self, m: Module, lane: int, word: Value, moves: Value, factor: data.View, beyond: Value
    ) -> None:
        enables, live = live_enables(m, moves, self.enable, f"lane_{lane}")
        e = register(m, exponential_of(word), enables[0], f"e_{lane}")
        words = partial_products(m, e, factor, WORD_BITS + RECIPROCAL_BITS, f"product_{lane}")
        a, b = (register(m, one, enables[1], f"addend_{lane}_{i}") for i, one in enumerate(words))
        # At least the fraction is shifted out, but for the bit that rounds.
        product = (a + b)[WORD_BITS : WORD_BITS + RECIPROCAL_BITS]
        shifted = register(m, product, enables[2], f"counts_{lane}") >> beyond
        rounded = saturate(shifted[1:] + shifted[0], 16)
        m.d.comb += self.y[lane].eq(Mux(live, rounded, 0))


class SplitExponentialHardware(TwoPassHardware):
    name = "split-exponential"
    score = SCORE

    def make(self, unit: str, design: SplitExponential, lanes: int) -> Any:
        if unit == UNNORMED:
            return TwoPassSum(SplitLanes(design, lanes), _TOTAL_BITS, SCORE)
        # Without it 32 lanes just miss the clock.
        row = Reciprocal(
            finished_layout(_TOTAL_BITS), RECIPROCAL_BITS, least=ONE, per_cycle=2, select=lanes > 16
        )
        return RowNormalization(row, TimesReciprocal(lanes, row.factor.shape()))

    def scores_of(self, raw: IntArray) -> IntArray:
        """An odd factor: every bit of a distance is met, and a twentieth of the way down exponentials are 0."""
        return raw * 37

    def kept_words(self, design: SplitExponential, raw: IntArray, mask: BoolArray) -> IntArray:
        return np.asarray(np.minimum(design.unnormed(raw, mask).words, ONE - 1), dtype=np.int64)

    def waiting(self, design: SplitExponential) -> tuple[Kept, ...]:
        return Kept("scores", SCORE.width + 1), Kept("exponentials", WORD_BITS)


HARDWARE = SplitExponentialHardware()
