"""Slack and delays against OpenSTA, and clocks that cannot be met."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import numpy as np
import pytest
from small_designs import hand_made

from softermax.silicon import verilog
from softermax.silicon.library import Library, WireLoad
from softermax.silicon.netlist import Netlist
from softermax.silicon.synthesis import synthesise
from softermax.silicon.timing import analyse, require_possible

CLOCK_NS = 0.5


def opensta(folder: Path, netlist: Netlist, wire: WireLoad) -> tuple[float, list[float]]:
    """Worst slack, and the arrival at each stage of the worst path, in ns. Every net gets the wire load's
    capacitance for the pins on it, counted here."""
    library = netlist.library
    scale = 1.0 if library.name == "nangate45" else 1000.0  # OpenSTA speaks the library's own unit
    d = library.description
    (folder / "netlist.v").write_text(verilog.mapped(netlist))
    (folder / "cells.lib").write_text(library.liberty)
    fanout = np.zeros(netlist.nets)
    for index in range(netlist.cells):
        cell = netlist.cell(index)
        for pin in (*cell.inputs, *([cell.clock] if cell.clock else [])):
            fanout[netlist.pins[index][pin]] += 1
    for bits in netlist.outputs.values():
        np.add.at(fanout, bits, 1)
    wires = wire(fanout)
    (folder / "run.tcl").write_text(
        "\n".join(
            [
                "read_liberty cells.lib",
                "read_verilog netlist.v",
                "link_design netlist",
                f"create_clock -name clock -period {CLOCK_NS * scale} {verilog.port_bit('clk', 0)}",
                f"set_clock_transition {d.input_slew_ns * scale} clock",
                f"set_input_transition {d.input_slew_ns * scale} [all_inputs]",
                "set_input_delay 0 -clock clock [all_inputs]",
                "set_output_delay 0 -clock clock [all_outputs]",
                f"set_load {d.output_load_ff} [all_outputs]",
                *(f"set_load {wires[n]:.9g} [get_nets n{n}]" for n in range(2, netlist.nets) if wires[n]),
                "report_checks -digits 6",
                "exit",
            ]
        )
    )
    done = subprocess.run(
        ["sta", "-exit", "-no_splash", "run.tcl"], cwd=folder, capture_output=True, text=True, check=True
    )
    slack = re.search(r"(-?[\d.]+)\s+slack", done.stdout)
    assert slack is not None, done.stdout[-1500:]
    path = done.stdout.split("Path Type")[1].split("data arrival")[0]
    stages = re.findall(r"[\d.]+\s+([\d.]+) [v^] u\d+/\w+ \(", path)
    return float(slack.group(1)) / scale, [float(a) / scale for a in stages]


@pytest.mark.tool("sta")
@pytest.mark.parametrize("wires", [0.0, 1.0, 3.0])
def test_slack_and_arrivals_equal_opensta(
    library: Library, accumulate: str, wires: float, tmp_path: Path
) -> None:
    """Without wires, with the library's wire load, and with three times that."""
    netlist = synthesise(accumulate, library, CLOCK_NS)
    wire = library.wire.scaled(wires)
    timing = analyse(netlist, CLOCK_NS, wire)
    slack, arrivals = opensta(tmp_path, netlist, wire)
    assert timing.slack_ns == pytest.approx(slack, abs=2e-6)
    ours = [step.arrival_ns for step in timing.critical_path]
    # Theirs lists the clock pin first and the end point last, at the arrivals of their neighbours.
    assert len(ours) > 5
    assert [min(abs(a - b) for b in arrivals) for a in ours] == pytest.approx([0.0] * len(ours), abs=2e-6)


@pytest.mark.tool("sta")
@pytest.mark.parametrize("wires", [0.0, 1.0])
def test_slack_of_a_loaded_net_equals_opensta(library: Library, wires: float, tmp_path: Path) -> None:
    """A net with many pins and a port on it, and both edges through an inverting gate."""
    names = {
        "nangate45": ("DFF_X1", "CK", "INV_X1", "ZN"),
        "asap7": ("DFFHQNx1_ASAP7_75t_R", "CLK", "INVx1_ASAP7_75t_R", "Y"),
    }
    flop, clock, inverter, out = names[library.name]
    q = library.cells[flop].outputs[0]
    cells = [(flop, {"D": "x", clock: "clk", q: "a"})]
    cells += [(inverter, {"A": "a", out: f"b{i}"}) for i in range(9)]
    cells += [(flop, {"D": "b3", clock: "clk", q: "y"})]
    netlist = hand_made(library, cells, "clk x", "y a")
    wire = library.wire.scaled(wires)
    timing = analyse(netlist, CLOCK_NS, wire)
    slack, _ = opensta(tmp_path, netlist, wire)
    assert timing.slack_ns == pytest.approx(slack, abs=2e-6)


def test_more_wire_is_slower_and_more_time_is_slack(library: Library, accumulate: str) -> None:
    netlist = synthesise(accumulate, library, 2.0)
    none, default, double = (
        analyse(netlist, 2.0, wire).slack_ns
        for wire in (WireLoad("none"), library.wire, library.wire.scaled(2.0))
    )
    assert none > default > double
    assert analyse(netlist, 2.5).slack_ns == pytest.approx(default + 0.5)
    assert not analyse(netlist, 0.2).meets


def test_a_clock_that_no_design_can_meet_is_refused(library: Library) -> None:
    with pytest.raises(ValueError, match=r"clock 0.02 ns: no design can meet it in .*flip-flop"):
        require_possible(library, 0.02)
    require_possible(library, 0.3)


def test_the_wire_load_is_the_librarys_table_and_its_slope(nangate45: Library) -> None:
    wire = nangate45.wire
    fanout = np.array([0.0, 1.0, 10.0, 11.0, 21.0])
    lengths = np.array([0.0, 1.746, (25.4842 + 27.032) / 2, 27.032, 27.032 + 10 * 5.0])
    assert wire(fanout) == pytest.approx(lengths * 0.1774)
    assert wire.scaled(3.0)(fanout) == pytest.approx(3 * lengths * 0.1774)
