"""FQ-ViT's log-int-softmax: I-BERT's exponential, then 4-bit logarithms of base two, so that P·V becomes shifts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from softermax.rivals.designs.arrays import Array, cast, divided_half_even, leading_one, namespace
from softermax.rivals.designs.i_bert import SHIFTS, polynomial
from softermax.rivals.designs.interface import About, Needs, Normalised, kept


@dataclass(frozen=True)
class FqVit(Normalised):
    """Lin et al., IJCAI 2022. An output word is the logarithm; the word 2^bits stands for 0."""

    name: str = "fq-vit"
    bits: int = 4

    fixed_output: ClassVar[bool] = False
    about: About = About(
        title="FQ-ViT log-int-softmax",
        sources=(
            "Lin et al., FQ-ViT: Post-Training Quantization for Fully Quantized Vision Transformer, IJCAI 2022",
            "megvii-research/FQ-ViT@5daf5915 models/ptq/layers.py QIntSoftmax",
        ),
        confidence="same bits as the authors' code",
        needs=Needs(multipliers=3),
        claims=("DeiT-T/S/B, PTQ: 71.61 / 79.17 / 81.20 % top-1",),
    )

    @property
    def gives(self) -> str:
        return f"u{self.bits}, p = 2^-y"

    @property
    def unit(self) -> int:
        return int(self.exponentials()[0])

    @property
    def lsb(self) -> float:
        raise ValueError(f"{self.name}: output words are logarithms")

    def exponentials(self) -> NDArray[np.int64]:
        value, shift, top = polynomial(self.step)
        if not 0 < top < 2**19:
            raise ValueError(
                f"{self.name}: scale = {self.step}: must be 0.0024 to 1.67, or a sum outgrows 64 bits"
            )
        return value << (SHIFTS - shift)

    def normalize(self, e: Array, total: Array) -> Array:
        xp = namespace(e)
        ratio = divided_half_even(total + 0 * e, xp.where(e > 0, e, 1))
        code = leading_one(ratio)
        # To the nearest power of two, by the bit below the leading one.
        code = code + cast((ratio - (1 << code)) * 2 >= (1 << code), "int64")
        return xp.where((e > 0) & (code < (1 << self.bits)), code, 1 << self.bits)

    def words(self, raw: Array, mask: Array | None = None) -> Array:
        xp = namespace(raw)
        found = self.unnormed(raw, mask)
        total = xp.where(found.total > 0, found.total, 1)
        return xp.where(kept(raw, mask), self.normalize(found.words, total), 1 << self.bits)

    def probabilities(self, raw: Array, mask: Array | None = None) -> Array:
        xp = namespace(raw)
        code = self.words(raw, mask)
        return xp.where(code < (1 << self.bits), xp.exp2(-cast(code, "float64")), 0.0)


DESIGNS = (FqVit(),)
