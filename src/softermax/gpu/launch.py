"""Tensors to kernels: shapes, strides and blocks. Every function here takes tensors of any device that Triton runs on."""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import Tensor

from softermax.gpu import rows
from softermax.gpu.interpreter import interpreted
from softermax.gpu.plan import input_scale, most_warps, numbers, slice_width, tables
from softermax.spec import AnySpec, SoftermaxSpec

RESIDENT = 16384
"""Elements of the longest row that stays in registers."""
BLOCK = 1024
"""Elements of a program's block, where rows are shorter than that; of a sweep's step where they do not stay."""
_INTERPRETED_BLOCK = 1 << 15
"""In the interpreter a program costs as much as thousands of elements."""


def power_of_two_from(n: int) -> int:
    """The least power of two that is ``n`` or more."""
    return 1 << max(n - 1, 0).bit_length()


def power_of_two_to(n: int) -> int:
    """The largest power of two that is ``n`` or less, 0 for 0."""
    return 1 << n.bit_length() >> 1


@functools.lru_cache(maxsize=256)
def device_tables(spec: AnySpec, device: torch.device) -> Tensor:
    return torch.from_numpy(tables(spec)).to(device)


def row_tile(spec: AnySpec, row_count: int, columns: int) -> rows.Tile:
    """The block for rows of so many columns."""
    width = slice_width(spec, columns)
    lanes = power_of_two_from(width)
    slices = power_of_two_from(-(-columns // width))
    block = _INTERPRETED_BLOCK if interpreted() else BLOCK
    if lanes * slices <= RESIDENT:
        first = slices // 2
        rest = power_of_two_from(max(-(-columns // width) - first, 1))
        if slices < 4 or rest == first:
            first, rest = slices, 0
        size = lanes * (first + rest)
        some = max(1, min(power_of_two_to(block // size), power_of_two_from(row_count)))
        return rows.Tile(some, first, lanes, width, columns, True, size == columns, rest)
    if lanes <= BLOCK:
        slices = BLOCK // lanes
        return rows.Tile(1, slices, lanes, width, slices * width, False)
    return rows.Tile(1, 1, BLOCK, BLOCK, width, False)


def gradient_tile(row_count: int, columns: int) -> rows.Tile:
    """The block for the gradient, which knows no slices."""
    lanes = power_of_two_from(columns)
    resident = lanes <= RESIDENT
    lanes = lanes if resident else BLOCK
    block = _INTERPRETED_BLOCK if interpreted() else BLOCK
    some = max(1, min(block // lanes, power_of_two_from(row_count)))
    return rows.Tile(some, 1, lanes, lanes, lanes, resident)


def warps(tile: rows.Tile) -> int:
    """A row within one warp needs no exchange through memory; a longer one has 32 elements per thread."""
    lanes = tile.rows * (tile.slices + tile.rest) * tile.lanes
    return max(1, min(most_warps(torch.version.hip is not None), power_of_two_to(lanes // BLOCK)))


def _batch(x: Tensor, mask: Tensor | None, lengths: Tensor | None, causal: bool, scale: float) -> rows.Batch:
    """Rows and what takes part of them; the mask as it is, however it broadcasts."""
    lead = x.shape[:-1]
    columns = x.shape[-1]
    per_head = lead[-1] if lead else 1
    heads = lead[-2] if len(lead) > 1 else 1
    strides = (0, 0, 0, 0)
    if mask is not None:
        mask = mask.expand(x.shape).reshape(-1, heads, per_head, columns)
        strides = (mask.stride(0), mask.stride(1), mask.stride(2), mask.stride(3))
    counts = None
    if lengths is not None:
        counts = lengths.clamp(max=columns).to(torch.int32).expand(lead).contiguous()
    x = x.contiguous()
    return rows.Batch(
        x, x if mask is None else mask.view(torch.uint8), x if counts is None else counts,
        x.numel() // columns, columns, heads * per_head, per_head, *strides,
        columns - per_head if causal else 0, scale,
    )  # fmt: skip


def _run(
    batch: rows.Batch, spec: SoftermaxSpec, has: rows.Has, out: Any, kept: Any, marks: Any, exponents: Any
) -> None:
    tile = row_tile(spec, batch.rows, batch.columns)
    grid = (-(-batch.rows // tile.rows),)
    known = device_tables(spec, batch.scores.device)
    rows.forward_kernel[grid](
        batch, out, kept, marks, exponents, known, numbers(spec), has, tile, num_warps=warps(tile),
        enable_fp_fusion=False,
    )  # fmt: skip


def forward(
    x: Tensor,
    mask: Tensor | None,
    spec: SoftermaxSpec,
    words: Tensor | None,
    marks: Tensor | None,
    exponent: Tensor,
) -> Tensor:
    """Float scores to probabilities of the same type; what training keeps goes where it is wanted."""
    y = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    if x.numel() == 0:
        return y
    batch = _batch(x, mask, None, False, input_scale(spec))
    has = rows.Has(
        mask=mask is not None,
        words=words is not None,
        marks=marks is not None,
        exponents=exponent.numel() > 0,
    )
    _run(batch, spec, has, y, y if words is None else words, y if marks is None else marks, exponent)
    return y


def word_rows(
    raw: Tensor, spec: SoftermaxSpec, mask: Tensor | None, lengths: Tensor | None, causal: bool
) -> tuple[Tensor, Tensor]:
    """Integers that hold input words to output words, bytes if they fit, and the rows' exponents."""
    words = raw.new_empty(raw.shape, dtype=torch.uint8 if spec.output.bits <= 8 else torch.int32)
    exponent = torch.zeros(raw.shape[:-1], dtype=torch.int32, device=raw.device)
    if raw.numel():
        batch = _batch(raw, mask, lengths, causal, 1.0)
        has = rows.Has(False, mask is not None, lengths is not None, causal, words=True, exponents=True)
        _run(batch, spec, has, words, words, words, exponent)
    return words, exponent


def backward(
    grad: Tensor, words: Tensor, marks: Tensor, exponent: Tensor, spec: SoftermaxSpec, factor: float
) -> Tensor:
    """The gradient of the scores from that of the probabilities and what training keeps."""
    grad = grad.contiguous()
    dx = torch.empty_like(grad)
    if grad.numel() == 0:
        return dx
    columns = grad.shape[-1]
    count = grad.numel() // columns
    tile = gradient_tile(count, columns)
    rows.backward_kernel[(-(-count // tile.rows),)](
        grad, words, marks, exponent, dx, count, columns, factor, spec.output.lsb, exponent.numel() > 0, tile,
        num_warps=warps(tile),
    )  # fmt: skip
    return dx
