"""The linear layers' matrix products in bfloat16 while a model trains, for speed where processors have them. Weights,
activations, attention, quantisers and the optimiser stay in float32. Held-out rows are scored on the way, so with these
products too; dev is scored after training, without.

On a processor without such products PyTorch is slower at them than at float32's. There the same values are computed in
float32: products of rounded operands are exact in it, results are rounded. So a table that was begun on one processor goes
on at about float32's speed on another."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from softermax.finetune.run import Products

_NATIVE = ("avx512_bf16", "amx_bf16", "bf16", "sve_bf16")
"""Any of these capabilities: the processor multiplies bfloat16 itself."""


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
    if x.device.type == "cpu" and not _is_native():
        with _InFloat32():
            output: Tensor = forward(x)
        return output
    with torch.autocast(x.device.type, torch.bfloat16):
        output = forward(x)
    return output.float()


@functools.cache
def _is_native() -> bool:
    found = torch.cpu.get_capabilities()
    return any(found.get(name) for name in _NATIVE)


class _InFloat32(TorchFunctionMode):
    """Takes the place of every ``linear`` within."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is not nn.functional.linear:
            return func(*args, **(kwargs or {}))
        return _linear(*args, **(kwargs or {}))


def _linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    result: Tensor = _Linear.apply(input, weight, bias)  # type: ignore[no-untyped-call]
    return result


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        x, weight = _to_bfloat16(x), _to_bfloat16(weight)
        ctx.save_for_backward(x, weight)
        ctx.has_bias = bias is not None
        return _to_bfloat16(nn.functional.linear(x, weight, None if bias is None else _to_bfloat16(bias)))

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        x, weight = ctx.saved_tensors
        gradient = _to_bfloat16(gradients[0])
        rows = gradient.reshape(-1, gradient.shape[-1])
        of_bias = _to_bfloat16(rows.sum(0)) if ctx.has_bias else None
        of_weight = _to_bfloat16(rows.T @ x.reshape(-1, x.shape[-1]))
        return _to_bfloat16(gradient @ weight), of_weight, of_bias


def _to_bfloat16(x: Tensor) -> Tensor:
    """The nearest values that bfloat16 has, as float32."""
    return x.to(torch.bfloat16).float()
