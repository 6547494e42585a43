"""ConSmax: exp(x - beta) / gamma with learned constants: no max, no sum, no division. A model must be trained with it."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from softermax.rivals.designs.arrays import Array, cast, look_up, namespace
from softermax.rivals.designs.bfloat16 import bf16_values, bf16_words
from softermax.rivals.designs.exact import softmax
from softermax.rivals.designs.interface import About, Needs, Rival, kept

BETA, GAMMA = 2.5, 100.0
"""Where the authors' training starts."""
ONE = 0x3F80
"""1 in BF16."""
_RANGE = 87.0
"""Logarithms of BF16's normal numbers lie between this and its negative."""
_ROWS, _TRIED = 256, 64
"""Rows that a constant is fitted to at most, and constants that are tried."""


def nearest_beta(scores: Array, mask: Array | None = None) -> float:
    """The beta that, with a gamma of 1, is nearest to the softmax of these rows: the least L1.

    For one row it is the logarithm of its sum. Those of rows lie far apart, so that a mean of the sums is that of a few
    rows and a median makes those few burst: quantiles of the logarithms are tried.
    """
    xp = namespace(scores)
    x = cast(scores, "float64").reshape(-1, scores.shape[-1])
    keep = kept(scores, mask).reshape(x.shape)
    rows = xp.any(keep, axis=-1)
    x, keep = x[rows], keep[rows]
    every = max(1, len(x) // _ROWS)
    x, keep = x[::every], keep[::every]
    if not len(x):
        return 0.0
    exact = softmax(x, keep)
    x = xp.where(keep, x, -math.inf)
    highest = xp.amax(x, axis=-1)
    sums = highest + xp.log(xp.sum(xp.exp(x - highest[:, None]), axis=-1))
    tried = [float(xp.quantile(sums, share)) for share in np.linspace(0, 1, _TRIED + 1).tolist()]
    errors = [float(xp.sum(xp.abs(xp.exp(xp.clip(x - beta, None, 0.0)) - exact))) for beta in tried]
    return tried[int(np.argmin(errors))]


@dataclass(frozen=True)
class ConSmax(Rival):
    """Liu et al., ICCAD 2024: an int8 score is two nibbles, each with a table of 16 BF16 numbers, and one BF16 product.

    The product stays BF16 and saturates at 1, as the authors' conversion to int8 does at its largest word.
    Calibrated it stands for a trained model as well as a constant can: `nearest_beta`.
    """

    name: str = "consmax"
    beta: float | None = None
    gamma: float | None = None

    per_head: ClassVar[bool] = True
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
        return dataclasses.replace(found, beta=nearest_beta(scores, mask), gamma=1.0)

    @property
    def logarithm(self) -> float:
        """That of the constant e^-beta / gamma."""
        beta = BETA if self.beta is None else self.beta
        gamma = GAMMA if self.gamma is None else self.gamma
        return -beta - math.log(gamma)

    def tables(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """BF16 words for the high nibble, -8 to 7, and for the low one, 0 to 15.

        The authors keep the constant in the low one. Where BF16 cannot hold that, because scores are in the nineties, it is
        in the high one here, whose entries end at 1, as products do: the same hardware.
        """
        high, low = 16 * self.step * np.arange(-8, 8), self.step * np.arange(16)
        if max(high[-1], abs(self.logarithm)) < _RANGE:
            low = low + self.logarithm
        else:
            high = np.minimum(high + self.logarithm, 0)
        return bf16_words(np.exp(high).astype(np.float32)), bf16_words(np.exp(low).astype(np.float32))

    def products(self, raw: Array) -> Array:
        """BF16 words before they saturate."""
        high, low = self.tables()
        return bf16_words(bf16_values(look_up(high, (raw >> 4) + 8)) * bf16_values(look_up(low, raw & 15)))

    def words(self, raw: Array, mask: Array | None = None) -> Array:
        xp = namespace(raw)
        return xp.where(kept(raw, mask), xp.clip(self.products(raw), 0, ONE), 0)

    def probabilities(self, raw: Array, mask: Array | None = None) -> Array:
        return cast(bf16_values(self.words(raw, mask)), "float64")


DESIGNS = (ConSmax(),)
