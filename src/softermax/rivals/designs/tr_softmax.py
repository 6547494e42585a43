"""TR-SoftMax: the exponential by anchors of a table and a Taylor step; division as a second exponential of a logarithm."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from softermax.rivals.designs.arrays import Array, leading_one, look_up, namespace
from softermax.rivals.designs.interface import About, Needs, Normalised, quantized

ANCHORS = 8
"""Of the table: exp(-1) to exp(-8). Beyond them nothing is left in 8 bits."""


def _about(order: int) -> About:
    return About(
        title="TR-SoftMax",
        sources=("Levy et al., TR-PTQ, 2026",),
        confidence="paper",
        needs=Needs(divider=False, multipliers=1 + order, table=ANCHORS),
        claims=("DeiT-T/S/B, PTQ: 71.39 / 79.27 / 81.40 % top-1",),
    )


@dataclass(frozen=True)
class TrSoftmax(Normalised):
    """Levy et al. 2026 (TR-PTQ). Distances of 8 bits, exponentials of 8: how they are divided is chosen here.

    The first-order step has 4 bits before the point and 4 after, the second-order one, which gains from finer
    steps, 3 and 5.
    """

    name: str = "tr-softmax"
    about: About = _about(1)
    fraction: int = 4
    order: int = 1
    """Of the step from an anchor."""

    @property
    def gives(self) -> str:
        return "u8, p = y / 256"

    @property
    def unit(self) -> int:
        return 256

    @property
    def lsb(self) -> float:
        return 2.0**-8

    def calibrated(self, scores: Array, mask: Array | None = None) -> TrSoftmax:
        return dataclasses.replace(self, scale=2.0**-self.fraction)

    def quantize(self, scores: Array) -> Array:
        # Wide enough for any score: what has 8 bits is the distance to the max.
        return quantized(scores, self.step, 16)

    def power(self) -> NDArray[np.int64]:
        """exp of every distance below 0, up to the last anchor, in 8 bits."""
        k = self.fraction
        distance = np.arange((ANCHORS << k) + 1)
        anchor = -(-distance >> k)
        rest = (anchor << k) - distance
        entries = np.round(256 * np.exp(-np.arange(ANCHORS + 1))).astype(np.int64)
        step = (1 << k) + rest + (rest * rest >> (k + 1) if self.order == 2 else 0)
        return np.asarray(entries[anchor] * step >> k, dtype=np.int64)

    def exponentials(self) -> NDArray[np.int64]:
        table = self.power()
        return np.concatenate([table, np.zeros(1, np.int64)])

    def normalize(self, e: Array, total: Array) -> Array:
        k = self.fraction
        one = leading_one(total)
        # ln s = ln 2 (2^-a s + a - 1), where s is the sum over exp(0): its leading one is a bits up.
        log2 = (total << k >> one) + ((one - 8 - 1) << k)
        ln = (log2 >> 1) + (log2 >> 3) + (log2 >> 4)
        inverse = look_up(self.power(), namespace(e).clip(ln, 0, ANCHORS << k))
        return namespace(e).clip(e * inverse >> 8, 0, 255)


DESIGNS = (TrSoftmax(), TrSoftmax("tr-softmax-2", _about(2), fraction=5, order=2))
