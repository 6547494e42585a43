"""Softermax as PyTorch functions: fixed-point forward, straight-through backward.

>>> import torch
>>> from softermax.functional import softermax
>>> softermax(torch.tensor([2.0, 1.0, 3.0]))
tensor([0.2891, 0.1406, 0.5703])
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from softermax import gpu
from softermax.extras import need
from softermax.spec import PRESETS, AnySpec, DeferredSpec, SoftermaxSpec

if not TYPE_CHECKING:
    need("torch", "torch")

import torch
from torch import Tensor

from softermax.pytorch import deferred, onnx, operators, words
from softermax.pytorch.attention import attention, int8_attention
from softermax.pytorch.gradient import Gradient, composed, fused, probabilities, transformed
from softermax.pytorch.inputs import check_mask
from softermax.pytorch.operators import softermax_int8
from softermax.pytorch.registry import check_spec

if TYPE_CHECKING:
    from softermax.fixedpoint import IntArray
    from softermax.golden import BoolArray
    from softermax.verify import AttentionCase, Body, FloatArray

gpu.register()

__all__ = ["Gradient", "attention", "int8_attention", "softermax", "softermax_int8"]


def softermax(
    x: Tensor,
    dim: int = -1,
    mask: Tensor | None = None,
    spec: AnySpec = PRESETS["paper"],
    gradient: Gradient = "fused",
) -> Tensor:
    """Softermax of float scores along ``dim``, bit-exact with the golden model, differentiable.

    ``mask`` is boolean, True where an element takes part, and broadcasts against ``x``; what is
    masked comes out as 0. With a `DeferredSpec` (A8) the result is what P·V effectively multiplies values by.

    ``gradient="fused"`` keeps little more than the output for backward; ``"composed"`` chains the
    straight-through steps that the paper describes, each with its own derivative. Both have derivatives of any
    order, backward and forward, and pass ``torch.func``: a derivative of the gradient treats the probabilities in it
    by the same rule.

    On a CPU the native core computes what it covers (``softermax info``), on a GPU the Triton kernels of the extra ``gpu``
    do, PyTorch the rest and what ``torch.func`` transforms, with the same bits. A NaN or infinity that is not masked is
    an error; where raising is not possible, under ``vmap`` and in code compiled without the core, it comes out as NaN. Of a
    row that the Triton kernels compute all comes out as NaN: to raise, a GPU would have to be waited for.
    """
    _check(x, dim, spec, gradient)
    check_mask(mask, x.shape, x.device)
    if x.numel() == 0:
        return x.clone()
    last = dim in (-1, x.dim() - 1)
    # In a graph a mask that broadcasts stays as it is: expanding it takes a score of nodes.
    keep = mask if mask is None or (last and onnx.exporting()) else mask.expand(x.shape).transpose(dim, -1)
    return _rows(x.transpose(dim, -1), keep, spec, gradient).transpose(dim, -1)


def _rows(x: Tensor, keep: Tensor | None, spec: AnySpec, gradient: Gradient) -> Tensor:
    """Along the last axis, by whoever computes it."""
    exporting = onnx.exporting()
    special = exporting or gradient == "composed" or transformed(x)
    if not special and isinstance(spec, SoftermaxSpec) and operators.takes(x, spec):
        return operators.softermax(x, keep, spec)
    if exporting:
        return onnx.probabilities(x, keep, spec)
    if keep is not None:
        x = torch.where(keep, x, torch.zeros((), dtype=x.dtype, device=x.device))
    return composed(x, keep, spec) if gradient == "composed" else fused(x, keep, spec)


def _check(x: Tensor, dim: int, spec: AnySpec, gradient: str) -> None:
    if not isinstance(x, Tensor) or not x.is_floating_point():
        kind = x.dtype if isinstance(x, Tensor) else type(x).__name__
        raise TypeError(f"scores must be a floating-point tensor, got {kind}")
    check_spec(spec)
    if gradient not in ("fused", "composed"):
        raise ValueError(f"gradient must be 'fused' or 'composed', got {gradient!r}")
    if x.dim() == 0:
        raise ValueError("scores need at least one dimension, got a scalar")
    if not -x.dim() <= dim < x.dim():
        raise IndexError(
            f"dim must be {-x.dim()} to {x.dim() - 1} for scores of {x.dim()} dimensions, got {dim}"
        )


def bodies() -> list[Body]:
    """For `softermax verify`: what PyTorch itself computes, and attention as it is offered."""
    from softermax.verify import Body

    def run(spec: AnySpec, raw: IntArray, mask: BoolArray) -> tuple[IntArray, IntArray | None]:
        scores, keep = torch.from_numpy(raw).double(), torch.from_numpy(mask)
        if isinstance(spec, DeferredSpec):
            weight, leading_one = deferred.softermax(scores, keep, spec)
            return weight.long().numpy(), (leading_one - spec.powsum.fraction).numpy()
        y, leading_one = words.softermax(scores, keep, spec)
        return y.long().numpy(), (leading_one - spec.powsum.fraction).numpy()

    def masked(scores: FloatArray, mask: BoolArray) -> tuple[Tensor, Tensor]:
        x, keep = torch.from_numpy(scores), torch.from_numpy(mask)
        return torch.where(keep, x, 0.0), keep

    def run_scores(spec: AnySpec, scores: FloatArray, mask: BoolArray) -> FloatArray:
        return probabilities(*masked(scores, mask), spec).numpy()

    def marks(spec: AnySpec, scores: FloatArray, mask: BoolArray) -> BoolArray:
        return words.saturates(masked(scores, mask)[0], words.scores_of(spec)).numpy()

    def attend(spec: AnySpec, case: AttentionCase) -> FloatArray:
        q, k, v = (torch.from_numpy(x) for x in (case.q, case.k, case.v))
        mask = None if case.mask is None else torch.from_numpy(case.mask)
        scales = case.scale, case.value_scale
        return int8_attention(q, k, v, *scales, spec, mask=mask, causal=case.causal).numpy()

    everything = Body(
        "torch", run, supports=lambda spec: True, run_scores=run_scores, floats=("float64", "float32", "float16"),
        attend=attend, marks=marks, drawn=True,
    )  # fmt: skip
    return [everything]
