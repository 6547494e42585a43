"""The linear layers' matrix products in bfloat16 while a model trains, for speed where processors have them. Weights,
activations, attention, quantisers and the optimiser stay in float32. Held-out rows are scored on the way, so with these
products too; dev is scored after training, without."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from softermax.finetune.run import Products


@contextlib.contextmanager
def training_products(model: nn.Module, products: Products) -> Iterator[None]:
    """Within the block every linear layer's output is float32 as before, from operands rounded to ``products``."""
    layers: list[Any] = [module for module in model.modules() if isinstance(module, nn.Linear)]
    try:
        if products == "bfloat16":
            for layer in layers:
                layer.forward = functools.partial(_rounded, layer.forward)
        yield
    finally:
        for layer in layers:
            layer.__dict__.pop("forward", None)


def _rounded(forward: Any, x: Tensor) -> Tensor:
    with torch.autocast(x.device.type, torch.bfloat16):
        output: Tensor = forward(x)
    return output.float()
