"""I-ViT's Shiftmax: log2(e) as shifts, 2^-f as 1 - f/2, one 31-bit division per row."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from softermax.rivals.designs.arrays import Array, namespace
from softermax.rivals.designs.interface import About, Needs, Normalised

SHIFTS = 15
LARGEST = 2**31 - 1


@dataclass(frozen=True)
class IVit(Normalised):
    """Li and Gu, ICCV 2023, as their quantisation-aware training computes it."""

    name: str = "i-vit-16"
    bits: int = 16
    """Of the output word, with a sign that is never set. The authors' models take 16."""

    about: About = About(
        title="I-ViT Shiftmax",
        sources=(
            "Li and Gu, I-ViT: Integer-only Quantization for Efficient Vision Transformer Inference, ICCV 2023",
            "zkkli/I-ViT@380ba991 models/quantization_utils/quant_modules.py IntSoftmax",
        ),
        confidence="same bits as the authors' code",
        needs=Needs(multipliers=3),
        claims=("DeiT-T/S/B, after QAT: 72.24 / 80.12 / 81.74 % top-1 (FP32 72.21 / 79.85 / 81.85)",),
    )

    @property
    def gives(self) -> str:
        return f"s{self.bits}, p = y / {1 << (self.bits - 1)}"

    @property
    def lsb(self) -> float:
        return 2.0 ** (1 - self.bits)

    @property
    def _x0(self) -> int:
        return math.floor(-1.0 / self.step)

    @property
    def unit(self) -> int:
        return -self._x0 << SHIFTS

    def exponentials(self) -> NDArray[np.int64]:
        x0 = self._x0
        d = -np.arange(SHIFTS * -x0 + 1)
        t = np.maximum(d + (d >> 1) - (d >> 4), SHIFTS * x0)
        shift = t // x0
        r = t - shift * x0
        # (r/2 - x0) 2^(15 - shift): the half stays until the shift has been made.
        return np.asarray(((r - 2 * x0) << (SHIFTS - shift)) >> 1, dtype=np.int64)

    def normalize(self, e: Array, total: Array) -> Array:
        factor = LARGEST // namespace(e).clip(total, 1, LARGEST)
        return e * factor >> (32 - self.bits)


DESIGNS = (IVit(), IVit("i-vit-8", bits=8))
