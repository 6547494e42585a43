"""What waits between the units of a whole softmax in flip-flops instead of memories: mapped and simulated like the units."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from softermax import golden
from softermax.fixedpoint import IntArray
from softermax.rtl.baseline import model
from softermax.rtl.baseline.generic import model as generic_model
from softermax.rtl.baseline.payloads import HALF
from softermax.rtl.kept_lane import KeptLane
from softermax.rtl.vectors import cut
from softermax.silicon.flow import Result
from softermax.silicon.jobs import GateJob
from softermax.silicon.stimuli import COLUMNS, Scores
from softermax.silicon.units import Unit
from softermax.silicon.whole import UnitFigures, Waiting
from softermax.spec import SoftermaxSpec


@dataclass(frozen=True)
class KeptLaneUnit(Unit):
    """One lane of what waits, of a spec or without one of a baseline. The lanes are alike; addresses are given from outside."""

    name = "kept lane"
    design = "flip-flops"
    module = "kept_lane"
    waiting: Waiting
    spec: SoftermaxSpec | None = None

    @property
    def width(self) -> int:
        return self.waiting.width

    @property
    def shown(self) -> str:
        return f"{self.waiting.what} of {self.waiting.bits} bits"

    @property
    def slices(self) -> int:
        return -(-COLUMNS // self.width)

    @property
    def depth(self) -> int:
        return int(self.waiting.rows * self.slices)

    def make(self) -> KeptLane:
        return KeptLane(self.waiting.bits, self.depth)

    def words(self, scores: Scores) -> IntArray:
        """Rows of what waits; the bit above a score is its mask."""
        if self.spec is None:
            x, mask = scores.half, np.ones(scores.values.shape, dtype=np.bool_)
            if self.waiting.what == "scores":
                return x | 1 << 16
            # Generic components keep whole halves.
            whole = self.waiting.bits == HALF.width
            unnormed = generic_model.unnormed if whole else model.unnormed
            return unnormed(x, mask, self.width)[0]
        raw = scores.raw(self.spec)
        if self.waiting.what == "scores":
            bits = self.spec.input.bits
            return raw % (1 << bits) | 1 << bits
        trace = golden.softermax(raw, self.spec, trace=True).trace
        assert trace is not None
        return trace.unnormed.reshape(len(raw), -1)[:, : raw.shape[1]]

    def job(self, scores: Scores, copies: int, rows: int) -> GateJob:
        """A row comes in while the one before it goes out; the first one comes in before anything is counted."""
        if rows < 2:
            raise ValueError(f"rows = {rows}: one goes out while the next comes in; must be 2 or more")
        slices = cut(self.words(scores), self.width).reshape(copies, rows * self.slices, self.width)
        # Each copy is another lane.
        words = np.stack([slices[copy, :, copy % self.width] for copy in range(copies)], axis=1)
        cycles = len(words)
        job = GateJob(self.component(), cycles, copies, (cycles - self.slices) * copies, self.slices)
        at = np.arange(cycles)
        job.set("word", words)
        job.set("write_at", _everywhere(at % self.depth, copies))
        job.set("read_at", _everywhere(np.maximum(at - self.slices, 0) % self.depth, copies))
        kept = np.concatenate([np.repeat(words[:1], self.slices, axis=0), words[: -self.slices]])
        job.expect("kept", kept)
        return job


def _everywhere(values: IntArray, copies: int) -> IntArray:
    return np.repeat(values[:, None], copies, axis=1)


def cost_in_flip_flops(lane: KeptLaneUnit, result: Result, stimulus: str) -> UnitFigures:
    """All lanes, and what belongs to a slice in proportion."""
    one = UnitFigures.of(result, stimulus)
    lanes = lane.waiting.slice_bits / lane.waiting.bits
    share = lanes / lane.width
    return UnitFigures(one.slack_ns, one.area_um2 * lanes, one.pj * share, one.pj_zero_delay * share)
