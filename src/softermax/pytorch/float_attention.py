"""Attention of float tensors with Softermax, for inference: scores live in the cache, a few rows at a time.

On x86 the core does all of it in one call. A score is there the sum of its products one after another, each rounded once, which is
what PyTorch's BLAS computes for matrices: scores and their words are those of the path with gradients. Where a BLAS adds in another
order, a score differs by how floats round, and its word where that crosses a tie.

Few queries (a decoder's step), heads that fill no vectors and other processors take PyTorch's own product of Q and K, a few heads at a time, and the core takes
scores from there. Either way words times V are summed in the core's own order, so that outputs differ from the other path's by how
floats round.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from softermax.extras import need
from softermax.kernels.core import native
from softermax.kernels.plan import native_spec
from softermax.kernels.rows import path_number
from softermax.pytorch.inputs import check_mask
from softermax.spec import SoftermaxSpec

if not TYPE_CHECKING:
    need("torch", "torch")

import torch
from torch import Tensor

CHUNK = 1 << 18
"""Scores of a chunk for each thread: a megabyte."""
FEW = 16
"""Queries from which on the core multiplies Q and K: below, packing K costs more than it saves."""
WHOLE = 32
"""Values of a head that fill the core's vectors; heads of other sizes take PyTorch's product, too."""


def float_attention(
    query: Tensor, key: Tensor, value: Tensor, spec: SoftermaxSpec, scale: float, mask: Tensor | None = None
) -> Tensor:
    """Attention of float32 (batch, heads, length, size) on a CPU, as (batch, queries, heads, size). It has no gradient.

    ``key`` and ``value`` may have fewer heads, of which each serves as many query heads. ``mask`` is boolean, True where a key takes
    part, and expands to (batch, heads, queries, keys).
    """
    # In a small layer all of this takes as long as a tenth of the work: nothing is asked twice.
    for name, x in (("query", query), ("key", key), ("value", value)):
        if x.dtype is not torch.float32 or x.dim() != 4 or not x.is_cpu:
            raise TypeError(
                f"{name} must be float32 of four dimensions on a CPU, got {x.dtype} of {x.dim()} on {x.device}"
            )
    batch, heads, queries, size = query.shape
    _, kv_heads, keys, value_size = value.shape
    if (
        key.shape != (batch, kv_heads, keys, size)
        or value.size(0) != batch
        or not kv_heads
        or heads % kv_heads
    ):
        raise ValueError(
            f"query {tuple(query.shape)}, key {tuple(key.shape)} and value {tuple(value.shape)} do not fit: must be "
            "(batch, heads, queries, size), (batch, kv heads, keys, size) and (batch, kv heads, keys, any), heads a "
            "multiple of kv heads"
        )
    out = torch.empty(batch, queries, heads, value_size)
    if mask is not None:
        check_mask(mask, (batch, heads, queries, keys), query.device)
        mask = mask.expand(batch, heads, queries, keys)
        if mask.stride(3) != 1:
            mask = mask.contiguous()
    if not (batch and heads and queries and value_size):
        return out
    if not keys:
        return out.zero_()
    path = path_number(None)
    if queries < FEW or value_size % WHOLE or not _attends(path):
        broken = _by_products(query, key, value, spec, scale, mask, out, path)
    else:
        query, key, value = (x if x.stride(3) == 1 else x.contiguous() for x in (query, key, value))
        broken = native.attend_floats(
            native_spec(spec).address, path, (batch, heads, kv_heads, queries, keys, size, value_size),
            query.data_ptr(), key.data_ptr(), value.data_ptr(), 0 if mask is None else mask.data_ptr(),
            (*query.stride()[:3], *key.stride()[:3], *value.stride()[:3], *((0, 0, 0) if mask is None else mask.stride()[:3])),
            scale, out.data_ptr(), torch.get_num_threads(),
        )  # fmt: skip
    if broken:
        raise ValueError(
            "scores must be finite where they are not masked, found NaN or infinity; use mask= to leave a key out"
        )
    return out


@cache
def _attends(path: int) -> bool:
    """Whether a path of the core multiplies Q and K too."""
    return bool(native.attends_floats(path))


def _by_products(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    spec: SoftermaxSpec,
    scale: float,
    keep: Tensor | None,
    out: Tensor,
    path: int,
) -> bool:
    """The same from PyTorch's product of Q and K, into ``out``; whether a score is neither finite nor masked."""
    batch, queries, heads, size = out.shape
    groups = heads // key.size(1)
    if groups > 1:
        key, value = key.repeat_interleave(groups, dim=1), value.repeat_interleave(groups, dim=1)
    keys = key.size(2)
    if value.stride(3) != 1:
        value = value.contiguous()
    threads = torch.get_num_threads()
    some = min(heads, max(1, threads * CHUNK // (queries * keys)))
    rows = queries if some > 1 else max(1, min(queries, 4 * CHUNK // keys))
    scores = None if some == heads and rows == queries else torch.empty(some * rows * keys)
    core, broken = native_spec(spec).address, False
    transposed = key.transpose(-1, -2)
    # Addresses are counted, not asked of a slice for each: a small chunk takes no longer than that would.
    (v_entry, v_head, v_row, _), v_start = value.stride(), value.data_ptr()
    k_entry, k_head, k_row = (0, 0, 0) if keep is None else keep.stride()[:3]
    for entry in range(batch):
        for head in range(0, heads, some):
            count = min(some, heads - head)
            for row in range(0, queries, rows):
                span = min(rows, queries - row)
                if scores is None:
                    chunk = torch.matmul(query[entry], transposed[entry])
                else:
                    chunk = scores[: count * span * keys].view(count, span, keys)
                    torch.matmul(
                        query[entry, head : head + count, row : row + span],
                        transposed[entry, head : head + count],
                        out=chunk,
                    )
                broken |= native.weigh(
                    core, path, [count, span, keys, size], chunk.data_ptr(), scale,
                    0 if keep is None else keep.data_ptr() + entry * k_entry + head * k_head + row * k_row,
                    [k_head, k_row], v_start + 4 * (entry * v_entry + head * v_head), [v_head, v_row],
                    out.data_ptr() + 4 * ((entry * queries + row) * heads + head) * size, [size, heads * size],
                    threads,
                )  # fmt: skip
    return broken
