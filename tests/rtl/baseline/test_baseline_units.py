"""The FP16 baseline's units against their golden model, every word."""

from __future__ import annotations

import numpy as np
import pytest
from baseline_rows import Port, Row, run, slices_of

from softermax.rtl.baseline import model
from softermax.rtl.baseline.normalization import Normalization
from softermax.rtl.baseline.unnormed import Unnormed


def rows_for(lanes: int, seed: int = 0) -> list[Row]:
    """Rows of many lengths: one element, partial slices, masked lanes, all masked, all equal, rising."""
    rng = np.random.default_rng(seed)
    rows: list[Row] = []
    for index, columns in enumerate([1, lanes, max(lanes - 1, 1), 5 * lanes + 3, 2 * lanes, 3 * lanes, 1, 2]):
        x = rng.normal(0, (0.5, 4, 100)[index % 3], columns).astype(np.float16)
        mask = rng.random(columns) < (0.6 if index % 2 else 1.1)
        rows.append((model.bits_of(x), mask))
    for x in (np.full(4 * lanes, -3.5), np.linspace(-9, 9, 6 * lanes + 1), rng.normal(0, 2, 24 * lanes)):
        rows.append((model.bits_of(x.astype(np.float16)), np.ones(x.shape, dtype=np.bool_)))
    rows.append((rng.integers(0, 0x7C00, 3 * lanes), np.zeros(3 * lanes, dtype=np.bool_)))
    anything = rng.integers(0, 0x10000, 4 * lanes)
    rows.append((np.where((anything & 0x7C00) == 0x7C00, 0xFC00, anything), rng.random(4 * lanes) < 0.8))
    return rows


def unnormed_ports(unit: Unnormed, rows: list[Row]) -> tuple[list[Port], list[Port]]:
    slices = [s for row in rows for s in slices_of(row, unit.lanes)]
    return (
        [Port(unit.first_pass, slices), Port(unit.second_pass, slices)],
        [Port(unit.unnormed, expected=len(slices)), Port(unit.sums, expected=len(rows))],
    )


@pytest.mark.parametrize("stall", [0.0, 0.4])
@pytest.mark.parametrize("lanes", [1, 4, 5, pytest.param(16, marks=pytest.mark.slow)])
def test_unnormed_gives_every_word_of_the_model(lanes: int, stall: float) -> None:
    rows = rows_for(lanes)
    unit = Unnormed(lanes)
    inputs, outputs = unnormed_ports(unit, rows)
    run(unit, inputs, outputs, stall)
    words = np.array([[p.u[lane] for lane in range(lanes)] for p in outputs[0].seen])
    begin = 0
    for row, total in zip(rows, outputs[1].seen, strict=True):
        e, expected_sum = model.unnormed(*row, lanes)
        expected = model.slices(e, lanes)
        end = begin + len(expected)
        assert (words[begin:end] == expected).all()
        assert [p.last for p in outputs[0].seen[begin:end]] == [0] * (len(expected) - 1) + [1]
        assert total.powsum == expected_sum
        begin = end


def test_unnormed_takes_a_slice_a_cycle_in_both_passes() -> None:
    lanes, count = 4, 12
    unit = Unnormed(lanes)
    rng = np.random.default_rng(0)
    every = np.ones(count * lanes, dtype=np.bool_)
    rows = [(model.bits_of(rng.normal(0, 2, count * lanes).astype(np.float16)), every) for _ in range(4)]
    inputs, outputs = unnormed_ports(unit, rows)
    run(unit, inputs, outputs)
    first, second = (np.array(port.cycles) for port in inputs)
    assert (np.diff(second) == 1).all()
    assert (np.diff(first) == 1).all()
    assert second[0] - first[count - 1] == unit.max_latency
    assert (np.array(outputs[0].cycles) - second == unit.latency).all()
    assert (np.array(outputs[1].cycles) - second[count - 1 :: count] == unit.sum_latency).all()


@pytest.mark.parametrize("stall", [0.0, 0.4])
@pytest.mark.parametrize("lanes", [1, 5, pytest.param(16, marks=pytest.mark.slow)])
def test_normalization_gives_every_word_of_the_model(lanes: int, stall: float) -> None:
    slices, sums, expected = [], [], []
    for row in rows_for(lanes, seed=1):
        e, total = model.unnormed(*row, lanes)
        u = model.slices(e, lanes)
        slices += [{"u": [int(v) for v in s], "last": int(i == len(u) - 1)} for i, s in enumerate(u)]
        sums.append({"powsum": int(total)})
        expected.append(model.slices(model.divide(e, np.full(e.shape, total)), lanes))
    unit = Normalization(lanes)
    inputs = [Port(unit.unnormed, slices), Port(unit.sums, sums)]
    output = Port(unit.probabilities, expected=len(slices))
    run(unit, inputs, [output], stall)
    words = np.array([[p.y[lane] for lane in range(lanes)] for p in output.seen])
    assert (words == np.concatenate(expected)).all()
    assert [p.last for p in output.seen] == [s["last"] for s in slices]
    if not stall:
        assert (np.diff(output.cycles) == 1).all()
        assert (np.array(output.cycles) - inputs[0].cycles == unit.latency).all()


@pytest.mark.parametrize("lanes", [0, -1, 2.0, 100_000])
@pytest.mark.parametrize("unit", [Unnormed, Normalization])
def test_a_number_of_lanes_that_cannot_be_built_is_refused(unit: type, lanes: object) -> None:
    with pytest.raises(ValueError, match=r"lanes = .*allowed is an integer from 1 to"):
        unit(lanes)
