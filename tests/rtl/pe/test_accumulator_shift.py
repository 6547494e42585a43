"""Shifts of accumulators in steps: rounded half up once, however many steps they take."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("amaranth")

from amaranth.sim import Simulator

from softermax.fixedpoint import shift_right
from softermax.rtl.pe.accumulator_shift import AccumulatorShift, steps


def test_steps_add_up_to_a_shift_rounded_half_up() -> None:
    rng = np.random.default_rng(0)
    values = [0, 1, -1, 3, -4, (1 << 31) - 1, -(1 << 31), *rng.integers(-(1 << 31), 1 << 31, 30).tolist()]
    cases = [(value, by) for value in values for by in (0, 1, 2, 3, 4, 6, 7, 13, 31, 32)]
    lane = AccumulatorShift()
    got = []

    async def bench(ctx):
        for value, by in cases:
            for places, rounds in steps(by):
                ctx.set(lane.collected, value)
                ctx.set(lane.by, places)
                ctx.set(lane.rounds, rounds)
                await ctx.delay(1e-9)
                value = ctx.get(lane.shifted) + ctx.get(lane.carry)
            got.append(value)

    simulator = Simulator(lane)
    simulator.add_testbench(bench)
    simulator.run()
    expected = [int(shift_right(np.array([value]), by, "half-up")[0]) for value, by in cases]
    assert got == expected


def test_a_shift_that_leaves_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="shift by 33 places: must be at most 32"):
        steps(33)
