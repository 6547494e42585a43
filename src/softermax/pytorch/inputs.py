"""What the operators are given, checked in one place: masks, lengths, scores that are numbers."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def check_mask(mask: Tensor | None, shape: Sequence[int], device: torch.device) -> None:
    """A mask must be boolean, beside the scores, and broadcast to their shape."""
    if mask is None:
        return
    if not isinstance(mask, Tensor) or mask.dtype != torch.bool:
        kind = mask.dtype if isinstance(mask, Tensor) else type(mask).__name__
        raise TypeError(f"mask must be a boolean tensor, True where an element takes part, got {kind}")
    if mask.device != device:
        raise ValueError(f"mask is on {mask.device}, the scores are on {device}: both must be on one device")
    if torch.compiler.is_compiling():
        return  # a shape that is looked at is a shape that the compiled code is tied to
    sizes = zip(reversed(mask.shape), reversed(shape), strict=False)
    if mask.dim() > len(shape) or any(m not in (1, n) for m, n in sizes):
        raise ValueError(
            f"mask of shape {tuple(mask.shape)} does not broadcast to the scores' {tuple(shape)}"
        )


def check_lengths(lengths: Tensor | None) -> None:
    """Lengths must be integers, 0 or more."""
    if lengths is None:
        return
    if lengths.is_floating_point() or lengths.dtype == torch.bool:
        raise TypeError(f"lengths must be integers, got {lengths.dtype}")
    if lengths.numel() and int(lengths.min()) < 0:
        raise ValueError(f"lengths must be 0 or more, got {int(lengths.min())}")


def checked_finite(x: Tensor) -> bool:
    """Refuse scores that are NaN or infinite; False where there are no numbers to look at.

    Code that is compiled or exported has none yet, meta and fake tensors never have, and within ``torch.func.vmap``
    they stand for many.
    """
    if torch.compiler.is_compiling():
        return False
    try:
        finite = bool(torch.isfinite(x.detach()).all())
    except RuntimeError:  # what PyTorch raises in all three of these cases
        return False
    if not finite:
        raise ValueError(
            "scores must be finite where they are not masked, found NaN or infinity; "
            "use mask= to leave an element out"
        )
    return True
