"""What a row of attention leaves out, and where its slices begin: transformers' masks as Softermax takes them.

Softermax has words for scores and none for minus infinity, so an additive mask is read anew:

- the type's minimum, or minus infinity, leaves a key out;
- any other value is part of the score (ALiBi, relative positions). A value that all keys of a row share changes no
  softmax, so the row's largest is taken off first: scores stay within the input word;
- a biased score that lies below the input word's range, and further below its row's largest score than the unnormed
  word can resolve, leaves its key out too. Masks of -10000 or -100 are met here. Saturated to -32 instead, such a key
  could get a share of the row.

A cache with a sliding window drops the first keys. Slices are counted from the first key that there ever was, so that
generation token by token gives the words of the full pass: the mask remembers how many keys were dropped.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from transformers.masking_utils import sdpa_mask

from softermax.spec import LOG2E, AnySpec, DeferredSpec, SoftermaxSpec

_DROPPED = "softermax_dropped_keys"
"""Attribute of a mask: the keys that the cache no longer holds."""


def attention_mask(*args: Any, **kwargs: Any) -> Tensor | None:
    """transformers' mask interface: boolean, True where a key takes part. A causal mask is made, never implied."""
    kwargs["allow_is_causal_skip"] = False
    mask: Tensor | None = sdpa_mask(*args, **kwargs)
    dropped = kwargs.get("kv_offset", 0)
    if mask is not None and not isinstance(dropped, Tensor) and dropped:
        setattr(mask, _DROPPED, dropped)
    return mask


def lanes_before(mask: Tensor | None, spec: AnySpec) -> int:
    """How many lanes of the first slice belong to keys that the cache has dropped."""
    dropped: int = getattr(mask, _DROPPED, 0)
    width = rows_spec(spec).slice_width
    return dropped % width if width else 0


def split_mask(mask: Tensor | None) -> tuple[Tensor | None, Tensor | None]:
    """A mask as the keys that take part and what is added to their scores; either may be None."""
    if mask is None or mask.dtype == torch.bool:
        return mask, None
    if not mask.is_floating_point():
        raise ValueError(
            f"attention mask of type {mask.dtype}: must be boolean, or floating-point and added to scores"
        )
    keep = mask > torch.finfo(mask.dtype).min / 2
    largest = mask.masked_fill(~keep, -torch.inf).amax(-1, keepdim=True)
    largest = torch.where(largest.isfinite(), largest, 0.0)
    return keep, torch.where(keep, mask - largest, 0.0)


def within_reach(scores: Tensor, keep: Tensor | None, spec: AnySpec) -> Tensor:
    """The keys whose biased scores count: in the input word's range, or near enough to the row's largest score."""
    rows = rows_spec(spec)
    unit = LOG2E if rows.base == "fold" else 1.0
    lowest = rows.input.low * rows.input.lsb / unit
    # Two more than the fraction: 2^x is below 2, and the max that it is relative to is rounded up.
    resolved = (rows.unnormed.fraction + 2) / unit
    masked = scores if keep is None else scores.masked_fill(~keep, -torch.inf)
    # Said of what is left out, so that a NaN stays and is found.
    far = (masked < lowest) & (masked < masked.amax(-1, keepdim=True) - resolved)
    return ~far if keep is None else keep & ~far


def causal(scores: Tensor) -> Tensor:
    """A causal mask for scores whose last query is at the last key."""
    queries, keys = scores.shape[-2:]
    return torch.ones(queries, keys, dtype=torch.bool, device=scores.device).tril(keys - queries)


def rows_spec(spec: AnySpec) -> SoftermaxSpec:
    """What a spec says of scores."""
    return spec.scores if isinstance(spec, DeferredSpec) else spec
