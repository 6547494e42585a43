"""A bench for cocotb beside the plain one: the same vectors, other stalls, in Python that an integrator can go on from."""

from __future__ import annotations

from collections.abc import Sequence

from softermax.rtl.export.bench import hex_name
from softermax.rtl.export.pins import Clocking, Stream


def cocotb_bench(streams: Sequence[Stream], clocking: Clocking, name: str, header: str) -> str:
    """The bench of a unit whose module is called ``name``; ``header`` is that of the design."""
    comment = "".join(f"# {line}".rstrip() + "\n" for line in header.splitlines())
    table = "".join(
        f"    Stream(\n        {stream.name!r}, {stream.is_input}, {stream.payload!r},\n"
        f"        {stream.valid!r}, {stream.ready!r}, {hex_name(name, stream.name)!r},\n    ),\n"
        for stream in streams
    )
    return comment + _BENCH.format(
        name=name,
        table=table,
        clock=clocking.clock,
        reset=clocking.reset,
        active=0 if clocking.active_low else 1,
        idle=1 if clocking.active_low else 0,
    )


_BENCH = '''"""cocotb bench of {name}: `python test_{name}.py` runs it in Icarus, with SIM=verilator in Verilator."""

import os
import random
import sys
from collections import namedtuple
from pathlib import Path

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import FallingEdge, RisingEdge, gather, with_timeout

HERE = Path(__file__).resolve().parent
Stream = namedtuple("Stream", "name is_input payload valid ready file")
STREAMS = (
{table})


def vectors(stream):
    return [int(line, 16) for line in (HERE / stream.file).read_text().split()]


def parts(stream, word):
    """Values of the ports that make up a payload."""
    for port, bits in stream.payload:
        yield port, word & ((1 << bits) - 1)
        word >>= bits


async def feed(dut, stream, words, stall, rng):
    """Offer every word, which stays until it is taken; before it some idle cycles."""
    valid, ready = getattr(dut, stream.valid), getattr(dut, stream.ready)
    for word in words:
        await FallingEdge(dut.{clock})
        while rng.random() < stall:
            valid.value = 0
            await FallingEdge(dut.{clock})
        for port, value in parts(stream, word):
            getattr(dut, port).value = value
        valid.value = 1
        await RisingEdge(dut.{clock})
        while not int(ready.value):
            await RisingEdge(dut.{clock})
    await FallingEdge(dut.{clock})
    valid.value = 0


async def check(dut, stream, words, stall, rng):
    """Take every word when the sink is open, and compare it."""
    valid, ready = getattr(dut, stream.valid), getattr(dut, stream.ready)
    for at, word in enumerate(words):
        while True:
            await FallingEdge(dut.{clock})
            is_open = rng.random() >= stall
            ready.value = int(is_open)
            await RisingEdge(dut.{clock})
            if is_open and int(valid.value):
                break
        for port, expected in parts(stream, word):
            got = int(getattr(dut, port).value)
            assert got == expected, f"{{port}} {{at}}: got {{got:x}}, expected {{expected:x}}"
    await FallingEdge(dut.{clock})
    ready.value = 0


async def restart(dut):
    """Reset for some cycles, with nothing offered."""
    await FallingEdge(dut.{clock})
    for stream in STREAMS:
        getattr(dut, stream.valid if stream.is_input else stream.ready).value = 0
    dut.{reset}.value = {active}
    for _ in range(3):
        await FallingEdge(dut.{clock})
    dut.{reset}.value = {idle}


async def go_through(dut, stall, seed):
    """Every vector of every stream."""
    runs = []
    for number, stream in enumerate(STREAMS):
        drive = feed if stream.is_input else check
        rng = random.Random(f"{{seed}} {{number}}")
        runs.append(drive(dut, stream, vectors(stream), stall, rng))
    await with_timeout(gather(*runs), 10, "ms")


@cocotb.test()
async def without_stalls(dut):
    cocotb.start_soon(Clock(dut.{clock}, 2, "ns").start())
    await restart(dut)
    await go_through(dut, 0.0, 0)


@cocotb.test()
async def with_random_stalls(dut):
    cocotb.start_soon(Clock(dut.{clock}, 2, "ns").start())
    await restart(dut)
    await go_through(dut, 0.4, 1)


@cocotb.test()
async def after_a_reset_in_mid_stream(dut):
    cocotb.start_soon(Clock(dut.{clock}, 2, "ns").start())
    await restart(dut)
    for number, stream in enumerate(STREAMS):
        if stream.is_input:
            rng = random.Random(number)
            begun = cocotb.start_soon(feed(dut, stream, vectors(stream), 0.2, rng))
            for _ in range(57):
                await FallingEdge(dut.{clock})
            begun.cancel()
    await restart(dut)
    await go_through(dut, 0.1, 2)


def main():
    from cocotb_tools.check_results import get_results
    from cocotb_tools.runner import get_runner

    simulator = os.environ.get("SIM", "icarus")
    runner = get_runner(simulator)
    build = HERE / f"sim_build_{{simulator}}"
    runner.build(sources=[HERE / "{name}.v"], hdl_toplevel="{name}", build_dir=build, timescale=("1ns", "1ps"))
    results = runner.test(hdl_toplevel="{name}", test_module=Path(__file__).stem, build_dir=build, test_dir=HERE)
    tests, failed = get_results(results)
    print(f"{{'FAIL' if failed else 'PASS'}}: {{tests - failed}} of {{tests}} tests")
    return 1 if failed or not tests else 0


if __name__ == "__main__":
    sys.exit(main())
'''
