"""Attention of float tensors with Softermax, for inference: scores live in the cache, a few heads at a time.

Scores are PyTorch's own products of Q and K, so they and their words are those of the path with gradients, bit for bit.
The core takes them from there: factor, words, and words times V, whose sums it adds in its own order, so that outputs
differ from that path's by how floats round.
"""

from __future__ import annotations

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


def float_attention(
    query: Tensor, key: Tensor, value: Tensor, spec: SoftermaxSpec, scale: float, mask: Tensor | None = None
) -> Tensor:
    """Attention of float32 (batch, heads, length, size) on a CPU, as (batch, queries, heads, size). It has no gradient.

    ``mask`` is boolean, True where a key takes part, and expands to (batch, heads, queries, keys).
    """
    # In a small layer all of this takes as long as a tenth of the work: nothing is asked twice.
    for name, x in (("query", query), ("key", key), ("value", value)):
        if x.dtype is not torch.float32 or x.dim() != 4 or not x.is_cpu:
            raise TypeError(
                f"{name} must be float32 of four dimensions on a CPU, got {x.dtype} of {x.dim()} on {x.device}"
            )
    batch, heads, queries, _ = query.shape
    _, _, keys, size = value.shape
    if mask is not None:
        check_mask(mask, (batch, heads, queries, keys), query.device)
    out = torch.empty(batch, queries, heads, size)
    if not (batch and heads and queries and size):
        return out
    if not keys:
        return out.zero_()
    if value.stride(3) != 1:
        value = value.contiguous()
    keep = None if mask is None else mask.expand(batch, heads, queries, keys)
    if keep is not None and keep.stride(3) != 1:
        keep = keep.contiguous()
    threads = torch.get_num_threads()
    some = min(heads, max(1, threads * CHUNK // (queries * keys)))
    rows = queries if some > 1 else max(1, min(queries, 4 * CHUNK // keys))
    scores = None if some == heads and rows == queries else torch.empty(some * rows * keys)
    core, path = native_spec(spec).address, path_number(None)
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
                broken = native.weigh(
                    core, path, [count, span, keys, size], chunk.data_ptr(), scale,
                    0 if keep is None else keep.data_ptr() + entry * k_entry + head * k_head + row * k_row,
                    [k_head, k_row], v_start + 4 * (entry * v_entry + head * v_head), [v_head, v_row],
                    out.data_ptr() + 4 * ((entry * queries + row) * heads + head) * size, [size, heads * size],
                    threads,
                )  # fmt: skip
                if broken:
                    raise ValueError(
                        "scores must be finite where they are not masked, found NaN or infinity; use mask= to leave "
                        "a key out"
                    )
    return out
