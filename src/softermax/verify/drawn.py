"""Specs drawn at random, over all that a spec may be."""

from __future__ import annotations

from typing import Any

import numpy as np

from softermax.spec import MAX_PRODUCT_BITS, AnySpec, DeferredSpec, SoftermaxSpec

NEAREST = ("truncate", "half-up", "half-even")
"""The roundings that a spec may ask for; 8-bit kernels have the last one for scores only."""


def draw_spec(rng: np.random.Generator, widest: int = 32, eight_bit: bool = False) -> SoftermaxSpec:
    """A valid spec with words of up to ``widest`` bits, of which some are as wide as that; or, ``eight_bit``, one
    whose scores and outputs are the 8-bit words that kernels are made for."""

    def word(
        least_integer: int, most_integer: int, least_fraction: int, most: int = widest
    ) -> tuple[int, int]:
        integer = int(rng.integers(least_integer, min(most_integer, most - least_fraction) + 1))
        bits = most if rng.random() < 0.2 else int(rng.integers(integer + least_fraction, most + 1))
        return integer, bits - integer

    def choice(*of: str) -> str:
        return str(rng.choice(of))

    while True:
        score = (6, 2) if eight_bit else word(2, 12, 0)
        normalization = choice("numerator", "numerator", "row-products")
        truncates = eight_bit and normalization == "numerator"
        if normalization == "row-products" and score[1] > MAX_PRODUCT_BITS:
            score = score[0], int(rng.integers(0, MAX_PRODUCT_BITS + 1))
        fields: dict[str, Any] = {
            "input": score,
            "max": (score[0] + (0 if eight_bit else int(rng.integers(0, 3))), int(rng.integers(0, 3))),
            "unnormed": word(1, 1, 1, 16) if eight_bit else word(1, 3, 1),
            "powsum": word(1, 20, 1),
            "reciprocal": word(1, 1, 1, 16) if eight_bit else word(1, 2, 1),
            "output": word(0, 1, 1, 8) if eight_bit else word(0, 2, 1),
            "slice_width": None if rng.random() < 0.15 else int(rng.integers(1, 40)),
            "pow2_segments": 1 << int(rng.integers(0, 7)),
            "reciprocal_segments": 1 << int(rng.integers(0, 6)),
            "input_rounding": choice(*NEAREST),
            "max_rounding": choice("ceil", "ceil", "truncate"),
            "unnormed_rounding": "truncate" if truncates else choice(*NEAREST),
            "powsum_rounding": choice(*NEAREST[: 2 if eight_bit else 3]),
            "output_rounding": choice(*NEAREST[: 2 if eight_bit else 3]),
            "output_mode": choice("fixed", "fixed", "row-scaled"),
            "base": choice("paper", "fold"),
            "normalization": normalization,
            "product": word(1, 2, 1, 16) if eight_bit else word(1, 2, 1),
        }
        try:
            return SoftermaxSpec(**fields)
        except ValueError:
            continue


def draw_deferred(rng: np.random.Generator, widest: int = 32, eight_bit: bool = False) -> DeferredSpec:
    """A valid `DeferredSpec` around a drawn spec; ``eight_bit`` as in `draw_spec`, for weights too."""
    scores = draw_spec(rng, widest, eight_bit)
    if eight_bit:
        scores = scores.replace(slice_width=4 * int(rng.integers(1, 10)) if rng.random() < 0.8 else None)
    most = 8 if eight_bit else widest
    integer = int(rng.integers(0, 2))
    fraction = int(rng.integers(1, min(scores.unnormed.fraction, most - integer) + 1))
    fields: dict[str, Any] = {
        "weight": (integer, fraction),
        "powsum": (int(rng.integers(1, min(20, widest - fraction) + 1)), fraction),
        "reciprocal": (1, int(rng.integers(1, 16 if eight_bit else widest))),
        "reciprocal_segments": 1 << int(rng.integers(0, 6)),
    }
    return DeferredSpec(scores, **fields)


def draw_specs(count: int, seed: int = 0) -> dict[str, AnySpec]:
    """``count`` specs of both kinds, half of them of 8 bits, the same for the same seed."""
    rng = np.random.default_rng(seed)
    made: dict[str, AnySpec] = {}
    for number in range(count):
        draw = draw_spec if number % 4 < 2 else draw_deferred
        made[f"drawn {number} of seed {seed}"] = draw(rng, eight_bit=number % 2 == 0)
    return made
