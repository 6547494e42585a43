"""Fused attention against torch's scaled dot-product attention."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from softermax.extras import need
from softermax.spec import PRESETS, AnySpec, DeferredSpec

if not TYPE_CHECKING:
    need("torch", "torch")

import torch

from softermax.pytorch.attention import attention, int8_attention
from softermax.pytorch.operators import quantize_int8
from softermax.speed.race import OURS, Contestants, Race

SEQUENCES = (384, 512, 2048)
HEADS, SIZE = 12, 64
SPECS: dict[str, AnySpec] = {
    "paper": PRESETS["paper"],
    "whole-row": PRESETS["whole-row"],
    "deferred": DeferredSpec(),
}


def attention_races() -> list[Race]:
    """Attention of 12 heads of 64, from int8 and from float operands."""
    return [
        Race(
            "attention",
            f"{name} from {operands}",
            length,
            HEADS * length * length,
            partial(_contestants, length, spec, operands == "int8"),
        )
        for length in SEQUENCES
        for name, spec in SPECS.items()
        for operands in ("int8", "float")
    ]


def _contestants(length: int, spec: AnySpec, from_int8: bool) -> Contestants:
    generator = torch.Generator().manual_seed(length)
    query, key, value = (torch.randn(1, HEADS, length, SIZE, generator=generator) for _ in range(3))
    sdpa: Callable[..., Any] = torch.nn.functional.scaled_dot_product_attention
    ours: Callable[[], Any] = partial(attention, query, key, value, spec)
    if from_int8:
        (q, q_scale), (k, k_scale), (v, v_scale) = (quantize_int8(x) for x in (query, key, value))
        ours = partial(int8_attention, q, k, v, q_scale * k_scale / SIZE**0.5, v_scale, spec)
    return {
        OURS: ours,
        "SDPA fp32": partial(sdpa, query, key, value),
        "SDPA bf16": partial(sdpa, query.bfloat16(), key.bfloat16(), value.bfloat16()),
    }
