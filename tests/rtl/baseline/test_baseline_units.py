"""The FP16 baseline's units against their golden model, every word."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from baseline_rows import Port, Row, run, slices_of

from softermax.rtl.baseline import model
from softermax.rtl.baseline.normalization import Normalization
from softermax.rtl.baseline.online import OnlineUnnormed
from softermax.rtl.baseline.online_normalization import OnlineNormalization
from softermax.rtl.baseline.unnormed import Unnormed
from softermax.rtl.simulation import Simulation

SIZES = [(1, 0.0), (3, 0.4), pytest.param(16, 0.4, marks=pytest.mark.slow)]
"""Lanes, and the share of cycles in which either side of each stream pauses."""


def rows_for(lanes: int, seed: int = 0) -> list[Row]:
    """Rows of many lengths: one element, partial slices, masked lanes, all masked, all equal, rising."""
    rng = np.random.default_rng(seed)
    rows: list[Row] = []
    for index, columns in enumerate([1, lanes, max(lanes - 1, 1), 5 * lanes + 3, 2 * lanes, 3 * lanes, 1, 2]):
        x = rng.normal(0, (0.5, 4, 100)[index % 3], columns).astype(np.float16)
        mask = rng.random(columns) < (0.6 if index % 2 else 1.1)
        rows.append((model.bits_of(x), mask))
    for x in (np.full(4 * lanes, -3.5), np.linspace(-9, 9, 6 * lanes + 1), rng.normal(0, 2, 9 * lanes)):
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


@pytest.mark.parametrize(("lanes", "stall"), SIZES)
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


def test_unnormed_takes_one_slice_per_cycle_in_both_passes() -> None:
    lanes, count = 2, 7
    unit = Unnormed(lanes)
    rng = np.random.default_rng(0)
    every = np.ones(count * lanes, dtype=np.bool_)
    rows = [(model.bits_of(rng.normal(0, 2, count * lanes).astype(np.float16)), every) for _ in range(3)]
    inputs, outputs = unnormed_ports(unit, rows)
    run(unit, inputs, outputs)
    first, second = (np.array(port.cycles) for port in inputs)
    assert (np.diff(second) == 1).all()
    assert (np.diff(first) == 1).all()
    assert second[0] - first[count - 1] == unit.max_latency
    assert (np.array(outputs[0].cycles) - second == unit.latency).all()
    assert (np.array(outputs[1].cycles) - second[count - 1 :: count] == unit.sum_latency).all()


@pytest.mark.parametrize(("lanes", "stall"), SIZES)
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


@pytest.mark.filterwarnings("ignore::amaranth.hdl.UnusedElaboratable")
@pytest.mark.parametrize("lanes", [0, -1, 2.0, 100_000])
@pytest.mark.parametrize("unit", [Unnormed, Normalization, OnlineUnnormed])
def test_a_number_of_lanes_that_cannot_be_built_is_refused(unit: type, lanes: object) -> None:
    with pytest.raises(ValueError, match=r"lanes = .*must be an integer from 1 to"):
        unit(lanes)


def interleaved(
    rows: list[Row], lanes: int, open_rows: int, seed: int = 0
) -> list[tuple[int, dict[str, Any]]]:
    """Slices of all rows, up to ``open_rows`` of them in turn at random, each with the number of its row."""
    rng = np.random.default_rng(seed)
    waiting = list(enumerate(slices_of(row, lanes) for row in rows))
    slots: list[tuple[int, list[dict[str, Any]]] | None] = [None] * open_rows
    order: list[tuple[int, dict[str, Any]]] = []
    while True:
        slots = [slot or (waiting.pop(0) if waiting else None) for slot in slots]
        taken = [index for index, slot in enumerate(slots) if slot]
        if not taken:
            return order
        index = int(rng.choice(taken))
        slot = slots[index]
        assert slot is not None
        payload = slot[1].pop(0)
        order.append((slot[0], payload | ({"row": index} if open_rows > 1 else {})))
        if not slot[1]:
            slots[index] = None


@pytest.mark.parametrize(
    ("open_rows", "stall"), [(1, 0.4), pytest.param(5, 0.0, marks=pytest.mark.slow), (5, 0.4)]
)
def test_online_gives_every_word_of_the_model(open_rows: int, stall: float) -> None:
    lanes = 3
    rows = rows_for(lanes)
    unit = OnlineUnnormed(lanes, open_rows)
    order = interleaved(rows, lanes, open_rows)
    unnormed, sums = Port(unit.unnormed, expected=len(order)), Port(unit.sums, expected=len(rows))
    run(unit, [Port(unit.slices, [payload for _, payload in order])], [unnormed, sums], stall)
    expected = [model.online(*row, lanes) for row in rows]
    place = [0] * len(rows)
    for (row, payload), seen in zip(order, unnormed.seen, strict=True):
        assert [seen.u[lane] for lane in range(lanes)] == expected[row].e[place[row]].tolist()
        assert (seen.max, seen.last) == (expected[row].largest[place[row]], payload["last"])
        place[row] += 1
    ends = [row for row, payload in order if payload["last"]]
    assert [seen.powsum for seen in sums.seen] == [expected[row].total for row in ends]


@pytest.mark.parametrize(("open_rows", "apart"), [(1, 4), (4, 1)])
def test_online_takes_a_slice_a_cycle_if_four_rows_take_turns(open_rows: int, apart: int) -> None:
    lanes, count = 1, 20 if open_rows == 1 else 6
    unit = OnlineUnnormed(lanes, open_rows)
    slices = [
        {"x": [0x3C00], "mask": 1, "first": int(i == 0), "last": int(i == count - 1)}
        | ({"row": row} if open_rows > 1 else {})
        for i in range(count)
        for row in range(open_rows)
    ]
    source = Port(unit.slices, slices)
    unnormed, sums = Port(unit.unnormed, expected=len(slices)), Port(unit.sums, expected=open_rows)
    run(unit, [source], [unnormed, sums])
    # The pipeline in front of the loop fills up at one slice per cycle.
    filled = unit.sum_latency
    assert set(np.diff(source.cycles)[filled:]) == {apart}
    assert set(np.diff(unnormed.cycles)[filled:]) == {apart}
    assert unit.cycles_per_slice == apart
    assert unnormed.cycles[0] - source.cycles[0] == unit.latency
    if open_rows > 1:
        assert (np.array(unnormed.cycles) - source.cycles == unit.latency).all()
        assert (np.array(sums.cycles) - source.cycles[-open_rows:] == unit.sum_latency).all()


@pytest.mark.slow
def test_every_half_up_to_zero_and_a_long_row_through_the_unit() -> None:
    """A row with every half-precision number that is not positive, so with every argument of e^x, and rows
    of 16384 elements, compiled."""
    lanes = 16
    rng = np.random.default_rng(0)
    everything = np.concatenate([[0], 0x8000 + rng.permutation(0x7C00)])
    long = model.bits_of(rng.normal(0, 3, 16384).astype(np.float16))
    rows = [(row, np.ones(row.shape, dtype=np.bool_)) for row in (everything, long, np.full(16384, 0x4000))]
    fields = [s for row in rows for s in slices_of(row, lanes)]
    vectors = {name: np.array([s[name] for s in fields]) for name in fields[0]}
    result = Simulation(Unnormed(lanes)).run(
        {"first_pass": vectors, "second_pass": vectors}, {"unnormed": len(fields), "sums": len(rows)}
    )
    expected = [model.unnormed(*row, lanes) for row in rows]
    assert (
        result["unnormed"].fields["u"] == np.concatenate([model.slices(e, lanes) for e, _ in expected])
    ).all()
    assert result["sums"].fields["powsum"].tolist() == [int(total) for _, total in expected]


@pytest.mark.parametrize("stall", [0.0, 0.4])
def test_online_normalization_gives_every_word_of_the_model(stall: float) -> None:
    lanes = 3
    unit = OnlineNormalization(lanes)
    maxima, finished, slices, expected = [], [], [], []
    for row in rows_for(lanes, seed=2):
        online = model.online(*row, lanes)
        last = [int(i == len(online.e) - 1) for i in range(len(online.e))]
        maxima += [{"max": int(v), "last": end} for v, end in zip(online.largest, last, strict=True)]
        slices += [{"u": e.tolist(), "last": end} for e, end in zip(online.e, last, strict=True)]
        finished.append({"max": int(online.largest[-1]), "powsum": int(online.total)})
        expected.append(model.slices(model.online_softmax(*row, lanes), lanes))
    inputs = [Port(unit.maxima, maxima), Port(unit.rows, finished), Port(unit.unnormed, slices)]
    output = Port(unit.probabilities, expected=len(slices))
    run(unit, inputs, [output], stall)
    words = np.array([[p.y[lane] for lane in range(lanes)] for p in output.seen])
    assert (words == np.concatenate(expected)).all()
    assert [p.last for p in output.seen] == [s["last"] for s in slices]
    if not stall:
        assert (np.diff(output.cycles) == 1).all()
        assert inputs[2].cycles[0] - inputs[0].cycles[0] == unit.ahead
        assert (np.array(output.cycles) - inputs[2].cycles == unit.latency).all()
