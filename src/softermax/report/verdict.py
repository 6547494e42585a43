"""Verdicts: computed from our figure and the paper's by a rule that the report prints."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

Word = Literal["better", "reproduced", "undecided", "not reached", "not measured"]
WORDS: tuple[Word, ...] = ("better", "reproduced", "undecided", "not reached", "not measured")
"""What a comparison with the paper can come to, the good ones first."""

TOLERANCE = 0.10
"""How far a ratio may lie from the paper's, relative to it, to count as the same."""

RULES = {
    "ratio": (
        f"reproduced within {TOLERANCE:.0%} of the paper's ratio, better below that, not reached above it"
    ),
    "equal": "reproduced if equal to the paper's, otherwise not reached",
    "exact": "reproduced if every word equals the golden model's, otherwise not reached",
    "drop": (
        "better if the 95 % interval of Softermax less int8 lies above 0; reproduced if it lies above the "
        "paper's worst drop; not reached if it lies below that; undecided if it holds both"
    ),
    "growth": "reproduced if the share is larger at the longest sequence than at the shortest",
    "slope": "reproduced if Softermax takes less at every length and adds less between lengths",
}


@dataclass(frozen=True)
class Comparison:
    """One figure of the paper beside ours."""

    name: str
    paper: Any
    ours: Any
    verdict: Word
    rule: str
    """A key of `RULES`."""
    note: str = ""


def ratio(name: str, paper: float, ours: float | None, note: str = "") -> Comparison:
    """Less is better."""
    if ours is None:
        return Comparison(name, paper, None, "not measured", "ratio", note)
    if not math.isfinite(ours) or ours <= 0:
        raise ValueError(f"{name}: {ours} is no ratio; must be a number above 0")
    # A little slack, so that 0.99 against 0.90 is judged as decimals, not as binary fractions.
    off = round(ours / paper - 1, 9)
    word: Word = "reproduced" if abs(off) <= TOLERANCE else "better" if off < 0 else "not reached"
    return Comparison(name, paper, ours, word, "ratio", note)


def equal(name: str, paper: Any, ours: Any, note: str = "") -> Comparison:
    if ours is None:
        return Comparison(name, paper, None, "not measured", "equal", note)
    return Comparison(name, paper, ours, "reproduced" if ours == paper else "not reached", "equal", note)


def exact(name: str, words: int | None, differing: int | None, note: str = "") -> Comparison:
    """Words compared with the golden model's, and how many differ. No words prove nothing."""
    if not words or differing is None:
        return Comparison(name, "equal", None, "not measured", "exact", note)
    shown = f"{words:,} words, {differing:,} differ"
    return Comparison(name, "equal", shown, "not reached" if differing else "reproduced", "exact", note)


def drop(
    name: str,
    paper: float | None,
    ours: float | None,
    interval: tuple[float, float] | None,
    worst: float,
    note: str = "",
) -> Comparison:
    """Points that Softermax gains over int8, with their interval. ``worst`` is the paper's worst drop."""
    if ours is None:
        return Comparison(name, paper, None, "not measured", "drop", note)
    if interval is None:
        without = "no interval is at hand" + (f"; {note}" if note else "")
        return Comparison(name, paper, ours, "undecided", "drop", without)
    low, high = interval
    word: Word = (
        "better"
        if low > 0
        else "reproduced"
        if low >= -worst
        else "not reached"
        if high < -worst
        else "undecided"
    )
    return Comparison(name, paper, ours, word, "drop", note)


def growth(name: str, shares: Sequence[float], note: str = "") -> Comparison:
    """Shares by rising sequence length."""
    if len(shares) < 2:
        return Comparison(name, "grows", None, "not measured", "growth", note)
    word: Word = "reproduced" if shares[-1] > shares[0] else "not reached"
    return Comparison(name, "grows", f"{shares[0]:.1%} to {shares[-1]:.1%}", word, "growth", note)


def slope(name: str, ours: Sequence[float], baseline: Sequence[float], note: str = "") -> Comparison:
    """Energies by rising sequence length."""
    if len(ours) < 2 or len(ours) != len(baseline):
        return Comparison(name, "lower, shallower", None, "not measured", "slope", note)
    lower = all(a < b for a, b in zip(ours, baseline, strict=True))
    steps = [
        (b - a, d - c) for a, b, c, d in zip(ours[:-1], ours[1:], baseline[:-1], baseline[1:], strict=True)
    ]
    shallower = all(mine < theirs for mine, theirs in steps)
    said = f"{'lower' if lower else 'not lower'}, {'shallower' if shallower else 'not shallower'}"
    word: Word = "reproduced" if lower and shallower else "not reached"
    return Comparison(name, "lower, shallower", said, word, "slope", note)
