"""ITA's softmax: powers of two only, a running max over parts of 16, one division per row, two reads of the scores."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from softermax.rivals.designs.arrays import Array, namespace, running_max, slices
from softermax.rivals.designs.interface import About, Needs, Normalised, Unnormed, kept

PART = 16
"""Of the authors' accelerator."""
ONE = 256
LOWEST = -128


@dataclass(frozen=True)
class Ita(Normalised):
    """Islamoglu et al., ISLPED 2023. Its score scale is fixed: 2^shift steps are a power of two.

    The paper has shift 5, where int8 covers eight powers of two and training keeps scores within; the RTL in the
    repository 0. Shift 3 covers scores from -11 to 11, as models have them without retraining.
    """

    name: str = "ita"
    shift: int = 3
    part: int = PART
    """Elements that the row's max and sum take in at once."""

    about: About = About(
        title="ITA",
        sources=(
            "Islamoglu et al., ITA: An Energy-Efficient Attention and Softmax Accelerator, ISLPED 2023",
            "pulp-platform/ITA@ba96519b PyITA/softmax.py, src/ita_softmax.sv",
        ),
        confidence="same bits as the authors' code",
        needs=Needs(),
        claims=("accelerator, 22FDX 0.8 V: 16.9 TOPS/W, 5.93 TOPS/mm2",),
    )

    @property
    def gives(self) -> str:
        return "u8, p = y / 256"

    @property
    def unit(self) -> int:
        return ONE

    @property
    def lsb(self) -> float:
        return 1 / ONE

    def calibrated(self, scores: Array, mask: Array | None = None) -> Ita:
        return dataclasses.replace(self, scale=math.log(2) / (1 << self.shift))

    def exponentials(self) -> NDArray[np.int64]:
        return np.asarray(self._power(np.full(256, ONE), np.arange(256)), dtype=np.int64)

    def _power(self, value: Array, distance: Array) -> Array:
        """``value`` times 2^-distance; the exponent is rounded half up, the product down."""
        half = (1 << self.shift) >> 1
        return value >> namespace(value).clip((distance + half) >> self.shift, 0, 62)

    def unnormed(self, raw: Array, mask: Array | None = None) -> Unnormed:
        """As in pass 2, with the sum of pass 1, whose truncations depend on the order of the maxima."""
        xp = namespace(raw)
        keep = kept(raw, mask)
        scores = slices(xp.where(keep, raw, LOWEST), self.part, LOWEST)
        maxima = running_max(xp.amax(scores, axis=-1))
        highest = maxima[..., -1:]
        powers = self._power(xp.full_like(scores, ONE), maxima[..., None] - scores)
        sums = xp.sum(xp.where(slices(keep, self.part, False), powers, 0), axis=-1)
        total = xp.zeros_like(highest)
        before = xp.full_like(highest, LOWEST)
        for part in range(sums.shape[-1]):
            now = maxima[..., part : part + 1]
            total = self._power(total, now - before) + sums[..., part : part + 1]
            before = now
        e = xp.where(keep, self._power(xp.full_like(raw, ONE), xp.where(keep, highest - raw, 0)), 0)
        return Unnormed(e, ONE, total)

    def normalize(self, e: Array, total: Array) -> Array:
        # The shift of the reciprocal, which e is a power of two for; where e is 0 so is any quotient of it.
        inverse = 255 * ONE // total
        return inverse * e >> 8


DESIGNS = (Ita(), Ita("ita-paper", shift=5))
