"""The words of deferred normalisation (A8) as PyTorch tensors, for models whose values are floats.

The weights and PowSum are A8's integers, slice by slice. The accumulators of P·V would hold integer
products; here values are floats, so their renormalisation is an exact power of two and A8's rounding
of the accumulators, half a unit of a 32-bit sum, is not modelled.
"""

from __future__ import annotations

import torch
from torch import Tensor

from softermax.pytorch import words
from softermax.pytorch.inputs import checked_finite
from softermax.spec import DeferredSpec


def weights(unnormed: Tensor, spec: DeferredSpec) -> Tensor:
    """Unnormed words to the weights that enter P·V: half up to their fraction, saturated."""
    drop = spec.scores.unnormed.fraction - spec.weight.fraction
    return words.shift_right(unnormed, drop, "half-up").clamp(max=spec.weight.high)


def powsum(weight: Tensor, maximum: Tensor, spec: DeferredSpec) -> Tensor:
    """The row's PowSum: the running sum of its weights."""
    return words.running_sum(weight.double().sum(-1), maximum, weight.shape[-1] * weight.shape[-2], spec)


def softermax(raw: Tensor, mask: Tensor | None, spec: DeferredSpec) -> tuple[Tensor, Tensor]:
    """Weights of rows of raw input words, and the position of PowSum's leading one."""
    weight, maximum = _weights_and_maxima(raw, mask, spec)
    leading_one, _ = words.reciprocal(powsum(weight, maximum, spec), spec)
    return words.joined(weight, raw.shape[-1]), leading_one


def probabilities(x: Tensor, keep: Tensor | None, spec: DeferredSpec) -> Tensor:
    """What P·V effectively multiplies values by: weight, renormalisation and reciprocal in one."""
    checked = checked_finite(x)
    weight, maximum = _weights_and_maxima(words.quantize(x, spec.scores), keep, spec)
    leading_one, recip = words.reciprocal(powsum(weight, maximum, spec), spec)
    # The weight's fraction is PowSum's, so the fractions cancel.
    exponent = (maximum[..., -1:] - maximum) + (leading_one + spec.reciprocal.fraction).unsqueeze(-1)
    product = weight.double() * recip.double()[..., None, None]
    y = words.joined(product * torch.exp2(-exponent.double()).unsqueeze(-1), x.shape[-1])
    return y.to(x.dtype) if checked else words.spoiled(y, x)


def _weights_and_maxima(raw: Tensor, mask: Tensor | None, spec: DeferredSpec) -> tuple[Tensor, Tensor]:
    lanes = words.sliced(raw, mask, spec.scores)
    maximum = words.running_max(lanes, spec.scores)
    return weights(words.power_of_two(lanes, maximum.unsqueeze(-1), spec.scores), spec), maximum
