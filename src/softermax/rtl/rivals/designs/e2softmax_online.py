"""SOLE's E2Softmax in RTL in one pass, as the paper has it: 4-bit codes wait, beside each slice the max that they refer to."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from amaranth.hdl import unsigned

from softermax.fixedpoint import IntArray
from softermax.golden import BoolArray
from softermax.rivals.designs.arrays import slices
from softermax.rivals.designs.e2softmax import CODES, E2Softmax
from softermax.rtl.rivals.designs.e2softmax import CODE_BITS, Log2Exp, ShiftedConstant, SumShape
from softermax.rtl.rivals.parts.interface import NORMALIZATION, UNNORMED, Hardware, Kept
from softermax.rtl.rivals.parts.payloads import INT8, words_layout
from softermax.rtl.rivals.parts.power_sum import PowerSum, finished_layout
from softermax.rtl.rivals.parts.row_normalization import RowNormalization
from softermax.rtl.vectors import Streams, places, slice_fields


class E2SoftmaxOnlineHardware(Hardware):
    name = "e2softmax-online"

    def fitted(self, design: E2Softmax, lanes: int) -> E2Softmax:
        """Parts are slices."""
        return replace(design, part=lanes)

    def make(self, unit: str, design: E2Softmax, lanes: int) -> Any:
        code = Log2Exp.of_design(design)
        if unit == UNNORMED:
            return PowerSum(code, lanes, keeps=CODE_BITS)
        row = SumShape(finished_layout(INT8, code))
        kept = words_layout(unsigned(CODE_BITS), lanes, {"max": INT8})
        return RowNormalization(row, ShiftedConstant(code, lanes, kept, row.factor.shape()))

    def streams(self, design: E2Softmax, lanes: int, raw: IntArray, mask: BoolArray) -> dict[str, Streams]:
        maxima, codes = design.online(raw, mask)
        codes = np.where(slices(mask, lanes, False), codes, CODES)
        kept = {
            "u": codes.reshape(-1, lanes),
            "max": maxima.reshape(-1),
            "last": places(*maxima.shape)["last"],
        }
        finished = {"max": maxima[:, -1], "total": design.unnormed(raw, mask).total[:, 0]}
        return {
            UNNORMED: {"slices": slice_fields(lanes, raw, mask), "kept": kept, "finished": finished},
            NORMALIZATION: {
                "finished": finished,
                "kept": kept,
                "probabilities": self.probabilities(design, lanes, raw, mask),
            },
        }

    def waiting(self, design: E2Softmax) -> tuple[Kept, ...]:
        return (Kept("codes", CODE_BITS, beside=INT8.width),)


HARDWARE = E2SoftmaxOnlineHardware()
