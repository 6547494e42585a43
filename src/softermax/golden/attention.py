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
from softermax.fixedpoint import IntArray, saturate, shift_right
from softermax.golden import BoolArray
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
    factor = np.float32(scale * spec.input_scale)
    scaled = scores.astype(np.float32) * factor
    if spec.input_rounding == "half-even":
        rounded = np.rint(scaled)
    else:
        rounded = np.floor(scaled + np.float32(0.5 if spec.input_rounding == "half-up" else 0.0))
    return saturate(rounded, spec.input).astype(np.int64)


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
    batch, heads, rows, size = queries.shape
    kv_heads, columns = keys.shape[1:3]
    if keys.shape != values.shape or keys.shape[0] != batch or keys.shape[3] != size or heads % kv_heads:
        raise ValueError(
            f"q {queries.shape}, k {keys.shape} and v {values.shape} do not fit: batch and size are the same, "
            "heads a multiple of the kv heads"
        )
    keep = np.ones((rows, columns), dtype=np.bool_)
    if causal:
        keep = np.tri(rows, columns, columns - rows, dtype=np.bool_)
    if mask is not None:
        keep = keep & np.asarray(mask, dtype=np.bool_)
    keep = np.broadcast_to(keep, (batch, heads, rows, columns))
    keys, values = (np.repeat(x, heads // kv_heads, axis=1) for x in (keys, values))
    # Products and sums of 8-bit integers are exact in double precision, and have a fast product.
    scores = np.matmul(queries, keys.transpose(0, 1, 3, 2)).astype(np.int64)
    if isinstance(spec, DeferredSpec):
        raw = requantize(scores, scale, spec.scores)
        accumulators, leading_one, recip = deferred(raw, values, keep, spec)
        shift = spec.reciprocal.fraction + leading_one
    else:
        out = golden.softermax(requantize(scores, scale, spec), spec, keep)
        accumulators = np.matmul(out.words.astype(np.float64), values).astype(np.int64)
        leading_one, recip = out.exponent, np.ones_like(out.exponent)
        shift = spec.output.fraction + out.exponent
    factor = value_scale * np.exp2(-shift.astype(np.float64))
    value = ((accumulators * recip[..., None]).astype(np.float64) * factor[..., None]).astype(np.float32)
    return AttentionOutput(accumulators, leading_one, recip, value)


def _operand(name: str, x: ArrayLike) -> NDArray[np.float64]:
    array = np.asarray(x)
    if array.dtype != np.int8 or array.ndim != 4:
        raise TypeError(
            f"{name} must be int8 of four dimensions (batch, heads, length, size), got {array.dtype} of {array.ndim}"
        )
    return array.astype(np.float64)


def deferred(
    raw: IntArray, values: NDArray[np.float64], keep: BoolArray, spec: DeferredSpec
) -> tuple[IntArray, IntArray, IntArray]:
    """A8, slice after slice: accumulators, position of PowSum's leading one, reciprocal. ``values`` are integers."""
    scores = spec.scores
    columns = raw.shape[-1]
    width = scores.slice_width or max(columns, 1)
    m = np.full(raw.shape[:-1], scores.max_low, dtype=np.int64)
    d = np.zeros_like(m)
    a = np.zeros((*m.shape, values.shape[-1]), dtype=np.int64)
    for start in range(0, columns, width):
        lanes = slice(start, start + width)
        x, live = raw[..., lanes], keep[..., lanes]
        local_max = np.where(live, golden.int_max(x, scores), scores.max_low).max(axis=-1)
        grown = np.maximum(local_max, m) - m
        m = m + grown
        u = np.where(live, golden.power_of_two(x, m[..., None], scores), 0)
        w = saturate(shift_right(u, scores.unnormed.fraction - spec.weight.fraction, "half-up"), spec.weight)
        d = np.minimum((d >> grown) + w.sum(axis=-1), spec.powsum.high)
        # Past 62 bits nothing of an accumulator is left.
        renormed = np.where(
            grown[..., None] > 62, 0, shift_right(a, np.minimum(grown, 62)[..., None], "half-up")
        )
        a = renormed + np.matmul(w.astype(np.float64), values[..., lanes, :]).astype(np.int64)
    row = scores.replace(
        powsum=spec.powsum, reciprocal=spec.reciprocal, reciprocal_segments=spec.reciprocal_segments
    )
    leading_one, recip = golden.reciprocal(d, row)
    return a, leading_one, recip
