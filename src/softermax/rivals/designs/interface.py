"""What every design has: where it comes from, what it needs, and its arithmetic on score words.

A design is a frozen dataclass. ``quantize`` makes its input words of float scores, ``words`` its output words of those,
``probabilities`` what they stand for, and ``compute`` is all of it. Each runs on NumPy arrays and on PyTorch tensors alike.
"""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Literal, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from softermax.rivals.designs.arrays import Array, cast, largest, look_up, namespace, row_sum

Kind = Literal["reference", "ours", "rival"]
Confidence = Literal[
    "definition", "same bits as the authors' code", "authors' code", "paper", "another's code", "memory"
]
FINEST = 2.0**-7
"""The smallest step of calibrated int8 scores: below it exponentials of I-BERT's kind outgrow 64 bits."""

Self = TypeVar("Self", bound="Rival")


@dataclass(frozen=True)
class Needs:
    """What the hardware of a design has beside adders and shifters."""

    row_max: bool = True
    second_pass: bool = True
    """Whether a row must be kept or read again before its first output."""
    divider: bool = True
    """A divider, or an iteration that stands for one."""
    multipliers: int = 0
    """Per lane, without those of P·V."""
    table: int = 0
    """Entries of tables per lane."""
    retraining: bool = False


@dataclass(frozen=True)
class About:
    """Where a design comes from, and what it takes to build."""

    title: str
    sources: tuple[str, ...]
    confidence: Confidence
    needs: Needs
    kind: Kind = "rival"
    takes: str = "int8"
    """The input word."""
    claims: tuple[str, ...] = ()
    """What its authors say of it."""


@dataclass(frozen=True)
class Rival(ABC):
    """A softmax of somebody's, on rows along the last axis."""

    name: str
    about: About
    scale: float | None = None
    """What a step of a score word is worth; None: `calibrated` takes it from the scores at hand."""

    per_head: ClassVar[bool] = False
    """Whether a model has constants of this design for every head, not for every layer."""

    @property
    @abstractmethod
    def gives(self) -> str:
        """The output word."""

    @abstractmethod
    def words(self, raw: Array, mask: Array | None = None) -> Array:
        """Output words of input words. ``mask`` is boolean, True where an element takes part; the others give 0."""

    @abstractmethod
    def probabilities(self, raw: Array, mask: Array | None = None) -> Array:
        """What the output words stand for, in double precision."""

    def calibrated(self: Self, scores: Array, mask: Array | None = None) -> Self:
        """This design with its constants set for these scores: here one symmetric int8 scale for all of them."""
        if self.scale is not None:
            return self
        return dataclasses.replace(self, scale=max(magnitude(scores, mask) / 127, FINEST))

    def quantize(self, scores: Array) -> Array:
        """Input words of finite float scores: nearest step, ties to even, saturating."""
        return quantized(scores, self.step, 8)

    @property
    def step(self) -> float:
        """The scale, which must be known by now."""
        if self.scale is None:
            raise ValueError(f"{self.name}: has no scale; give scale=... or take calibrated(scores)")
        return self.scale

    def compute(self, scores: ArrayLike, mask: ArrayLike | None = None) -> NDArray[np.float64]:
        """Probabilities of float scores along the last axis."""
        x = np.asarray(scores, dtype=np.float64)
        keep = np.broadcast_to(True if mask is None else np.asarray(mask, dtype=bool), x.shape)
        if x.ndim == 0:
            raise ValueError("scores need at least one dimension, got a scalar")
        if not np.isfinite(x[keep]).all():
            raise ValueError("scores must be finite where they are not masked")
        if x.size == 0:
            return x.copy()
        x = np.where(keep, x, 0.0)
        fitted = self.calibrated(x, keep)
        found: NDArray[np.float64] = fitted.probabilities(fitted.quantize(x), keep)
        return found


def magnitude(scores: Array, mask: Array | None) -> float:
    """The largest magnitude of the scores that take part."""
    xp = namespace(scores)
    size = xp.abs(scores)
    return float((size if mask is None else xp.where(mask, size, 0.0)).max())


def quantized(scores: Array, scale: float, bits: int) -> Array:
    """Signed words of ``bits`` bits: nearest step, ties to even, saturating."""
    xp = namespace(scores)
    high = (1 << (bits - 1)) - 1
    return cast(xp.clip(xp.round(cast(scores, "float64") / scale), -high - 1, high), "int64")


def kept(raw: Array, mask: Array | None) -> Array:
    """A mask of the words' shape."""
    xp = namespace(raw)
    if mask is None:
        return xp.ones_like(raw, dtype=xp.bool_ if xp is np else xp.bool)
    return xp.broadcast_to(mask, raw.shape)


@dataclass(frozen=True)
class Unnormed:
    """Exponentials before they are divided: integers, what stands for exp(0), and their row sums."""

    words: Array
    unit: int
    total: Array


class Normalised(Rival):
    """A design that makes exponentials of the distances to the row's max, adds them up and normalises.

    Where its output has a fixed scale, `softermax.rivals.options` gives it another normalisation too.
    """

    fixed_output: ClassVar[bool] = True

    @property
    @abstractmethod
    def unit(self) -> int:
        """The word that stands for exp(0)."""

    @abstractmethod
    def exponentials(self) -> NDArray[np.int64]:
        """The exponential of every distance below the max, from 0 on, in words."""

    @abstractmethod
    def normalize(self, e: Array, total: Array) -> Array:
        """Output words of exponentials and their sum, which is positive."""

    @property
    @abstractmethod
    def lsb(self) -> float:
        """What a step of an output word is worth."""

    def total(self, e: Array) -> Array:
        """The row's sum, as the design keeps it."""
        return row_sum(e)

    def unnormed(self, raw: Array, mask: Array | None = None) -> Unnormed:
        keep = kept(raw, mask)
        xp = namespace(raw)
        table = self.exponentials()
        below = xp.where(keep, largest(raw, keep, -(2**31)) - raw, 0)
        e = xp.where(keep, look_up(table, xp.clip(below, 0, len(table) - 1)), 0)
        return Unnormed(e, self.unit, self.total(e))

    def words(self, raw: Array, mask: Array | None = None) -> Array:
        xp = namespace(raw)
        found = self.unnormed(raw, mask)
        # A row that is masked as a whole has no sum to divide by.
        total = xp.where(found.total > 0, found.total, 1)
        return xp.where(kept(raw, mask) & (found.total > 0), self.normalize(found.words, total), 0)

    def probabilities(self, raw: Array, mask: Array | None = None) -> Array:
        return cast(self.words(raw, mask), "float64") * self.lsb
