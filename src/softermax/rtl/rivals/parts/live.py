"""Distances that wait instead of exponentials, up to the first whose output is 0 in every row.

A row's factor has a largest value: every row has exp(0). From some distance on an exponential times that is below the smallest
output word. What lies there need not be told apart, nor from a masked lane, so the distance needs few bits, and a lane that
has it stands still.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from amaranth.hdl import Module, Mux, Value

from softermax.fixedpoint import IntArray
from softermax.golden import BoolArray
from softermax.rtl.pipeline import register
from softermax.rtl.rivals.parts.interface import TwoPassHardware
from softermax.rtl.vectors import Streams


def live_distances(words: IntArray, largest_factor: int, dropped: int) -> int:
    """Distances from 0 on whose words, in no rising order, times the largest factor reach ``2**dropped``."""
    return int(np.count_nonzero(words * largest_factor >> dropped))


def clipped(distance: Value, mask: Value, live: int) -> Value:
    """What waits of a distance: ``live`` where its output is 0."""
    return Mux(mask & (distance < live), distance, live)[: live.bit_length()]


def kept_distances(raw: IntArray, mask: BoolArray, live: int) -> IntArray:
    """The same of score words."""
    largest = np.where(mask, raw, -(2**31)).max(axis=1, keepdims=True)
    return np.where(mask, np.minimum(largest - raw, live), live)


def live_enables(m: Module, live: Value, enable: Value, name: str) -> tuple[list[Value], Value]:
    """The enables of a lane that stands still where it is not live, stage by stage, and whether it is live after the last."""
    enables: list[Value] = []
    for stage in range(len(enable)):
        enables.append(enable[stage] & live)
        live = register(m, live, enable[stage], f"{name}_live_{stage}")
    return enables, live


class LiveHardware(TwoPassHardware):
    """A design whose masked lanes wait as those do whose output is 0: lanes that a row does not fill are masked."""

    def streams(self, design: Any, lanes: int, raw: IntArray, mask: BoolArray) -> dict[str, Streams]:
        missing = ((0, 0), (0, -raw.shape[1] % lanes))
        return super().streams(design, lanes, np.pad(raw, missing), np.pad(mask, missing))
