"""Accumulators of P·V shifted when the row's max grows: what deferred normalisation (A8) adds to a MAC lane."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Module, Mux, signed, unsigned
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

DEFERRED_ACCUMULATOR_BITS = 32
"""Weights add up to more than probabilities do: rows of 65536 elements fit."""
LONGEST = 3
"""Places in one step. A max that grows by more is rare, and takes steps with a vector of zeros in between."""


class AccumulatorShift(wiring.Component):
    """``collected`` on its way from the collector to the lane's adder: ``shifted`` plus ``carry``, which is the
    adder's carry in.

    Truncating shifts compose, so a long one is made of steps; in the last of them ``rounds`` is set, and the bit that
    falls off last is added: half up, as A8 has it.
    """

    def __init__(self) -> None:
        accumulator = signed(DEFERRED_ACCUMULATOR_BITS)
        super().__init__(
            {
                "collected": In(accumulator),
                "by": In(unsigned(LONGEST.bit_length())),
                "rounds": In(1),
                "shifted": Out(accumulator),
                "carry": Out(1),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        # One place first: the bit that falls off last is then the one below the other places'.
        once = Mux(self.by[0], self.collected >> 1, self.collected)
        lost_once = self.by[0] & self.collected[0]
        m.d.comb += [
            self.shifted.eq(Mux(self.by[1], once >> 2, once)),
            self.carry.eq(self.rounds & Mux(self.by[1], once[1], lost_once)),
        ]
        return m


def steps(by: int) -> list[tuple[int, bool]]:
    """The steps of a shift by so many places: places, and whether the step rounds."""
    if by > DEFERRED_ACCUMULATOR_BITS:
        raise ValueError(
            f"shift by {by} places: must be at most {DEFERRED_ACCUMULATOR_BITS}; beyond, nothing is left"
        )
    if by == 0:
        return [(0, False)]
    whole, rest = divmod(by - 1, LONGEST)
    return [(LONGEST, False)] * whole + [(rest + 1, True)]
