"""The PE's own softmax unit for the gate level: Normalization of scores, which makes its numerators anew."""

from __future__ import annotations

from typing import Any

from softermax.fixedpoint import IntArray
from softermax.golden import BoolArray
from softermax.rtl.pe.score_normalization import ScoreNormalization
from softermax.rtl.pe.vectors import score_normalization_streams
from softermax.rtl.vectors import Streams
from softermax.silicon.units import NormalizationUnit

SCORE_NORMALIZATION = "score normalization"


class ScoreNormalizationUnit(NormalizationUnit):
    name = SCORE_NORMALIZATION
    module = "score_normalization"
    end_cycles = 12

    def make(self) -> Any:
        return ScoreNormalization(self.rows_spec, self.width)

    def streams(self, raw: IntArray, mask: BoolArray) -> Streams:
        return score_normalization_streams(self.rows_spec, raw, mask)
