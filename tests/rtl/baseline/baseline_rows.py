"""Rows through the baseline's units in Amaranth's simulator, cycle by cycle."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from amaranth.hdl import Elaboratable
from amaranth.sim import Simulator

from softermax.rtl.baseline import model

Row = tuple[np.ndarray, np.ndarray]
"""Scores of a row as bits, and which of them take part."""


def slices_of(row: Row, lanes: int) -> list[dict[str, Any]]:
    x, mask = model.slices(row[0], lanes), model.slices(row[1].astype(np.int64), lanes)
    return [
        {
            "x": [int(word) for word in x[i]],
            "mask": int((mask[i] << np.arange(lanes)).sum()),
            "first": int(i == 0),
            "last": int(i == len(x) - 1),
        }
        for i in range(len(x))
    ]


@dataclass
class Port:
    """A stream of the unit: what goes in, or what came out and in which cycle."""

    stream: Any
    payloads: Sequence[dict[str, Any]] = ()
    expected: int = 0
    seen: list[Any] = field(default_factory=list)
    cycles: list[int] = field(default_factory=list)


def run(
    unit: Elaboratable, inputs: list[Port], outputs: list[Port], stall: float = 0.0, seed: int = 0
) -> None:
    """Feeds the inputs and drains the outputs; each side pauses at random with probability ``stall``."""
    rng = np.random.default_rng(seed)
    limit = 200 + 20 * sum(len(port.payloads) for port in inputs)

    async def feed(ctx: Any, port: Port) -> None:
        cycle = 0
        for payload in port.payloads:
            while rng.random() < stall:
                await ctx.tick()
                cycle += 1
            ctx.set(port.stream.payload, payload)
            ctx.set(port.stream.valid, 1)
            ready = 0
            while not ready:
                _, _, ready = await ctx.tick().sample(port.stream.ready)
                cycle += 1
                assert cycle < limit, (
                    f"{len(port.cycles)} of {len(port.payloads)} transfers after {limit} cycles"
                )
            port.cycles.append(cycle)
            ctx.set(port.stream.valid, 0)

    async def drain(ctx: Any, port: Port) -> None:
        for cycle in range(1, limit):
            if len(port.seen) == port.expected:
                return
            ready = int(rng.random() >= stall)
            ctx.set(port.stream.ready, ready)
            _, _, valid, payload = await ctx.tick().sample(port.stream.valid, port.stream.payload)
            if valid and ready:
                port.seen.append(payload)
                port.cycles.append(cycle)
        raise AssertionError(f"{len(port.seen)} of {port.expected} transfers after {limit} cycles")

    simulator = Simulator(unit)
    simulator.add_clock(1e-9)
    for port in inputs:
        simulator.add_testbench(functools.partial(feed, port=port))
    for port in outputs:
        simulator.add_testbench(functools.partial(drain, port=port))
    simulator.run()
