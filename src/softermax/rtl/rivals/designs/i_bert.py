"""I-BERT's IntSoftmax in RTL: i-exp's polynomial, a barrel shift, the 16-bit requantisation, one 32-bit division per row.

What int8 scores and a wired scale make smaller, all words staying the model's:

- A distance is split by a multiplication with the step's reciprocal, exact for every distance.
- The polynomial has one value for each rest below ln 2, about 0.69 over the scale: so few that these are wired, times the constant
  that requantises, with as few bits as give the model's word of every distance. The authors' constant has 31, since their
  polynomial goes up to 2^60.
- The quotient of 2^32 by a sum has at most 18 bits: every row has exp(0), which is 32767.
- An exponential that gives 0 whatever the sum need not wait: distances wait, up to the first such one, and the polynomial is
  computed anew for the others. Lanes without one stand still.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from amaranth.hdl import Cat, Module, Mux, Signal, Value, unsigned
from amaranth.lib import data

from softermax.fixedpoint import IntArray
from softermax.golden import BoolArray
from softermax.rivals.designs.i_bert import HIGHEST, LN2, A, B, C, IBert
from softermax.rtl.pipeline import follow, register
from softermax.rtl.rivals.parts import LONGEST
from softermax.rtl.rivals.parts.constants import divided, looked_up
from softermax.rtl.rivals.parts.division import Division
from softermax.rtl.rivals.parts.interface import SCORES, UNNORMED, Kept
from softermax.rtl.rivals.parts.live import (
    LiveHardware,
    clipped,
    kept_distances,
    live_distances,
    live_enables,
)
from softermax.rtl.rivals.parts.payloads import words_layout
from softermax.rtl.rivals.parts.row_factor import partial_products, recoded
from softermax.rtl.rivals.parts.row_normalization import LaneUnit, RowNormalization
from softermax.rtl.rivals.parts.two_pass import ExponentialLanes, TwoPassSum, finished_layout

WORD_BITS = HIGHEST.bit_length()
DIVIDEND = 1 << 32
_DISTANCES = 256


class Constants:
    """What a scale wires: the step, and by rest the polynomial's value, requantised."""

    def __init__(self, design: IBert) -> None:
        scale = design.step
        self.step = -math.floor(-LN2 / scale)
        b, c = math.floor(B / A / scale), math.floor(C / A / scale**2)
        rest = np.arange(self.step)
        exact = np.maximum(c - rest * (b - rest), 0) * (HIGHEST / c)
        self.words = design.exponentials()
        """By distance, up to the last that is not the same as the one before."""
        self.furthest = min(len(self.words), _DISTANCES) - 1
        words = self.words[: self.furthest + 1]
        self.live = live_distances(words, DIVIDEND // HIGHEST, 32 - design.bits)
        """Distances from 0 on whose output may be more than 0."""
        for self.fraction in range(1, 32):
            found = [self._product(value, words[at :: self.step]) for at, value in enumerate(exact)]
            self.products = [product for product in found if product is not None]
            if len(self.products) == self.step:
                return
        raise ValueError(f"{design.name}: scale = {scale}: no constants of 31 fraction bits requantise it")

    def _product(self, exact: float, words: IntArray) -> int | None:
        """The value with so many fraction bits that gives these words, each a place further to the right and rounded half up.
        The authors round ties to even: a unit more or less makes up for that."""
        nearest = round(exact * (1 << self.fraction))
        places = self.fraction + np.arange(len(words))
        for product in (nearest, nearest - 1, nearest + 1):
            if np.array_equal((product + (1 << (places - 1))) >> places, words):
                return product
        return None


def split(m: Module, known: Constants, distance: Value, most: int, name: str) -> Value:
    """A distance up to ``most`` as rest, then steps of ln 2 above it."""
    steps, rest = divided(m, distance, known.step, name, most)
    return Cat(rest, steps)


def word_of(m: Module, known: Constants, parts: Value, name: str) -> Value:
    """The polynomial of the rest, requantised, shifted by the steps and rounded."""
    rest_bits = (known.step - 1).bit_length()
    product = looked_up(m, known.products, parts[:rest_bits], f"{name}_product")
    # One place more than the word's, for its half.
    shifted = product[known.fraction - 1 :] >> parts[rest_bits:]
    word = Signal(WORD_BITS, name=f"{name}_word")
    m.d.comb += word.eq(shifted[1:] + shifted[0])
    return word


class Exponential(ExponentialLanes):
    """Words up to 32767 of distances below the max, to be added up.

    stage 1   the distance, which a subtraction before it finds          | distance
    stage 2   in steps of ln 2 and a rest                                | steps, rest, distance
    stage 3   the polynomial of the rest, requantised, shifted, rounded  | word, distance
    """

    def __init__(self, design: IBert, lanes: int) -> None:
        self._known = Constants(design)
        super().__init__(8, self._known.live.bit_length(), WORD_BITS, lanes, stages=3)

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        for lane in range(self.lanes):
            self._lane(m, lane)
        return m

    def _lane(self, m: Module, lane: int) -> None:
        known, name = self._known, f"lane_{lane}"
        distance = register(m, self.distance[lane], self.enable[0], f"{name}_distance")
        masks = follow(m, self.mask[lane], [self.enable[0], self.enable[1]], f"{name}_mask")
        waits = register(m, clipped(distance, masks[0], known.live), self.enable[1], f"{name}_waits")
        if known.furthest < _DISTANCES - 1:
            distance = Mux(distance > known.furthest, known.furthest, distance)
        parts = register(m, split(m, known, distance, known.furthest, name), self.enable[1], f"{name}_parts")
        word = Mux(masks[1], word_of(m, known, parts, name), 0)
        m.d.comb += [
            self.u[lane].eq(register(m, waits, self.enable[2], f"{name}_waits_3")),
            self.terms[lane].eq(register(m, word, self.enable[2], f"{name}_exponential")),
        ]


class Scaled(LaneUnit):
    """Words times the row's factor, of which the upper eight bits are the output.

    stage 1   the distance split; the factor recoded           | steps, rest; digits
    stage 2   the polynomial, requantised, shifted, rounded    | word; digits
    stage 3   partial products                                 | product in two words
    stage 4   added                                            | output word
    """

    def __init__(self, design: IBert, factor: data.StructLayout, lanes: int) -> None:
        self._known = Constants(design)
        self._bits = design.bits
        kept = words_layout(unsigned(self._known.live.bit_length()), lanes)
        super().__init__(kept, factor, unsigned(design.bits), lanes, stages=4)

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        digits = recoded(m, self.factor.quotient, "digits")
        for stage in range(2):
            kept = register(m, digits.as_value(), self.enable[stage], f"digits_{stage}")
            digits = data.View(digits.shape(), kept)
        for lane in range(self.lanes):
            self._lane(m, lane, digits)
        return m

    def _lane(self, m: Module, lane: int, digits: data.View) -> None:
        known, name, distance = self._known, f"lane_{lane}", self.kept.u[lane]
        enables, live = live_enables(m, distance != known.live, self.enable, name)
        parts = register(m, split(m, known, distance, known.live - 1, name), enables[0], f"{name}_parts")
        word = register(m, word_of(m, known, parts, name), enables[1], f"{name}_exponential")
        # No product reaches 2^32: an exponential is at most the sum.
        addends = partial_products(m, word, digits, 32, name)
        a, b = (register(m, addend, enables[2], f"{name}_addend_{i}") for i, addend in enumerate(addends))
        y = register(m, (a + b)[32 - self._bits : 32], enables[3], f"{name}_y")
        m.d.comb += self.y[lane].eq(Mux(live, y, 0))


class IBertHardware(LiveHardware):
    name = "i-bert"

    def make(self, unit: str, design: IBert, lanes: int) -> Any:
        total_bits = (HIGHEST * LONGEST).bit_length()
        if unit == UNNORMED:
            return TwoPassSum(Exponential(design, lanes), total_bits)
        # As many bits per cycle as it takes to be done within a row of 384 elements.
        division = Division(DIVIDEND, finished_layout(total_bits), HIGHEST, per_cycle=1 if lanes <= 16 else 2)
        return RowNormalization(division, Scaled(design, division.factor.shape(), lanes))

    def kept_words(self, design: IBert, raw: IntArray, mask: BoolArray) -> IntArray:
        return kept_distances(raw, mask, Constants(design).live)

    def waiting(self, design: IBert) -> tuple[Kept, ...]:
        return SCORES, Kept("distances", Constants(design).live.bit_length())


HARDWARE = IBertHardware()
