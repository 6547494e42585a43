"""What our simulator counted, as OpenROAD's power report takes it: how often each net switches, and how long it is high."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np

from softermax.silicon.jobs import GateJob
from softermax.silicon.netlist import CONSTANT_ONE
from softermax.silicon.simulation import Activity
from softermax.silicon.timing import RISE
from softermax.silicon.verilog import port_bit

Switching: TypeAlias = dict[str, list[tuple[str, float, float]]]
"""Of ``pins`` that drive a net and of ``ports``: name, transitions per cycle, share of the time that it is high."""


def switching(activity: Activity, job: GateJob) -> Switching:
    """Of every net of the netlist but the clock's own, of which OpenROAD knows."""
    netlist, cycles = activity.netlist, activity.copies * activity.cycles
    per_cycle = activity.toggles.sum(axis=1) / cycles
    pins, ports = [], []
    for position, index in enumerate(activity.cells):
        cell, nets = netlist.cell(int(index)), netlist.pins[int(index)]
        first = activity.state_offset[position]
        states = activity.counters[first : first + (1 << len(cell.state_pins))].astype(np.float64)
        for pin in cell.outputs:
            if nets.get(pin, 0) <= CONSTANT_ONE:
                continue
            if cell.kind == "clock-gate":
                # High for half of each cycle in which the clock comes.
                high = activity.toggles[nets[pin], RISE] / cycles / 2
            else:
                function = [cell.functions[pin] >> state & 1 for state in range(len(states))]
                high = states @ function / states.sum()
            pins.append((f"{netlist.cell_names[int(index)]}/{pin}", per_cycle[nets[pin]], float(high)))
    for port, bits in netlist.inputs.items():
        given = job.inputs.get(port)
        for i, net in enumerate(bits):
            if net > CONSTANT_ONE and net != netlist.clock:
                high = 0.0 if given is None else given[job.counted_from :, :, i].mean()
                ports.append((port_bit(port, i), per_cycle[net], float(high)))
    return {
        "pins": [(name, float(often), high) for name, often, high in pins],
        "ports": [(name, float(often), high) for name, often, high in ports],
    }
