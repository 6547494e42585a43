"""The PE's own softmax units for the gate level: Normalization of scores, and weights for deferred normalisation.

Their rows of scores are those of the units' table (`softermax.silicon.units`), and so is what they must answer.
"""

from __future__ import annotations

import numpy as np

from softermax import golden
from softermax.fixedpoint import IntArray, saturate, shift_right
from softermax.rtl.convert import to_rtlil
from softermax.rtl.normalization import Normalization
from softermax.rtl.pe.score_normalization import ScoreNormalization
from softermax.rtl.pe.weight_softmax import WeightSoftmax
from softermax.rtl.words import exponent_bits
from softermax.silicon.simulation import Bits, to_bits
from softermax.silicon.stimuli import Scores
from softermax.silicon.units import RESET_CYCLES, Job, Unit, spec_of
from softermax.spec import DeferredSpec, SoftermaxSpec

_END_CYCLES = 12
"""For the pipeline to drain."""


def score_normalization_unit(preset: str, width: int) -> Unit:
    spec = spec_of(preset, width)

    def rtlil() -> str:
        return to_rtlil(ScoreNormalization(spec, width), "score_normalization")

    def job(scores: Scores, copies: int, rows: int) -> Job:
        return _score_normalization_job(spec, scores, copies, rows)

    return Unit("score normalization", "softermax", preset, width, rtlil, job)


def weight_unit(width: int) -> Unit:
    spec = deferred_spec(width)

    def rtlil() -> str:
        return to_rtlil(WeightSoftmax(spec), "weight_softmax")

    def job(scores: Scores, copies: int, rows: int) -> Job:
        return _weight_job(spec, scores, copies, rows)

    return Unit("weights", "softermax", "deferred", width, rtlil, job)


def deferred_spec(width: int) -> DeferredSpec:
    return DeferredSpec(scores=spec_of("paper", width))


def weights_of(trace: golden.Trace, spec: DeferredSpec) -> IntArray:
    """The weights of unnormed words (A8)."""
    dropped = spec.scores.unnormed.fraction - spec.weight.fraction
    return saturate(shift_right(trace.unnormed, dropped, "half-up"), spec.weight)


def powsum_of(trace: golden.Trace, spec: DeferredSpec) -> IntArray:
    """The sum of each row's weights (A8)."""
    weights = weights_of(trace, spec)
    total = np.zeros(weights.shape[:-2], dtype=np.int64)
    before = np.full(total.shape, spec.scores.max_low, dtype=np.int64)
    for at in range(weights.shape[-2]):
        now = trace.running_max[..., at]
        total = np.minimum((total >> (now - before)) + weights[..., at, :].sum(axis=-1), spec.powsum.high)
        before = now
    return total


def _stream(values: IntArray, bits: int) -> Bits:
    """(copies, rows, slices[, lanes]) in the order of a stream, as (transfers, copies, bits)."""
    values = values[..., None] if values.ndim == 3 else values
    moved = np.moveaxis(values, 0, 2)
    return to_bits(moved.reshape(-1, *moved.shape[2:]), bits)


def _flags(rows: int, slices: int, copies: int) -> tuple[Bits, Bits]:
    at = np.broadcast_to(np.arange(slices), (copies, rows, slices))
    return _stream((at == 0).astype(np.int64), 1), _stream((at == slices - 1).astype(np.int64), 1)


def _sliced(scores: Scores, spec: SoftermaxSpec, copies: int, rows: int) -> tuple[IntArray, golden.Output]:
    """Scores (copies, rows, slices, lanes) and all that Softermax makes of them."""
    raw = scores.raw(spec)[: copies * rows].reshape(copies, rows, -1)
    width = spec.slice_width
    assert width is not None
    if raw.shape[-1] % width:
        raise ValueError(f"rows of {raw.shape[-1]} scores are not whole slices of {width}")
    return raw.reshape(copies, rows, -1, width), golden.softermax(raw, spec, trace=True)


def _score_normalization_job(spec: SoftermaxSpec, scores: Scores, copies: int, rows: int) -> Job:
    x, out = _sliced(scores, spec, copies, rows)
    assert out.trace is not None
    slices, lanes = x.shape[2:]
    _, last = _flags(rows, slices, copies)
    job = Job(RESET_CYCLES + rows * slices + _END_CYCLES, copies, x.size)
    row_max, row_sum = out.trace.running_max[:, :, -1:], out.trace.powsum[:, :, -1:]
    finished = np.concatenate(
        [_stream(row_max, spec.max.integer), _stream(row_sum, spec.powsum.bits)], axis=2
    )
    for row in range(rows):
        job.send("finished", RESET_CYCLES + row * slices, finished[row : row + 1])
    payload = [
        _stream(x, spec.input.bits),
        np.ones((rows * slices, copies, lanes), dtype=np.uint8),
        _stream(np.repeat(row_max, slices, axis=2), spec.max.integer),
        last,
    ]
    job.send("slices", RESET_CYCLES + Normalization.row_latency, np.concatenate(payload, axis=2))
    answers = [_stream(out.words.reshape(x.shape), spec.output.bits), last]
    if spec.output_mode == "row-scaled":
        answers.append(_stream(np.repeat(out.exponent[:, :, None], slices, axis=2), exponent_bits(spec)))
    job.receive("probabilities", np.concatenate(answers, axis=2))
    return job


def _weight_job(spec: DeferredSpec, scores: Scores, copies: int, rows: int) -> Job:
    x, out = _sliced(scores, spec.scores, copies, rows)
    assert out.trace is not None
    slices, lanes = x.shape[2:]
    first, last = _flags(rows, slices, copies)
    job = Job(RESET_CYCLES + rows * slices + _END_CYCLES, copies, x.size)
    mask = np.ones((rows * slices, copies, lanes), dtype=np.uint8)
    job.send(
        "slices",
        RESET_CYCLES,
        np.concatenate([_stream(x, spec.scores.input.bits), mask, first, last], axis=2),
    )
    # The unit's words have an integer bit above a weight's fraction.
    weights = _stream(weights_of(out.trace, spec), spec.weight.fraction + 1)
    maxima = _stream(out.trace.running_max, spec.scores.max.integer)
    job.receive("unnormed", np.concatenate([weights, maxima, last], axis=2))
    job.receive("sums", _stream(powsum_of(out.trace, spec)[:, :, None], spec.powsum.bits))
    return job
