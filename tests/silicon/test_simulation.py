"""The simulator against other simulators: toggle for toggle, with and without glitches."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import netlist_verilog
import numpy as np
import pytest
from small_designs import hand_made, numbers_of, random_bits

from softermax.rtl.verilator import program
from softermax.silicon import verilog
from softermax.silicon.library import Library
from softermax.silicon.netlist import Netlist
from softermax.silicon.simulation import Simulator
from softermax.silicon.synthesis import synthesise
from softermax.silicon.timing import analyse

SKIPPED = 2
"""Cycles before counting starts: reset, and whatever a simulator does at its start."""

Stimulus = dict[str, np.ndarray[Any, Any]]


@pytest.mark.parametrize("timed", [False, True])
def test_a_netlist_computes_what_its_design_does(library: Library, accumulate: str, timed: bool) -> None:
    netlist = synthesise(accumulate, library, 2.0)
    assert any(netlist.cell(i).kind == "clock-gate" for i in range(netlist.cells))
    stimulus = random_bits(40, 64, a=5, b=5, enable=1)
    activity = Simulator(netlist, analyse(netlist, 2.0)).run(stimulus, 2.0 if timed else None)
    a, b = (numbers_of(stimulus[n]) for n in "ab")
    enable = stimulus["enable"][..., 0].astype(np.int64)
    seen = numbers_of(activity.outputs["total"])
    total = seen[1]  # nothing resets it: it starts from anything
    for cycle in range(2, 40):
        total = (total + enable[cycle - 1] * a[cycle - 2] * b[cycle - 2]) % 4096
        assert np.array_equal(seen[cycle], total), cycle
    if timed:
        assert 0 < activity.last_event_ns <= 2.0


def bench(netlist: Netlist, stimulus: Stimulus, period: int, dump: str, late: int = 0) -> str:
    """A test bench inside the design: inputs change with the rising edge, as in the simulator, or later."""
    cycles = len(next(iter(stimulus.values())))
    regs, applied = [], []
    clock = next(name for name, bits in netlist.inputs.items() if bits == [netlist.clock])
    ports = [(n, i, net) for n, bits in netlist.inputs.items() if n != clock for i, net in enumerate(bits)]
    columns = [
        stimulus[n][:, 0, i] if n in stimulus else np.zeros(cycles, dtype=np.uint8) for n, i, _ in ports
    ]
    vectors = ["".join(str(int(c[t])) for c in columns[::-1]) for t in range(cycles)]
    regs.append(
        f"  reg clock = 0; reg [{len(ports) - 1}:0] word = 0; reg [{len(ports) - 1}:0] words [0:{cycles - 1}];"
    )
    regs.append("  integer cycle;")
    applied.append(f"  assign {verilog.net_name(netlist.clock)} = clock;")
    applied += [f"  assign {verilog.net_name(net)} = word[{at}];" for at, (_, _, net) in enumerate(ports)]
    steps = "\n".join(f"    words[{t}] = {len(ports)}'b{vector};" for t, vector in enumerate(vectors))
    return "\n".join(
        [
            *regs,
            *applied,
            "  initial begin",
            steps,
            f"    #{period};",
            f"    for (cycle = 0; cycle < {cycles}; cycle = cycle + 1) begin",
            f"      clock = 1; {f'#{late}; ' if late else ''}word <= words[cycle]; #{period // 2 - late};",
            f"      clock = 0; #{period - period // 2 - 1};",
            f"      if (cycle == {SKIPPED - 1}) begin {dump} end",
            "      #1;",
            "    end",
            "    $finish;",
            "  end",
        ]
    )


def closed(netlist: Netlist, delays: dict[int, tuple[int, int]], body: str) -> str:
    """The equations as a module without ports: the bench drives the nets."""
    text = netlist_verilog.equations(netlist, delays, body)
    text = re.sub(r"module netlist \(.*?\);", "module netlist;", text)
    inputs = {net for bits in netlist.inputs.values() for net in bits}
    lines = []
    for line in text.splitlines():
        if re.match(r"  (input|output) ", line) or re.match(r"  assign p_", line):
            continue
        driven = re.match(r"  assign n(\d+) = p_", line)
        if driven and int(driven.group(1)) in inputs:
            continue
        lines.append(line)
    return "\n".join(lines) + "\n"


def vcd_toggles(path: Path, nets: int) -> np.ndarray[Any, Any]:
    """Rising and falling transitions of each net n<number>."""
    counts = np.zeros((nets, 2), dtype=np.int64)
    names: dict[str, int] = {}
    values: dict[str, str] = {}
    for line in path.read_text().splitlines():
        declared = re.match(r"\$var \w+\s+1 (\S+) n(\d+) ", line)
        if declared:
            names[declared.group(1)] = int(declared.group(2))
        elif line[:1] in "01" and line[1:] in names:
            before = values.get(line[1:])
            if before is not None and before != line[0]:
                counts[names[line[1:]], 0 if line[0] == "1" else 1] += 1
            values[line[1:]] = line[0]
    return counts


@pytest.mark.tool("iverilog")
@pytest.mark.parametrize("design", ["shift", "accumulate"])
def test_toggles_with_delays_equal_icarus(
    nangate45: Library, design: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Every net, every edge; random delays of every output make glitches of all widths. They are long
    in units of time, so that hardly ever two inputs of a gate change at once, which Icarus takes one after
    the other, and the same for both edges, because Icarus rejects pulses by the delay of their second edge."""
    netlist = synthesise(request.getfixturevalue(design), nangate45, 2.0)
    rng = np.random.default_rng(1)
    delays = {}
    for index in range(netlist.cells):
        cell = netlist.cell(index)
        if cell.kind in ("combinational", "flop"):
            for pin in cell.outputs:
                if pin in netlist.pins[index]:
                    delays[netlist.pins[index][pin]] = (int(rng.integers(200, 9000)),) * 2
    widths = {name: len(bits) for name, bits in netlist.inputs.items() if bits != [netlist.clock]}
    stimulus = random_bits(60, 1, **widths)
    if "rst" in stimulus:
        stimulus["rst"][:] = 0
    period = 400000
    body = bench(netlist, stimulus, period, f'$dumpfile("{tmp_path}/out.vcd"); $dumpvars(1, netlist);')
    (tmp_path / "design.v").write_text(closed(netlist, delays, body))
    subprocess.run(["iverilog", "-g2012", "-o", "sim", "design.v"], cwd=tmp_path, check=True)
    subprocess.run(["vvp", "-n", "sim"], cwd=tmp_path, check=True, capture_output=True)
    theirs = vcd_toggles(tmp_path / "out.vcd", netlist.nets)
    ours = Simulator(netlist, delays=delays).run(stimulus, ticks=period, counted_from=SKIPPED).toggles
    assert theirs.sum() > 100
    different = np.flatnonzero((theirs != ours.astype(np.int64)).any(axis=1))
    assert not len(different), [(netlist.net_names[n], theirs[n], ours[n]) for n in different[:5]]
    settled = Simulator(netlist).run(stimulus, counted_from=SKIPPED).toggles
    # A shift register has no glitches, a multiplier does.
    assert (settled.sum() == ours.sum()) == (design == "shift")


@pytest.mark.parametrize("design", [pytest.param("shift", marks=pytest.mark.slow), "accumulate"])
def test_toggles_without_delays_equal_verilators_saif(
    nangate45: Library, design: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    netlist = synthesise(request.getfixturevalue(design), nangate45, 2.0)
    widths = {name: len(bits) for name, bits in netlist.inputs.items() if bits != [netlist.clock]}
    stimulus = random_bits(60, 1, **widths)
    if "rst" in stimulus:
        stimulus["rst"][:] = 0
    body = bench(netlist, stimulus, 10, '$dumpfile("out.saif"); $dumpvars(0, netlist);', late=1)
    options = [
        "--main",
        "--exe",
        "--timing",
        "--trace-saif",
        "--trace-underscore",
        "-O0",
        "--top-module",
        "netlist",
    ]
    # Tracing is a part of Verilator's library that other programs do without; it must be compiled before the design.
    tracing = '#define VM_TRACE 1\n#define VM_TRACE_SAIF 1\n#include "verilated_saif_c.cpp"\n'
    sources = {"design.v": closed(netlist, {}, body), "Saif.cpp": tracing}
    subprocess.run([program(sources, options)], cwd=tmp_path, check=True, capture_output=True)
    saif = (tmp_path / "out.saif").read_text()
    theirs = np.zeros(netlist.nets, dtype=np.int64)
    for name, count in re.findall(r"\(n(\d+)\s+(?:\(T\w \d+\)\s*)+\(TC (\d+)\)", saif):
        theirs[int(name)] = int(count)
    simulator = Simulator(netlist)
    ours = simulator.run(stimulus, counted_from=SKIPPED).toggles.sum(axis=1).astype(np.int64)
    # Verilator takes a net that is high when tracing begins for one that has just risen.
    before = simulator.run({name: bits[:SKIPPED] for name, bits in stimulus.items()}).values
    ours += (before & np.uint64(1)).astype(np.int64)
    assert theirs.sum() > 100
    different = [n for n in range(2, netlist.nets) if theirs[n] != ours[n]]
    assert not different, [(netlist.net_names[n], theirs[n], ours[n]) for n in different[:5]]


def test_a_pulse_shorter_than_the_gates_delay_does_not_pass(nangate45: Library) -> None:
    """A NAND of a signal and its delayed complement makes a pulse as wide as the inverter is slow."""
    cells = [
        ("INV_X1", {"A": "a", "ZN": "b"}),
        ("NAND2_X1", {"A1": "a", "A2": "b", "ZN": "y"}),
    ]
    netlist = hand_made(nangate45, cells, "a", "y")
    b, y = netlist.pins[0]["ZN"], netlist.pins[1]["ZN"]
    stimulus = {"a": np.tile(np.array([0, 1], dtype=np.uint8), 10)[:, None, None]}
    for wide, expected in ((7, 0), (9, 20)):
        simulator = Simulator(netlist, delays={b: (wide, wide), y: (8, 8)})
        assert simulator.run(stimulus, ticks=100).toggles[y].sum() == expected, wide


def test_a_stimulus_for_another_design_is_refused(nangate45: Library, shift: str) -> None:
    netlist = synthesise(shift, nangate45, 2.0)
    with pytest.raises(ValueError, match="has no input data"):
        Simulator(netlist).run(random_bits(4, 1, data=1))
    with pytest.raises(ValueError, match="expected"):
        Simulator(netlist).run(random_bits(4, 1, x=2))
    with pytest.raises(ValueError, match="must be 1 to 64"):
        Simulator(netlist).run(random_bits(4, 65, x=1))
    with pytest.raises(ValueError, match="needs a Simulator made with timing"):
        Simulator(netlist).run(random_bits(4, 1, x=1), clock_ns=1.0)
