"""The straight-through gradient: words forward, the real derivative backward.

Two forms of it. *Fused* treats the whole operator as one step with the composed derivative,
``dy = ln2 * y * (dx - sum y*dx)``; *composed* chains the paper's steps, each with its own. In both a score that
saturated counts as a constant. Derivatives of any order and in either direction follow the same rule: that of a
gradient treats ``y`` in it as what the rule says, a function of the scores.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, Literal

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.autograd.forward_ad import unpack_dual

from softermax.pytorch import deferred, words
from softermax.pytorch.inputs import checked_finite
from softermax.spec import LOG2E, AnySpec, DeferredSpec, SoftermaxSpec

Gradient = Literal["fused", "composed"]
_BLOCK = 2**19
"""Scores whose probabilities PyTorch computes together on a CPU."""


def fold(spec: AnySpec) -> float:
    """What a float score is multiplied by to be an exponent of two (A9)."""
    return LOG2E if spec.base == "fold" else 1.0


def factor(spec: AnySpec) -> float:
    """d(2^x)/dx over 2^x, for a float score x."""
    return math.log(2.0) * fold(spec)


def pulled(grad: Tensor, y: Tensor, saturated: Tensor, by: float) -> Tensor:
    """The gradient of the scores from that of the probabilities."""
    centred = grad - (grad * y).sum(-1, keepdim=True)
    return by * torch.where(saturated, 0.0, y) * centred


def flowing(y: Tensor, saturated: Tensor, x: Tensor, spec: AnySpec) -> Tensor:
    """``y`` as a function of the scores ``x``, whose derivatives of every order are those of the rule.

    It solves the rule as a differential equation: when the exponents change by c, ``y`` becomes
    y * 2^c / (1 + sum y*(2^c - 1)). Here c is 0, and only its derivative is not. Where ``y`` adds up to 1, that is
    the softmax.
    """
    exponent = torch.where(saturated, 0.0, x).to(y.dtype) * fold(spec)
    power = torch.exp2(exponent - exponent.detach())
    return y * power / (1 + (y * (power - 1)).sum(-1, keepdim=True))


def any_transformed(tensors: Iterable[Tensor]) -> bool:
    """Whether one of several is `transformed`; where nothing of the kind is at work, none is asked."""
    if not torch._C._are_functorch_transforms_active() and forward_ad._current_level < 0:
        return False
    return any(transformed(x) for x in tensors)


def transformed(x: Tensor) -> bool:
    """Whether ``torch.func`` or forward-mode differentiation is at work on a tensor."""
    # PyTorch has no public name for what its own autograd.Function asks here.
    if torch._C._are_functorch_transforms_active():
        return True
    return not torch.compiler.is_compiling() and unpack_dual(x).tangent is not None


def probabilities(x: Tensor, keep: Tensor | None, spec: AnySpec) -> Tensor:
    """Probabilities of rows along the last axis, computed by PyTorch, without a gradient.

    On a CPU many rows are computed a few at a time: no row knows of another, and the words on the way to the
    probabilities, of which there are more than scores, then stay in the caches.
    """
    if x.device.type != "cpu" or torch.compiler.is_compiling() or transformed(x):
        return _at_once(x, keep, spec)
    axis = next((axis for axis in range(-x.dim(), -1) if x.shape[axis] > 1), -1)
    if axis == -1 or x.numel() <= _BLOCK:
        return _at_once(x, keep, spec)
    found = torch.empty_like(x)
    step = max(1, _BLOCK * x.shape[axis] // x.numel())
    for part, block in enumerate(x.split(step, axis)):
        place = axis, part * step, block.shape[axis]
        own = keep if keep is None or keep.dim() < -axis or keep.shape[axis] == 1 else keep.narrow(*place)
        found.narrow(*place).copy_(probabilities(block, own, spec))
    return found


def _at_once(x: Tensor, keep: Tensor | None, spec: AnySpec) -> Tensor:
    if isinstance(spec, DeferredSpec):
        return deferred.probabilities(x, keep, spec)
    return words.probabilities(x, keep, spec)


def fused(x: Tensor, keep: Tensor | None, spec: AnySpec) -> Tensor:
    """Probabilities of rows along the last axis, with the fused gradient."""
    if transformed(x):
        constant = x.detach()
        y = probabilities(constant, keep, spec)
        saturated = words.saturates(constant, words.scores_of(spec))
        return flowing(y.to(_at_least_single(x.dtype)), saturated, x, spec).to(x.dtype)
    if torch.compiler.is_compiling() or (torch.is_grad_enabled() and x.requires_grad):
        return _Fused.apply(x, keep, spec)[0]  # type: ignore[no-any-return, no-untyped-call]
    return probabilities(x, keep, spec)


class _Fused(torch.autograd.Function):
    """Backward from the output: beside it, where scores saturated is all that is kept."""

    @staticmethod
    def forward(x: Tensor, keep: Tensor | None, spec: AnySpec) -> tuple[Tensor, Tensor]:
        return probabilities(x, keep, spec), words.saturates(x, words.scores_of(spec))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        ctx.save_for_backward(*output)
        ctx.mark_non_differentiable(output[1])
        ctx.set_materialize_grads(False)
        ctx.factor = factor(inputs[2])

    @staticmethod
    def backward(ctx: Any, grad: Tensor | None, _: None) -> tuple[Tensor | None, None, None]:
        if grad is None:
            return None, None, None
        y, saturated = ctx.saved_tensors
        return pulled(grad, y.to(_at_least_single(y.dtype)), saturated, ctx.factor).to(y.dtype), None, None


def _at_least_single(dtype: torch.dtype) -> torch.dtype:
    return dtype if dtype == torch.float64 else torch.float32


def composed(x: Tensor, keep: Tensor | None, spec: AnySpec) -> Tensor:
    """Probabilities of rows along the last axis, with the composed gradient.

    Values are real numbers in float64, which holds every word exactly.
    """
    checked = checked_finite(x)
    scores = words.scores_of(spec)
    constant = x.detach()
    raw = words.quantize(constant, scores)
    saturated = words.saturates(constant, scores)
    score = _straight_through(
        raw.double() * scores.input.lsb, torch.where(saturated, 0.0, x).to(torch.float64) * fold(spec)
    )

    lanes = words.sliced(raw, keep, scores)
    maximum = words.running_max(lanes, scores)
    u = words.power_of_two(lanes, maximum.unsqueeze(-1), scores)
    unnormed = _power_of_two(score, u.double() * scores.unnormed.lsb)

    # Every shift is straight through: a product with a power of two. The max is a constant, for the result
    # does not depend on it.
    renormed = torch.exp2((maximum - maximum[..., -1:]).double()).unsqueeze(-1)
    if isinstance(spec, DeferredSpec):
        w = deferred.weights(u, spec)
        numerator = _straight_through(w.double() * spec.weight.lsb, unnormed) * renormed
        d = deferred.powsum(w, maximum, spec)
    else:
        n = words.numerator(lanes, u, maximum, spec)
        numerator = _straight_through(n.double() * spec.unnormed.lsb, unnormed * renormed)
        d = words.powsum(u, maximum, spec)
    powsum = _straight_through(d.double() * spec.powsum.lsb, numerator.sum((-1, -2)))

    leading_one, r = words.reciprocal(d, spec)
    exponent = words.PYTORCH.power(spec.powsum.fraction - leading_one, torch.float64)
    empty = powsum == 0
    inverse = torch.where(empty, 0.0, 1.0 / torch.where(empty, 1.0, powsum))
    inverse = _straight_through(r.double() * spec.reciprocal.lsb * exponent, inverse)

    y = words.joined(numerator * inverse[..., None, None], x.shape[-1])
    if isinstance(spec, SoftermaxSpec):
        word = words.joined(words.outputs(lanes, u, maximum, leading_one, r, spec), x.shape[-1])
        y = _straight_through(word.double() * words.scale(leading_one, spec), y)
    return y.to(x.dtype) if checked else words.spoiled(y, x)


def _straight_through(value: Tensor, real: Tensor) -> Tensor:
    """``value`` with the derivative of ``real``."""
    return value + (real - real.detach())


def _power_of_two(score: Tensor, value: Tensor) -> Tensor:
    """``value``, of the shape of slices, with the derivative of 2^score times that value: du = ln2 * u * dx."""
    moved = score - score.detach()
    padding = value.shape[-1] * value.shape[-2] - score.shape[-1]
    return value * torch.exp2(torch.nn.functional.pad(moved, (0, padding)).reshape(value.shape))
