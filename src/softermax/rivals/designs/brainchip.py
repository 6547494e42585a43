"""BrainChip's Shiftmax: powers of two over the nearest power of two of their sum. Nothing but shifts."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from softermax.rivals.designs.arrays import Array, cast, leading_one, look_up, namespace
from softermax.rivals.designs.interface import About, Needs, Normalised, quantized

DEEPEST = 30
FRACTION = 4
"""Bits of a score after the point, before it is rounded down."""
_HALF = np.array([math.isqrt(2 ** (2 * k + 1)) for k in range(63)], dtype=np.int64)
"""The largest integer below 2^(k + 1/2)."""


@dataclass(frozen=True)
class BrainChip(Normalised):
    """quantizeml's Shiftmax, which runs in Akida: p = 2^(floor(x) - round(log2 of the sum)), log2(e) in the score scale."""

    name: str = "brainchip"

    fixed_output: ClassVar[bool] = False
    about: About = About(
        title="BrainChip Shiftmax",
        sources=("quantizeml, older releases (Apache-2.0)",),
        confidence="another's code",
        needs=Needs(divider=False),
        takes="int8 powers of two, rounded down from 4 bits more",
    )

    @property
    def gives(self) -> str:
        return "exponent of two"

    @property
    def unit(self) -> int:
        return 1 << DEEPEST

    @property
    def lsb(self) -> float:
        return 2.0**-62

    def calibrated(self, scores: Array, mask: Array | None = None) -> BrainChip:
        return dataclasses.replace(self, scale=math.log(2))

    def quantize(self, scores: Array) -> Array:
        return quantized(scores, self.step / (1 << FRACTION), 8 + FRACTION) >> FRACTION

    def exponentials(self) -> NDArray[np.int64]:
        return np.int64(self.unit) >> np.minimum(np.arange(256), 62)

    def normalize(self, e: Array, total: Array) -> Array:
        """Words are powers of two in 2^-62."""
        one = leading_one(total)
        nearest = one + cast(total > look_up(_HALF, one), "int64")
        return e << namespace(e).clip(62 - nearest, 0, 62)


DESIGNS = (BrainChip(),)
