"""I-ViT's Shiftmax in RTL: log2(e) as shifts, 2^-f as 1 - f/2, one 31-bit division per row.

What int8 scores and a wired scale make smaller, all words staying the model's:

- A distance, times log2(e), is split by a multiplication with the reciprocal of 1 over the scale, exact for every distance.
- An exponential is a short mantissa, shifted. So mantissa and shift wait, not a word of twenty bits, and the row's factor is
  multiplied with the mantissa before the shift.
- Every row has exp(0), so the factor has a largest value, and from some shift on the output is 0 in every row. Such a lane, and a masked one,
  waits as that shift, and stands still.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value, unsigned
from amaranth.lib import data

from softermax.fixedpoint import IntArray
from softermax.golden import BoolArray
from softermax.rivals.designs.i_vit import LARGEST, SHIFTS, IVit
from softermax.rtl.pipeline import follow, register
from softermax.rtl.rivals.parts import LONGEST
from softermax.rtl.rivals.parts.constants import divided
from softermax.rtl.rivals.parts.division import Division
from softermax.rtl.rivals.parts.interface import SCORES, UNNORMED, Kept
from softermax.rtl.rivals.parts.live import LiveHardware, live_enables
from softermax.rtl.rivals.parts.payloads import words_layout
from softermax.rtl.rivals.parts.row_factor import partial_products, recoded
from softermax.rtl.rivals.parts.row_normalization import LaneUnit, RowNormalization
from softermax.rtl.rivals.parts.two_pass import ExponentialLanes, TwoPassSum, finished_layout


class Constants:
    """What a scale and an output word wire."""

    def __init__(self, design: IVit) -> None:
        self.unit = design.unit
        self.step = design.unit >> SHIFTS
        """1 over the scale: the distance over which an exponential halves, after log2(e)."""
        self.mantissa_bits = (2 * self.step).bit_length()
        self.rest_bits = (self.step - 1).bit_length()
        dropped = 32 - design.bits
        self.live = next(
            shift
            for shift in range(SHIFTS + 1)
            if ((2 * self.step << (SHIFTS - shift)) >> 1) * (LARGEST // self.unit) >> dropped == 0
        )
        """Shifts from 0 on whose output may be more than 0."""
        self.shift_bits = self.live.bit_length()
        self.word_bits = self.rest_bits + self.shift_bits
        self.furthest = min(scaled(255), SHIFTS * self.step)


def scaled(distance: Any) -> Any:
    """A distance times 1.4375. Shifts of negative numbers round away from 0."""
    return distance + ((distance + 1) >> 1) - ((distance + 15) >> 4)


class Exponential(ExponentialLanes):
    """Rest and shift of distances below the max wait; exponentials are added up.

    stage 1   the distance D, which a subtraction before it finds; D + D/2 - D/16    | the same times log2(e)
    stage 2   in steps and a rest                                                    | rest, shift
    stage 3   the mantissa, shifted                                                  | exponential; rest, shift
    """

    def __init__(self, design: IVit, lanes: int) -> None:
        self._known = Constants(design)
        super().__init__(8, self._known.word_bits, self._known.unit.bit_length(), lanes, stages=3)

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        for lane in range(self.lanes):
            self._lane(m, lane)
        return m

    def _lane(self, m: Module, lane: int) -> None:
        known, name = self._known, f"lane_{lane}"
        product = Signal(range(scaled(255) + 1), name=f"{name}_scaled")
        m.d.comb += product.eq(scaled(self.distance[lane]))
        below = register(m, product, self.enable[0], f"{name}_below")
        if known.furthest < scaled(255):
            below = Mux(below > known.furthest, known.furthest, below)
        shift, rest = divided(m, below, known.step, name, known.furthest)
        rest = register(m, rest, self.enable[1], f"{name}_rest")
        shift = register(m, shift, self.enable[1], f"{name}_shift")
        mask = follow(m, self.mask[lane], [self.enable[0], self.enable[1]], f"{name}_mask")[-1]
        live = mask & (shift < known.live)
        waits = Mux(live, Cat(rest, shift[: known.shift_bits]), known.live << known.rest_bits)
        exponential = Cat(Const(0, SHIFTS - 1), mantissa_of(m, known, rest, name)) >> shift
        m.d.comb += [
            self.u[lane].eq(register(m, waits, self.enable[2], f"{name}_waits")),
            self.terms[lane].eq(
                register(m, Mux(mask, exponential, 0), self.enable[2], f"{name}_exponential")
            ),
        ]


def mantissa_of(m: Module, known: Constants, rest: Value, name: str) -> Value:
    mantissa = Signal(known.mantissa_bits, name=f"{name}_mantissa")
    m.d.comb += mantissa.eq(2 * known.step - rest)
    return mantissa


class Scaled(LaneUnit):
    """Mantissa times the row's factor, shifted to the output's scale.

    stage 1   the mantissa; the factor recoded         | mantissa, shift; digits
    stage 2   partial products                         | product in two words, shift
    stage 3   added, shifted                           | output word
    """

    def __init__(self, design: IVit, factor: data.StructLayout, lanes: int) -> None:
        self._known = Constants(design)
        self._bits = design.bits
        kept = words_layout(unsigned(self._known.word_bits), lanes)
        super().__init__(kept, factor, unsigned(design.bits - 1), lanes, stages=3)

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        digits = recoded(m, self.factor.quotient, "digits")
        digits = data.View(digits.shape(), register(m, digits.as_value(), self.enable[0], "digits_1"))
        for lane in range(self.lanes):
            self._lane(m, lane, digits)
        return m

    def _lane(self, m: Module, lane: int, digits: data.View) -> None:
        known, name, u = self._known, f"lane_{lane}", self.kept.u[lane]
        rest, shift = u[: known.rest_bits], u[known.rest_bits :]
        enables, live = live_enables(m, shift != known.live, self.enable, name)
        mantissa = register(m, mantissa_of(m, known, rest, name), enables[0], f"{name}_mantissa_1")
        shift = register(m, shift, enables[0], f"{name}_shift_1")
        bits = known.mantissa_bits + len(self.factor.quotient)
        addends = partial_products(m, mantissa, digits, bits, name)
        a, b = (register(m, addend, enables[1], f"{name}_addend_{i}") for i, addend in enumerate(addends))
        shift = register(m, shift, enables[1], f"{name}_shift_2")
        product = (a + b)[:bits]
        # An exponential is the mantissa times 2^(14 - shift).
        dropped = 32 - self._bits - (SHIFTS - 1)
        y = (product[dropped:] if dropped >= 0 else Cat(Const(0, -dropped), product)) >> shift
        y = register(m, y[: self._bits - 1], enables[2], f"{name}_y")
        m.d.comb += self.y[lane].eq(Mux(live, y, 0))


class ClippedDivision(Division):
    """`LARGEST` over the sum, which is not more than that."""

    def _divisor(self, m: Module) -> Value:
        total: Value = self.finished.total
        return Mux(total > LARGEST, LARGEST, total) if len(total) > LARGEST.bit_length() else total


class IVitHardware(LiveHardware):
    name = "i-vit-16"

    def make(self, unit: str, design: IVit, lanes: int) -> Any:
        total_bits = (design.unit * LONGEST).bit_length()
        if unit == UNNORMED:
            return TwoPassSum(Exponential(design, lanes), total_bits)
        # As many bits per cycle as it takes to be done within a row of 384 elements.
        finished, per_cycle = finished_layout(total_bits), 1 if lanes <= 16 else 2
        division = ClippedDivision(LARGEST, finished, design.unit, per_cycle)
        return RowNormalization(division, Scaled(design, division.factor.shape(), lanes))

    def kept_words(self, design: IVit, raw: IntArray, mask: BoolArray) -> IntArray:
        known = Constants(design)
        below = np.where(mask, raw, -(2**31)).max(axis=1, keepdims=True) - raw
        below = np.minimum(scaled(np.clip(below, 0, 255)), known.furthest)
        shift, rest = below // known.step, below % known.step
        live = mask & (shift < known.live)
        return np.where(live, rest + (shift << known.rest_bits), known.live << known.rest_bits)

    def waiting(self, design: IVit) -> tuple[Kept, ...]:
        return SCORES, Kept("mantissas and shifts", Constants(design).word_bits)


class IVit8Hardware(IVitHardware):
    name = "i-vit-8"


HARDWARE = (IVitHardware(), IVit8Hardware())
