"""Fused int8 attention from NumPy: scores live in the cache and nowhere else."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from softermax.kernels.core import native
from softermax.kernels.plan import attention_refusal, native_attention, score_factor
from softermax.kernels.rows import address, dense_mask, path_number
from softermax.spec import AnySpec

Int8 = NDArray[np.int8]


def int8_attention(
    q: Int8,
    k: Int8,
    v: Int8,
    spec: AnySpec,
    scale: float | Sequence[float],
    value_scale: float | Sequence[float] = 1.0,
    mask: NDArray[np.bool_] | None = None,
    lengths: NDArray[np.integer[Any]] | None = None,
    causal: bool = False,
    path: str | None = None,
    threads: int = 1,
) -> NDArray[np.float32]:
    """`softermax.golden.attention.attention` in the native core, as float32 with the same bits.

    ``scale`` and ``value_scale`` are one for all, or one per head of keys and values. ``lengths``, one per batch entry, hides the keys from there on. What the core does not take is refused with the
    reason; `softermax.kernels.plan.attention_refusal` asks beforehand.
    """
    for name, x in (("q", q), ("k", k), ("v", v)):
        if x.dtype != np.int8 or x.ndim != 4:
            raise TypeError(
                f"{name} must be int8 of four dimensions (batch, heads, length, size), got {x.dtype} of {x.ndim}"
            )
    (batch, heads, rows, size), kv_heads, columns = q.shape, k.shape[1], k.shape[2]
    if k.shape != v.shape or (k.shape[0], k.shape[3]) != (batch, size) or not kv_heads or heads % kv_heads:
        raise ValueError(
            f"q {q.shape}, k {k.shape} and v {v.shape} do not fit: batch and size are the same, "
            "heads a multiple of the kv heads"
        )
    scales, value_scales = per_head("scale", scale, kv_heads), per_head("value_scale", value_scale, kv_heads)
    reason = attention_refusal(spec, columns, size, max(scales, key=abs))
    if reason is not None:
        raise ValueError(f"the native core does not compute this attention: {reason}")
    out = np.zeros(q.shape, dtype=np.float32)
    if out.size == 0:
        return out
    q, k, v = (x if x.strides[3] == 1 or size == 1 else np.ascontiguousarray(x) for x in (q, k, v))
    keep, keep_stride = dense_mask(mask, (batch, heads, rows, columns))
    counts = None if lengths is None else np.ascontiguousarray(np.minimum(lengths, columns), dtype=np.int32)
    if counts is not None and counts.shape != (batch,):
        raise ValueError(f"lengths must have shape ({batch},), one per batch entry, got {counts.shape}")
    native.attend(
        *native_attention(spec), [batch, heads, kv_heads, rows, columns, size],
        address(q), list(q.strides[:3]), address(k), list(k.strides[:3]), address(v), list(v.strides[:3]),
        address(out), [score_factor(spec, one) for one in scales], value_scales, 0 if keep is None else address(keep), keep_stride,
        0 if counts is None else address(counts), causal, path_number(path), threads,
    )  # fmt: skip
    return out


def per_head(name: str, given: float | Sequence[float], heads: int) -> list[float]:
    """One number for each head."""
    numbers = [float(given)] * heads if isinstance(given, (int, float)) else [float(one) for one in given]
    if len(numbers) != heads:
        raise ValueError(f"{name} has {len(numbers)} values: must be one, or one per head of keys, {heads}")
    return numbers
