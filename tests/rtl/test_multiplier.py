"""Products with the half unit that rounding adds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("amaranth")

from amaranth.hdl import Module, Signal
from amaranth.sim import Simulator

from softermax.rtl.arithmetic.multiplier import multiply, recode

NUMERATOR_BITS = 6


@pytest.mark.parametrize("largest", [None, 41])
@pytest.mark.parametrize("fraction", [1, 2, 3, 4, 7])
def test_the_half_unit_is_added_at_any_bit_without_a_lost_carry(fraction: int, largest: int | None) -> None:
    """Up to the largest numerator times 1: there the sum needs a bit more than the product."""
    m = Module()
    numerator, reciprocal = Signal(NUMERATOR_BITS), Signal(fraction + 1)
    factor = recode(m, reciprocal, fraction)
    products = {
        half: multiply(m, numerator, factor, fraction, f"product_{half}", half, largest)
        for half in range(NUMERATOR_BITS + fraction - 1)
    }
    most = largest or (1 << NUMERATOR_BITS) - 1
    low, high = 1 << (fraction - 1), 1 << fraction
    rng = np.random.default_rng(0)

    async def bench(ctx: Any) -> None:
        for r in {low, high - 1, high, *rng.integers(low, high + 1, 6).tolist()}:
            for n in (0, 1, most - 1, most, *rng.integers(0, most, 4).tolist()):
                ctx.set(numerator, n)
                ctx.set(reciprocal, r)
                for half, product in products.items():
                    assert ctx.get(product) == n * r + (1 << half), (n, r, half)

    simulator = Simulator(m)
    simulator.add_testbench(bench)
    simulator.run()
