"""SoftEx and VEXP: Schraudolph's exponential in BF16 with a polynomial on the mantissa, the sum in FP32, Newton's reciprocal."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from functools import cache
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from softermax.rivals.designs.arrays import Array, cast, look_up, namespace, running_max, slices
from softermax.rivals.designs.bfloat16 import bf16_values, bf16_words, rounded
from softermax.rivals.designs.interface import About, Needs, Rival, kept

LOG2E = 23637
"""In 14 bits after the point."""
ALPHA, BETA = 4, 7
"""In 4 bits after the point."""
GAMMA = (363, 278)
"""In 7 bits after the point, of the lower and the upper half of the mantissa."""
SLICE = 8
"""Elements per cycle of the authors' 128-bit port."""
LOWEST = -3.0e38


def exponential(x: Array) -> Array:
    """exp of BF16 numbers up to 0, as BF16 numbers."""
    xp = namespace(x)
    word = bf16_words(x)
    mantissa, exponent = (word & 0x7F) + 128, (word >> 7) & 0xFF
    # Beyond 2^8 the result is 0 in any case.
    product = mantissa * LOG2E << xp.clip(exponent - 127, 0, 9)
    product = product >> xp.clip(127 - exponent, 0, 40)
    v = -((product + (1 << 13)) >> 14)
    power, m = (v >> 7) + 127, v & 0x7F
    low = (2 * m * ALPHA * (m + GAMMA[0])) >> 12
    high = 127 - (((255 - 2 * m) * BETA * (m + GAMMA[1])) >> 12)
    result = (power << 7) + xp.where(m < 64, low, high)
    return bf16_values(xp.where(power > 0, result, 0))


def reciprocal(x: Array) -> Array:
    """1 / x of positive FP32 numbers, in BF16: a guess of the mantissa, then two Newton steps in FP32."""
    xp = namespace(x)
    bits = cast(x.view(xp.int32), "int64")
    exponent, mantissa = bits >> 23, (bits >> 16) & 0x7F
    inverted = ~mantissa & 0x7F
    guess = ((253 - exponent) << 23) + (inverted * (inverted >> 1) << 10)
    guess = xp.where(mantissa == 0, (254 - exponent) << 23, guess)
    y = cast(guess, "int32").view(xp.float32)
    for _ in range(2):
        y = y * (2 - y * x)
    return rounded(y)


@dataclass(frozen=True)
class SoftEx(Rival):
    """Belano et al. (SoftEx) and Wang et al. (VEXP). Words are BF16 in and out."""

    name: str = "softex"
    slice_sum: Literal["fp32", "bf16"] = "fp32"
    """How a slice's sum reaches the accumulator: as the RTL keeps it, or rounded as in the authors' Python model."""

    about: About = About(
        title="SoftEx / VEXP BF16",
        sources=(
            "Belano et al., A Flexible Template for Edge Generative AI with High-Accuracy Accelerated Softmax & GELU, 2024",
            "Wang et al., VEXP: A Low-Cost RISC-V ISA Extension for Accelerated Softmax Computation in Transformers, 2025",
            "belanoa/softex@77f219db rtl/expu, golden-model/golden_accurate.py",
        ),
        confidence="same bits as the authors' code",
        needs=Needs(multipliers=3),
        takes="BF16",
        claims=(
            "VEXP, on a Snitch cluster: 162.7x less latency, 74.3x less energy for softmax; 1 % area of the FPU",
        ),
    )

    @property
    def gives(self) -> str:
        return "BF16"

    def calibrated(self, scores: Array, mask: Array | None = None) -> SoftEx:
        return dataclasses.replace(self, scale=1.0)

    def quantize(self, scores: Array) -> Array:
        return bf16_words(cast(scores, "float32"))

    def words(self, raw: Array, mask: Array | None = None) -> Array:
        xp = namespace(raw)
        keep = kept(raw, mask)
        x = xp.where(keep, bf16_values(raw), LOWEST)
        parts = slices(x, SLICE, LOWEST)
        maxima = running_max(xp.amax(parts, axis=-1))
        highest = maxima[..., -1:]
        e = xp.where(slices(keep, SLICE, False), _looked_up(parts - maxima[..., None]), 0.0)
        sums = (e[..., 0::2] + e[..., 1::2]).reshape(*e.shape[:-1], 2, 2).sum(-1)
        added = sums[..., 0] + sums[..., 1]
        added = rounded(added) if self.slice_sum == "bf16" else added
        total = xp.zeros_like(highest)
        before = xp.full_like(highest, LOWEST)
        for part in range(added.shape[-1]):
            now = maxima[..., part : part + 1]
            total = total * _looked_up(before - now) + added[..., part : part + 1]
            before = now
        inverse = xp.where(total > 0, reciprocal(xp.where(total > 0, total, 1.0)), 0.0)
        e = xp.where(keep, _looked_up(x - highest), 0.0)
        return bf16_words(e * inverse)

    def probabilities(self, raw: Array, mask: Array | None = None) -> Array:
        return cast(bf16_values(self.words(raw, mask)), "float64")


@cache
def _table() -> NDArray[np.float32]:
    """`exponential` of every BF16 number up to 0, by its word without the sign."""
    words = np.arange(1 << 15)
    found: NDArray[np.float32] = exponential(bf16_values(np.where(words < 0x7F80, words, 0x7F7F) | 0x8000))
    return found


def _looked_up(difference: Array) -> Array:
    """The exponential of FP32 differences up to 0, rounded to BF16 first: the unit has as many cases as words."""
    return look_up(_table(), bf16_words(difference) & 0x7FFF)


DESIGNS = (SoftEx(),)
