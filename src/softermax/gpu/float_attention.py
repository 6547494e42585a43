"""Attention of float tensors in one kernel, with a gradient: for training, where neither scores nor probabilities are kept.

Words are those of `softermax.functional.softermax` on the same scores. The scores themselves are sums that a GPU adds in its own
order, in single precision; PyTorch's own path rounds them to the operands' type first.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from softermax.gpu.plan import attention_refusal, gradient_refusal, refusal, require, state_shapes
from softermax.pytorch.gradient import factor
from softermax.pytorch.inputs import check_mask
from softermax.pytorch.operators import FLOATS
from softermax.pytorch.registry import spec_of, spec_text
from softermax.spec import AnySpec

_library: torch.library.Library | None = None
_keys: set[str] = set()


def takes(query: Tensor, key: Tensor, spec: AnySpec) -> bool:
    """Whether the kernels compute attention of such tensors, and its gradient, here."""
    here = {"cpu": "CPU", "cuda": "CUDA"}.get(query.device.type) in _keys
    return here and query.dtype in FLOATS and _takes_spec(spec, key.shape[2], query.shape[3])


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
def _takes_spec(spec: AnySpec, keys: int, size: int) -> bool:
    return not (refusal(spec) or attention_refusal(spec, keys, size) or gradient_refusal(spec))


def float_attention(
    query: Tensor, key: Tensor, value: Tensor, spec: AnySpec, scale: float, mask: Tensor | None = None,
    causal: bool = False,
) -> Tensor:  # fmt: skip
    """Attention of (batch, heads, length, size), as many heads in each, all of one type, where `takes` says so.

    ``mask`` is boolean, True where a key takes part, and expands to (batch, heads, queries, keys). A query that has a NaN or
    infinity among its scores comes out as NaN.
    """
    kept = torch.is_grad_enabled() and (query.requires_grad or key.requires_grad or value.requires_grad)
    answer = torch.ops.softermax.attend_floats(query, key, value, mask, spec_text(spec), scale, causal, kept)
    return answer[0]  # type: ignore[no-any-return]


def _forward(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, spec: str, scale: float, causal: bool, keeps: bool
) -> tuple[Tensor, Tensor, Tensor]:
    from softermax.gpu import launch_attention

    for name, x in (("query", q), ("key", k), ("value", v)):
        if x.dtype != q.dtype or x.dtype not in FLOATS or x.dim() != 4:
            kinds = ", ".join(str(kind) for kind in FLOATS)
            raise TypeError(
                f"{name} must have four dimensions and the query's type, one of {kinds}; got {x.dtype} of {x.dim()}"
            )
    if k.shape != v.shape or k.shape[:2] != q.shape[:2] or k.shape[3] != q.shape[3]:
        raise ValueError(
            f"query {tuple(q.shape)}, key {tuple(k.shape)} and value {tuple(v.shape)} do not fit: batch, heads and size "
            "are the same"
        )
    check_mask(mask, (*q.shape[:3], k.shape[2]), q.device)
    known = spec_of(spec)
    require(known)
    launch_attention.require_attention(known, k.shape[2], q.shape[3])
    reason = gradient_refusal(known) if keeps else None
    if reason is not None:
        raise ValueError(f"the GPU kernels do not compute this gradient: {reason}")
    return launch_attention.float_forward(q, k, v, mask, known, scale, causal, keeps)


def _forward_fake(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, spec: str, scale: float, causal: bool, keeps: bool
) -> tuple[Tensor, Tensor, Tensor]:
    state, maxima = state_shapes(q.shape, k.shape[2], spec_of(spec), keeps)
    out = q.new_empty(q.shape)
    return out, q.new_empty(state, dtype=torch.int32), q.new_empty(maxima, dtype=torch.int8)


def _backward(
    grad: Tensor, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, out: Tensor, state: Tensor, maxima: Tensor,
    spec: str, scale: float, causal: bool,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    from softermax.gpu import launch_attention

    known = spec_of(spec)
    return launch_attention.float_backward(
        grad, q, k, v, mask, out, state, maxima, known, scale, causal, factor(known)
    )


def _backward_fake(grad: Tensor, q: Tensor, k: Tensor, v: Tensor, *_: Any) -> tuple[Tensor, Tensor, Tensor]:
    return q.new_empty(q.shape), k.new_empty(k.shape), v.new_empty(v.shape)


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    q, k, v, mask, spec, scale, causal, _ = inputs
    ctx.save_for_backward(q, k, v, mask, *output)
    ctx.rest = spec, scale, causal
    ctx.set_materialize_grads(False)


def _gradient(ctx: Any, grad: Tensor | None, *_: Any) -> tuple[Tensor | None, ...]:
    nothing = (None,) * 5
    if grad is None:
        return (None, None, None, *nothing)
    q, k, v, mask, out, state, maxima = ctx.saved_tensors
    answer = torch.ops.softermax.attend_floats_backward(grad, q, k, v, mask, out, state, maxima, *ctx.rest)
    return (*answer, *nothing)


def _refuse(ctx: Any, *grads: Tensor) -> None:
    raise RuntimeError(
        "the gradient of fused attention has no derivative of its own; softermax.functional.softermax has one"
    )


def register_for(key: str) -> None:
    """Register the operators, with kernels for a dispatch key."""
    global _library
    if _library is None:
        _library = torch.library.Library("softermax", "FRAGMENT")
        _library.define(
            "attend_floats(Tensor q, Tensor k, Tensor v, Tensor? mask, str spec, float scale, bool causal, bool keeps) "
            "-> (Tensor, Tensor, Tensor)"
        )
        _library.define(
            "attend_floats_backward(Tensor grad, Tensor q, Tensor k, Tensor v, Tensor? mask, Tensor out, Tensor state, "
            "Tensor maxima, str spec, float scale, bool causal) -> (Tensor, Tensor, Tensor)"
        )
        torch.library.register_fake("softermax::attend_floats", _forward_fake, lib=_library)
        torch.library.register_fake("softermax::attend_floats_backward", _backward_fake, lib=_library)
        torch.library.register_autograd(
            "softermax::attend_floats", _gradient, setup_context=_save, lib=_library
        )
        torch.library.register_autograd("softermax::attend_floats_backward", _refuse, lib=_library)
    if key not in _keys:
        _library.impl("attend_floats", _forward, key)
        _library.impl("attend_floats_backward", _backward, key)
        _keys.add(key)
