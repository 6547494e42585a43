"""Deferred normalisation (A8), emulated in PyTorch for models whose values are floats.

The weights and PowSum are A8's integers, slice by slice. The accumulators of P·V would hold integer
products; here values are floats, so their renormalisation is an exact power of two and A8's rounding
of the accumulators, half a unit of a 32-bit sum, is not modelled. There is no gradient.
"""

from __future__ import annotations

import torch
from torch import Tensor

from softermax.pytorch import words
from softermax.spec import DeferredSpec
from softermax.tables import reciprocal_table


@torch.no_grad()
def deferred_softermax(scores: Tensor, mask: Tensor | None, spec: DeferredSpec) -> Tensor:
    """What P·V effectively multiplies values by: weight, renormalisation and reciprocal in one."""
    inner = spec.scores
    lanes = words.sliced(words.quantize(scores, inner), mask, inner)
    running_max = words.running_max(lanes, inner)
    unnormed = words.power_of_two(lanes, running_max.unsqueeze(-1), inner)

    # Half up to the weight's fraction, saturated. Unnormed words are exact in float32.
    drop = inner.unnormed.fraction - spec.weight.fraction
    weight = torch.floor(unnormed.float() * 2.0**-drop + (0.5 if drop else 0.0)).clamp(max=spec.weight.high)

    sums = weight.sum(-1).to(torch.int64)
    powsum = sums[..., 0].clamp(max=spec.powsum.high)
    for s in range(1, sums.shape[-1]):
        grown = running_max[..., s] - running_max[..., s - 1]
        powsum = ((powsum >> grown) + sums[..., s]).clamp(max=spec.powsum.high)

    leading_one = torch.frexp(powsum.clamp(min=1).double()).exponent.to(torch.int64) - 1
    top = spec.powsum.bits - 1
    fraction = (powsum << (top - leading_one)) & ((1 << top) - 1)
    recip = torch.from_numpy(reciprocal_table(spec)(fraction.cpu().numpy())).to(scores.device)
    # The weight's fraction is PowSum's, so the fractions cancel.
    scale = recip.double() * torch.exp2(-(leading_one + spec.reciprocal.fraction).double())
    renormalised = torch.exp2((running_max - running_max[..., -1:]).double()) * scale.unsqueeze(-1)
    effective = weight * renormalised.float().unsqueeze(-1)
    return effective.flatten(-2)[..., : scores.shape[-1]].to(scores.dtype)
