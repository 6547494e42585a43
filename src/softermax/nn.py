"""Softermax as a PyTorch module."""

from __future__ import annotations

import torch
from torch import Tensor

from softermax import functional
from softermax.functional import Gradient
from softermax.spec import PRESETS, AnySpec, get_spec


class Softermax(torch.nn.Module):
    """A drop-in for ``torch.nn.Softmax``; ``spec`` is a spec or what `get_spec` takes, a preset's name for one.

    >>> Softermax(spec="whole-row")(torch.zeros(1, 4))
    tensor([[0.2500, 0.2500, 0.2500, 0.2500]])
    """

    def __init__(
        self, dim: int = -1, spec: AnySpec | str = PRESETS["paper"], gradient: Gradient = "fused"
    ) -> None:
        super().__init__()
        self.dim = dim
        self.spec = get_spec(spec) if isinstance(spec, str) else spec
        self.gradient = gradient

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        return functional.softermax(x, self.dim, mask, self.spec, self.gradient)

    def extra_repr(self) -> str:
        names = [name for name, spec in PRESETS.items() if spec == self.spec]
        return f"dim={self.dim}, spec={names[0] if names else self.spec}"
