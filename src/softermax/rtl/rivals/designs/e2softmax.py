"""SOLE's E2Softmax in RTL, two passes: exponents of 4 bits, a sum of powers of two, a constant that is shifted.

No multiplier, no table, no divider: a row's sum becomes the position of its leading one and a choice of two constants.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from amaranth.hdl import Const, Module, Mux, Signal, Value, unsigned
from amaranth.lib import data

from softermax.fixedpoint import IntArray
from softermax.golden import BoolArray
from softermax.rivals.designs.arrays import leading_one
from softermax.rivals.designs.e2softmax import CODES, CONSTANTS, E2Softmax
from softermax.rtl.arithmetic.columns import sum_of
from softermax.rtl.pipeline import register
from softermax.rtl.rivals.parts.interface import SCORES, UNNORMED, Kept, TwoPassHardware
from softermax.rtl.rivals.parts.payloads import INT8, words_layout
from softermax.rtl.rivals.parts.power_sum import Code
from softermax.rtl.rivals.parts.row_normalization import LaneUnit, RowNormalization, RowUnit
from softermax.rtl.rivals.parts.two_pass import ExponentialLanes, TwoPassSum, finished_layout

CODE_BITS = 4
OUTPUT = unsigned(8)
_LIVE = OUTPUT.width
"""A constant shifted by so many bits is 0."""


@dataclass(frozen=True)
class Log2Exp(Code):
    """A distance times 1.4375 by shifts, in powers of two, at most 15."""

    fraction: int
    """Bits of a distance after the point; negative where its steps are larger than 1."""

    @classmethod
    def of_design(cls, design: E2Softmax) -> Log2Exp:
        return cls(CODES, -round(math.log2(design.step)))

    def of(self, m: Module, distance: Value, name: str) -> Value:
        bits = len(distance) + 1
        half = Signal(len(distance), name=f"{name}_half")
        sixteenth = Signal(len(distance) - 3, name=f"{name}_sixteenth")
        scaled = Signal(bits, name=f"{name}_scaled")
        # Shifts of negative numbers round away from 0.
        m.d.comb += [half.eq((distance + 1) >> 1), sixteenth.eq((distance + 15) >> 4)]
        negated = Const((1 << bits) - 1, bits) ^ sixteenth
        m.d.comb += scaled.eq(sum_of(m, [(distance, 0), (half, 0), (negated, 0)], 1, bits, f"{name}_sum"))
        if self.fraction < 0:
            places: Value = scaled << -self.fraction
        else:
            places = scaled >> self.fraction
        code = Signal(CODE_BITS, name=f"{name}_code")
        m.d.comb += code.eq(Mux(places[CODE_BITS:].any(), CODES, places[:CODE_BITS]))
        return code


class CodeLanes(ExponentialLanes):
    """Codes, which wait, and the powers of two that they stand for.

    stage 1   the code of every distance                  | code
    then      decoded
    """

    def __init__(self, code: Log2Exp, lanes: int) -> None:
        self._code = code
        super().__init__(INT8.width, CODE_BITS, CODES + 1, lanes, stages=1)

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        masks = register(m, self.mask, self.enable[0], "mask_1")
        for lane in range(self.lanes):
            code = self._code.of(m, self.distance[lane], f"lane_{lane}")
            word = register(m, Mux(self.mask[lane], code, CODES), self.enable[0], f"code_{lane}")
            m.d.comb += [
                self.u[lane].eq(word),
                self.terms[lane].eq(Mux(masks[lane], Const(1 << CODES, CODES + 1) >> word, 0)),
            ]
        return m


def sum_shape(total: Value) -> tuple[Value, Value]:
    """How far the leading one stands above that of exp(0), and the bit after it."""
    position: Value = Const(0, 1)
    after: Value = total[CODES - 1]
    for place in range(CODES + 1, len(total)):
        # A higher one wins.
        position = Mux(total[place], place - CODES, position)
        after = Mux(total[place], total[place - 1], after)
    return position, after


class SumShape(RowUnit):
    """The leading one of a row's sum and the bit after it, which choose shift and constant of all lanes."""

    def __init__(self, finished: data.StructLayout) -> None:
        highest = finished["total"].width - 1 - CODES
        kept = {name: field.shape for name, field in finished if name != "total"}
        factor = data.StructLayout({"one": unsigned(highest.bit_length()), "after": 1, **kept})
        super().__init__(finished, factor, cycles=0)

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        found = Signal(self.factor.shape())
        position, after = sum_shape(self.finished.total)
        m.d.comb += [found.one.eq(position), found.after.eq(after)]
        m.d.comb += [
            found[name].eq(self.finished[name]) for name, _ in self.finished.shape() if name != "total"
        ]
        m.d.comb += self.factor.eq(register(m, found.as_value(), self.start, "found"))
        return m


class ShiftedConstant(LaneUnit):
    """A constant of two, shifted by code and leading one together.

    stage 1   both added; with a slice's own max, also the code of what that is below the row's   | shift, choice
    then      the constant shifted
    A lane whose word is 0 stands still.
    """

    def __init__(self, code: Log2Exp, lanes: int, kept: data.StructLayout, factor: data.StructLayout) -> None:
        self._code = code
        super().__init__(kept, factor, OUTPUT, lanes, stages=1)

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        base: Value = self.factor.one
        if "max" in dict(self.kept.shape()):
            below = Signal(INT8.width)
            m.d.comb += below.eq(self.factor.max - self.kept.max)
            base = base + self._code.of(m, below, "below")
        # Beyond the last shift that leaves something any is as good.
        by = Signal(_LIVE.bit_length())
        m.d.comb += by.eq(Mux(base >= _LIVE, _LIVE, base))
        after = register(m, self.factor.after, self.enable[0], "after")
        constant = Mux(after, Const(CONSTANTS[1], OUTPUT), Const(CONSTANTS[0], OUTPUT))
        for lane in range(self.lanes):
            shift, live = Signal(CODE_BITS + 1, name=f"shift_{lane}"), Signal(name=f"live_{lane}")
            m.d.comb += [shift.eq(self.kept.u[lane] + by), live.eq(shift < _LIVE)]
            live_1 = register(m, live, self.enable[0], f"live_1_{lane}")
            shift_1 = register(m, shift[:3], self.enable[0] & live, f"shift_1_{lane}")
            m.d.comb += self.y[lane].eq(Mux(live_1, constant >> shift_1, 0))
        return m


class E2SoftmaxHardware(TwoPassHardware):
    name = "e2softmax"
    masked = CODES

    def make(self, unit: str, design: E2Softmax, lanes: int) -> Any:
        code = Log2Exp.of_design(design)
        if unit == UNNORMED:
            return TwoPassSum(CodeLanes(code, lanes), code.total_bits)
        row = SumShape(finished_layout(code.total_bits))
        lane = ShiftedConstant(code, lanes, words_layout(unsigned(CODE_BITS), lanes), row.factor.shape())
        return RowNormalization(row, lane)

    def kept_words(self, design: E2Softmax, raw: IntArray, mask: BoolArray) -> IntArray:
        """The largest code for masked elements: 0 in any row."""
        return np.where(mask, CODES - leading_one(design.unnormed(raw, mask).words), CODES)

    def waiting(self, design: E2Softmax) -> tuple[Kept, ...]:
        return SCORES, Kept("codes", CODE_BITS)


HARDWARE = E2SoftmaxHardware()
