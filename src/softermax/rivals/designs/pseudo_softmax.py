"""Pseudo-softmax: base two on integers, the sum as an 8-bit float, its reciprocal in two lines."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from softermax.rivals.designs.arrays import Array, cast, leading_one, namespace
from softermax.rivals.designs.interface import About, Needs, Normalised

DEEPEST = 30
"""Powers of two below the max that still count."""


@dataclass(frozen=True)
class PseudoSoftmax(Normalised):
    """Cardarilli et al., Scientific Reports 2021. log2(e) is folded into the score scale: a step is a power of two."""

    name: str = "pseudo-softmax"

    fixed_output: ClassVar[bool] = False
    about: About = About(
        title="pseudo-softmax",
        sources=(
            "Cardarilli et al., A pseudo-softmax function for hardware-based high speed image classification, 2021",
            "reciprocal: urielcho/tt04-submission-divider src/reciprocal_pwl.v",
        ),
        confidence="another's code",
        needs=Needs(divider=False),
    )

    @property
    def gives(self) -> str:
        return "8-bit fraction with the exponent of the element"

    @property
    def unit(self) -> int:
        return 1 << DEEPEST

    @property
    def lsb(self) -> float:
        return 2.0 ** -(14 + DEEPEST)

    def calibrated(self, scores: Array, mask: Array | None = None) -> PseudoSoftmax:
        return dataclasses.replace(self, scale=math.log(2))

    def exponentials(self) -> NDArray[np.int64]:
        return np.int64(self.unit) >> np.minimum(np.arange(256), 62)

    def normalize(self, e: Array, total: Array) -> Array:
        """Words count in 2^-44: an element is its power of two times the row's reciprocal of 14 bits."""
        xp = namespace(e)
        one = leading_one(total)
        mantissa = (total << 7) >> one  # 128 to 255
        fraction = xp.where(mantissa < 192, 204 * 128 - 80 * mantissa, 144 * 128 - 40 * mantissa)
        # 8 bits of the reciprocal are kept.
        return e * (fraction >> 6 << 6) >> (one - DEEPEST)

    def probabilities(self, raw: Array, mask: Array | None = None) -> Array:
        return cast(self.words(raw, mask), "float64") * self.lsb


DESIGNS = (PseudoSoftmax(),)
