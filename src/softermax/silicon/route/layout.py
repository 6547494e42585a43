"""From a mapped netlist to a layout, by OpenROAD, and the power of one: a script for a Python that has it, never imported by the package.

    python layout.py JOB.json

`softermax.silicon.route.openroad` writes ``JOB.json`` and reads the answer, ``answer.json`` beside it: the netlist as it was placed
and routed, the capacitance of every net's wire, the slacks. A job with ``activity`` is a layout already; its answer is the power that
OpenROAD reports for it. An error is one line in ``error`` beside it.
"""

from __future__ import annotations

import ctypes
import json
import os
import re
import signal
import sys
from pathlib import Path
from typing import Any

_SPARE_DENSITY = 0.05
"""How much denser than the whole core cells may be placed."""
_CONSTANTS = {"POWER": "1", "GROUND": "0"}


class LayoutError(Exception):
    """A step of OpenROAD failed."""


class Flow:
    """One design in OpenROAD."""

    def __init__(self, job: dict[str, Any], folder: Path) -> None:
        from openroad import Design, Tech, Timing

        self.job, self.folder = job, folder
        self.tech = Tech()
        for lef in job["lef"]:
            self.tech.readLef(lef)
        self.tech.readLiberty(job["liberty"])
        self.design = Design(self.tech)
        self.design.readVerilog(str(folder / job["verilog"]))
        self.design.link(job["top"])
        self.block = self.design.getBlock()
        self.timing = Timing(self.design)
        self.rise = Timing.Rise

    def tcl(self, command: str) -> str:
        """OpenROAD's Tcl gives the text of an error as if it were the answer: here it is raised."""
        self.design.evalTclString("set failed [catch {" + command + "} answer]")
        answer = str(self.design.evalTclString("set answer"))
        if self.design.evalTclString("set failed") != "0":
            raise LayoutError(f"{command.split()[0]}: {answer}")
        return answer

    def floorplan(self) -> None:
        """A square core of the utilisation, a power grid, pins around it."""
        plan = self.design.getFloorplan()
        margin = self.design.micronToDBU(self.job["margin_um"])
        site = plan.findSite(self.job["site"])
        plan.initFloorplan(100 * self.job["utilisation"], 1.0, margin, margin, margin, margin, site)
        plan.makeTracks()
        for pattern in self.job["dont_use"]:
            self.tcl(f"set_dont_use {{{pattern}}}")
        self.power_grid()
        horizontal, vertical = self.job["pin_layers"]
        self.tcl(f"place_pins -hor_layers {horizontal} -ver_layers {vertical}")

    def power_grid(self) -> None:
        grid, core = self.job["power_grid"], self.block.getCoreArea()
        for net, kind in (("VDD", "power"), ("VSS", "ground")):
            self.tcl(f"add_global_connection -net {net} -pin_pattern ^{grid[kind]}$ -{kind}")
        self.tcl("global_connect")
        self.tcl("set_voltage_domain -power VDD -ground VSS")
        self.tcl("define_pdn_grid -name grid -voltage_domains CORE")
        self.tcl(f"add_pdn_stripe -grid grid -layer {grid['rail']} -width {grid['rail_um']} -followpins")
        below, side = grid["rail"], self.block.dbuToMicrons(min(core.dx(), core.dy()))
        for layer, width, pitch in grid["stripes"]:
            # A small core has two pairs of stripes at least.
            fitting = min(pitch, side / 2)
            self.tcl(
                f"add_pdn_stripe -grid grid -layer {layer} -width {width} -pitch {fitting:.2f} -offset {fitting / 4:.2f}"
            )
            self.tcl(f"add_pdn_connect -grid grid -layers {{{below} {layer}}}")
            below = layer
        self.tcl("pdngen")

    def constraints(self) -> None:
        """As before layout: inputs come with the clock, outputs are due at its end. For hold, inputs come from flip-flops."""
        job = self.job
        self.tcl(f"create_clock -name core -period {job['clock_ns']} [get_ports {job['clock']}]")
        self.tcl(f"create_clock -name ports -period {job['clock_ns']}")
        inputs = " ".join(name for name in job["inputs"] if name != job["clock"])
        self.tcl(f"set_input_delay -max 0 -clock ports [get_ports {{{inputs}}}]")
        self.tcl(f"set_input_delay -min {job['input_hold_ns']} -clock ports [get_ports {{{inputs}}}]")
        self.tcl("set_output_delay 0 -clock ports [all_outputs]")
        self.tcl(f"set_input_transition {job['input_slew_ns']} [all_inputs]")
        self.tcl(f"set_load {job['output_load_ff']} [all_outputs]")
        for layer, resistance, capacitance in job["layers"]:
            self.tcl(f"set_layer_rc -layer {layer} -resistance {resistance} -capacitance {capacitance}")
        self.tcl(f"set_wire_rc -signal -layer {job['signal_layer']}")
        self.tcl(f"set_wire_rc -clock -layer {job['clock_layer']}")

    def place(self) -> None:
        self.tcl(f"global_placement -density {min(self.job['utilisation'] + _SPARE_DENSITY, 1.0):.3f}")
        self.tcl("estimate_parasitics -placement")
        self.tcl("repair_design")
        self.tcl("detailed_placement")

    def clock_tree(self) -> None:
        buffers = self.job["clock_buffers"]
        # Dummy loads balance no more than a few picoseconds and would be a third of the tree.
        self.tcl(
            f"clock_tree_synthesis -root_buf {buffers[-1]} -buf_list {{{' '.join(buffers)}}} "
            "-sink_clustering_enable -dont_use_dummy_load"
        )
        self.tcl("set_propagated_clock [get_clocks core]")
        self.tcl("detailed_placement")
        self.tcl("estimate_parasitics -placement")
        self.follow_tree()
        self.tcl(f"repair_timing -setup -setup_margin {self.job['setup_margin_ns']}")
        self.tcl(f"repair_timing -hold -hold_margin {self.job['hold_margin_ns']}")
        self.tcl("detailed_placement")
        self.tcl("check_placement")

    def arrivals_ns(self) -> list[float]:
        """When the clock reaches each flip-flop."""
        clocks = self.job["flops"]
        flops = [inst for inst in self.block.getInsts() if inst.getMaster().getName() in clocks]
        pins = [flop.findITerm(clocks[flop.getMaster().getName()]) for flop in flops]
        return [1e9 * self.timing.getPinArrival(pin, self.rise) for pin in pins]

    def follow_tree(self) -> None:
        """Whatever is at the ports has a tree as deep as this one."""
        found = self.arrivals_ns()
        self.tcl(f"set_clock_latency {sum(found) / len(found):.4f} [get_clocks ports]")

    def route(self) -> None:
        for layers, share in self.job["layer_adjustments"]:
            self.tcl(f"set_global_routing_layer_adjustment {layers} {share}")
        self.tcl(f"set_routing_layers -signal {self.job['signal_layers']} -clock {self.job['clock_layers']}")
        self.tcl("global_route -congestion_iterations 50")
        self.tcl(f"estimate_parasitics -global_routing -spef_file {{{self.folder / 'wires.spef'}}}")
        self.follow_tree()

    def detailed(self) -> dict[str, Any] | None:
        """Every wire in its track, if it is asked for: violations of design rules, and the wires' length."""
        if not self.job["detailed"]:
            return None
        self.tcl(f"set_thread_count {self.job['threads']}")
        report = self.folder / "violations"
        self.tcl(f"detailed_route -output_drc {{{report}}} -verbose 0")
        found = re.findall(r"^\s*violation type", report.read_text(), re.M) if report.is_file() else []
        wires = [wire for net in self.signals() if (wire := net.getWire()) is not None]
        length = sum(wire.getLength() for wire in wires)
        return {"violations": len(found), "wire_um": float(self.block.dbuToMicrons(length))}

    def wires_ff(self) -> dict[str, float]:
        """The wire's capacitance of every net, without its pins."""
        text = (self.folder / "wires.spef").read_text(encoding="utf-8")
        unit = re.search(r"^\*C_UNIT (\S+) FF", text, re.M)
        if unit is None:
            raise LayoutError("estimate_parasitics: its capacitances are not in fF")
        scale = float(unit[1])
        return {net: scale * float(value) for net, value in re.findall(r"^\*D_NET (\S+) (\S+)", text, re.M)}

    def wire_um(self) -> float:
        router = self.design.getGlobalRouter()
        total = 0
        for net in self.signals():
            # By index: the end of an iteration over this vector ends the process.
            by_layer = router.routeLayerLengths(net)
            total += sum(by_layer[layer] for layer in range(len(by_layer)))
        return float(self.block.dbuToMicrons(total))

    def signals(self) -> list[Any]:
        return [net for net in self.block.getNets() if net.getSigType() not in _CONSTANTS]

    def cells(self) -> list[tuple[str, str, dict[str, str]]]:
        found = []
        for inst in self.block.getInsts():
            pins = {}
            for pin in inst.getITerms():
                net = pin.getNet()
                if net is not None and pin.getSigType() not in _CONSTANTS:
                    pins[pin.getMTerm().getName()] = _CONSTANTS.get(net.getSigType(), net.getName())
            found.append((inst.getName(), inst.getMaster().getName(), pins))
        return found

    def ports(self) -> dict[str, str]:
        terms = [term for term in self.block.getBTerms() if term.getSigType() not in _CONSTANTS]
        return {t.getName(): _CONSTANTS.get(t.getNet().getSigType(), t.getNet().getName()) for t in terms}

    def text(self, command: str) -> str:
        """What a command writes into a file."""
        path = self.folder / "written"
        self.tcl(f"{command} {{{path}}}")
        return path.read_text(encoding="utf-8")

    def power(self) -> dict[str, Any]:
        """In watts, of a layout whose every driver switches as the job says: transitions per cycle, share of time that it is high."""
        self.constraints()
        self.tcl("set_propagated_clock [get_clocks core]")
        self.tcl(f"read_spef {{{self.folder / 'wires.spef'}}}")
        for kind, found in self.job["activity"].items():
            for name, transitions, high in found:
                where = f"[get_{kind} {{{name}}}]"
                option = "-input_ports" if kind == "ports" else "-pins"
                self.tcl(f"set_power_activity {option} {where} -activity {transitions:.6g} -duty {high:.6g}")
        text = self.text("report_power -digits 9 >")
        parts = dict(re.findall(r"^(\w+)\s+(?:\S+\s+){3}(\S+)\s+\S+%$", text, re.M))
        if "Total" not in parts:
            raise LayoutError(f"report_power: its answer has no total: {text[:200]}")
        return {name.lower(): float(value) for name, value in parts.items()}

    def run(self) -> dict[str, Any]:
        self.floorplan()
        self.constraints()
        self.place()
        self.clock_tree()
        self.route()
        core, arrivals = self.block.getCoreArea(), self.arrivals_ns()
        return {
            "cells": self.cells(),
            "ports": self.ports(),
            "wires_ff": self.wires_ff(),
            "slack_ns": float(self.tcl("worst_slack -max")),
            "hold_slack_ns": float(self.tcl("worst_slack -min")),
            "latency_ns": sum(arrivals) / len(arrivals),
            "skew_ns": max(arrivals) - min(arrivals),
            "wire_um": self.wire_um(),
            "core_um2": self.block.dbuToMicrons(core.dx()) * self.block.dbuToMicrons(core.dy()),
            "verilog": self.text("write_verilog"),
            "spef": (self.folder / "wires.spef").read_text(encoding="utf-8"),
            "detailed": self.detailed(),
        }


def main(path: Path) -> int:
    # Whoever waits for the layout may be ended: then this ends too. OpenROAD is for Linux alone.
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)
    folder = path.parent
    try:
        job = json.loads(path.read_text(encoding="utf-8"))
        flow = Flow(job, folder)
        answer = flow.power() if "activity" in job else flow.run()
    except LayoutError as error:
        (folder / "error").write_text(str(error), encoding="utf-8")
        return 1
    (folder / "answer.json").write_text(json.dumps(answer), encoding="utf-8")
    sys.stdout.flush()
    # The wheel may crash when the interpreter takes its objects down; everything is written by now.
    os._exit(0)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
