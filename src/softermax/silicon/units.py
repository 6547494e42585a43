"""The units of the table: how each is made, fed with rows of scores, and what it must answer.

A job streams whole rows through a unit, one after the other, and includes filling and draining the
pipeline; the two-pass baseline gets every row twice.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from softermax import golden
from softermax.fixedpoint import IntArray
from softermax.silicon.simulation import Bits, to_bits
from softermax.silicon.stimuli import Scores
from softermax.spec import PRESETS, SoftermaxSpec

RESET_CYCLES = 2
_DRAIN_CYCLES = 2


@dataclass
class Job:
    """Words for the inputs of a unit cycle by cycle, and the transfers its outputs must make."""

    cycles: int
    copies: int
    elements: int
    """Scores worked on, over all copies."""
    inputs: dict[str, Bits] = field(default_factory=dict)
    expected: dict[str, Bits] = field(default_factory=dict)
    """Stream to payloads (transfers, copies, bits), in order."""
    must_be_ready: dict[str, NDArray[np.bool_]] = field(default_factory=dict)
    """Stream to the cycles in which the unit must take what is offered."""

    def __post_init__(self) -> None:
        reset = np.zeros((self.cycles, self.copies, 1), dtype=np.uint8)
        reset[:RESET_CYCLES] = 1
        self.inputs["rst"] = reset

    def send(self, stream: str, start: int, payload: Bits, held: bool = False) -> None:
        """Offer payloads (transfers, copies, bits) in the cycles from ``start`` on, one each. A held one
        need not be taken every cycle. Between transfers the payload keeps its value."""
        if f"{stream}__valid" not in self.inputs:
            self.inputs[f"{stream}__valid"] = np.zeros((self.cycles, self.copies, 1), dtype=np.uint8)
            self.inputs[f"{stream}__payload"] = np.zeros(
                (self.cycles, self.copies, payload.shape[2]), dtype=np.uint8
            )
            self.must_be_ready[stream] = np.zeros(self.cycles, dtype=np.bool_)
        end = start + len(payload)
        self.inputs[f"{stream}__valid"][start:end] = 1
        self.inputs[f"{stream}__payload"][start:end] = payload
        self.inputs[f"{stream}__payload"][end:] = payload[-1]
        if not held:
            self.must_be_ready[stream][start:end] = True

    def receive(self, stream: str, payload: Bits) -> None:
        self.inputs[f"{stream}__ready"] = np.ones((self.cycles, self.copies, 1), dtype=np.uint8)
        self.expected[stream] = payload


@dataclass(frozen=True)
class Unit:
    """One design. ``job`` takes scores, the number of copies and rows of each copy."""

    name: str
    """``unnormed`` or ``normalization``."""
    design: str
    """``softermax`` or the baseline's name."""
    preset: str
    width: int
    rtlil: Callable[[], str]
    job: Callable[[Scores, int, int], Job]

    @property
    def label(self) -> str:
        return f"{self.name} {self.preset or self.design} {self.width} wide"


SKIP_ZEROS = "+skip-zeros"
"""Behind a preset's name: its Normalization unit lets lanes whose word comes out as zero stand still."""


def spec_of(preset: str, width: int) -> SoftermaxSpec:
    """A preset's formats built for slices of ``width``."""
    return PRESETS[preset.removesuffix(SKIP_ZEROS)].replace(slice_width=width)


def presets_of(unit: str, width: int) -> list[str]:
    """The presets that make different hardware at a width, the paper's own first."""
    paper = "paper-32" if width == 32 else "paper"
    skipping = [paper + SKIP_ZEROS] if unit == "normalization" else []
    return [paper, "row-scaled", "whole-row", *skipping]


BASELINES = ("two-pass", "online")


def softermax_unit(name: str, preset: str, width: int) -> Unit:
    spec = spec_of(preset, width)

    def rtlil() -> str:
        from softermax.rtl.convert import to_rtlil
        from softermax.rtl.normalization import Normalization
        from softermax.rtl.unnormed_softmax import UnnormedSoftmax

        if name == "unnormed":
            return to_rtlil(UnnormedSoftmax(spec), f"softermax_{name}")
        skip = preset.endswith(SKIP_ZEROS)
        return to_rtlil(Normalization(spec, width, skip_zeros=skip), f"softermax_{name}")

    def job(scores: Scores, copies: int, rows: int) -> Job:
        make = _unnormed_job if name == "unnormed" else _normalization_job
        return make(spec, scores, copies, rows)

    return Unit(name, "softermax", preset, width, rtlil, job)


def _rows(values: IntArray, copies: int, rows: int) -> IntArray:
    """(copies * rows, columns) as (copies, rows, columns)."""
    return values[: copies * rows].reshape(copies, rows, -1)


def _in_time(values: IntArray) -> IntArray:
    """(copies, rows, slices, ...) as (rows * slices, copies, ...): the order of a stream."""
    moved = np.moveaxis(values, 0, 2)
    return moved.reshape(-1, *moved.shape[2:])


def _flags(rows: int, slices: int, copies: int) -> tuple[Bits, Bits]:
    """First and last of each slice, as (transfers, copies, 1)."""
    at = np.tile(np.arange(slices), rows)[:, None, None]
    shape = (rows * slices, copies, 1)
    first = np.broadcast_to(at == 0, shape).astype(np.uint8)
    return first, np.broadcast_to(at == slices - 1, shape).astype(np.uint8)


def _word(values: IntArray, width: int) -> Bits:
    return to_bits(values[..., None], width)


def _sliced(raw: IntArray, width: int) -> IntArray:
    if raw.shape[-1] % width:
        raise ValueError(f"rows of {raw.shape[-1]} scores are not whole slices of {width}")
    return raw.reshape(*raw.shape[:-1], -1, width)


def _unnormed_job(spec: SoftermaxSpec, scores: Scores, copies: int, rows: int) -> Job:
    raw = _rows(scores.raw(spec), copies, rows)
    trace = golden.softermax(raw, spec, trace=True).trace
    assert trace is not None
    assert spec.slice_width is not None
    x = _sliced(raw, spec.slice_width)
    slices = x.shape[2]
    first, last = _flags(rows, slices, copies)
    cycles = RESET_CYCLES + rows * slices + 8 + _DRAIN_CYCLES
    job = Job(cycles, copies, raw.size)
    mask = np.ones((rows * slices, copies, spec.slice_width), dtype=np.uint8)
    lanes = to_bits(_in_time(x), spec.input.bits)
    job.send("slices", RESET_CYCLES, np.concatenate([lanes, mask, first, last], axis=2))
    u = to_bits(_in_time(trace.unnormed), spec.unnormed.bits)
    maxima = _word(_in_time(trace.running_max), spec.max.integer)
    job.receive("unnormed", np.concatenate([u, maxima, last], axis=2))
    job.receive("sums", _word(np.moveaxis(trace.powsum[:, :, -1], 0, 1), spec.powsum.bits))
    return job


def _normalization_job(spec: SoftermaxSpec, scores: Scores, copies: int, rows: int) -> Job:
    from softermax.rtl.normalization import Normalization

    raw = _rows(scores.raw(spec), copies, rows)
    out = golden.softermax(raw, spec, trace=True)
    trace, width = out.trace, spec.slice_width
    assert trace is not None
    assert width is not None
    slices = trace.unnormed.shape[2]
    _, last = _flags(rows, slices, copies)
    job = Job(RESET_CYCLES + rows * slices + 8 + _DRAIN_CYCLES, copies, raw.size)
    row_max = np.moveaxis(trace.running_max[:, :, -1], 0, 1)
    row_sum = np.moveaxis(trace.powsum[:, :, -1], 0, 1)
    finished = np.concatenate([_word(row_max, spec.max.integer), _word(row_sum, spec.powsum.bits)], axis=2)
    for row in range(rows):
        job.send("finished", RESET_CYCLES + row * slices, finished[row : row + 1])
    u = to_bits(_in_time(trace.unnormed), spec.unnormed.bits)
    maxima = _word(_in_time(trace.running_max), spec.max.integer)
    job.send("slices", RESET_CYCLES + Normalization.row_latency, np.concatenate([u, maxima, last], axis=2))
    answers = [to_bits(_in_time(_sliced(out.words, width)), spec.output.bits), last]
    if spec.output_mode == "row-scaled":
        from softermax.rtl.words import exponent_bits

        exponent = np.repeat(np.moveaxis(out.exponent, 0, 1), slices, axis=0)
        answers.append(_word(exponent, exponent_bits(spec)))
    job.receive("probabilities", np.concatenate(answers, axis=2))
    return job


DESIGNS = {
    ("unnormed", "two-pass"): "two-pass",
    ("unnormed", "online"): "online",
    ("normalization", "two-pass"): "division",
    ("normalization", "online"): "factor",
}
"""What the baselines' units are called: the online one finds a factor a slice and multiplies in the lanes."""


def baseline_unit(name: str, baseline: str, width: int) -> Unit:
    """A unit of an FP16 baseline."""
    design = DESIGNS[name, baseline]
    jobs = {
        "two-pass": _two_pass_job,
        "online": _online_job,
        "division": _division_job,
        "factor": _factor_job,
    }

    def rtlil() -> str:
        return _baseline_design(design, width)[1]

    def job(scores: Scores, copies: int, rows: int) -> Job:
        return jobs[design](width, scores, copies, rows)

    return Unit(name, design, "", width, rtlil, job)


@lru_cache(maxsize=4)
def _baseline_design(design: str, width: int) -> tuple[Any, str]:
    """The component, for its latencies, and its RTLIL."""
    from softermax.rtl.baseline.normalization import Normalization
    from softermax.rtl.baseline.online import OnlineUnnormed
    from softermax.rtl.baseline.online_normalization import OnlineNormalization
    from softermax.rtl.baseline.unnormed import Unnormed
    from softermax.rtl.convert import to_rtlil

    kinds: dict[str, Any] = {
        "two-pass": Unnormed,
        "online": OnlineUnnormed,
        "division": Normalization,
        "factor": OnlineNormalization,
    }
    made = kinds[design](width)
    return made, to_rtlil(made, f"baseline_{design.replace('-', '_')}")


def _half_words(scores: Scores, width: int, copies: int, rows: int) -> tuple[IntArray, IntArray, IntArray]:
    """Scores, their exponentials and the rows' sums in half precision, (copies, rows, ...)."""
    from softermax.rtl.baseline import model

    x = _rows(scores.half, copies, rows)
    e, total = model.unnormed(x, np.ones(x.shape, dtype=np.bool_), width)
    return x, e, total


def _two_pass_job(width: int, scores: Scores, copies: int, rows: int) -> Job:
    unit = _baseline_design("two-pass", width)[0]
    x, e, total = _half_words(scores, width, copies, rows)
    lanes = _sliced(x, width)
    slices = lanes.shape[2]
    first, last = _flags(1, slices, copies)
    mask = np.ones((slices, copies, width), dtype=np.uint8)
    # The next row's first pass runs beside this row's second one, two cycles behind so that the max
    # is free when it is needed.
    period = slices + 2
    cycles = RESET_CYCLES + (rows + 1) * period + unit.max_latency + unit.sum_latency + _DRAIN_CYCLES
    job = Job(cycles, copies, x.size)
    for row in range(rows):
        payload = np.concatenate([to_bits(_in_time(lanes[:, row : row + 1]), 16), mask, first, last], axis=2)
        begin = RESET_CYCLES + row * period
        job.send("first_pass", begin, payload)
        job.send("second_pass", begin + slices + unit.max_latency, payload)
    all_last = np.tile(last, (rows, 1, 1))
    job.receive("unnormed", np.concatenate([to_bits(_in_time(_sliced(e, width)), 16), all_last], axis=2))
    job.receive("sums", _word(np.moveaxis(total, 0, 1), 16))
    return job


def _online_job(width: int, scores: Scores, copies: int, rows: int) -> Job:
    from softermax.rtl.baseline import model

    unit = _baseline_design("online", width)[0]
    x = _rows(scores.half, copies, rows)
    answer = model.online(x, np.ones(x.shape, dtype=np.bool_), width)
    lanes = _in_time(_sliced(x, width))
    slices = lanes.shape[0]
    first, last = _flags(rows, slices // rows, copies)
    mask = np.ones((slices, copies, width), dtype=np.uint8)
    payload = np.concatenate([to_bits(lanes, 16), mask, first, last], axis=2)
    pace = unit.cycles_per_slice
    job = Job(RESET_CYCLES + pace * slices + unit.sum_latency + 4 + _DRAIN_CYCLES, copies, x.size)
    for at in range(slices):
        job.send("slices", RESET_CYCLES + pace * at, payload[at : at + 1])
    largest = _word(_in_time(answer.largest), 16)
    job.receive("unnormed", np.concatenate([to_bits(_in_time(answer.e), 16), largest, last], axis=2))
    job.receive("sums", _word(np.moveaxis(answer.total, 0, 1), 16))
    return job


def _division_job(width: int, scores: Scores, copies: int, rows: int) -> Job:
    from softermax.rtl.baseline import model
    from softermax.rtl.baseline.normalization import Normalization

    _, e, total = _half_words(scores, width, copies, rows)
    y = model.divide(e, np.broadcast_to(total[..., None], e.shape))
    lanes = _sliced(e, width)
    slices = lanes.shape[2]
    _, last = _flags(rows, slices, copies)
    cycles = RESET_CYCLES + rows * slices + Normalization.latency + 2 + _DRAIN_CYCLES
    job = Job(cycles, copies, e.size)
    job.send("unnormed", RESET_CYCLES, np.concatenate([to_bits(_in_time(lanes), 16), last], axis=2))
    sums = np.repeat(_word(np.moveaxis(total, 0, 1), 16), slices, axis=0)
    job.send("sums", RESET_CYCLES, sums, held=True)
    job.receive("probabilities", np.concatenate([to_bits(_in_time(_sliced(y, width)), 16), last], axis=2))
    return job


def _factor_job(width: int, scores: Scores, copies: int, rows: int) -> Job:
    from softermax.rtl.baseline import model

    unit = _baseline_design("factor", width)[0]
    x = _rows(scores.half, copies, rows)
    row = model.online(x, np.ones(x.shape, dtype=np.bool_), width)
    y = model.online_softmax(x, np.ones(x.shape, dtype=np.bool_), width)
    count = row.e.shape[2] * rows
    _, last = _flags(rows, row.e.shape[2], copies)
    cycles = RESET_CYCLES + count + unit.ahead + unit.latency + 2 + _DRAIN_CYCLES
    job = Job(cycles, copies, x.size)
    job.send("maxima", RESET_CYCLES, np.concatenate([_word(_in_time(row.largest), 16), last], axis=2))
    finished = [_word(np.moveaxis(v, 0, 1), 16) for v in (row.largest[:, :, -1], row.total)]
    held = np.repeat(np.concatenate(finished, axis=2), row.e.shape[2], axis=0)
    job.send("rows", RESET_CYCLES, held, held=True)
    unnormed = np.concatenate([to_bits(_in_time(row.e), 16), last], axis=2)
    job.send("unnormed", RESET_CYCLES + unit.ahead, unnormed)
    job.receive("probabilities", np.concatenate([to_bits(_in_time(_sliced(y, width)), 16), last], axis=2))
    return job
