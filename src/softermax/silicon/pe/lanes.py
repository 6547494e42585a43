"""One lane of the PE's own logic at gate level, with operands of a real model: MACs, requantisation, and what
deferred normalisation adds, the shift of an accumulator and a row's reciprocal."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from softermax import golden
from softermax.fixedpoint import IntArray
from softermax.golden import DeferredOutput
from softermax.golden import attention as golden_attention
from softermax.rtl.pe.accumulator_shift import DEFERRED_ACCUMULATOR_BITS, AccumulatorShift
from softermax.rtl.pe.accumulator_shift import steps as shift_steps
from softermax.rtl.pe.attention_run import sign_magnitude
from softermax.rtl.pe.config import PEConfig
from softermax.rtl.pe.requantize import Requantize
from softermax.rtl.pe.requantize_half import RequantizeHalf, half_scores
from softermax.rtl.pe.vector_mac import VectorMac
from softermax.rtl.reciprocal import Reciprocal
from softermax.silicon.flow import GLITCHES, Result, measure_jobs
from softermax.silicon.jobs import GateJob
from softermax.silicon.library import Library
from softermax.silicon.pe.operands import Operands
from softermax.silicon.simulation import COPIES
from softermax.silicon.units import Design
from softermax.spec import DeferredSpec, SoftermaxSpec

_STEPS = 96
"""Cycles that a lane is simulated for."""


@dataclass(frozen=True)
class LaneDesign(Design):
    """One lane of a PE. The figures of a step: for MACs that is a vector, for requantisation a score, for an
    accumulator's shift a slice of P·V, for a reciprocal a row."""

    design = "lane"
    config: PEConfig

    @property
    def width(self) -> int:
        return self.config.lanes

    @abstractmethod
    def job(self, data: Operands) -> GateJob:
        """Every copy is a lane, with data of its own."""

    def measure_lane(self, library: Library, clock_ns: float, data: Operands) -> Result:
        """The lane's netlist, held against the software's integers, and its energy with glitches."""
        return measure_jobs(self, library, clock_ns, {data.name: self.job(data)}, modes=(GLITCHES,))


class MacLane(LaneDesign):
    name = module = "mac"

    def make(self) -> VectorMac:
        return VectorMac(self.config.vector_size)

    def job(self, data: Operands) -> GateJob:
        """A lane's own key stays while queries pass, chunk after chunk: from the second on, what was collected is added."""
        size, vector = data.q.shape[1], self.config.vector_size
        chunks = self.config.chunks(size)
        queries = _STEPS // chunks
        q, k = (
            np.pad(some.astype(np.int64), ((0, 0), (0, chunks * vector - size))).reshape(-1, chunks, vector)
            for some in (data.q[:queries], data.k[:COPIES])
        )
        dots = np.einsum("qcv,kcv->cqk", q, k)
        before = np.cumsum(dots, axis=0) - dots
        vectors = np.broadcast_to(q.transpose(1, 0, 2)[:, :, None], (chunks, queries, COPIES, vector))
        weights = np.broadcast_to(k.transpose(1, 0, 2)[:, None], (chunks, queries, COPIES, vector))
        first = np.broadcast_to((np.arange(chunks) == 0)[:, None, None], dots.shape)
        job = _begun(self, chunks * queries, latency=2)
        job.set("vector", sign_magnitude(vectors.reshape(-1, COPIES, vector)))
        job.set("weights", sign_magnitude(weights.reshape(-1, COPIES, vector)))
        job.set("enable", _always(job, 0b11))
        job.set("first", _late(job, first))
        job.set("collected", _late(job, before))
        job.expect("accumulated", _late(job, before + dots))
        return job


class RequantizeLane(LaneDesign):
    name = module = "requantize"

    def make(self) -> Any:
        return Requantize(self.config, self.spec)

    @property
    def spec(self) -> SoftermaxSpec:
        return SoftermaxSpec(slice_width=self.config.lanes)

    def words(self, scores: IntArray, factor: float) -> IntArray:
        return golden_attention.requantize(scores, factor / self.spec.input_scale, self.spec)

    def job(self, data: Operands) -> GateJob:
        """A score per cycle."""
        factor = self.config.nearest(data.scale * self.spec.input_scale)
        scale = self.config.split(factor)
        scores = data.q[:_STEPS].astype(np.int64) @ data.k[:COPIES].T.astype(np.int64)
        registers = type(self.component()).registers
        job = _begun(self, len(scores), registers)
        job.set("acc", scores)
        job.set("mantissa", _always(job, scale.mantissa))
        job.set("shift", _always(job, scale.shift))
        job.set("enable", _always(job, (1 << registers) - 1))
        job.expect("x", _late(job, self.words(scores, factor)))
        return job


class RequantizeHalfLane(RequantizeLane):
    """Scores in half precision, for the baselines."""

    name = module = "requantize_half"

    def make(self) -> Any:
        return RequantizeHalf(self.config)

    def words(self, scores: IntArray, factor: float) -> IntArray:
        return half_scores(scores, factor)


class _DeferredLane(LaneDesign):
    @property
    def spec(self) -> DeferredSpec:
        return DeferredSpec(scores=SoftermaxSpec(slice_width=self.config.lanes))

    def rows(self, data: Operands) -> DeferredOutput:
        """What deferred normalisation makes of all queries' scores, with its trace (queries, slices, lanes)."""
        spec = self.spec
        scores = data.q.astype(np.int64) @ data.k.T.astype(np.int64)
        factor = self.config.nearest(data.scale * spec.scores.input_scale)
        raw = golden_attention.requantize(scores, factor / spec.scores.input_scale, spec.scores)
        return golden.deferred(raw, spec, trace=True)


class AccumulatorShiftLane(_DeferredLane):
    name = module = "accumulator_shift"

    def make(self) -> AccumulatorShift:
        return AccumulatorShift()

    def job(self, data: Operands) -> GateJob:
        """Every copy is a column of some query's P·V; a step per slice, more where its max grows far."""
        columns = data.v.shape[1]
        queries = -(-COPIES // columns)
        trace = self.rows(data).trace
        assert trace is not None
        slices, lanes = trace.weight.shape[1:]
        values = np.zeros((slices * lanes, columns), dtype=np.int64)
        values[: len(data.v)] = data.v
        dots = np.einsum("qsl,slc->qsc", trace.weight, values.reshape(slices, lanes, columns))
        histories: list[list[tuple[int, int, bool, int]]] = []
        for copy in range(COPIES):
            query, column = divmod(copy, columns)
            steps: list[tuple[int, int, bool, int]] = []
            # Row after row, until there are enough steps; the rows of a copy lie `queries` apart.
            for row in range(query, len(data.q), queries):
                total = 0
                for at in range(slices):
                    grown = 0 if at == 0 else int(trace.renorm_shift[row, at])
                    for by, rounds in shift_steps(min(grown, DEFERRED_ACCUMULATOR_BITS)):
                        kept_bits = total >> by
                        carry = (total >> (by - 1)) & 1 if rounds else 0
                        steps.append((total, by, rounds, kept_bits))
                        total = kept_bits + carry
                    total += int(dots[row, at, column])
                if len(steps) >= _STEPS:
                    break
            histories.append(steps[:_STEPS])
        table = np.array(histories, dtype=np.int64).transpose(2, 1, 0)
        job = _begun(self, _STEPS, latency=0)
        for wire, words in zip(("collected", "by", "rounds"), table[:3], strict=True):
            job.set(wire, words)
        job.expect("shifted", table[3])
        return job


class ReciprocalLane(_DeferredLane):
    name = module = "reciprocal"

    def make(self) -> Reciprocal:
        return Reciprocal(self.spec)

    def job(self, data: Operands) -> GateJob:
        """Every copy divides rows of its own."""
        trace = self.rows(data).trace
        assert trace is not None
        sums = np.resize(trace.powsum[:, -1], (_STEPS, COPIES))
        job = _begun(self, _STEPS, latency=2)
        job.set("powsum", sums)
        for wire in ("enable_1", "enable_2"):
            job.set(wire, _always(job, 1))
        job.expect("reciprocal", _late(job, golden.reciprocal(sums, self.spec)[1]))
        return job


LANES: tuple[type[LaneDesign], ...] = (
    MacLane,
    RequantizeLane,
    RequantizeHalfLane,
    AccumulatorShiftLane,
    ReciprocalLane,
)


def _begun(lane: LaneDesign, cycles: int, latency: int) -> GateJob:
    """What leaves the lane before its registers are filled belongs to no step."""
    return GateJob(lane.component(), cycles, COPIES, (cycles - latency) * COPIES, counted_from=latency)


def _always(job: GateJob, value: int) -> IntArray:
    return np.full((job.cycles, job.copies), value, dtype=np.int64)


def _late(job: GateJob, values: NDArray[Any]) -> IntArray:
    """Words of each step as they are after the lane's registers."""
    steps = values.reshape(job.cycles, job.copies).astype(np.int64)
    latency = job.counted_from
    return np.concatenate([np.repeat(steps[:1], latency, axis=0), steps[:-latency]]) if latency else steps
