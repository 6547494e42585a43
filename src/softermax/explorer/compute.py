"""One row through the golden model, with every intermediate word, as plain JSON values.

A request is ``{"scores": [2, null, 3.5], "spec": {"slice_width": 32}}``: null is a masked element,
fields that the spec leaves out have the paper's values.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from softermax import golden
from softermax.golden import Trace
from softermax.spec import LOG2E, SoftermaxSpec
from softermax.tables import PiecewiseTable, pow2_table, reciprocal_table

MAX_SCORES = 4096
MAX_SCORE = 1e6
"""Largest magnitude of a score: far beyond any input word, and its powers still have logarithms."""

FloatArray = NDArray[np.float64]


class RequestError(ValueError):
    """A request that is malformed; ``field`` names the part of it that is wrong."""

    def __init__(self, message: str, field: str | None = None) -> None:
        super().__init__(message)
        self.field = field


class Impossible(RequestError):
    """A well-formed question whose answer is that it cannot be: a spec that cannot work."""


def read_spec(request: Mapping[str, Any]) -> SoftermaxSpec:
    """The spec of a request; an impossible one is refused with the name of the field at fault."""
    values = request.get("spec", {})
    if not isinstance(values, dict):
        raise RequestError(f"spec must be an object, got {type(values).__name__}", "spec")
    try:
        return SoftermaxSpec.from_dict(values)
    except ValueError as error:
        # Every message of a spec begins with "field = value:".
        raise Impossible(str(error), str(error).partition(" = ")[0]) from None


def read_scores(request: Mapping[str, Any]) -> tuple[FloatArray, golden.BoolArray]:
    """Scores, 0 where masked, and a mask that is True where an element takes part."""
    scores = request.get("scores")
    if not isinstance(scores, list):
        raise RequestError(f"scores must be a list of numbers, got {type(scores).__name__}", "scores")
    if not 1 <= len(scores) <= MAX_SCORES:
        raise RequestError(f"{len(scores)} scores: must be 1 to {MAX_SCORES}", "scores")
    for index, score in enumerate(scores):
        if score is None:
            continue
        if isinstance(score, bool) or not isinstance(score, (int, float)):
            raise RequestError(f"score {index} = {score!r}: must be a number, or null where masked", "scores")
        if not abs(score) <= MAX_SCORE:
            raise RequestError(f"score {index} = {score!r}: must be -1e6 to 1e6", "scores")
    mask = np.array([score is not None for score in scores])
    return np.array([0.0 if score is None else score for score in scores], dtype=np.float64), mask


def compute(request: Mapping[str, Any]) -> dict[str, Any]:
    """Everything that the page shows of a row."""
    unknown = sorted(set(request) - {"scores", "spec"})
    if unknown:
        raise RequestError(f"{unknown[0]}: no such field; a request has scores and spec", unknown[0])
    spec = read_spec(request)
    scores, mask = read_scores(request)
    raw = golden.quantize(scores, spec, mask)
    output = golden.softermax(raw, spec, mask, trace=True)
    trace = output.trace
    assert trace is not None
    exact = _log_softmax(scores * LOG2E, mask)
    base_two = _log_softmax(scores, mask)
    value = output.value
    return {
        "spec": spec.to_dict(),
        "slices": spec.slices(len(scores)),
        "lanes": spec.slice_width or len(scores),
        "mask": mask.tolist(),
        "input": raw.tolist(),
        "saturated": (mask & _saturates(scores, spec)).tolist(),
        "integer": golden.int_max(raw, spec).tolist(),
        **_trace(trace, len(scores)),
        "output": output.words.tolist(),
        "exponent": int(output.exponent),
        "value": value.tolist(),
        "softmax": np.exp2(exact).tolist(),
        "base_two": np.exp2(base_two).tolist(),
        "row_sum": float(value.sum()),
        "errors": {"softmax": _errors(value, exact), "base_two": _errors(value, base_two)},
        "tables": {"pow2": _table(pow2_table(spec)), "reciprocal": _table(reciprocal_table(spec))},
    }


def _saturates(scores: FloatArray, spec: SoftermaxSpec) -> golden.BoolArray:
    scaled = scores * spec.input_scale
    return np.asarray((scaled < spec.input.low - 0.5) | (scaled > spec.input.high + 0.5))


def _trace(trace: Trace, columns: int) -> dict[str, Any]:
    """The trace by name; what has lanes as one list for the row, without the lanes that fill it up."""
    named: dict[str, Any] = {}
    for name in Trace.__dataclass_fields__:
        words = getattr(trace, name)
        named[name] = words.reshape(-1)[:columns].tolist() if words.ndim == 2 else words.tolist()
    return named


def _log_softmax(x: FloatArray, mask: golden.BoolArray) -> FloatArray:
    """log2 of the softmax in base two, -inf where masked."""
    if not mask.any():
        return np.full(x.shape, -np.inf)
    kept = np.where(mask, x, -np.inf)
    shifted = kept - kept.max()
    return np.asarray(shifted - math.log2(np.exp2(shifted).sum()))


def _errors(value: FloatArray, log2_exact: FloatArray) -> dict[str, float | None]:
    """Largest error, and the divergence, in bits, of the outputs (made to add up to 1) from the exact ones.

    In this direction a probability that the output word flushes to 0 counts; the divergence in the
    other one would be infinite. A row of zeros has none.
    """
    total = value.sum()
    there = value > 0
    share = value[there] / total if total else value[there]
    divergence = float((share * (np.log2(share) - log2_exact[there])).sum()) if total else None
    return {"max_abs": float(np.abs(value - np.exp2(log2_exact)).max()), "kl": divergence}


def _table(table: PiecewiseTable) -> dict[str, Any]:
    return {"segments": table.segments, "used_bits": table.used_bits, "uses_m": table.uses_m}
