"""The Unnormed Softmax unit of generic components: half precision, two passes over a row."""

from __future__ import annotations

from typing import Any

from softermax.rtl.baseline import unnormed
from softermax.rtl.baseline.generic.accumulation import Accumulation
from softermax.rtl.baseline.generic.lanes import Exponential, Subtract
from softermax.rtl.baseline.generic.max import Max


class Unnormed(unnormed.Unnormed):
    """The streams and passes of the lean unit, with generic components in it."""

    def __init__(self, lanes: int) -> None:
        super().__init__(lanes)

    def _parts(self, base_two: bool) -> tuple[Any, Any, Any, Any]:
        lanes = self.lanes
        return Max(lanes), Subtract(lanes), Exponential(lanes), Accumulation(lanes)

    def _differences(self) -> list[Any]:
        return [self.exponential.x.eq(self.subtract.difference)]
