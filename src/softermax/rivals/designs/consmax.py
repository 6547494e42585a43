"""ConSmax: exp(x - beta) / gamma with learned constants: no max, no sum, no division. A model must be trained with it."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from softermax.rivals.designs.arrays import Array, cast, look_up, namespace
from softermax.rivals.designs.bfloat16 import bf16_values, bf16_words
from softermax.rivals.designs.interface import About, Needs, Rival, kept

BETA, GAMMA = 2.5, 100.0
"""Where the authors' training starts."""


@dataclass(frozen=True)
class ConSmax(Rival):
    """Liu et al., ICCAD 2024: an int8 score is two nibbles, each with a table of 16 BF16 numbers, and one BF16 product.

    Uncalibrated it stands for a trained model as well as constants can: gamma is the mean of the rows' sums.
    """

    name: str = "consmax"
    beta: float | None = None
    gamma: float | None = None

    about: About = About(
        title="ConSmax",
        sources=(
            "Liu et al., ConSmax: Hardware-Friendly Alternative Softmax with Learnable Parameters, ICCAD 2024",
            "ReaLLMASIC/consmax@faad4960 paper and src/consmax.v; ReaLLMASIC/ReaLLM-Forge ConSmaxV2",
        ),
        confidence="authors' code",
        needs=Needs(
            row_max=False, second_pass=False, divider=False, multipliers=1, table=32, retraining=True
        ),
        claims=(
            "16 nm, 256 tokens: 0.0008 mm2, 0.2 mW, 0.2 pJ/op; Softermax, rebuilt by its authors: 0.0022 mm2, 0.67 mW, 0.7 pJ",
            "perplexity, GPT-2-like: +0.9 % after 10000 iterations",
        ),
    )

    @property
    def gives(self) -> str:
        return "BF16"

    def calibrated(self, scores: Array, mask: Array | None = None) -> ConSmax:
        found = super().calibrated(scores, mask)
        if found.gamma is not None:
            return found
        xp = namespace(scores)
        e = xp.exp(cast(scores, "float64"))
        sums = xp.sum(e if mask is None else xp.where(mask, e, 0.0), axis=-1)
        # Rows without an element add up to nothing.
        return dataclasses.replace(found, beta=0.0, gamma=float(sums.mean()) or 1.0)

    @property
    def constant(self) -> float:
        """e^-beta / gamma, which hardware keeps in the lower nibble's table."""
        beta = BETA if self.beta is None else self.beta
        gamma = GAMMA if self.gamma is None else self.gamma
        return math.exp(-beta) / gamma

    def tables(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """BF16 words for the high nibble, -8 to 7, and for the low one, 0 to 15."""
        high = np.exp(16 * self.step * np.arange(-8, 8))
        low = self.constant * np.exp(self.step * np.arange(16))
        return bf16_words(high.astype(np.float32)), bf16_words(low.astype(np.float32))

    def words(self, raw: Array, mask: Array | None = None) -> Array:
        xp = namespace(raw)
        high, low = self.tables()
        product = bf16_values(look_up(high, (raw >> 4) + 8)) * bf16_values(look_up(low, raw & 15))
        return xp.where(kept(raw, mask), bf16_words(product), 0)

    def probabilities(self, raw: Array, mask: Array | None = None) -> Array:
        return cast(bf16_values(self.words(raw, mask)), "float64")


DESIGNS = (ConSmax(),)
