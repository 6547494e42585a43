"""Attention in int8 with Softermax inside: scores never reach memory.

>>> import torch
>>> q = k = v = torch.eye(4).reshape(1, 1, 4, 4)
>>> attention(q, k, v).shape
torch.Size([1, 1, 4, 4])

The native core computes it where it can; NumPy's golden model does elsewhere, with the same bits.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from softermax.extras import need
from softermax.spec import PRESETS, DeferredSpec, SoftermaxSpec

if not TYPE_CHECKING:
    need("torch", "torch")

import numpy as np
import torch
from torch import Tensor

from softermax.golden import attention as golden_attention
from softermax.kernels.core import ISAS, isa, native
from softermax.kernels.plan import deferred_refusal, native_deferred, native_spec, refusal
from softermax.pytorch.operators import quantize_int8

Spec = SoftermaxSpec | DeferredSpec

MAX_HEAD = 256
MAX_KEYS = 65536
"""Keys whose products with 8-bit weights surely fit the core's accumulators of 32 bits."""
MAX_FACTOR = 256.0
"""Beyond it an integer score could leave the 32-bit range before it is saturated."""

_GOLDEN_ROWS = 64
_specs: dict[str, Spec] = {}


def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    spec: Spec = PRESETS["paper"],
    mask: Tensor | None = None,
    lengths: Tensor | None = None,
    causal: bool = False,
    scale: float | None = None,
) -> Tensor:
    """Attention of float tensors (batch, heads, length, size): each is quantised to int8 as a whole.

    ``scale`` is 1/sqrt(size) unless given. The rest is as for `int8_attention`.
    """
    if any(not isinstance(x, Tensor) or x.dim() != 4 for x in (query, key, value)):
        raise ValueError(
            "query, key and value must be tensors of four dimensions (batch, heads, length, size)"
        )
    if scale is None:
        scale = 1.0 / math.sqrt(max(query.shape[-1], 1))
    (q, q_scale), (k, k_scale), (v, v_scale) = (_quantized(x) for x in (query, key, value))
    return int8_attention(
        q, k, v, q_scale * k_scale * scale, v_scale, spec, mask=mask, lengths=lengths, causal=causal
    )


def int8_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    scale: float,
    value_scale: float = 1.0,
    spec: Spec = PRESETS["paper"],
    mask: Tensor | None = None,
    lengths: Tensor | None = None,
    causal: bool = False,
) -> Tensor:
    """Attention of int8 Q (batch, heads, queries, size) over K and V (batch, kv heads, keys, size), as float32.

    A real score is its integer times ``scale``, a value its integer times ``value_scale``. A
    `SoftermaxSpec` normalises each probability; a `DeferredSpec` once a row (A8). A key takes part where
    ``mask`` (boolean, broadcast to batch, heads, queries, keys) is True, its position is below its
    batch entry of ``lengths``, and, with ``causal``, it is not past the query, the last query standing at
    the last key.
    """
    return torch.ops.softermax.attend(  # type: ignore[no-any-return]
        q, k, v, spec_text(spec), float(scale), float(value_scale), mask, lengths, causal
    )


def attention_refusal(spec: Spec) -> str | None:
    """Why the native core does not compute attention with this spec, or None where it does."""
    return deferred_refusal(spec) if isinstance(spec, DeferredSpec) else refusal(spec)


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
def spec_text(spec: Spec) -> str:
    """The text by which the operator knows a spec; the same for equal specs."""
    if not isinstance(spec, SoftermaxSpec | DeferredSpec):
        raise TypeError(f"spec must be a SoftermaxSpec or a DeferredSpec, got {type(spec).__name__}")
    text = getattr(spec, "_attention_text", None)
    if text is None:
        text = repr(spec)
        object.__setattr__(spec, "_attention_text", text)
    _specs.setdefault(text, spec)
    return str(text)


def _quantized(x: Tensor) -> tuple[Tensor, float]:
    if not x.is_floating_point():
        raise TypeError(
            f"query, key and value must be float tensors, got {x.dtype}; int8_attention takes int8"
        )
    if isa() is not None:
        return quantize_int8(x.float())
    x = x.detach().float()
    largest = float(x.abs().max()) if x.numel() else 0.0
    if not math.isfinite(largest):
        raise ValueError("query, key and value must be finite, found NaN or infinity")
    scale = largest / 127.0 or 1.0
    return (x * (1.0 / scale)).clamp(-127, 127).round().to(torch.int8), scale


def _check(
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
    if mask is not None:
        whole = (batch, heads, rows, k.shape[2])
        if mask.dtype != torch.bool:
            raise TypeError(f"mask must be boolean, True where a key takes part, got {mask.dtype}")
        sizes = zip(reversed(mask.shape), reversed(whole), strict=False)
        if mask.dim() > 4 or any(m not in (1, n) for m, n in sizes):
            raise ValueError(f"mask of shape {tuple(mask.shape)} does not broadcast to the scores' {whole}")
    if lengths is not None:
        if lengths.is_floating_point() or lengths.dtype == torch.bool:
            raise TypeError(f"lengths must be integers, got {lengths.dtype}")
        if lengths.shape != (batch,):
            raise ValueError(
                f"lengths must have shape ({batch},), one a batch entry, got {tuple(lengths.shape)}"
            )
        if lengths.numel() and int(lengths.min()) < 0:
            raise ValueError(f"lengths must be 0 or more, got {int(lengths.min())}")


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
    _check(q, k, v, scale, value_scale, mask, lengths)
    if spec not in _specs:
        raise ValueError(f"unknown spec text {spec!r}: attention.spec_text(spec) makes it")
    known = _specs[spec]
    scores = known.scores if isinstance(known, DeferredSpec) else known
    batch, heads, rows, size = q.shape
    columns = k.shape[2]
    out = torch.empty(q.shape, dtype=torch.float32)
    if out.numel() == 0:
        return out
    factor = float(np.float32(scale * scores.input_scale))
    path = isa()
    if (
        path is None
        or attention_refusal(known) is not None
        or size > MAX_HEAD
        or columns > MAX_KEYS
        or abs(factor) > MAX_FACTOR
    ):
        _golden(q, k, v, known, scale, value_scale, mask, lengths, causal, out)
        return out
    q, k, v = (x if x.stride(3) == 1 or size == 1 else x.contiguous() for x in (q, k, v))
    keep = None if mask is None else mask.expand(batch, heads, rows, columns)
    if keep is not None and keep.stride(3) != 1 and columns > 1:
        keep = keep.contiguous()
    counts = None if lengths is None else lengths.clamp(max=columns).to(torch.int32).contiguous()
    native.attend(
        native_spec(scores), native_deferred(known) if isinstance(known, DeferredSpec) else None,
        [batch, heads, k.shape[1], rows, columns, size],
        q.data_ptr(), list(q.stride()[:3]), k.data_ptr(), list(k.stride()[:3]), v.data_ptr(), list(v.stride()[:3]),
        out.data_ptr(), factor, value_scale,
        0 if keep is None else keep.data_ptr(), [0, 0, 0] if keep is None else list(keep.stride()[:3]),
        0 if counts is None else counts.data_ptr(), causal, ISAS[path], torch.get_num_threads(),
    )  # fmt: skip
    return out


def _golden(
    q: Tensor, k: Tensor, v: Tensor, spec: Spec, scale: float, value_scale: float,
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
