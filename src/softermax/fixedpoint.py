"""Q(i,f) words: range, rounding, saturation.

A word in Q(i,f) has ``i + f`` bits; its *raw* integer ``r`` stands for ``r * 2**-f``. The sign
bit of a signed word counts as one of the ``i`` integer bits, as in Table I of the paper.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

MAX_BITS = 32
"""Widest word that the models handle: products of two words still fit 64 bits."""

Rounding: TypeAlias = Literal["truncate", "half-up", "half-even", "ceil"]
"""How a conversion drops fractional bits. ``truncate`` drops them (towards minus infinity)."""

ROUNDINGS: tuple[str, ...] = get_args(Rounding)

IntArray: TypeAlias = NDArray[np.int64]

_PATTERN = re.compile(r"^\s*Q\(\s*(\d+)\s*,\s*(\d+)\s*\)\s*$")


@dataclass(frozen=True)
class QFormat:
    """A fixed-point word with ``integer`` and ``fraction`` bits.

    >>> QFormat(6, 2, signed=True).low, QFormat(6, 2, signed=True).high
    (-128, 127)
    >>> str(QFormat(1, 15))
    'Q(1,15)'
    """

    integer: int
    fraction: int
    signed: bool = False

    def __post_init__(self) -> None:
        for name in ("integer", "fraction"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 0:
                raise ValueError(f"{name} bits of a Q format must be an integer >= 0, got {value!r}")
        if not 1 <= self.bits <= MAX_BITS:
            raise ValueError(f"{self} has {self.bits} bits; a word has 1 to {MAX_BITS}")

    @property
    def bits(self) -> int:
        return self.integer + self.fraction

    @property
    def low(self) -> int:
        """Smallest raw value."""
        return -(1 << (self.bits - 1)) if self.signed else 0

    @property
    def high(self) -> int:
        """Largest raw value."""
        return (1 << (self.bits - 1)) - 1 if self.signed else (1 << self.bits) - 1

    @property
    def lsb(self) -> float:
        return 2.0**-self.fraction

    def __str__(self) -> str:
        return f"Q({self.integer},{self.fraction})"

    @classmethod
    def parse(cls, text: str, signed: bool = False) -> QFormat:
        """Read the ``Q(i,f)`` that ``str`` writes."""
        match = _PATTERN.match(text)
        if match is None:
            raise ValueError(f"a Q format is written like 'Q(6,2)', got {text!r}")
        return cls(int(match[1]), int(match[2]), signed)


def saturate(raw: Any, word: QFormat) -> IntArray:
    """Clip raw integers to the range of ``word``."""
    return np.asarray(np.clip(raw, word.low, word.high))


def round_to_integer(values: Any, rounding: Rounding) -> IntArray:
    """Floats, well within 64 bits, to integers: the one place where a score is rounded.

    ``half-up`` compares the fraction with one half: adding one half in floating point could round up a hair less.

    >>> round_to_integer(np.nextafter(np.float32(0.5), np.float32(0)), "half-up")
    array(0)
    """
    values = np.asarray(values)
    if rounding == "half-even":
        whole = np.rint(values)
    elif rounding == "ceil":
        whole = np.ceil(values)
    elif rounding in ("truncate", "half-up"):
        whole = np.floor(values)
        if rounding == "half-up":
            whole = whole + (values - whole >= 0.5)
    else:
        raise ValueError(f"rounding must be one of {', '.join(ROUNDINGS)}, got {rounding!r}")
    # Integers from here on: single precision has no 2^31 - 1 to saturate to.
    return np.asarray(whole.astype(np.int64))


def shift_right(raw: Any, by: Any, rounding: Rounding = "truncate") -> IntArray:
    """``raw / 2**by``, rounded to an integer. ``by`` may be an array; it may exceed the word.

    >>> [int(shift_right(5, 1, how)) for how in ("truncate", "half-up", "half-even", "ceil")]
    [2, 3, 2, 3]
    """
    raw = np.asarray(raw, dtype=np.int64)
    by = np.asarray(by, dtype=np.int64)
    if rounding == "truncate":
        return np.asarray(raw >> by)
    if rounding == "ceil":
        return np.asarray(-((-raw) >> by))
    # One bit more than is kept decides; adding half a unit to raw instead could overflow.
    last = np.asarray(by > 0, dtype=np.int64)
    below = np.maximum(by - 1, 0)
    doubled = raw >> below
    if rounding == "half-up":
        return np.asarray((doubled + last) >> last)
    if rounding == "half-even":
        kept = doubled >> last
        more = (doubled << below) != raw
        return np.asarray(kept + (doubled & last & (more | kept)))
    raise ValueError(f"rounding must be one of {', '.join(ROUNDINGS)}, got {rounding!r}")
