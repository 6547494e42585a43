"""Energy of an activity: internal by state, switching of loads, leakage by state, cell by cell.

An output's transition takes the table of the input that caused it, in the state it happened in; an
input's transition that moves no output takes the input's own table ("hidden power"). Slews and loads
come from the timing analysis.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from softermax.silicon.library import Cell, FloatArray, PowerArc
from softermax.silicon.netlist import Netlist
from softermax.silicon.simulation import Activity
from softermax.silicon.timing import FALL, RISE, Timing

INPUTS = "inputs"
"""Where the switching of nets is counted that are driven from outside."""
CLOCK = "clock"
"""Where the switching of the clock's net is counted; flip-flops' own clock pins are theirs."""


@dataclass
class Energy:
    """Femtojoules of all copies and counted cycles, for each cell of the netlist."""

    netlist: Netlist
    internal: FloatArray
    switching: FloatArray
    leakage: FloatArray
    inputs: float
    clock: float

    @property
    def cells(self) -> FloatArray:
        return np.asarray(self.internal + self.switching + self.leakage)

    @property
    def dynamic(self) -> float:
        return float(self.internal.sum() + self.switching.sum()) + self.inputs + self.clock

    @property
    def total(self) -> float:
        return self.dynamic + float(self.leakage.sum())

    def by_unit(self) -> dict[str, float]:
        """Adds up to the total."""
        sums = self.netlist.by_unit(self.cells) | {INPUTS: self.inputs, CLOCK: self.clock}
        return dict(sorted(sums.items(), key=lambda item: -item[1]))


def energy_of(activity: Activity, timing: Timing) -> Energy:
    """The energy of what was simulated, at the timing's clock period."""
    netlist = activity.netlist
    internal, leakage = np.zeros(netlist.cells), np.zeros(netlist.cells)
    groups: dict[str, list[int]] = {}
    for position, index in enumerate(activity.cells):
        groups.setdefault(netlist.types[int(index)], []).append(position)
    for name, positions in groups.items():
        cell, members = netlist.library.cells[name], np.array(positions, dtype=np.int64)
        where = activity.cells[members]
        internal[where] = _internal(cell, members, activity, timing)
        leakage[where] = _leakage(cell, members, activity, timing.clock_ns)
    for index in range(netlist.cells):
        if netlist.cell(index).kind == "tie":
            copies_time = activity.copies * activity.cycles * timing.clock_ns
            leakage[index] = netlist.cell(index).leakage[0] * copies_time * 1e-3
    per_net = 0.5 * netlist.library.voltage**2 * (timing.load * activity.toggles).sum(axis=1)
    switching = np.zeros(netlist.cells)
    driven = np.zeros(netlist.nets, dtype=bool)
    for index in range(netlist.cells):
        for pin in netlist.cell(index).outputs:
            net = netlist.pins[index].get(pin, -1)
            if net >= 0:
                switching[index] += per_net[net]
                driven[net] = True
    clock = float(per_net[netlist.clock]) if netlist.clock >= 0 else 0.0
    return Energy(netlist, internal, switching, leakage, float(per_net[~driven].sum()) - clock, clock)


def _nets(netlist: Netlist, cells: NDArray[np.int64], pin: str) -> NDArray[np.int64]:
    """The net of a pin in each cell, -1 where it is open."""
    return np.array([netlist.pins[int(i)].get(pin, -1) for i in cells], dtype=np.int64)


def _counts(counters: NDArray[np.uint32], offsets: NDArray[np.int64], shape: tuple[int, ...]) -> FloatArray:
    flat = counters[offsets[:, None] + np.arange(int(np.prod(shape)))]
    return np.asarray(flat.reshape(len(offsets), *shape), dtype=np.float64)


def _internal(cell: Cell, members: NDArray[np.int64], activity: Activity, timing: Timing) -> FloatArray:
    netlist, tables = activity.netlist, activity.netlist.library.tables
    where = activity.cells[members]
    pins = [pin for pin in cell.state_pins if pin != "IQ"] if cell.clock else list(cell.inputs)
    states = 1 << len(cell.state_pins)
    total = np.zeros(len(members))
    slews = {}
    for pin in pins:
        slews[pin] = timing.slew[_nets(netlist, where, pin)]

    def add(table: int, counts: FloatArray, slew: FloatArray, load: FloatArray) -> None:
        if table >= 0 and counts.any():
            index = np.full(len(members), table, dtype=np.int64)
            np.add(total, counts * tables.at(index, slew, load), out=total)

    out = _counts(activity.counters, activity.out_offset[members], (len(cell.outputs), len(pins), 2, states))
    for o, output in enumerate(cell.outputs):
        nets = _nets(netlist, where, output)
        counts = out[:, o]
        open_ones = nets < 0
        if open_ones.any() and cell.kind == "flop" and len(cell.outputs) == 2:
            # An open complement switches against its twin.
            counts = np.where(open_ones[:, None, None, None], out[:, 1 - o, :, ::-1], counts)
        load = np.where(open_ones[:, None], 0.0, timing.load[nets])
        for p, pin in enumerate(pins):
            arcs = [a for a in cell.power if a.pin == output and a.related == pin]
            # A cause that the library does not describe takes the mean of the output's arcs.
            arcs = arcs or [a for a in cell.power if a.pin == output]
            for arc, weight in zip(arcs, _weights(arcs, states, spread=True), strict=True):
                for edge, table in ((RISE, arc.rise), (FALL, arc.fall)):
                    for pin_edge in (RISE, FALL):
                        chosen = weight * _after(cell, pin, pin_edge)
                        add(table, counts[:, p, edge] @ chosen, slews[pin][:, pin_edge], load[:, edge])
    if activity.in_offset[members[0]] < 0:
        return total
    hidden = _counts(activity.counters, activity.in_offset[members], (len(pins), states))
    no_load = np.zeros(len(members))
    for p, pin in enumerate(pins):
        arcs = [a for a in cell.power if a.pin == pin and not a.related]
        quiet = _moves_nothing(cell, pin)
        for arc, weight in zip(arcs, _weights(arcs, states, spread=False), strict=True):
            for edge, table in ((RISE, arc.rise), (FALL, arc.fall)):
                chosen = weight * quiet * _after(cell, pin, edge)
                add(table, hidden[:, p] @ chosen, slews[pin][:, edge], no_load)
    return total


def _weights(arcs: list[PowerArc], states: int, spread: bool) -> list[FloatArray]:
    """The share of each arc in each state: arcs whose condition holds share it; where none does, all
    share it if ``spread``, else it has no energy."""
    holds = np.array([[arc.states >> s & 1 for s in range(states)] for arc in arcs], dtype=np.float64)
    if not len(arcs):
        return []
    count = holds.sum(axis=0)
    if spread:
        holds[:, count == 0] = 1.0
        count = holds.sum(axis=0)
    return list(holds / np.maximum(count, 1.0))


def _after(cell: Cell, pin: str, edge: int) -> FloatArray:
    """1 in the states in which ``pin`` has just had this edge."""
    at = cell.state_pins.index(pin)
    level = 1 if edge == RISE else 0
    return np.array([float(s >> at & 1 == level) for s in range(1 << len(cell.state_pins))])


def _moves_nothing(cell: Cell, pin: str) -> FloatArray:
    """1 in the states in which a transition of ``pin`` leaves every output as it is."""
    if cell.kind == "flop":
        # Its tables by state already exclude what the output's table holds.
        return np.ones(1 << len(cell.state_pins))
    flip = 1 << cell.state_pins.index(pin)
    return np.array(
        [
            float(all((t >> s & 1) == (t >> (s ^ flip) & 1) for t in cell.functions.values()))
            for s in range(1 << len(cell.state_pins))
        ]
    )


def _leakage(cell: Cell, members: NDArray[np.int64], activity: Activity, clock_ns: float) -> FloatArray:
    counts = _counts(activity.counters, activity.state_offset[members], (1 << len(cell.state_pins),))
    samples = 2 if cell.clock else 1
    # nW times ns are 1e-18 J.
    return np.asarray(counts @ np.array(cell.leakage) * clock_ns / samples * 1e-3)
