"""Tensors to the kernels of attention: operands, blocks, and what backward needs."""

from __future__ import annotations

import functools
import math
from typing import Any

import torch
from torch import Tensor

from softermax.gpu import attention, attention_gradient
from softermax.gpu.launch import device_tables, power_of_two_from
from softermax.gpu.plan import (
    attention_refusal,
    input_scale,
    most_warps,
    numbers,
    score_factor,
    slice_width,
    state_shapes,
)
from softermax.spec import AnySpec

QUERIES = 64
KEYS = 64
"""Queries and keys of a block: as many as the registers hold. The next needs more of them per score."""
QUERY_GRADIENT_KEYS = 32
WARPS = 4
KEY_GRADIENT_WARPS = 8


def require_attention(spec: AnySpec, keys: int, size: int) -> None:
    reason = attention_refusal(spec, keys, size)
    if reason is not None:
        raise ValueError(f"the GPU kernels do not compute this attention: {reason}")


@functools.lru_cache(maxsize=64)
def _double(value: float, device: torch.device) -> Tensor:
    """A number in double precision, where a kernel can read it: arguments have single precision."""
    return torch.tensor([value], dtype=torch.float64, device=device)


def block_of(spec: AnySpec, queries: int, size: int, keys: int, **given: Any) -> attention.Block:
    """The block for so many queries and keys, of heads of this size."""
    width = slice_width(spec, keys)
    lanes = power_of_two_from(width)
    queries = min(QUERIES, max(16, power_of_two_from(queries)))
    padded = max(32, power_of_two_from(size))
    most = KEYS
    once = math.frexp(input_scale(spec))[0] == 0.5
    asked = given["mask"] or given["lengths"] or given["causal"]
    if lanes <= most:
        slices = most // lanes
        step = slices * width
        full = not asked and lanes == width and keys % step == 0
        return attention.Block(
            queries, slices, lanes, width, step, size, padded, once=once, full=full, **given
        )
    full = not asked and width % most == 0 and keys % width == 0
    return attention.Block(queries, 1, most, most, width, size, padded, once=once, full=full, **given)


def _scales(spec: AnySpec, scale: float, block: attention.Block) -> tuple[float, float]:
    """What a product of floats is multiplied by to be a score, and that to be an input word; or both at once."""
    return (scale * input_scale(spec), 1.0) if block.once else (scale, input_scale(spec))


def gradient_block(spec: AnySpec, block: attention.Block, keys: int, some: int) -> attention.Block:
    """``some`` keys one after another: what a gradient needs of slices, forward has kept."""
    return block._replace(slices=1, lanes=some, width=slice_width(spec, keys), step=some, keeps=False)


def _operands(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, lengths: Tensor | None, causal: bool,
    scale: float, by: float,
) -> attention.Operands:  # fmt: skip
    batch, heads, queries, _ = q.shape
    keys = k.shape[2]
    q, k, v = q.contiguous(), k.contiguous(), v.contiguous()
    strides = (0, 0, 0, 0)
    if mask is not None:
        mask = mask.expand(batch, heads, queries, keys)
        strides = (mask.stride(0), mask.stride(1), mask.stride(2), mask.stride(3))
    counts = None if lengths is None else lengths.clamp(max=keys).to(torch.int32).contiguous()
    return attention.Operands(
        q, k, v, q if mask is None else mask.view(torch.uint8), q if counts is None else counts,
        queries, keys, heads, heads // k.shape[1], *strides, keys - queries if causal else 0, scale, by,
    )  # fmt: skip


def _grid(block: attention.Block, operands: attention.Operands) -> tuple[int, int]:
    entries = operands.q.shape[0] * operands.heads
    return -(-operands.queries // block.queries), entries


def _has(mask: Tensor | None, lengths: Tensor | None, causal: bool) -> dict[str, bool]:
    return {"mask": mask is not None, "lengths": lengths is not None, "causal": causal}


def int8_attention(
    q: Tensor, k: Tensor, v: Tensor, spec: AnySpec, scale: float, value_scale: float,
    mask: Tensor | None, lengths: Tensor | None, causal: bool,
) -> Tensor:  # fmt: skip
    """Attention of int8 operands, as float32, with the golden model's bits."""
    out = torch.empty(q.shape, dtype=torch.float32, device=q.device)
    if out.numel() == 0:
        return out
    if not k.shape[2]:
        return out.zero_()
    v = v.to(torch.float16)
    operands = _operands(q, k, v, mask, lengths, causal, score_factor(spec, scale), 1.0)
    block = block_of(spec, q.shape[2], q.shape[3], k.shape[2], floats=False, **_has(mask, lengths, causal))
    attention.forward_kernel[_grid(block, operands)](
        operands, out, _double(value_scale, q.device), out, out, device_tables(spec, q.device), numbers(spec),
        block, num_warps=WARPS, enable_fp_fusion=False,
    )  # fmt: skip
    return out


def float_forward(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None,
    spec: AnySpec,
    scale: float,
    causal: bool,
    keeps: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """Attention of floats, and for backward per row three integers, with A8 also a byte per slice."""
    out = torch.zeros_like(q, memory_format=torch.contiguous_format)
    shapes = state_shapes(q.shape, k.shape[2], spec, keeps)
    state, maxima = q.new_zeros(shapes[0], dtype=torch.int32), q.new_zeros(shapes[1], dtype=torch.int8)
    if out.numel() and k.shape[2]:
        block = block_of(
            spec, q.shape[2], q.shape[3], k.shape[2], floats=True, keeps=keeps, **_has(mask, None, causal)
        )
        operands = _operands(q, k, v, mask, None, causal, *_scales(spec, scale, block))
        attention.forward_kernel[_grid(block, operands)](
            operands, out, out, state, maxima, device_tables(spec, q.device), numbers(spec), block, num_warps=WARPS,
            enable_fp_fusion=False,
        )  # fmt: skip
    return out, state, maxima


def float_backward(
    grad: Tensor, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, out: Tensor, state: Tensor, maxima: Tensor,
    spec: AnySpec, scale: float, causal: bool, factor: float,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """The gradients of queries, keys and values."""
    dq, dk, dv = (torch.zeros(x.shape, dtype=x.dtype, device=x.device) for x in (q, k, v))
    if not (q.numel() and k.shape[2]):
        return dq, dk, dv
    grad = grad.contiguous()
    deltas = (grad.float() * out.float()).sum(-1)
    block = block_of(spec, q.shape[2], q.shape[3], k.shape[2], floats=True, **_has(mask, None, causal))
    operands = _operands(q, k, v, mask, None, causal, *_scales(spec, scale, block))
    known = device_tables(spec, q.device)
    rest = deltas, state, maxima, known
    by = factor * scale
    entries = q.shape[0] * q.shape[1]
    attention_gradient.queries_kernel[_grid(block, operands)](
        operands,
        grad,
        *rest,
        dq,
        by,
        numbers(spec),
        gradient_block(spec, block, k.shape[2], QUERY_GRADIENT_KEYS),
        num_warps=WARPS,
        enable_fp_fusion=False,  # a score is rounded before it is rounded to its word, as forward does it
    )
    attention_gradient.keys_kernel[(-(-k.shape[2] // KEYS), entries)](
        operands,
        grad,
        *rest,
        dk,
        dv,
        by,
        numbers(spec),
        gradient_block(spec, block, k.shape[2], KEYS),
        num_warps=min(KEY_GRADIENT_WARPS, most_warps(torch.version.hip is not None)),
        enable_fp_fusion=False,
    )
    return dq, dk, dv
