"""A training step with Softermax against one with torch.softmax."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from softermax.extras import need
from softermax.spec import PRESETS, SoftermaxSpec

if not TYPE_CHECKING:
    need("torch", "torch")

import torch

from softermax.functional import softermax
from softermax.speed.race import OURS, Contestants, Race

SHAPE = (32, 12, 128, 128)
"""Batch, heads, queries, keys."""


def training_races() -> list[Race]:
    """Forward and backward of the operator, and an encoder's whole step."""
    columns = SHAPE[-1]
    elements = columns * columns * SHAPE[0] * SHAPE[1]
    races = [
        Race("training", f"operator {name}", columns, elements, partial(_operators, spec))
        for name, spec in PRESETS.items()
    ]
    return [*races, Race("training", "encoder step paper", columns, elements * 6, _steps, share=0.25)]


def _operators(spec: SoftermaxSpec) -> Contestants:
    x = torch.randn(SHAPE, generator=torch.Generator().manual_seed(0)).requires_grad_()
    g = torch.randn(SHAPE, generator=torch.Generator().manual_seed(1))

    def both(operator: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[], Any]:
        return lambda: torch.autograd.grad(operator(x), x, g)

    return {OURS: both(partial(softermax, spec=spec)), "torch.softmax": both(partial(torch.softmax, dim=-1))}


def _steps() -> Contestants:
    return {
        OURS: _encoder_step(partial(softermax, spec=PRESETS["paper"])),
        "torch.softmax": _encoder_step(partial(torch.softmax, dim=-1)),
    }


def _encoder_step(operator: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[], Any]:
    """A full AdamW step of an encoder of MiniLM's size (6 layers, 384 wide, 12 heads) on 32 x 128 tokens,
    weights and activations quantised to int8 and back as in quantisation-aware training."""
    torch.manual_seed(0)
    model = _Encoder(operator)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    tokens = torch.randn(32, 128, 384)

    def step() -> None:
        optimizer.zero_grad()
        model(tokens).square().mean().backward()
        optimizer.step()

    return step


class _Linear(torch.nn.Linear):
    """Weights and activations through int8 and back; the gradient passes straight through."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.linear(_through_int8(x), _through_int8(self.weight), self.bias)


def _through_int8(x: torch.Tensor) -> torch.Tensor:
    scale = float(x.detach().abs().max()) / 127 or 1.0
    return torch.fake_quantize_per_tensor_affine(x, scale, 0, -127, 127)


class _Encoder(torch.nn.Module):
    def __init__(self, operator: Callable[[torch.Tensor], torch.Tensor], layers: int = 6) -> None:
        super().__init__()
        self.operator = operator
        self.layers = torch.nn.ModuleList(
            torch.nn.ModuleDict(
                {
                    "qkv": _Linear(384, 3 * 384),
                    "out": _Linear(384, 384),
                    "up": _Linear(384, 1536),
                    "down": _Linear(1536, 384),
                    "first": torch.nn.LayerNorm(384),
                    "second": torch.nn.LayerNorm(384),
                }
            )
            for _ in range(layers)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            parts = cast(torch.nn.ModuleDict, layer)
            q, k, v = parts["qkv"](x).unflatten(-1, (3, 12, 32)).permute(2, 0, 3, 1, 4)
            p = self.operator(q @ k.transpose(-1, -2) / 32**0.5)
            x = parts["first"](x + parts["out"]((p @ v).transpose(1, 2).flatten(-2)))
            x = parts["second"](x + parts["down"](torch.nn.functional.gelu(parts["up"](x))))
        return x
