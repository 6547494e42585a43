"""SOLE's E2Softmax: 4-bit exponents, a sum of powers of two, division by a leading one and a constant of two."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from softermax.rivals.designs.arrays import Array, leading_one, look_up, namespace, running_max, slices
from softermax.rivals.designs.interface import About, Needs, Normalised, Unnormed, kept, magnitude

CODES = 15
LOWEST = -128
CONSTANTS = (209, 145)
"""0.818 and 0.568 in 8 bits: the mean of 1/(1+s) where the bit after the leading one is 0, and where it is 1."""


@dataclass(frozen=True)
class E2Softmax(Normalised):
    """Wang et al., ICCAD 2023. There is no official code; widths of sum and output are chosen here.

    ``e2softmax-online`` takes a row in one pass, as the paper's hardware does.
    """

    name: str = "e2softmax"
    part: int | None = None
    """Elements that the row's max takes in at once, as they come; None: the max is known first."""

    about: About = About(
        title="SOLE E2Softmax",
        sources=(
            "Wang et al., SOLE: Hardware-Software Co-design of Softmax and LayerNorm, ICCAD 2023, arXiv 2510.17189",
            "constants: BillyYehYeh/Nonlinear_Project@c5b7a58f Csim/Softmax.h",
        ),
        confidence="paper",
        needs=Needs(divider=False),
        claims=(
            "over Softermax, rebuilt by its authors: 3.04x energy, 2.82x area efficiency",
            "DeiT-T/S/B, INT8 without retraining: 71.07 / 78.89 / 81.12 % top-1 (FP32 72.21 / 79.85 / 81.85; TR-PTQ's table)",
        ),
    )

    @property
    def gives(self) -> str:
        return "u8, p = y / 256"

    @property
    def unit(self) -> int:
        return 1 << CODES

    @property
    def lsb(self) -> float:
        return 2.0**-8

    def calibrated(self, scores: Array, mask: Array | None = None) -> E2Softmax:
        """The power of two of the int8 scale, at least 1/16: int8 from -8 to 8, as the paper's 4-bit codes reach."""
        if self.scale is not None:
            return self
        needed = math.ceil(math.log2(max(magnitude(scores, mask), 1e-9) / 128))
        return dataclasses.replace(self, scale=2.0 ** max(needed, -4))

    def codes(self) -> NDArray[np.int64]:
        """Log2Exp of every distance below the max."""
        fraction = -round(math.log2(self.step))
        if 2.0**-fraction != self.step:
            raise ValueError(f"{self.name}: scale = {self.step}: must be a power of two")
        d = -np.arange(256)
        scaled = -(d + (d >> 1) - (d >> 4))
        return np.asarray(
            np.minimum(CODES, scaled >> fraction if fraction >= 0 else scaled << -fraction), dtype=np.int64
        )

    def exponentials(self) -> NDArray[np.int64]:
        return np.int64(1 << CODES) >> self.codes()

    def unnormed(self, raw: Array, mask: Array | None = None) -> Unnormed:
        """With parts, codes refer to the max so far, and the sum is shifted by the code of what that grows by. At the end
        every code moves on by that of what its max is below the row's."""
        if self.part is None:
            return super().unnormed(raw, mask)
        xp = namespace(raw)
        keep = kept(raw, mask)
        maxima, codes = self.online(raw, mask)
        taken = slices(keep, self.part, False)
        sums = xp.sum(xp.where(taken, self.unit >> codes, 0), axis=-1)
        total = xp.zeros_like(maxima[..., :1])
        before = maxima[..., :1]
        for part in range(sums.shape[-1]):
            now = maxima[..., part : part + 1]
            total = (total >> look_up(self.codes(), now - before)) + sums[..., part : part + 1]
            before = now
        moved = codes + look_up(self.codes(), maxima[..., -1:] - maxima)[..., None]
        e = xp.where(taken, self.unit >> moved, 0)
        e = e.reshape(*e.shape[:-2], -1)[..., : raw.shape[-1]]
        return Unnormed(e, self.unit, total)

    def online(self, raw: Array, mask: Array | None = None) -> tuple[Array, Array]:
        """The running max of every part (..., parts), and the codes that refer to it (..., parts, elements)."""
        assert self.part is not None
        xp = namespace(raw)
        scores = slices(xp.where(kept(raw, mask), raw, LOWEST), self.part, LOWEST)
        maxima = running_max(xp.amax(scores, axis=-1))
        return maxima, look_up(self.codes(), maxima[..., None] - scores)

    def normalize(self, e: Array, total: Array) -> Array:
        xp = namespace(e)
        one = leading_one(total)
        after = (total >> xp.clip(one - 1, 0, 62)) & 1
        constant = xp.where(after > 0, CONSTANTS[1], CONSTANTS[0])
        # p = constant 2^-(code + one), with one counted from exp(0)'s bit; e is 2^-code itself.
        return (constant * e) >> one


DESIGNS = (E2Softmax(), E2Softmax("e2softmax-online", part=16))
