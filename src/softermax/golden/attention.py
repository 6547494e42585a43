"""int8 attention in integers, in NumPy: the judge of the fused kernels, in both modes.

Scores are the exact integer products of Q and K; one product in single precision takes them to
input words. With a `SoftermaxSpec` every probability is normalised and enters P·V as an output word
(the paper's mode); with a `DeferredSpec` unnormed weights do, and a row is divided once (A8).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from softermax import golden
from softermax.fixedpoint import IntArray, round_to_integer, saturate, shift_right
from softermax.spec import DeferredSpec, SoftermaxSpec


@dataclass(frozen=True)
class AttentionOutput:
    """What attention computes: integers, and the numbers that they stand for."""

    accumulators: IntArray
    """(batch, heads, queries, head size): P·V, exact (A8: shifted as the max grew)."""
    leading_one: IntArray
    """(batch, heads, queries): A7's exponent, or with A8 the position of PowSum's leading one."""
    reciprocal: IntArray
    """(batch, heads, queries): A8's reciprocal; 1 in the paper's mode, where it is in the probabilities."""
    value: NDArray[np.float32]


def requantize(scores: IntArray, scale: float, spec: SoftermaxSpec) -> IntArray:
    """Integer scores to input words: A1 with one factor, rounded once to single precision."""
    with np.errstate(over="ignore"):
        factor = np.float32(scale * spec.input_scale)
        if not np.isfinite(factor):
            raise ValueError(f"scale = {scale}: times {spec.input_scale:g} it must be a finite single")
        scaled = scores.astype(np.float32) * factor
    # Clipping before the rounding loses nothing and keeps huge products within 64 bits.
    limit = 2.0 ** (spec.input.bits + 1)
    return saturate(round_to_integer(np.clip(scaled, -limit, limit), spec.input_rounding), spec.input)


def attention(
    q: ArrayLike,
    k: ArrayLike,
    v: ArrayLike,
    spec: SoftermaxSpec | DeferredSpec,
    scale: float,
    value_scale: float = 1.0,
    mask: ArrayLike | None = None,
    causal: bool = False,
) -> AttentionOutput:
    """Attention of int8 Q (batch, heads, queries, size) over K and V (batch, kv heads, keys, size).

    A real score is its integer times ``scale``, a value its integer times ``value_scale``. A key
    takes part where ``mask`` (boolean, broadcast to batch, heads, queries, keys) is True and, with
    ``causal``, where it is not past the query, the last query standing at the last key.
    """
    queries, keys, values = (_operand(name, x) for name, x in (("q", q), ("k", k), ("v", v)))
    batch, heads, count, size = queries.shape
    kv_heads, columns = keys.shape[1:3]
    if keys.shape != values.shape or keys.shape[0] != batch or keys.shape[3] != size or heads % kv_heads:
        raise ValueError(
            f"q {queries.shape}, k {keys.shape} and v {values.shape} do not fit: batch and size are the same, "
            "heads a multiple of the kv heads"
        )
    keep = np.ones((count, columns), dtype=np.bool_)
    if causal:
        keep = np.tri(count, columns, columns - count, dtype=np.bool_)
    if mask is not None:
        keep = keep & np.asarray(mask, dtype=np.bool_)
    keep = np.broadcast_to(keep, (batch, heads, count, columns))
    keys, values = (np.repeat(x, heads // kv_heads, axis=1) for x in (keys, values))
    # Products and sums of 8-bit integers are exact in double precision, and have a fast product.
    scores = np.matmul(queries, keys.transpose(0, 1, 3, 2)).astype(np.int64)
    if isinstance(spec, DeferredSpec):
        out = golden.deferred(requantize(scores, scale, spec.scores), spec, keep, trace=True)
        assert out.trace is not None
        accumulators, leading_one, recip = accumulate(out.trace, values), out.leading_one, out.reciprocal
        shift = spec.reciprocal.fraction + leading_one
    else:
        rows = golden.softermax(requantize(scores, scale, spec), spec, keep)
        accumulators = np.matmul(rows.words.astype(np.float64), values).astype(np.int64)
        leading_one, recip = rows.exponent, np.ones_like(rows.exponent)
        shift = spec.output.fraction + rows.exponent
    factor = value_scale * np.exp2(-shift.astype(np.float64))
    # In double precision: the widest accumulators times the widest reciprocal exceed 64 bits.
    value = (accumulators * recip[..., None].astype(np.float64) * factor[..., None]).astype(np.float32)
    return AttentionOutput(accumulators, leading_one, recip, value)


def _operand(name: str, x: ArrayLike) -> NDArray[np.float64]:
    array = np.asarray(x)
    if array.dtype != np.int8 or array.ndim != 4:
        raise TypeError(
            f"{name} must be int8 of four dimensions (batch, heads, length, size), got {array.dtype} of {array.ndim}"
        )
    return array.astype(np.float64)


def accumulate(weights: golden.DeferredTrace, values: NDArray[np.float64]) -> IntArray:
    """A8's accumulators of P·V, slice after slice, shifted half up as the max grows. ``values`` are integers."""
    slices, width = weights.weight.shape[-2:]
    columns = values.shape[-2]
    a = np.zeros((*weights.renorm_shift.shape[:-1], values.shape[-1]), dtype=np.int64)
    for s in range(slices):
        grown = weights.renorm_shift[..., s, None]
        # Past 62 bits nothing of an accumulator is left.
        renormed = np.where(grown > 62, 0, shift_right(a, np.minimum(grown, 62), "half-up"))
        lanes = slice(s * width, min((s + 1) * width, columns))
        w = weights.weight[..., s, : lanes.stop - lanes.start].astype(np.float64)
        a = renormed + np.matmul(w, values[..., lanes, :]).astype(np.int64)
    return a
