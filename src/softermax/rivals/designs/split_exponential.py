"""The split exponential of A3: the high and the low half of a distance each have a table; their product is the exponential."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from softermax.rivals.designs.arrays import Array, divided_half_even, namespace
from softermax.rivals.designs.interface import About, Needs, Normalised, quantized

ONE = 2**16


@dataclass(frozen=True)
class SplitExponential(Normalised):
    """Ham et al., HPCA 2020: 16-bit scores with 8 bits after the point, two tables of 256 entries, a divider."""

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

    def normalize(self, e: Array, total: Array) -> Array:
        return namespace(e).clip(divided_half_even(e * ONE, total), 0, ONE - 1)


DESIGNS = (SplitExponential(),)
