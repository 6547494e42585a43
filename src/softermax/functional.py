"""Softermax as a PyTorch function: fixed-point forward, straight-through backward.

>>> import torch
>>> from softermax.functional import softermax
>>> softermax(torch.tensor([2.0, 1.0, 3.0]))
tensor([0.2891, 0.1406, 0.5703])
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Literal

from softermax.extras import need
from softermax.spec import LOG2E, PRESETS, SoftermaxSpec

if not TYPE_CHECKING:
    need("torch", "torch")

import torch
from torch import Tensor

from softermax.pytorch import operators as ops
from softermax.pytorch import words

if TYPE_CHECKING:
    from softermax.fixedpoint import IntArray
    from softermax.golden import BoolArray
    from softermax.verify import Body

Gradient = Literal["fused", "composed"]

_LN2 = math.log(2.0)


def softermax(
    x: Tensor,
    dim: int = -1,
    mask: Tensor | None = None,
    spec: SoftermaxSpec = PRESETS["paper"],
    gradient: Gradient = "fused",
) -> Tensor:
    """Softermax of float scores along ``dim``, bit-exact with the golden model, differentiable.

    ``mask`` is boolean, True where an element takes part, and broadcasts against ``x``; what is
    masked comes out as 0. ``gradient="fused"`` keeps only the output for backward; ``"composed"``
    chains the straight-through steps that the paper describes, each with its own derivative.

    The native core computes what it covers (``softermax info``), PyTorch the rest, with the same
    bits. A NaN or infinity that is not masked is an error; in code compiled without the core, where
    raising is not possible, it comes out as NaN.
    """
    _check(x, dim, mask, spec, gradient)
    if x.numel() == 0:
        return x.clone()
    keep = None if mask is None else mask.expand(x.shape).transpose(dim, -1)
    rows = x.transpose(dim, -1)
    if gradient == "fused" and ops.takes(rows, spec):
        return ops.softermax(rows, keep, spec).transpose(dim, -1)
    if keep is not None:
        rows = torch.where(keep, rows, torch.zeros((), dtype=x.dtype, device=x.device))
    if not torch.compiler.is_compiling() and not torch.isfinite(rows.detach()).all():
        raise ValueError(
            "scores must be finite where they are not masked, found NaN or infinity; "
            "use mask= to leave an element out"
        )
    y = _apply(_Fused, rows, keep, spec) if gradient == "fused" else _composed(rows, keep, spec)
    result: Tensor = y.transpose(dim, -1)
    return result


def _check(x: Tensor, dim: int, mask: Tensor | None, spec: SoftermaxSpec, gradient: str) -> None:
    if not isinstance(x, Tensor) or not x.is_floating_point():
        kind = x.dtype if isinstance(x, Tensor) else type(x).__name__
        raise TypeError(f"scores must be a floating-point tensor, got {kind}")
    if not isinstance(spec, SoftermaxSpec):
        raise TypeError(f"spec must be a SoftermaxSpec, got {type(spec).__name__}; get_spec(name) makes one")
    if gradient not in ("fused", "composed"):
        raise ValueError(f"gradient must be 'fused' or 'composed', got {gradient!r}")
    if x.dim() == 0:
        raise ValueError("scores need at least one dimension, got a scalar")
    if not -x.dim() <= dim < x.dim():
        raise IndexError(
            f"dim must be {-x.dim()} to {x.dim() - 1} for scores of {x.dim()} dimensions, got {dim}"
        )
    if mask is None:
        return
    if not isinstance(mask, Tensor) or mask.dtype != torch.bool:
        kind = mask.dtype if isinstance(mask, Tensor) else type(mask).__name__
        raise TypeError(f"mask must be a boolean tensor, True where an element takes part, got {kind}")
    if not torch.compiler.is_compiling():
        sizes = zip(reversed(mask.shape), reversed(x.shape), strict=False)
        if mask.dim() > x.dim() or any(m not in (1, n) for m, n in sizes):
            raise ValueError(
                f"mask of shape {tuple(mask.shape)} does not broadcast to the scores' {tuple(x.shape)}"
            )


def _apply(function: type[torch.autograd.Function], *arguments: Any) -> Any:
    return function.apply(*arguments)


class _Fused(torch.autograd.Function):
    """The whole operator with the composed derivative, dL/dx = ln2 * y * (g - sum g*y)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, keep: Tensor | None, spec: SoftermaxSpec) -> Tensor:
        y = _probabilities(x, keep, spec)
        # The sign bit, free in a probability, marks scores that saturated: they get no gradient.
        ctx.save_for_backward(torch.where(words.saturates(x, spec), -y, y))
        ctx.factor = _LN2 * LOG2E if spec.base == "fold" else _LN2
        return y

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, None, None]:
        (marked,) = ctx.saved_tensors
        marked = marked.to(_at_least_single(marked.dtype))
        centred = g - (g * marked.abs()).sum(-1, keepdim=True)
        dx = ctx.factor * marked.clamp_min(0) * centred
        return dx.to(g.dtype), None, None


def _probabilities(x: Tensor, keep: Tensor | None, spec: SoftermaxSpec) -> Tensor:
    y, leading_one = words.softermax(words.quantize(x, spec), keep, spec)
    scale = words.scale(leading_one, spec)
    y = (y if y.is_floating_point() else y.double()) * (
        scale[..., None] if isinstance(scale, Tensor) else scale
    )
    if torch.compiler.is_compiling():
        y = y + (x - x)  # NaN where a score is NaN or infinite, else 0
    return y.to(x.dtype)


def _at_least_single(dtype: torch.dtype) -> torch.dtype:
    return dtype if dtype == torch.float64 else torch.float32


# The composition: one step a function, words forward, the real derivative backward. Values are real
# numbers in float64, which holds every word exactly.


def _composed(x: Tensor, keep: Tensor | None, spec: SoftermaxSpec) -> Tensor:
    score = _apply(_Quantize, x, spec)
    raw = words.sliced(score.detach() * 2.0**spec.input.fraction, keep, spec)
    maximum = words.running_max(raw, spec)
    unnormed = _apply(_PowerOfTwo, score, raw, maximum, spec)
    powsum, num = _apply(_Reduce, unnormed, raw, maximum, spec)
    recip = _apply(_Reciprocal, powsum, spec)
    y = _apply(_Product, num, powsum, recip, spec)
    rounded: Tensor = y.flatten(-2)[..., : x.shape[-1]].to(x.dtype)
    return rounded


class _Quantize(torch.autograd.Function):
    """Score to input word: straight through, nothing where it saturates."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, spec: SoftermaxSpec) -> Tensor:
        ctx.save_for_backward(words.saturates(x, spec))
        ctx.dtype, ctx.factor = x.dtype, LOG2E if spec.base == "fold" else 1.0
        return words.quantize(x, spec).double() * spec.input.lsb

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, None]:
        (saturated,) = ctx.saved_tensors
        return torch.where(saturated, 0.0, g * ctx.factor).to(ctx.dtype), None


class _PowerOfTwo(torch.autograd.Function):
    """u = 2^(x - m): du/dx = ln2 * u. The max is a constant: the result does not depend on it."""

    @staticmethod
    def forward(ctx: Any, score: Tensor, raw: Tensor, maximum: Tensor, spec: SoftermaxSpec) -> Tensor:
        u = words.power_of_two(raw, maximum.unsqueeze(-1), spec).double() * spec.unnormed.lsb
        ctx.save_for_backward(u)
        ctx.columns = score.shape[-1]
        return u

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, None, None, None]:
        (u,) = ctx.saved_tensors
        return (g * u * _LN2).flatten(-2)[..., : ctx.columns], None, None, None


class _Reduce(torch.autograd.Function):
    """Sum and numerators relative to the row's max: each is u shifted, straight through."""

    @staticmethod
    def forward(
        ctx: Any, u: Tensor, raw: Tensor, maximum: Tensor, spec: SoftermaxSpec
    ) -> tuple[Tensor, Tensor]:
        unnormed = u / spec.unnormed.lsb
        if not raw.is_floating_point():
            unnormed = unnormed.to(torch.int64)
        ctx.save_for_backward(torch.exp2((maximum - maximum[..., -1:]).double()).unsqueeze(-1))
        d = words.powsum(unnormed, maximum, spec).double() * spec.powsum.lsb
        num = words.numerator(raw, unnormed, maximum, spec).double() * spec.unnormed.lsb
        return d, num

    @staticmethod
    def backward(ctx: Any, g_sum: Tensor, g_num: Tensor) -> tuple[Tensor, None, None, None]:
        (renormalised,) = ctx.saved_tensors
        return (g_sum[..., None, None] + g_num) * renormalised, None, None, None


class _Reciprocal(torch.autograd.Function):
    """1/d by the table: d(1/d) = -1/d^2."""

    @staticmethod
    def forward(ctx: Any, d: Tensor, spec: SoftermaxSpec) -> Tensor:
        ctx.save_for_backward(d)
        leading_one, recip = words.reciprocal((d / spec.powsum.lsb).to(torch.int64), spec)
        exponent = (spec.powsum.fraction - leading_one).double()
        return recip.double() * spec.reciprocal.lsb * torch.exp2(exponent)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, None]:
        (d,) = ctx.saved_tensors
        return torch.where(d > 0, -g / (d * d), 0.0), None


class _Product(torch.autograd.Function):
    """y = numerator * reciprocal, rounded to the output word."""

    @staticmethod
    def forward(ctx: Any, num: Tensor, d: Tensor, inverse: Tensor, spec: SoftermaxSpec) -> Tensor:
        ctx.save_for_backward(num, inverse)
        leading_one, recip = words.reciprocal((d / spec.powsum.lsb).to(torch.int64), spec)
        n = num / spec.unnormed.lsb
        if not words.plan(spec).narrow:
            n = n.to(torch.int64)
        scale = words.scale(leading_one, spec)
        y = words.normalize(n, leading_one, recip, spec).double()
        return y * (scale[..., None, None] if isinstance(scale, Tensor) else scale)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, None, Tensor, None]:
        num, inverse = ctx.saved_tensors
        return g * inverse[..., None, None], None, (g * num).sum((-1, -2)), None


def bodies() -> list[Body]:
    """For `softermax verify`: the operator in eager mode, from words to words."""
    from softermax.verify import Body

    def run(spec: SoftermaxSpec, raw: IntArray, mask: BoolArray) -> tuple[IntArray, IntArray | None]:
        y, leading_one = words.softermax(torch.from_numpy(raw).double(), torch.from_numpy(mask), spec)
        exponent = leading_one - spec.powsum.fraction if spec.output_mode == "row-scaled" else None
        return y.to(torch.int64).numpy(), None if exponent is None else exponent.numpy()

    return [Body("torch", run)]
