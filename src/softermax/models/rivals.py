"""Rivals in Hugging Face models: their words forward, the softmax's own derivative backward.

The arithmetic is the designs' own (`softermax.rivals`), which runs on tensors as on arrays. Scores are calibrated call by
call, with one scale for all heads and queries: as with any dynamic quantisation, a row depends a little on what
else is in its batch. ConSmax has constants of its own in every attention module, one pair per head:
the first pass sets them as near to the softmax of its rows as constants can be, and training goes on from there.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from softermax.models.coverage import attention_modules
from softermax.rivals import Rival
from softermax.rivals.designs.consmax import ConSmax, nearest_beta

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
        constant = torch.where(mask, scores.detach(), 0.0)
        _require_finite(constant)
        value = _by_design(constant, mask, design)
    if not (torch.is_grad_enabled() and scores.requires_grad):
        return value
    real = torch.softmax(scores.masked_fill(~mask, torch.finfo(scores.dtype).min), dim=-1)
    return straight_through(real, value)


def _by_design(scores: Tensor, mask: Tensor, design: Rival) -> Tensor:
    """Rows in pieces, with constants of all of them. Keys after the last that any row of a piece sees change no word."""
    fitted = design.calibrated(scores, mask)
    columns = scores.shape[-1]
    rows, keep = scores.reshape(-1, columns), mask.reshape(-1, columns)
    found = torch.zeros_like(rows)
    step = max(1, PIECE // max(columns, 1))
    for start in range(0, len(rows), step):
        piece = slice(start, start + step)
        seen = keep[piece].any(0).nonzero()
        last = int(seen[-1]) + 1 if len(seen) else 0
        if last:
            raw = fitted.quantize(rows[piece, :last])
            found[piece, :last] = fitted.probabilities(raw, keep[piece, :last]).to(found.dtype)
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


def betas_of(model: nn.Module) -> list[nn.Parameter]:
    """ConSmax's betas; none of a model that it is not in."""
    return [parameter for name, parameter in model.named_parameters() if name.endswith(f".{BETA}")]


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
        constant = torch.where(mask, scores.detach(), 0.0)
        _require_finite(constant)
        if not bool(getattr(module, FITTED)):
            _fit(module, constant, mask)
        beta, gamma = (getattr(module, name).detach().double().tolist() for name in (BETA, GAMMA))
        fitted = dataclasses.replace(design, scale=Rival.calibrated(design, constant, mask).scale)
        value = torch.stack(
            [
                _by_design(constant[:, n], mask[:, n], dataclasses.replace(fitted, beta=b, gamma=g))
                for n, (b, g) in enumerate(zip(beta, gamma, strict=True))
            ],
            dim=1,
        )
    if not torch.is_grad_enabled():
        return value
    beta_, gamma_ = (getattr(module, name)[:, None, None].to(scores.dtype) for name in (BETA, GAMMA))
    # Where the words saturate nothing is learned.
    real = torch.exp((scores - beta_ - gamma_.log()).clamp(max=0.0))
    return straight_through(torch.where(mask, real, 0.0), value)


def _fit(module: nn.Module, scores: Tensor, mask: Tensor) -> None:
    """By head: the beta that is nearest to the softmax of these rows, and a gamma of 1."""
    nearest = [nearest_beta(scores[:, head], mask[:, head]) for head in range(scores.shape[1])]
    getattr(module, BETA).copy_(torch.tensor(nearest))
    getattr(module, GAMMA).fill_(1.0)
    getattr(module, FITTED).fill_(True)


def _require_finite(scores: Tensor) -> None:
    if not bool(torch.isfinite(scores).all()):
        raise ValueError("scores must be finite where they are not masked")
