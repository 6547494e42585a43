"""One lane of the PE's own logic at gate level, with operands of a real model: MACs, requantisation, and what
deferred normalisation adds, the shift of an accumulator and a row's reciprocal."""

from __future__ import annotations

import hashlib
import json
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from softermax import golden
from softermax.cache import cache_dir
from softermax.files import replacing, write_text
from softermax.fixedpoint import IntArray
from softermax.golden import attention as golden_attention
from softermax.rtl.convert import to_rtlil
from softermax.rtl.pe.accumulator_shift import DEFERRED_ACCUMULATOR_BITS, LONGEST, AccumulatorShift
from softermax.rtl.pe.accumulator_shift import steps as shift_steps
from softermax.rtl.pe.config import ACCUMULATOR_BITS, OPERAND_BITS, PEConfig, Scale
from softermax.rtl.pe.job import sign_magnitude
from softermax.rtl.pe.requantize import Requantize
from softermax.rtl.pe.requantize_half import RequantizeHalf, half_scores
from softermax.rtl.pe.vector_mac import VectorMac
from softermax.rtl.pe.words import SHIFT_BITS
from softermax.rtl.reciprocal import Reciprocal
from softermax.silicon import power
from softermax.silicon.equivalence import Disagreement
from softermax.silicon.flow import mapped
from softermax.silicon.library import Library
from softermax.silicon.pe.units import deferred_spec, powsum_of, weights_of
from softermax.silicon.simulation import COPIES, Bits, Simulator, from_bits, to_bits
from softermax.silicon.stimuli import run_recorder
from softermax.silicon.synthesis import RECIPE
from softermax.spec import DeferredSpec, SoftermaxSpec

METHOD = 2
"""Raised when anything that changes a figure changes here."""
LANES = ("mac", "requantize", "requantize_half", "accumulator_shift", "reciprocal")
HALF_BITS = 16
_STEPS = 96
"""Cycles that a lane is simulated for."""


@dataclass(frozen=True)
class Operands:
    """Queries, keys and values of one head, and the scale of the scores."""

    name: str
    q: NDArray[np.int8]
    k: NDArray[np.int8]
    v: NDArray[np.int8]
    scale: float

    @property
    def content(self) -> str:
        words = self.q.tobytes() + self.k.tobytes() + self.v.tobytes() + repr(self.scale).encode()
        return hashlib.sha256(words).hexdigest()[:16]


@dataclass(frozen=True)
class Lane:
    """A lane's figures: picojoules a step, which for MACs is a vector, for requantisation a score, for an
    accumulator's shift a slice of P·V, for a reciprocal a row."""

    name: str
    library: str
    clock_ns: float
    area_um2: float
    slack_ns: float
    pj: float
    leakage_pj: float
    words_equal: int


def operands() -> tuple[Operands, str]:
    """A head's operands of the recorded model, made at first use and cached; without them, random ones
    and the reason why."""
    saved = cache_dir("silicon", "stimuli") / "operands-2.npz"
    if not saved.is_file():
        try:
            _record(saved)
        except (OSError, ValueError, subprocess.TimeoutExpired) as error:
            rng = np.random.default_rng(0)
            q, k, v = (np.clip(rng.normal(0, 32, (384, 32)), -128, 127).astype(np.int8) for _ in range(3))
            return Operands("random", q, k, v, 2.0**-12), f"attention operands cannot be recorded: {error}"
    with np.load(saved, allow_pickle=False) as data:
        return Operands("attention", data["q"], data["k"], data["v"], float(data["scale"])), ""


def _record(saved: Path) -> None:
    data = run_recorder("--rows", "1")
    q, k = data["q"], data["k"]
    scale = float(data["q_scale"] * data["k_scale"]) / float(np.sqrt(q.shape[1]))
    with replacing(saved) as partial, partial.open("wb") as stream:
        np.savez(stream, q=q, k=k, v=data["v"], scale=scale, allow_pickle=False)


@dataclass(frozen=True)
class _Job:
    """Inputs of a lane cycle by cycle, and what its output must be in the cycles behind the first ones."""

    component: Any
    inputs: Mapping[str, Bits]
    output: str
    latency: int
    expected: IntArray
    """(cycles, copies)."""
    bits: int
    signed: bool


def _mac_job(config: PEConfig, data: Operands) -> _Job:
    """Every copy is a lane: its own key stays while queries pass, chunk after chunk."""
    size, vector = data.q.shape[1], config.vector_size
    chunks = config.chunks(size)
    queries = _STEPS // chunks
    q, k = (
        np.pad(some.astype(np.int64), ((0, 0), (0, chunks * vector - size))).reshape(-1, chunks, vector)
        for some in (data.q[:queries], data.k[:COPIES])
    )
    dots = np.einsum("qcv,kcv->cqk", q, k)
    before = np.cumsum(dots, axis=0) - dots
    steps = chunks * queries
    vectors = np.broadcast_to(q.transpose(1, 0, 2)[:, :, None], (chunks, queries, COPIES, vector))
    weights = np.broadcast_to(k.transpose(1, 0, 2)[:, None], (chunks, queries, COPIES, vector))

    def late(values: IntArray) -> IntArray:
        """Behind the lane's two registers."""
        return _delayed(values.reshape(steps, COPIES), 2)

    first = np.repeat(np.arange(chunks) == 0, queries)[:, None] & np.ones((1, COPIES), dtype=np.bool_)
    inputs = {
        "vector": to_bits(sign_magnitude(vectors.reshape(steps, COPIES, vector)), OPERAND_BITS),
        "weights": to_bits(sign_magnitude(weights.reshape(steps, COPIES, vector)), OPERAND_BITS),
        "enable": np.ones((steps, COPIES, 2), dtype=np.uint8),
        "first": late(first.astype(np.int64))[:, :, None].astype(np.uint8),
        "collected": to_bits(late(before)[:, :, None], ACCUMULATOR_BITS),
    }
    expected = late(before + dots)
    return _Job(VectorMac(vector), inputs, "accumulated", 2, expected, ACCUMULATOR_BITS, True)


def _requantize_job(config: PEConfig, data: Operands, half: bool) -> _Job:
    """Every copy is a lane; a score a cycle."""
    spec = SoftermaxSpec(slice_width=config.lanes)
    factor = config.nearest(data.scale * spec.input_scale)
    scale: Scale = config.split(factor)
    scores = data.q[:_STEPS].astype(np.int64) @ data.k[:COPIES].T.astype(np.int64)
    constant = np.ones((len(scores), COPIES, 1), dtype=np.int64)
    kind = RequantizeHalf if half else Requantize
    inputs = {
        "acc": to_bits(scores[:, :, None], ACCUMULATOR_BITS),
        "mantissa": to_bits(constant * scale.mantissa, config.scale_bits),
        "shift": to_bits(constant * scale.shift, SHIFT_BITS),
        "enable": np.ones((len(scores), COPIES, kind.registers), dtype=np.uint8),
    }
    if half:
        words, made = half_scores(scores, factor), RequantizeHalf(config)
    else:
        words, made = (
            golden_attention.requantize(scores, factor / spec.input_scale, spec),
            Requantize(config, spec),
        )
    bits = HALF_BITS if half else spec.input.bits
    return _Job(made, inputs, "x", kind.registers, _delayed(words, kind.registers), bits, not half)


def _rows(config: PEConfig, data: Operands, queries: int) -> tuple[golden.Trace, DeferredSpec]:
    """What Softermax makes of some queries' scores, (queries, slices, lanes)."""
    spec = deferred_spec(config.lanes)
    scores = data.q[:queries].astype(np.int64) @ data.k.T.astype(np.int64)
    factor = config.nearest(data.scale * spec.scores.input_scale)
    raw = golden_attention.requantize(scores, factor / spec.scores.input_scale, spec.scores)
    trace = golden.softermax(raw, spec.scores, trace=True).trace
    assert trace is not None
    return trace, spec


def _shift_job(config: PEConfig, data: Operands) -> _Job:
    """Every copy is a column of some query's P·V; a step a slice, more where its max grows far."""
    columns = data.v.shape[1]
    queries = -(-COPIES // columns)
    trace, spec = _rows(config, data, len(data.q))
    weights = weights_of(trace, spec)
    slices, lanes = weights.shape[1:]
    values = np.zeros((slices * lanes, columns), dtype=np.int64)
    values[: len(data.v)] = data.v
    dots = np.einsum("qsl,slc->qsc", weights, values.reshape(slices, lanes, columns))
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
                    kept = total >> by
                    carry = (total >> (by - 1)) & 1 if rounds else 0
                    steps.append((total, by, rounds, kept))
                    total = kept + carry
                total += int(dots[row, at, column])
            if len(steps) >= _STEPS:
                break
        histories.append(steps[:_STEPS])
    table = np.array(histories, dtype=np.int64).transpose(1, 0, 2)
    inputs = {
        "collected": to_bits(table[:, :, :1], DEFERRED_ACCUMULATOR_BITS),
        "by": to_bits(table[:, :, 1:2], LONGEST.bit_length()),
        "rounds": to_bits(table[:, :, 2:3], 1),
    }
    return _Job(AccumulatorShift(), inputs, "shifted", 0, table[:, :, 3], DEFERRED_ACCUMULATOR_BITS, True)


def _reciprocal_job(config: PEConfig, data: Operands) -> _Job:
    """Every copy divides rows of its own."""
    trace, spec = _rows(config, data, len(data.q))
    sums = np.resize(powsum_of(trace, spec), (_STEPS, COPIES))
    row = spec.scores.replace(
        powsum=spec.powsum, reciprocal=spec.reciprocal, reciprocal_segments=spec.reciprocal_segments
    )
    bits = spec.reciprocal.fraction + 1
    inputs = {
        "powsum": to_bits(sums[:, :, None], spec.powsum.bits),
        "enable_1": np.ones((_STEPS, COPIES, 1), dtype=np.uint8),
        "enable_2": np.ones((_STEPS, COPIES, 1), dtype=np.uint8),
    }
    expected = _delayed(golden.reciprocal(sums, row)[1], 2)
    return _Job(Reciprocal(spec), inputs, "reciprocal", 2, expected, bits, False)


def _delayed(values: IntArray, cycles: int) -> IntArray:
    return np.concatenate([np.repeat(values[:1], cycles, axis=0), values[:-cycles]])


def measure(name: str, config: PEConfig, library: Library, clock_ns: float, data: Operands) -> Lane:
    """A lane's netlist, held against the software's integers, and its energy with glitches."""
    if name not in LANES:
        raise ValueError(f"lane {name!r}: must be one of {', '.join(LANES)}")
    make: dict[str, Callable[[], _Job]] = {
        "mac": lambda: _mac_job(config, data),
        "requantize": lambda: _requantize_job(config, data, half=False),
        "requantize_half": lambda: _requantize_job(config, data, half=True),
        "accumulator_shift": lambda: _shift_job(config, data),
        "reciprocal": lambda: _reciprocal_job(config, data),
    }
    job = make[name]()
    rtlil = to_rtlil(job.component, name)
    # Slices as wide as the PE decide what some lanes work on.
    parts = [METHOD, RECIPE, rtlil, library.content, clock_ns, _STEPS, config.lanes, data.content]
    key = hashlib.sha256("\0".join(str(part) for part in parts).encode()).hexdigest()[:24]
    saved = cache_dir("silicon", "lanes") / f"{key}.json"
    if saved.is_file():
        return Lane(**json.loads(saved.read_text(encoding="utf-8")))
    netlist, timing = mapped(rtlil, library, clock_ns)
    # A lane that misses the clock is simulated at the period that it does meet.
    period = clock_ns if timing.meets else clock_ns - timing.slack_ns
    activity = Simulator(netlist, timing).run(job.inputs, period, job.latency)
    got = from_bits(activity.outputs[job.output], job.bits, job.signed)[job.latency :, :, 0]
    wrong = int((got != job.expected[job.latency :]).sum())
    if wrong:
        raise Disagreement(
            f"{name} in {library.name}: {wrong} of {got.size} words differ from the software's"
        )
    spent = power.measure(activity, timing)
    steps = activity.cycles * activity.copies
    lane = Lane(
        name,
        library.name,
        clock_ns,
        netlist.area,
        timing.slack_ns,
        spent.total / steps * 1e-3,
        float(spent.leakage.sum()) / steps * 1e-3,
        got.size,
    )
    write_text(saved, json.dumps(asdict(lane)))
    return lane
