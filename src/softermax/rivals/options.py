"""Our two answers to long rows, for designs that have exponentials and a sum: ``:row-scaled`` and ``:deferred``.

Most designs keep 8-bit probabilities of a fixed scale and lose the mass of a long row. That is a choice of output word,
not of exponential, so each may take ours instead: its own exponentials, normalised as A7 or A8 would.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from softermax.rivals.designs.arrays import Array, cast, leading_one, namespace, row_sum
from softermax.rivals.designs.interface import Normalised, Rival, kept

BITS = 8
"""Of the output word, and of the weight that enters P·V."""


@dataclass(frozen=True)
class Normalisation(Rival):
    """A design with its own exponentials and another normalisation."""

    design: Normalised = dataclasses.field(kw_only=True)

    @classmethod
    def of(cls, design: Normalised, name: str) -> Normalisation:
        return cls(name, design.about, design.scale, design=design)

    def calibrated(self, scores: Array, mask: Array | None = None) -> Normalisation:
        return self.of(self.design.calibrated(scores, mask), self.name)

    def quantize(self, scores: Array) -> Array:
        return self.design.quantize(scores)


@dataclass(frozen=True)
class RowScaled(Normalisation):
    """Probabilities in 8 bits that each row fills, and one exponent per row (A7)."""

    @property
    def gives(self) -> str:
        return f"u{BITS} and an exponent per row"

    def exponents(self, raw: Array, mask: Array | None = None) -> Array:
        """By row: a word y stands for y / 2^(8 + exponent). The floor of log2 of the sum over exp(0)."""
        return self._words_and_exponents(raw, mask)[1]

    def words(self, raw: Array, mask: Array | None = None) -> Array:
        return self._words_and_exponents(raw, mask)[0]

    def probabilities(self, raw: Array, mask: Array | None = None) -> Array:
        words, exponents = self._words_and_exponents(raw, mask)
        return cast(words, "float64") * namespace(raw).exp2(-cast(exponents + BITS, "float64"))

    def _words_and_exponents(self, raw: Array, mask: Array | None) -> tuple[Array, Array]:
        xp = namespace(raw)
        found = self.design.unnormed(raw, mask)
        total = row_sum(found.words)
        exponents = leading_one(total // found.unit)
        total = xp.where(total > 0, total, 1)
        # Half up, as A5.
        y = ((found.words << (BITS + 1 + exponents)) + total) // (2 * total)
        return xp.where(kept(raw, mask), xp.clip(y, 0, (1 << BITS) - 1), 0), exponents


@dataclass(frozen=True)
class Deferred(Normalisation):
    """8-bit unnormed weights, divided by their sum after P·V (A8); that division is exact here."""

    @classmethod
    def of(cls, design: Normalised, name: str) -> Deferred:
        needs = dataclasses.replace(design.about.needs, second_pass=False)
        return cls(name, dataclasses.replace(design.about, needs=needs), design.scale, design=design)

    @property
    def gives(self) -> str:
        return f"u{BITS} unnormed, divided after P·V"

    def words(self, raw: Array, mask: Array | None = None) -> Array:
        found = self.design.unnormed(raw, mask)
        return namespace(raw).clip((found.words << BITS) // found.unit, 0, (1 << BITS) - 1)

    def probabilities(self, raw: Array, mask: Array | None = None) -> Array:
        xp = namespace(raw)
        weights = self.words(raw, mask)
        total = row_sum(weights)
        return cast(weights, "float64") / cast(xp.where(total > 0, total, 1), "float64")


OPTIONS: dict[str, type[Normalisation]] = {"row-scaled": RowScaled, "deferred": Deferred}
"""By what stands after a design's name and a colon."""
