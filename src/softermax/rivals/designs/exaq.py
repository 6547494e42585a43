"""EXAQ: distances to the max in 2 to 4 bits on a clipped range; a table of so many exponentials; the sum by counting codes."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from softermax.rivals.designs.arrays import Array, cast, largest, look_up, namespace, row_sum
from softermax.rivals.designs.interface import About, Needs, Rival, kept, magnitude, quantized

CLIPS = {2: (-1.66, -1.85), 3: (-1.75, -2.06), 4: (-1.83, -2.27)}
"""By bits: the clip as a line over the deviation of the distances."""
LOWEST = -(2**31)


def _about(bits: int) -> About:
    return About(
        title="EXAQ",
        sources=(
            "Shkolnik et al., EXAQ: Exponent Aware Quantization For LLMs Acceleration, 2024, arXiv 2410.03185",
            "Anonymous1252022/EXAQ@57570f83 lm_eval/experimental/utils.py",
        ),
        confidence="authors' code",
        needs=Needs(multipliers=1, table=1 << bits),
        takes="int16 (BF16 in the authors' models)",
        claims=("softmax on a GPU: 36.9 % faster, sums about 4x",),
    )


@dataclass(frozen=True)
class Exaq(Rival):
    """Shkolnik et al., 2024. Words are codes, 0 the furthest; probabilities are floats, as the authors keep them."""

    name: str = "exaq-2"
    bits: int = 2
    low: float | None = None
    """The clip, in score units; None: `calibrated` takes it from the scores at hand, to 1/1024."""

    about: About = _about(2)

    @property
    def gives(self) -> str:
        return "float"

    def calibrated(self, scores: Array, mask: Array | None = None) -> Exaq:
        fitted = self
        if fitted.scale is None:
            fitted = dataclasses.replace(fitted, scale=max(magnitude(scores, mask), 2.0**-10) / 32767)
        if fitted.low is not None:
            return fitted
        raw = fitted.quantize(scores)
        keep = kept(raw, mask)
        highest = largest(raw, keep, LOWEST)
        below = cast((raw - highest)[keep], "float64") * fitted.step
        if len(below) < 2:
            return dataclasses.replace(fitted, low=-1.0)
        mean = float(below.mean())
        deviation = math.sqrt(float(((below - mean) ** 2).sum()) / (len(below) - 1))
        slope, offset = CLIPS[self.bits]
        clip = max(slope * deviation + offset, float(below.min()))
        return dataclasses.replace(fitted, low=min(math.floor(clip * 1024) / 1024, -(2.0**-10)))

    def quantize(self, scores: Array) -> Array:
        return quantized(scores, self.step, 16)

    def exponentials(self) -> NDArray[np.float64]:
        """exp of what each code stands for."""
        codes = (1 << self.bits) - 1
        return np.exp(self._low * (1 - np.arange(codes + 1) / codes))

    @property
    def _low(self) -> float:
        if self.low is None:
            raise ValueError(f"{self.name}: has no clip; give low=... or take calibrated(scores)")
        return self.low

    def words(self, raw: Array, mask: Array | None = None) -> Array:
        xp = namespace(raw)
        keep = kept(raw, mask)
        below = xp.where(keep, raw - largest(raw, keep, LOWEST), 0)
        steps = ((1 << self.bits) - 1) / -self._low
        clipped = xp.clip(cast(below, "float64") * self.step, self._low, 0.0)
        return xp.where(keep, cast(xp.round((clipped - self._low) * steps), "int64"), 0)

    def probabilities(self, raw: Array, mask: Array | None = None) -> Array:
        xp = namespace(raw)
        keep = kept(raw, mask)
        codes = self.words(raw, mask)
        table = self.exponentials()
        # One byte per code is compared sixteen times faster than eight.
        counted = cast(xp.where(keep, codes, -1), "int8")
        total = sum(float(e) * cast(row_sum(counted == code), "float64") for code, e in enumerate(table))
        return xp.where(keep, look_up(table, codes) / xp.where(total > 0, total, 1.0), 0.0)


DESIGNS = (Exaq(), Exaq("exaq-3", _about(3), bits=3), Exaq("exaq-4", _about(4), bits=4))
