"""The int8 softmax of CMSIS-NN and TensorFlow Lite in RTL: gemmlowp's exponentials, its Newton reciprocal once per row.

What int8 scores and a wired scale make smaller, all words staying the model's:

- An exponential is a table's, with an entry for each distance: as Arm's own compiler for its Ethos-U hardware has it (Vela,
  ethosu/vela/softmax.py, generate_exp_table), not fourteen 32-bit multiplications in every lane. The entries are gemmlowp's.
- To be added up it is cut to 20 bits: that table is another one. All 31 bits are needed for the output alone, and there only up to
  the distance from which the output is 0 in every row. So distances wait, up to that one; other lanes stand still.
- Rounding twice, after the product's upper half and after the shift, is rounding once with both halves added.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from amaranth.hdl import Module, Mux, Signal, Value, unsigned
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from softermax.fixedpoint import IntArray
from softermax.golden import BoolArray
from softermax.rivals.designs.cmsis_nn import HEADROOM, CmsisNn, divided_by_power
from softermax.rtl.pipeline import register
from softermax.rtl.rivals.parts.constants import looked_up
from softermax.rtl.rivals.parts.interface import SCORES, UNNORMED, Kept
from softermax.rtl.rivals.parts.live import LiveHardware, clipped, kept_distances, live_enables
from softermax.rtl.rivals.parts.newton import TOTAL_BITS, Reciprocal, reciprocal_layout
from softermax.rtl.rivals.parts.payloads import output_layout, words_layout
from softermax.rtl.rivals.parts.row_factor import partial_products, recoded
from softermax.rtl.rivals.parts.row_normalization import LaneUnit, Passed, RowNormalization
from softermax.rtl.rivals.parts.two_pass import ExponentialLanes, TwoPassSum, finished_layout

_PRODUCT_BITS = 62
_LOWEST = 31 + 23 - 1
"""Of a product's bits that are left after any row's shift: 23 places at least beyond the upper half, and one for the half."""


class Constants:
    """What a scale wires."""

    def __init__(self, design: CmsisNn) -> None:
        words = design.exponentials()
        self.terms = divided_by_power(words, HEADROOM)
        """What is added up, by distance."""
        # At least half a step of the output, in rows whose sum is that of exp(0) alone.
        self.live = int(np.count_nonzero(words >> (31 - design.bits - 1)))
        """Distances from 0 on whose output may be more than 0."""
        self.words = words[: self.live]


class Exponential(ExponentialLanes):
    """Exponentials of distances below the max, cut to be added up; the distances wait.

    stage 1   none: what the distance was found by takes a while | distance
    stage 2   the table                                          | exponential, distance
    """

    def __init__(self, design: CmsisNn, lanes: int) -> None:
        self._known = Constants(design)
        term_bits = int(self._known.terms[0]).bit_length()
        super().__init__(8, self._known.live.bit_length(), term_bits, lanes, stages=2)

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        for lane in range(self.lanes):
            name, mask = f"lane_{lane}", self.mask[lane]
            distance = register(m, self.distance[lane], self.enable[0], f"{name}_distance")
            mask = register(m, mask, self.enable[0], f"{name}_mask")
            waits = clipped(distance, mask, self._known.live)
            term = Mux(mask, looked_up(m, self._known.terms.tolist(), distance, f"{name}_entry"), 0)
            m.d.comb += [
                self.u[lane].eq(register(m, waits, self.enable[1], f"{name}_waits")),
                self.terms[lane].eq(register(m, term, self.enable[1], f"{name}_term")),
            ]
        return m


class Scaled(LaneUnit):
    """Exponentials in 31 bits times the row's reciprocal, rounded to the output's scale.

    stage 1   the table; the reciprocal recoded        | exponential; digits
    stage 2   partial products                         | product in two words
    stage 3   added                                    | its upper bits
    stage 4   shifted, rounded                         | output word
    """

    def __init__(self, design: CmsisNn, lanes: int) -> None:
        self._known = Constants(design)
        self._bits = design.bits
        kept = words_layout(unsigned(self._known.live.bit_length()), lanes)
        super().__init__(kept, reciprocal_layout(), unsigned(design.bits), lanes, stages=4)

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        digits = recoded(m, self.factor.inverse, "digits")
        digits = data.View(digits.shape(), register(m, digits.as_value(), self.enable[0], "digits_1"))
        headroom = self.factor.headroom
        for stage in range(3):
            headroom = register(m, headroom, self.enable[stage], f"headroom_{stage}")
        for lane in range(self.lanes):
            self._lane(m, lane, digits, headroom)
        return m

    def _lane(self, m: Module, lane: int, digits: data.View, headroom: Value) -> None:
        known, name, distance = self._known, f"lane_{lane}", self.kept.u[lane]
        enables, live = live_enables(m, distance != known.live, self.enable, name)
        e = register(
            m, looked_up(m, known.words.tolist(), distance, f"{name}_entry"), enables[0], f"{name}_e"
        )
        addends = partial_products(m, e, digits, _PRODUCT_BITS, name, added=1 << 30)
        a, b = (register(m, addend, enables[1], f"{name}_addend_{i}") for i, addend in enumerate(addends))
        product = register(m, (a + b)[_LOWEST:_PRODUCT_BITS], enables[2], f"{name}_product")
        shifted = product >> (HEADROOM - headroom)[:4]
        y = Signal(self._bits + 1, name=f"{name}_rounded")
        m.d.comb += y.eq(shifted[1:] + shifted[0])
        y = register(m, Mux(y[-1], (1 << self._bits) - 1, y[: self._bits]), enables[3], f"{name}_y")
        m.d.comb += self.y[lane].eq(Mux(live, y, 0))


class Normalization(wiring.Component):
    """`Reciprocal`, then `RowNormalization` with it: `row_latency` cycles from a finished row until its first slice is taken."""

    def __init__(self, design: CmsisNn, lanes: int) -> None:
        self.lanes = lanes
        self.reciprocal = Reciprocal()
        self.lane_unit = Scaled(design, lanes)
        self.slices = RowNormalization(Passed(reciprocal_layout()), self.lane_unit)
        self.latency = self.slices.latency
        self.row_latency = self.reciprocal.cycles + self.slices.row_latency
        self.row_interval = self.reciprocal.interval
        super().__init__(
            {
                "finished": In(stream.Signature(finished_layout(TOTAL_BITS))),
                "kept": In(stream.Signature(self.lane_unit.kept.shape())),
                "probabilities": Out(stream.Signature(output_layout(self.lane_unit.output, lanes))),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        m.submodules.reciprocal = reciprocal = self.reciprocal
        m.submodules.slices = slices = self.slices
        wiring.connect(m, wiring.flipped(self.finished), reciprocal.finished)
        wiring.connect(m, reciprocal.reciprocals, slices.finished)
        wiring.connect(m, wiring.flipped(self.kept), slices.kept)
        wiring.connect(m, slices.probabilities, wiring.flipped(self.probabilities))
        return m


class CmsisNnHardware(LiveHardware):
    name = "cmsis-nn"

    def make(self, unit: str, design: CmsisNn, lanes: int) -> Any:
        if unit == UNNORMED:
            return TwoPassSum(Exponential(design, lanes), TOTAL_BITS, slice_first=True)
        return Normalization(design, lanes)

    def kept_words(self, design: CmsisNn, raw: IntArray, mask: BoolArray) -> IntArray:
        return kept_distances(raw, mask, Constants(design).live)

    def totals(self, design: CmsisNn, raw: IntArray, mask: BoolArray) -> IntArray:
        """The sum as it is, before it is cut off at 31 bits."""
        terms: IntArray = divided_by_power(design.unnormed(raw, mask).words, HEADROOM)
        return np.asarray(terms.sum(axis=1), dtype=np.int64)

    def waiting(self, design: CmsisNn) -> tuple[Kept, ...]:
        return SCORES, Kept("distances", Constants(design).live.bit_length())


HARDWARE = CmsisNnHardware()
