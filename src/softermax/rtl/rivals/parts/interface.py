"""What the file of a rival in RTL says: its units, what they are fed and must answer, and what waits between them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from amaranth.hdl import Shape

from softermax.fixedpoint import IntArray
from softermax.golden import BoolArray
from softermax.rivals import Rival, get_rival
from softermax.rtl.rivals.parts.payloads import INT8
from softermax.rtl.vectors import Fields, Streams, cut, places, slice_fields

UNNORMED, NORMALIZATION, WHOLE = "unnormed", "normalization", "whole"
"""The two units of a design, and the one of a design that has no row to wait for."""


@dataclass(frozen=True)
class Kept:
    """What waits of every slice between two steps of a softmax. It is written once."""

    what: str
    bits: int
    """Of an element."""
    beside: int = 0
    """Bits that belong to a slice."""
    reads: int = 1


SCORES = Kept("scores", INT8.width + 1)
"""A bit of mask beside each."""


class Hardware(ABC):
    """A rival in RTL, around its model in `softermax.rivals`, which is always a design with a scale.

    A subclass in a module of `softermax.rtl.rivals.designs`, with an instance of it called ``HARDWARE``, is one design more for
    `softermax verify`, `softermax silicon --rivals` and `softermax rivals`.
    """

    name: ClassVar[str]
    """As `softermax.rivals` calls it."""
    score: ClassVar[Shape] = INT8

    @property
    def model(self) -> Any:
        return get_rival(self.name)

    def fitted(self, design: Any, lanes: int) -> Any:
        """The design with what its words depend on, where it takes slices of so many lanes."""
        return design

    def scores_of(self, raw: IntArray) -> IntArray:
        """Words of 8 bits as words of its scores, so that they reach from end to end."""
        return raw if self.score.width == INT8.width else raw * ((1 << (self.score.width - 8)) - 1)

    units: ClassVar[tuple[str, ...]] = (UNNORMED, NORMALIZATION)
    """In the order of the flow."""

    @abstractmethod
    def make(self, unit: str, design: Any, lanes: int) -> Any:
        """A new component: one of the units."""

    @abstractmethod
    def streams(self, design: Any, lanes: int, raw: IntArray, mask: BoolArray) -> dict[str, Streams]:
        """By unit: what goes through its streams for rows (rows, columns) of score words."""

    @abstractmethod
    def waiting(self, design: Any) -> tuple[Kept, ...]:
        """What waits: room for two rows of each, as for every design."""

    def probabilities(self, design: Rival, lanes: int, raw: IntArray, mask: BoolArray) -> Fields:
        """Output words in slices, row after row."""
        return sliced("y", design.words(raw, mask), lanes)


def sliced(name: str, words: IntArray, lanes: int, fill: int = 0) -> Fields:
    """Words of rows as slices, the last one of a row filled up."""
    found = cut(words - fill, lanes) + fill
    return {name: found, "last": places(len(words), len(found) // len(words))["last"]}


class TwoPassHardware(Hardware):
    """A design that needs its max first: `TwoPassSum` and `RowNormalization`.

    Its total is the model's, unless it says otherwise.
    """

    masked: ClassVar[int] = 0
    """What waits of an element that is masked."""

    @abstractmethod
    def kept_words(self, design: Any, raw: IntArray, mask: BoolArray) -> IntArray:
        """What waits of each element, in integers of ``u``."""

    def totals(self, design: Any, raw: IntArray, mask: BoolArray) -> IntArray:
        """What `TwoPassSum` gives for each row."""
        return np.asarray(design.unnormed(raw, mask).total)[:, 0]

    def streams(self, design: Any, lanes: int, raw: IntArray, mask: BoolArray) -> dict[str, Streams]:
        scores = slice_fields(lanes, raw, mask)
        kept = sliced("u", self.kept_words(design, raw, mask), lanes, self.masked)
        finished = {"total": self.totals(design, raw, mask)}
        return {
            UNNORMED: {"first_pass": scores, "second_pass": scores, "kept": kept, "finished": finished},
            NORMALIZATION: {
                "finished": finished,
                "kept": kept,
                "probabilities": self.probabilities(design, lanes, raw, mask),
            },
        }
