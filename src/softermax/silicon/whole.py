"""A whole softmax: both units and what waits between them, which is what an architect pays for.

Normalization needs a row's sum, so something of every row waits until the row has ended. A stream of rows needs room for two:
one comes in while the other goes out. That holds for all designs alike:

- `paper` keeps unnormed words, with the max of their slice;
- with row products (A10) the scores wait, a bit of mask beside each;
- two passes keep half-precision scores, with their masks, for the second pass, and then exponentials for the division;
- online keeps exponentials, with the max of their slice;
- generic components keep what two passes keep, exponentials as whole halves.

The lean designs' exponentials are at most 1: their sign and their upper exponent bit are not stored. Every slice is written once and read once.
The memories are CACTI's (`softermax.silicon.memory`), at the voltage of the cells. Their addresses and control are in no
design's figures.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from softermax.rtl.baseline.payloads import HALF
from softermax.silicon.flow import GLITCHES, ZERO_DELAY, Result
from softermax.silicon.memory import Memory, Node
from softermax.spec import SoftermaxSpec

WHOLE, BOTH = "whole", "both units"
"""A whole softmax with what waits between its units, and the units alone."""
ROWS_KEPT = 2.0
"""One row comes in while the other goes out."""
_EXPONENTIAL_BITS = HALF.width - 2


@dataclass(frozen=True)
class UnitFigures:
    """What a comparison takes of one design."""

    slack_ns: float
    area_um2: float
    pj: float
    """Per element, with glitches."""
    pj_zero_delay: float

    @classmethod
    def of(cls, result: Result, stimulus: str) -> UnitFigures:
        pj, settled = (result.pj(stimulus, mode) for mode in (GLITCHES, ZERO_DELAY))
        return cls(result.slack_ns, result.area_um2, pj, settled)

    def __add__(self, other: UnitFigures) -> UnitFigures:
        return UnitFigures(
            min(self.slack_ns, other.slack_ns),
            self.area_um2 + other.area_um2,
            self.pj + other.pj,
            self.pj_zero_delay + other.pj_zero_delay,
        )


@dataclass(frozen=True)
class Waiting:
    """Slices that wait between two steps of a softmax: each is written once."""

    what: str
    bits: int
    """Of an element."""
    width: int
    beside: int = 0
    """Bits that belong to a slice: its max."""
    rows: float = ROWS_KEPT
    reads: int = 1

    @property
    def slice_bits(self) -> int:
        return self.bits * self.width + self.beside

    def cost(self, node: Node, columns: int, clock_ns: float) -> UnitFigures:
        """The memory's area, and an element's share of what it spends."""
        slices = -(-columns // self.width)
        memory = Memory(math.ceil(self.rows * slices * self.slice_bits / 8), self.slice_bits)
        spent = memory.write_pj(node) + self.reads * memory.read_pj(node) + memory.leakage_pj(node, clock_ns)
        pj = spent * slices / columns
        return UnitFigures(math.inf, memory.area_um2(node), pj, pj)


def waiting_of_spec(spec: SoftermaxSpec) -> tuple[Waiting, ...]:
    """What Softermax keeps of a row until its sum is known."""
    width = spec.slice_width
    assert width is not None
    if spec.normalization == "row-products":
        return (Waiting("scores", spec.input.bits + 1, width),)
    return (Waiting("unnormed words", spec.unnormed.bits, width, beside=spec.max.integer),)


def waiting_of_baseline(baseline: str, width: int) -> tuple[Waiting, ...]:
    if baseline in ("two-pass", "generic"):
        bits = HALF.width if baseline == "generic" else _EXPONENTIAL_BITS
        return Waiting("scores", HALF.width + 1, width), Waiting("exponentials", bits, width)
    return (Waiting("exponentials", _EXPONENTIAL_BITS, width, beside=HALF.width),)


def waiting_for_third_pass(width: int) -> tuple[Waiting, ...]:
    """Of two passes that make their exponentials anew: scores, while a row comes in, the one before it has its second pass
    and the one before that is divided."""
    return (Waiting("scores", HALF.width + 1, width, rows=3.0, reads=2),)


def cost_of_waiting(kept: Sequence[Waiting], node: Node, columns: int, clock_ns: float) -> UnitFigures:
    """The memories of all that waits."""
    return added(waiting.cost(node, columns, clock_ns) for waiting in kept)


def added(figures: Iterable[UnitFigures]) -> UnitFigures:
    first, *rest = figures
    return sum(rest, first)
