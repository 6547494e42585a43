"""What designs are compared with: the softmax itself, and the softmax of int8 scores."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from softermax.rivals.designs.arrays import Array, cast, namespace
from softermax.rivals.designs.interface import About, Needs, Rival, kept


def softmax(x: Array, keep: Array) -> Array:
    """In double precision; a row that is masked as a whole is 0."""
    xp = namespace(x)
    masked = xp.where(keep, x, -1e300)
    e = xp.where(keep, xp.exp(masked - xp.amax(masked, axis=-1, keepdims=True)), 0.0)
    total = xp.sum(e, axis=-1, keepdims=True)
    return e / xp.where(total > 0, total, 1.0)


@dataclass(frozen=True)
class Exact(Rival):
    """The softmax, in double precision. Input and output words are the numbers themselves."""

    name: str = "exact"

    about: About = About(
        kind="reference",
        title="softmax",
        sources=("definition",),
        confidence="definition",
        needs=Needs(multipliers=1),
        takes="float",
    )

    @property
    def gives(self) -> str:
        return "float"

    def calibrated(self, scores: Array, mask: Array | None = None) -> Exact:
        return dataclasses.replace(self, scale=1.0)

    def quantize(self, scores: Array) -> Array:
        return cast(scores, "float64")

    def words(self, raw: Array, mask: Array | None = None) -> Array:
        return softmax(cast(raw, "float64") * self.step, kept(raw, mask))

    def probabilities(self, raw: Array, mask: Array | None = None) -> Array:
        return self.words(raw, mask)


@dataclass(frozen=True)
class Int8Scores(Exact):
    """The softmax of int8 scores: what the input word costs, and nothing else."""

    name: str = "int8-scores"
    about: About = About(
        kind="reference",
        title="softmax of int8 scores",
        sources=("definition",),
        confidence="definition",
        needs=Needs(multipliers=1),
    )

    def calibrated(self, scores: Array, mask: Array | None = None) -> Int8Scores:
        return Rival.calibrated(self, scores, mask)

    def quantize(self, scores: Array) -> Array:
        return Rival.quantize(self, scores)


DESIGNS = (Exact(), Int8Scores())
