"""ITA in RTL: powers of two in one pass, one division per row, and shifts of its quotient.

The scores wait and are read again for the output, as the authors have it: no exponential is stored.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from amaranth.hdl import Module, Mux, Signal, Value, unsigned
from amaranth.lib import data

from softermax.fixedpoint import IntArray
from softermax.golden import BoolArray
from softermax.rivals.designs.arrays import running_max, slices
from softermax.rivals.designs.ita import LOWEST, ONE, Ita
from softermax.rtl.pipeline import register
from softermax.rtl.rivals.parts.division import Division
from softermax.rtl.rivals.parts.interface import NORMALIZATION, SCORES, UNNORMED, Hardware, Kept
from softermax.rtl.rivals.parts.payloads import INT8, scores_layout
from softermax.rtl.rivals.parts.power_sum import Code, PowerSum, finished_layout
from softermax.rtl.rivals.parts.row_normalization import LaneUnit, RowNormalization
from softermax.rtl.vectors import Streams, slice_fields

OUTPUT = unsigned(8)


@dataclass(frozen=True)
class Rounded(Code):
    """A distance in powers of two, rounded half up."""

    shift: int

    def of(self, m: Module, distance: Value, name: str) -> Value:
        code = Signal(len(distance) - self.shift + 1, name=f"{name}_code")
        # To add half a unit is to add the bit below the point.
        up = distance[self.shift - 1] if self.shift else 0
        m.d.comb += code.eq((distance >> self.shift) + up)
        return code


class ShiftedQuotient(LaneUnit):
    """``quotient >> code``.

    stage 1   the code of every score                | code, quotient
    then      the shift
    A lane whose word is 0 whatever the quotient stands still.
    """

    def __init__(self, code: Rounded, lanes: int, factor: data.StructLayout) -> None:
        self._code = code
        super().__init__(scores_layout(INT8, lanes), factor, OUTPUT, lanes, stages=1)

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        quotient = register(m, self.factor.quotient, self.enable[0], "quotient")
        for lane in range(self.lanes):
            distance = Signal(INT8.width, name=f"distance_{lane}")
            m.d.comb += distance.eq(self.factor.max - self.kept.x[lane])
            code = self._code.of(m, distance, f"lane_{lane}")
            live = Signal(name=f"live_{lane}")
            m.d.comb += live.eq(self.kept.mask[lane] & (code < OUTPUT.width))
            live_1 = register(m, live, self.enable[0], f"live_1_{lane}")
            code_1 = register(m, code[:3], self.enable[0] & live, f"code_1_{lane}")
            m.d.comb += self.y[lane].eq(Mux(live_1, quotient >> code_1, 0))
        return m


class ItaHardware(Hardware):
    name = "ita"

    def fitted(self, design: Ita, lanes: int) -> Ita:
        """Parts are slices."""
        return replace(design, part=lanes)

    def make(self, unit: str, design: Ita, lanes: int) -> Any:
        code = Rounded(ONE.bit_length() - 1, design.shift)
        if unit == UNNORMED:
            return PowerSum(code, lanes)
        # The largest score of a row is 256 in its sum, after every shift.
        division = Division(255 * ONE, finished_layout(INT8, code), least=ONE, beside=("max",))
        lane = ShiftedQuotient(code, lanes, division.factor.shape())
        return RowNormalization(division, lane)

    def streams(self, design: Ita, lanes: int, raw: IntArray, mask: BoolArray) -> dict[str, Streams]:
        scores = slice_fields(lanes, raw, mask)
        parts = slices(raw * mask + LOWEST * ~mask, lanes, LOWEST)
        finished = {
            "max": running_max(parts.max(axis=-1))[:, -1],
            "total": design.unnormed(raw, mask).total[:, 0],
        }
        return {
            UNNORMED: {"slices": scores, "finished": finished},
            NORMALIZATION: {
                "finished": finished,
                "kept": scores,
                "probabilities": self.probabilities(design, lanes, raw, mask),
            },
        }

    def waiting(self, design: Ita) -> tuple[Kept, ...]:
        return (SCORES,)


HARDWARE = ItaHardware()
