"""Rivals in Hugging Face models: their words forward, the softmax's own derivative backward.

The arithmetic is the designs' own (`softermax.rivals`), which runs on tensors as on arrays. Scores are calibrated call by
call, with one scale for all heads and queries: as with any dynamic quantisation, a row depends a little on what
else is in its batch. ConSmax has constants of its own in every attention module, one pair per head:
the first pass sets them so that the mean row adds up to 1, and training goes on from there.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from softermax.models.coverage import attention_modules
from softermax.rivals import Rival
from softermax.rivals.designs.consmax import ConSmax

REACH = 40.0
"""How far below its row's largest score a biased score still counts: e^-40 is nothing to any design."""
PIECE = 1 << 17
"""Elements that a design's steps are taken on at once."""
BETA, GAMMA, FITTED = "consmax_beta", "consmax_gamma", "consmax_fitted"


def rival_probabilities(scores: Tensor, keep: Tensor | None, design: Rival, module: nn.Module) -> Tensor:
    """Probabilities of (batch, heads, queries, keys) scores."""
    mask = torch.ones_like(scores, dtype=torch.bool) if keep is None else keep.expand(scores.shape)
    if isinstance(design, ConSmax):
        return _consmax(scores, mask, design, module)
    with torch.no_grad():
        constant = torch.where(mask, scores.detach(), 0.0).double()
        _require_finite(constant)
        value = _by_design(constant, mask, design, scores.dtype)
    if not (torch.is_grad_enabled() and scores.requires_grad):
        return value
    real = torch.softmax(scores.masked_fill(~mask, torch.finfo(scores.dtype).min), dim=-1)
    return straight_through(real, value)


def _by_design(scores: Tensor, mask: Tensor, design: Rival, kind: torch.dtype) -> Tensor:
    """Rows in pieces that stay in a core's cache, with constants of all of them."""
    fitted = design.calibrated(scores, mask)
    columns = scores.shape[-1]
    rows, keep = scores.reshape(-1, columns), mask.reshape(-1, columns)
    found = torch.empty(rows.shape, dtype=kind, device=rows.device)
    step = max(1, PIECE // max(columns, 1))
    for start in range(0, len(rows), step):
        piece = slice(start, start + step)
        found[piece] = fitted.probabilities(fitted.quantize(rows[piece]), keep[piece]).to(kind)
    return found.reshape(scores.shape)


def within_rivals_reach(scores: Tensor, keep: Tensor | None) -> Tensor:
    """The keys whose biased scores count: a mask of -10000 must not set the scale."""
    masked = scores if keep is None else scores.masked_fill(~keep, -torch.inf)
    near = ~(masked < masked.amax(-1, keepdim=True) - REACH)
    return near if keep is None else keep & near


class _StraightThrough(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, real: Tensor, value: Tensor) -> Tensor:
        return value.clone()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return grad, None


def straight_through(real: Tensor, value: Tensor) -> Tensor:
    """``value`` with the derivative of ``real``."""
    found: Tensor = _StraightThrough.apply(real, value)  # type: ignore[no-untyped-call]
    return found


def add_constants(model: nn.Module, heads: int) -> None:
    """ConSmax's beta and gamma per head, as parameters of every attention module."""
    for module in attention_modules(model):
        if not hasattr(module, BETA):
            like = next((p for p in module.parameters()), torch.zeros(()))
            module.register_parameter(BETA, nn.Parameter(like.new_zeros(heads, dtype=torch.float32)))
            module.register_parameter(GAMMA, nn.Parameter(like.new_ones(heads, dtype=torch.float32)))
            module.register_buffer(FITTED, torch.zeros((), dtype=torch.bool, device=like.device))


def remove_constants(modules: Iterable[nn.Module]) -> None:
    for module in modules:
        if hasattr(module, BETA):
            for name in (BETA, GAMMA, FITTED):
                delattr(module, name)


def _consmax(scores: Tensor, mask: Tensor, design: ConSmax, module: nn.Module) -> Tensor:
    if not hasattr(module, BETA):
        raise ValueError(
            f"{type(module).__name__} has no constants for ConSmax; use enable(model, 'rival:consmax')"
        )
    with torch.no_grad():
        constant = torch.where(mask, scores.detach(), 0.0).double()
        _require_finite(constant)
        if not bool(getattr(module, FITTED)):
            _fit(module, constant, mask)
        beta, gamma = (getattr(module, name).detach().double().tolist() for name in (BETA, GAMMA))
        fitted = design.calibrated(constant, mask)
        raw = fitted.quantize(constant)
        heads = [dataclasses.replace(fitted, beta=b, gamma=g) for b, g in zip(beta, gamma, strict=True)]
        value = torch.stack(
            [head.probabilities(raw[:, n], mask[:, n]) for n, head in enumerate(heads)], dim=1
        ).to(scores.dtype)
    if not torch.is_grad_enabled():
        return value
    exponent = scores - getattr(module, BETA)[:, None, None].to(scores.dtype)
    real = torch.where(mask, torch.exp(exponent), 0.0) / getattr(module, GAMMA)[:, None, None].to(
        scores.dtype
    )
    return straight_through(real, value)


def _fit(module: nn.Module, scores: Tensor, mask: Tensor) -> None:
    """Beta is the mean of the rows' largest scores, gamma the mean of their sums below it, by head."""
    rows = mask.any(-1)
    largest = torch.where(mask, scores, -torch.inf).amax(-1)
    count = rows.sum((0, 2)).clamp(min=1)
    beta = torch.where(rows, largest, 0.0).sum((0, 2)) / count
    sums = torch.where(mask, torch.exp(scores - beta[:, None, None]), 0.0).sum(-1)
    gamma = sums.sum((0, 2)) / count
    getattr(module, BETA).copy_(beta)
    getattr(module, GAMMA).copy_(gamma.clamp(min=1e-6))
    getattr(module, FITTED).fill_(True)


def _require_finite(scores: Tensor) -> None:
    if not bool(torch.isfinite(scores).all()):
        raise ValueError("scores must be finite where they are not masked")
