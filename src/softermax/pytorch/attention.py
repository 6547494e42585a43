"""Attention in int8 with Softermax inside: scores never reach memory.

>>> import torch
>>> q = k = v = torch.eye(4).reshape(1, 1, 4, 4)
>>> attention(q, k, v).shape
torch.Size([1, 1, 4, 4])

The native core computes it where it can, on a GPU the Triton kernels do; NumPy's golden model does elsewhere, with the
same bits.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from softermax.extras import need
from softermax.spec import PRESETS, AnySpec

if not TYPE_CHECKING:
    need("torch", "torch")

import torch
from torch import Tensor

from softermax.golden import attention as golden_attention
from softermax.kernels import attention as fused
from softermax.kernels.core import isa
from softermax.kernels.plan import attention_refusal
from softermax.pytorch.inputs import check_lengths, check_mask
from softermax.pytorch.operators import quantize_int8
from softermax.pytorch.registry import spec_of, spec_text

_GOLDEN_ROWS = 64


def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    spec: AnySpec = PRESETS["paper"],
    mask: Tensor | None = None,
    lengths: Tensor | None = None,
    causal: bool = False,
    scale: float | None = None,
) -> Tensor:
    """Attention of float tensors (batch, heads, length, size): each is quantised to int8 as a whole.

    ``scale`` is 1/sqrt(size) unless given. The rest is as for `int8_attention`. It has no gradient.
    """
    if any(not isinstance(x, Tensor) or x.dim() != 4 for x in (query, key, value)):
        raise ValueError(
            "query, key and value must be tensors of four dimensions (batch, heads, length, size)"
        )
    if scale is None:
        scale = 1.0 / math.sqrt(max(query.shape[-1], 1))
    (q, q_scale), (k, k_scale), (v, v_scale) = (quantize_int8(x) for x in (query, key, value))
    return int8_attention(
        q, k, v, q_scale * k_scale * scale, v_scale, spec, mask=mask, lengths=lengths, causal=causal
    )


def int8_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    scale: float,
    value_scale: float = 1.0,
    spec: AnySpec = PRESETS["paper"],
    mask: Tensor | None = None,
    lengths: Tensor | None = None,
    causal: bool = False,
) -> Tensor:
    """Attention of int8 Q (batch, heads, queries, size) over K and V (batch, kv heads, keys, size), as float32.

    A real score is its integer times ``scale``, a value its integer times ``value_scale``. A
    `SoftermaxSpec` normalises each probability; a `DeferredSpec` once per row (A8). A key takes part where
    ``mask`` (boolean, broadcast to batch, heads, queries, keys) is True, its position is below its
    batch entry of ``lengths``, and, with ``causal``, it is not past the query, the last query standing at
    the last key.
    """
    return torch.ops.softermax.attend(  # type: ignore[no-any-return]
        q, k, v, spec_text(spec), float(scale), float(value_scale), mask, lengths, causal
    )


def check_operands(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    scale: float,
    value_scale: float,
    mask: Tensor | None,
    lengths: Tensor | None,
) -> None:
    for name, x in (("q", q), ("k", k), ("v", v)):
        if x.dtype != torch.int8 or x.dim() != 4:
            raise TypeError(
                f"{name} must be int8 of four dimensions (batch, heads, length, size), got {x.dtype} of {x.dim()}"
            )
    batch, heads, rows, size = q.shape
    if (
        k.shape != v.shape
        or k.shape[0] != batch
        or k.shape[3] != size
        or not k.shape[1]
        or heads % k.shape[1]
    ):
        raise ValueError(
            f"q {tuple(q.shape)}, k {tuple(k.shape)} and v {tuple(v.shape)} do not fit: batch and size are the "
            "same, heads a multiple of the kv heads"
        )
    for name, number in (("scale", scale), ("value_scale", value_scale)):
        if not math.isfinite(number):
            raise ValueError(f"{name} = {number}: must be finite")
    check_mask(mask, (batch, heads, rows, k.shape[2]), q.device)
    check_lengths(lengths)
    if lengths is not None and lengths.shape != (batch,):
        raise ValueError(
            f"lengths must have shape ({batch},), one per batch entry, got {tuple(lengths.shape)}"
        )


def _attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    spec: str,
    scale: float,
    value_scale: float,
    mask: Tensor | None,
    lengths: Tensor | None,
    causal: bool,
) -> Tensor:
    check_operands(q, k, v, scale, value_scale, mask, lengths)
    known = spec_of(spec)
    if isa() is None or attention_refusal(known, k.shape[2], q.shape[3], scale) is not None:
        out = torch.empty(q.shape, dtype=torch.float32)
        if out.numel():
            _golden(q, k, v, known, scale, value_scale, mask, lengths, causal, out)
        return out
    keep, counts = (None if x is None else x.numpy() for x in (mask, lengths))
    return torch.from_numpy(
        fused.int8_attention(
            q.numpy(), k.numpy(), v.numpy(), known, scale, value_scale, keep, counts, causal,
            threads=torch.get_num_threads(),
        )
    )  # fmt: skip


def _golden(
    q: Tensor, k: Tensor, v: Tensor, spec: AnySpec, scale: float, value_scale: float,
    mask: Tensor | None, lengths: Tensor | None, causal: bool, out: Tensor,
) -> None:  # fmt: skip
    """A few queries at a time, so that memory stays in proportion to the keys."""
    rows, columns = q.shape[2], k.shape[2]
    positions = torch.arange(columns)
    for start in range(0, rows, _GOLDEN_ROWS):
        some = slice(start, min(start + _GOLDEN_ROWS, rows))
        keep = torch.ones(1, 1, some.stop - start, columns, dtype=torch.bool)
        if causal:
            keep = keep & (positions <= torch.arange(start, some.stop)[:, None] + columns - rows)
        if mask is not None:
            whole = mask.reshape((1,) * (4 - mask.dim()) + tuple(mask.shape))
            keep = keep & (whole if whole.shape[2] == 1 else whole[:, :, some])
        if lengths is not None:
            keep = keep & (positions < lengths[:, None])[:, None, None]
        got = golden_attention.attention(
            q[:, :, some].numpy(), k.numpy(), v.numpy(), spec, scale, value_scale, mask=keep.numpy()
        )
        out[:, :, some] = torch.from_numpy(got.value)


def _attend_fake(q: Tensor, *_: Any) -> Tensor:
    return q.new_empty(q.shape, dtype=torch.float32)


_library = torch.library.Library("softermax", "FRAGMENT")
_library.define(
    "attend(Tensor q, Tensor k, Tensor v, str spec, float scale, float value_scale, Tensor? mask, "
    "Tensor? lengths, bool causal) -> Tensor"
)
_library.impl("attend", _attend, "CPU")
torch.library.register_fake("softermax::attend", _attend_fake, lib=_library)
