"""One row through the golden model, with every intermediate word, as plain JSON values."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from softermax import golden
from softermax.explorer.request import FloatArray, read_scores, read_spec, require_only
from softermax.fixedpoint import IntArray
from softermax.spec import LOG2E, DeferredSpec
from softermax.tables import PiecewiseTable, pow2_table, reciprocal_table


def compute(request: Mapping[str, Any]) -> dict[str, Any]:
    """Everything that the page shows of a row."""
    require_only(request, "scores", "spec")
    spec = read_spec(request)
    scores, mask = read_scores(request)
    columns = len(scores)
    rows = spec.scores if isinstance(spec, DeferredSpec) else spec
    raw = golden.quantize(scores, rows, mask)
    output = spec.run(scores, mask, trace=True)
    value = output.value
    exact = log_softmax(scores * LOG2E, mask)
    base_two = log_softmax(scores, mask)
    return {
        "spec": spec.to_dict(),
        "mode": "deferred" if isinstance(spec, DeferredSpec) else spec.output_mode,
        "slices": rows.slices(columns),
        "lanes": rows.slice_width or columns,
        "mask": mask.tolist(),
        "input": raw.tolist(),
        "saturated": golden.saturates(scores, rows, mask).tolist(),
        "integer": golden.int_max(raw, rows).tolist(),
        **_steps(output, columns),
        "output": output.words.tolist(),
        "value": value.tolist(),
        "softmax": np.exp2(exact).tolist(),
        "base_two": np.exp2(base_two).tolist(),
        "row_sum": float(value.sum()),
        "errors": {"softmax": errors_of(value, exact), "base_two": errors_of(value, base_two)},
        "tables": {"pow2": _table(pow2_table(rows)), "reciprocal": _table(reciprocal_table(spec))},
    }


def _steps(output: golden.Output | golden.DeferredOutput, columns: int) -> dict[str, Any]:
    """The trace by name; what has lanes as one list for the row, without the lanes that fill it up."""
    trace = output.trace
    assert trace is not None
    steps: dict[str, IntArray] = {f.name: getattr(trace, f.name) for f in dataclasses.fields(trace)}
    if isinstance(output, golden.DeferredOutput):
        assert isinstance(trace, golden.DeferredTrace)
        steps |= {
            "slice_sum": trace.weight.sum(axis=-1),
            "shift": output.shift,
            "leading_one": output.leading_one,
            "reciprocal": output.reciprocal,
        }
    else:
        steps["exponent"] = output.exponent
    return {
        name: (words.reshape(-1)[:columns] if words.ndim == 2 else words).tolist()
        for name, words in steps.items()
    }


def log_softmax(x: FloatArray, mask: golden.BoolArray) -> FloatArray:
    """log2 of the softmax in base two, -inf where masked."""
    if not mask.any():
        return np.full(x.shape, -np.inf)
    kept = np.where(mask, x, -np.inf)
    shifted = kept - kept.max()
    return np.asarray(shifted - math.log2(np.exp2(shifted).sum()))


def errors_of(value: FloatArray, log2_exact: FloatArray) -> dict[str, float | None]:
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
