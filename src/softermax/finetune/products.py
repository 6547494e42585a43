"""The linear layers' matrix products in bfloat16 while a model trains: on processors with AVX-512 BF16 a step takes a
third less. Weights, activations, attention, quantisers, gradients' sums and the optimiser stay in float32, and
evaluation does not use it."""

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
