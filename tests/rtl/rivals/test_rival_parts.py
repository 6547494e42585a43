"""What the integer rivals are built of: multiplications by constants and by a row's factor, and gemmlowp's reciprocal."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("amaranth")

from amaranth.hdl import Module, Shape, Signal, unsigned
from amaranth.lib.wiring import Component, In, Out
from amaranth.sim import Simulator

from softermax.rivals import get_rival
from softermax.rivals.designs.cmsis_nn import HIGHEST, reciprocal
from softermax.rtl.rivals.designs import cmsis_nn, i_bert, i_vit
from softermax.rtl.rivals.parts.constants import divided
from softermax.rtl.rivals.parts.newton import Reciprocal
from softermax.rtl.rivals.parts.row_factor import partial_products, recoded


class Divided(Component):
    def __init__(self, divisor: int, most: int) -> None:
        self._divisor, self._most = divisor, most
        super().__init__({"value": In(unsigned(9)), "quotient": Out(9), "rest": Out(9)})

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        quotient, rest = divided(m, self.value, self._divisor, "found", self._most)
        m.d.comb += [self.quotient.eq(quotient), self.rest.eq(rest)]
        return m


@pytest.mark.parametrize(("divisor", "most"), [(1, 255), (3, 90), (7, 367), (8, 255), (12, 255), (89, 510)])
def test_a_division_by_a_constant_is_exact_for_all_that_it_is_made_for(divisor: int, most: int) -> None:
    unit = Divided(divisor, most)

    async def bench(ctx: Any) -> None:
        for value in range(most + 1):
            ctx.set(unit.value, value)
            assert (ctx.get(unit.quotient), ctx.get(unit.rest)) == divmod(value, divisor)

    simulator = Simulator(unit)
    simulator.add_testbench(bench)
    simulator.run()


class Product(Component):
    def __init__(self, word: Shape, factor: Shape) -> None:
        self._bits = word.width + factor.width
        super().__init__({"word": In(word), "factor": In(factor), "product": Out(self._bits)})

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        digits = recoded(m, self.factor, "digits")
        total = Signal(self._bits)
        m.d.comb += [
            total.eq(sum(partial_products(m, self.word, digits, self._bits, "rows", added=5))),
            self.product.eq(total),
        ]
        return m


@pytest.mark.parametrize(
    ("word", "factor"),
    [(unsigned(5), unsigned(4)), (unsigned(4), unsigned(5)), (Shape(5, True), Shape(4, True)), (Shape(4, True), unsigned(3))],
)  # fmt: skip
def test_a_word_times_a_recoded_factor_is_their_product(word: Shape, factor: Shape) -> None:
    unit = Product(word, factor)
    modulus = 1 << (word.width + factor.width)

    async def bench(ctx: Any) -> None:
        for a in values_of(word):
            for b in values_of(factor):
                ctx.set(unit.word, a)
                ctx.set(unit.factor, b)
                assert ctx.get(unit.product) == (a * b + 5) % modulus, (a, b)

    simulator = Simulator(unit)
    simulator.add_testbench(bench)
    simulator.run()


def values_of(shape: Shape) -> range:
    half = 1 << (shape.width - 1)
    return range(-half, half) if shape.signed else range(2 * half)


def test_the_reciprocal_has_gemmlowps_bits_with_several_rows_under_way() -> None:
    rng = np.random.default_rng(0)
    totals = [
        1 << 19,
        (1 << 20) - 1,
        1 << 30,
        HIGHEST,
        (1 << 31) + 5,
        *rng.integers(1 << 19, 1 << 31, 9).tolist(),
    ]
    unit = Reciprocal()
    found: list[tuple[int, int]] = []
    waited: list[int] = []

    async def feed(ctx: Any) -> None:
        ctx.set(unit.finished.valid, 1)
        for total in totals:
            ctx.set(unit.finished.payload.total, total)
            await ctx.tick().until(unit.finished.ready)
        ctx.set(unit.finished.valid, 0)

    async def drain(ctx: Any) -> None:
        for cycle in range(260):
            # Held up for a while, so that the ring fills and stands.
            ctx.set(unit.reciprocals.ready, int(cycle > 60 and cycle % 3 != 0))
            _, _, valid, ready, payload = await ctx.tick().sample(
                unit.reciprocals.valid, unit.reciprocals.ready, unit.reciprocals.payload
            )
            if valid and ready:
                found.append((payload.inverse, payload.headroom))
                waited.append(cycle)

    simulator = Simulator(unit)
    simulator.add_clock(1e-9)
    simulator.add_testbench(feed, background=True)
    simulator.add_testbench(drain)
    simulator.run()
    clipped = np.minimum(np.array(totals, dtype=np.int64), HIGHEST)
    headroom = 32 - np.array([int(total).bit_length() for total in clipped])
    want = reciprocal((clipped << headroom) - 2**31)
    assert found == list(zip(want.tolist(), headroom.tolist(), strict=True))
    # Faster than one row after the other.
    assert (waited[-1] - 60) / len(totals) < Reciprocal.cycles


@pytest.mark.parametrize("scale", [2.0**-7, 0.05, 0.1, 0.17, 0.6])
def test_what_counts_as_zero_is_zero_in_every_row(scale: float) -> None:
    """A row of the largest score and one other: no sum is smaller, so no output larger."""
    raw = np.stack([np.full(256, 127), 127 - np.arange(256)], axis=1)
    every = {
        "i-bert": (i_bert.Constants, lambda known: known.live),
        "cmsis-nn": (cmsis_nn.Constants, lambda known: known.live),
        "i-vit-8": (i_vit.Constants, lambda known: _first(known, known.live)),
        "i-vit-16": (i_vit.Constants, lambda known: _first(known, known.live)),
    }
    for name, (constants, first_dead) in every.items():
        design = get_rival(name).calibrated(np.array([127 * scale]))
        words = design.words(raw)[:, 1]
        assert not words[first_dead(constants(design)) :].any(), name


def _first(known: i_vit.Constants, shift: int) -> int:
    """The first distance with so large a shift."""
    return int(np.searchsorted(i_vit.scaled(np.arange(256)), shift * known.step))
