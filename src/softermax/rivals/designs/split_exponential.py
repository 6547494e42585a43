"""The split exponential of A3: the high and the low half of a distance each have a table; their product is the exponential."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from softermax.rivals.designs.arrays import Array, leading_one, namespace
from softermax.rivals.designs.interface import About, Needs, Normalised, quantized

ONE = 2**16
RECIPROCAL_BITS = 17


@dataclass(frozen=True)
class SplitExponential(Normalised):
    """Ham et al., HPCA 2020: 16-bit scores with 8 bits after the point, two tables of 256 entries, one division per row.

    What is divided once is a power of two: a word is its exponential times that reciprocal of 17 bits, rounded half up, as
    hardware would have it that does not divide in every lane.
    """

    name: str = "split-exponential"

    about: About = About(
        title="A3-style split exponential",
        sources=("Ham et al., A3: Accelerating Attention Mechanisms with Approximation, HPCA 2020",),
        confidence="memory",
        needs=Needs(multipliers=2, table=512),
        takes="int16, 8 bits after the point",
    )

    @property
    def gives(self) -> str:
        return "u16, p = y / 65536"

    @property
    def unit(self) -> int:
        return ONE

    @property
    def lsb(self) -> float:
        return 1 / ONE

    def calibrated(self, scores: Array, mask: Array | None = None) -> SplitExponential:
        return dataclasses.replace(self, scale=2.0**-8)

    def quantize(self, scores: Array) -> Array:
        return quantized(scores, self.step, 16)

    def tables(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """exp of the high byte and of the low byte of a distance, in 16 bits."""
        byte = np.arange(256)
        high, low = np.exp(-256 * self.step * byte), np.exp(-self.step * byte)
        return np.round(high * ONE).astype(np.int64), np.round(low * ONE).astype(np.int64)

    def exponentials(self) -> NDArray[np.int64]:
        high, low = self.tables()
        # Beyond the sixteenth entry of the high byte's table every product is 0.
        distance = np.arange(16 * 256)
        found = high[distance >> 8] * low[distance & 255] >> 16
        return np.append(found, 0)

    def reciprocal(self, total: Array) -> tuple[Array, Array]:
        """2^(17 + position of the leading one) / total in 17 bits, and that position."""
        one = leading_one(total)
        return namespace(total).clip(
            (1 << (RECIPROCAL_BITS + one)) // total, 0, (1 << RECIPROCAL_BITS) - 1
        ), one

    def normalize(self, e: Array, total: Array) -> Array:
        reciprocal, one = self.reciprocal(total)
        rounded = ((e * reciprocal >> one) + 1) >> (RECIPROCAL_BITS - 16)
        return namespace(e).clip(rounded, 0, ONE - 1)


DESIGNS = (SplitExponential(),)
