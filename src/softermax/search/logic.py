"""Gates counted, not built: what is left of shifters, tables and sums once constants are carried through them.

A bit is `ZERO`, `ONE` or `VARIABLE`. Synthesis spends nothing on a multiplexer of two equal constants, a wire on one of two
different ones, and a gate where one side is constant. The counts are those of plain logic, before a mapper looks for better.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

ZERO, ONE, VARIABLE = 0, 1, 2


@dataclass(frozen=True)
class Gates:
    """Multiplexers, and simpler gates that are left of some."""

    muxes: float
    ands: float

    @property
    def size(self) -> float:
        """In multiplexers."""
        return self.muxes + 0.5 * self.ands


def bits_of(words: Sequence[int], bits: int) -> tuple[int, ...]:
    """What is known of each bit of a word that is one of these, the lowest first."""
    found = []
    for bit in range(bits):
        values = {word >> bit & 1 for word in words}
        found.append(values.pop() if len(values) == 1 else VARIABLE)
    return tuple(found)


@lru_cache(maxsize=4096)
def shifter(value: tuple[int, ...], zeros: int, stages: int) -> Gates:
    """A value to the right by up to ``2**stages - 1``, with ``zeros`` below it that keep what falls off."""
    bits = [ZERO] * zeros + list(value)
    muxes = ands = 0
    for stage in range(stages):
        step = 1 << stage
        after = []
        for low, high in zip(bits, [*bits[step:], *[ZERO] * step][: len(bits)], strict=True):
            if low == high and low != VARIABLE:
                after.append(low)
                continue
            after.append(VARIABLE)
            known = (low != VARIABLE) + (high != VARIABLE)
            muxes += known == 0
            ands += known == 1
        bits = after
    return Gates(float(muxes), float(ands))


@dataclass(frozen=True)
class Rounded:
    """A shift to the right whose result is rounded."""

    shift: Gates
    incremented: int
    """Bits that a unit may be added to."""
    collected: int
    """Bits that are OR-ed together, to tell a half from more."""


def rounded_shift(value: tuple[int, ...], stages: int, rounding: str) -> Rounded:
    """As `softermax.rtl.arithmetic.rounding` makes it of a shift that is not known."""
    if rounding == "truncate":
        return Rounded(shifter(value, 0, stages), 0, 0)
    if rounding == "half-up":
        return Rounded(shifter(value, 1, stages), len(value), 0)
    below = (1 << stages) - 1
    return Rounded(shifter(value, below, stages), len(value), below)


def decisions(words: Sequence[int], bits: int) -> float:
    """Of words in a table of ``2**n`` entries, all bits together: nodes of their decision diagrams, each function once and
    its complement for nothing."""
    seen: set[tuple[int, ...]] = set()
    return sum(_nodes(tuple(word >> bit & 1 for word in words), seen) for bit in range(bits))


def _nodes(column: tuple[int, ...], seen: set[tuple[int, ...]]) -> float:
    if column[0]:
        column = tuple(1 - bit for bit in column)
    if not any(column) or column in seen:
        return 0.0
    seen.add(column)
    half = len(column) // 2
    low, high = column[:half], column[half:]
    if low == high:
        return _nodes(low, seen)
    own = 0.5 if len(set(low)) == 1 or len(set(high)) == 1 else 1.0
    if len(set(low)) == 1 and len(set(high)) == 1:
        own = 0.0  # the variable itself
    return own + _nodes(low, seen) + _nodes(high, seen)
