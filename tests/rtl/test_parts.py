"""The parts of the units, exhaustively where their inputs allow, in Amaranth's own simulator."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

pytest.importorskip("amaranth")

from amaranth.hdl import Module, Signal
from amaranth.sim import Simulator

from softermax import golden
from softermax.fixedpoint import shift_right
from softermax.rtl.arithmetic import rounding
from softermax.rtl.arithmetic.multiplier import multiply, recode
from softermax.rtl.arithmetic.piecewise import lookup
from softermax.rtl.int_max import IntMax
from softermax.rtl.power_of_two import PowerOfTwo
from softermax.rtl.reciprocal import Reciprocal
from softermax.spec import PRESETS, DeferredSpec, SoftermaxSpec
from softermax.tables import pow2_table, reciprocal_table

PAPER = PRESETS["paper"]


def simulate(design: Any, bench: Callable[..., Any], clocked: bool = True) -> None:
    simulator = Simulator(design)
    if clocked:
        simulator.add_clock(1e-9)
    simulator.add_testbench(bench)
    simulator.run()


@pytest.mark.parametrize(
    "spec",
    [PAPER, PAPER.replace(input="Q(4,4)", max="Q(5,0)", unnormed="Q(1,6)", unnormed_rounding="half-even")],
)
def test_power_of_two_equals_golden_for_all_pairs(spec: SoftermaxSpec) -> None:
    """Every score with every max that it can meet, lanes apart by one score."""
    lanes = 16
    unit = PowerOfTwo(spec, lanes)
    scores = np.arange(spec.input.low, spec.input.high + 1)
    low, high = spec.max_low, spec.max_high
    pairs = [(x, [m for m in range(low, high + 1) if m >= int(golden.int_max(x, spec))]) for x in scores]
    flat = [(int(x), m) for x, maxima in pairs for m in maxima]
    by_max: dict[int, list[int]] = {}
    for x, m in flat:
        by_max.setdefault(m, []).append(x)

    async def bench(ctx: Any) -> None:
        ctx.set(unit.enable_2, 1)
        ctx.set(unit.enable_3, 1)
        ctx.set(unit.mask, (1 << lanes) - 1)
        for m, xs in by_max.items():
            for start in range(0, len(xs), lanes):
                part = (xs[start : start + lanes] * lanes)[:lanes]
                ctx.set(unit.x, part)
                await ctx.tick()
                ctx.set(unit.running_max, m)
                await ctx.tick()
                got = [ctx.get(unit.unnormed[lane]) for lane in range(lanes)]
                assert got == golden.power_of_two(part, m, spec).tolist(), (part, m)

    simulate(unit, bench)
    assert len(flat) > 8000 or spec is not PAPER


@pytest.mark.parametrize(
    "spec", [PAPER, PRESETS["row-scaled"].replace(powsum="Q(7,4)", reciprocal_segments=8)]
)
def test_reciprocal_equals_golden_for_all_sums(spec: SoftermaxSpec) -> None:
    unit = Reciprocal(spec)
    sums = np.arange(1 << spec.powsum.bits)
    leading_one, reciprocal = golden.reciprocal(sums, spec)

    async def bench(ctx: Any) -> None:
        ctx.set(unit.enable_1, 1)
        ctx.set(unit.enable_2, 1)
        got = []
        for d in [*sums.tolist(), 0, 0]:
            ctx.set(unit.powsum, d)
            await ctx.tick()
            got.append((ctx.get(unit.leading_one), ctx.get(unit.reciprocal)))
        expected = list(zip(leading_one.tolist(), reciprocal.tolist(), strict=True))
        assert got[1 : 1 + len(sums)] == expected

    simulate(unit, bench)


@pytest.mark.parametrize(
    "spec",
    [PAPER.replace(slice_width=2), PAPER.replace(slice_width=2, max_rounding="truncate", max="Q(8,0)")],
)
@pytest.mark.parametrize("step", [5, pytest.param(1, marks=pytest.mark.slow)])
def test_int_max_of_all_pairs(spec: SoftermaxSpec, step: int) -> None:
    """Every pair of scores (by default every fifth score), a sample of the masks and of the maxima before."""
    unit = IntMax(spec)
    words = np.arange(spec.input.low, spec.input.high + 1, step)
    rng = np.random.default_rng(0)

    async def bench(ctx: Any) -> None:
        ctx.set(unit.enable_2, 1)
        ctx.set(unit.enable_3, 1)
        before = spec.max_low
        for a, b in itertools.product(words.tolist(), words.tolist()):
            mask, first = int(rng.integers(0, 4)), int(rng.integers(0, 3) > 0)
            ctx.set(unit.x, [a, b])
            ctx.set(unit.mask, mask)
            await ctx.tick()
            ctx.set(unit.first, first)
            before = spec.max_low if first else before
            local = [int(golden.int_max(x, spec)) for i, x in enumerate((a, b)) if mask >> i & 1]
            running = max([before, *local])
            assert ctx.get(unit.running_max) == running, (a, b, mask, before)
            assert ctx.get(unit.renorm_shift) == running - before
            await ctx.tick()
            before = running
            assert ctx.get(unit.max_3) == running

    simulate(unit, bench)


@pytest.mark.parametrize("fraction", [1, 2, 3, 7, 8, 15])
def test_recoded_product_is_the_product(fraction: int) -> None:
    m = Module()
    numerator, reciprocal = Signal(9), Signal(fraction + 1)
    product = multiply(m, numerator, recode(m, reciprocal, fraction), fraction, "product")
    low, high = 1 << (fraction - 1), 1 << fraction
    rng = np.random.default_rng(0)
    factors = (
        range(low, high + 1)
        if fraction < 9
        else [low, low + 1, high - 1, high, *rng.integers(low, high, 200).tolist()]
    )

    async def bench(ctx: Any) -> None:
        for r in factors:
            for n in (0, 1, 255, 256, 511, *rng.integers(0, 512, 4).tolist()):
                ctx.set(numerator, n)
                ctx.set(reciprocal, r)
                assert ctx.get(product) == n * r

    simulate(m, bench, clocked=False)


@pytest.mark.parametrize(
    "table",
    [
        reciprocal_table(PAPER),
        reciprocal_table(DeferredSpec()),
        pow2_table(PAPER.replace(input="Q(6,7)")),
        pow2_table(PAPER.replace(input="Q(6,0)")),
        pow2_table(PAPER.replace(input="Q(6,1)", pow2_segments=16)),
        reciprocal_table(PAPER.replace(reciprocal="Q(1,2)", reciprocal_segments=1)),
    ],
    ids=["1/x", "deferred 1/x", "2^x with slopes", "2^x of integers", "fewer bits than segments", "clipped"],
)
def test_table_in_logic_equals_table(table: Any) -> None:
    m = Module()
    fraction = Signal(table.argument_bits)
    value = lookup(m, table, fraction, "value")
    step = max(1, (1 << table.argument_bits) >> 12)
    arguments = [*range(0, 1 << table.argument_bits, step), (1 << table.argument_bits) - 1]
    expected = table(np.array(arguments)).tolist()

    async def bench(ctx: Any) -> None:
        for argument, word in zip(arguments, expected, strict=True):
            ctx.set(fraction, argument)
            assert ctx.get(value) == word, argument

    simulate(m, bench, clocked=False)


@pytest.mark.parametrize("how", ["truncate", "half-up", "half-even"])
@pytest.mark.parametrize("variable", [True, False])
def test_rounding_shift_equals_golden(how: Any, variable: bool) -> None:
    for constant in [None] if variable else [0, 1, 3]:
        m = Module()
        value, by = Signal(6), Signal(3)
        out = Signal(8)
        m.d.comb += out.eq(rounding.shift_right(value, by if constant is None else constant, how))
        shifts = range(8) if constant is None else [constant]

        async def bench(
            ctx: Any, value: Signal = value, by: Signal = by, out: Signal = out, shifts: Any = shifts
        ) -> None:
            for v, s in itertools.product(range(64), shifts):
                ctx.set(value, v)
                ctx.set(by, s)
                assert ctx.get(out) == int(shift_right(v, s, how)), (v, s)

        simulate(m, bench, clocked=False)
