"""Static timing from the library's NLDM tables: arrival, slew, slack, and the delay of every arc.

The clock is ideal: it reaches every flip-flop and clock gate at time 0 with the description's slew.
Inputs arrive at time 0 with that slew; outputs must be there at the end of the period.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from softermax.silicon.library import FloatArray, Library, Tables, WireLoad
from softermax.silicon.netlist import Netlist

RISE, FALL = 0, 1
_EDGES = {
    "positive_unate": ((RISE, RISE), (FALL, FALL)),
    "negative_unate": ((FALL, RISE), (RISE, FALL)),
    "non_unate": ((RISE, RISE), (FALL, RISE), (RISE, FALL), (FALL, FALL)),
}


@dataclass(frozen=True)
class Step:
    """One stage of the critical path."""

    cell: str
    type: str
    unit: str
    net: str
    edge: str
    arrival_ns: float


@dataclass
class Arcs:
    """The combinational and clock-to-output arcs of all cells, an entry for each pair of edges."""

    cell: NDArray[np.int64]
    pin: list[str]
    output: list[str]
    source: NDArray[np.int64]
    target: NDArray[np.int64]
    source_edge: NDArray[np.int64]
    target_edge: NDArray[np.int64]
    delay_table: NDArray[np.int64]
    slew_table: NDArray[np.int64]
    level: NDArray[np.int64]
    delay: FloatArray
    """Filled by `analyse`, in nanoseconds."""


@dataclass
class Timing:
    clock_ns: float
    slack_ns: float
    critical_path: list[Step]
    arrival: FloatArray
    """(nets, 2), rise and fall; minus infinity where nothing arrives."""
    slew: FloatArray
    """(nets, 2)."""
    load: FloatArray
    """(nets, 2)."""
    arcs: Arcs
    endpoint: str

    @property
    def meets(self) -> bool:
        return self.slack_ns >= 0


def analyse(netlist: Netlist, clock_ns: float, wire: WireLoad | None = None) -> Timing:
    """Propagate arrivals and slews, worst over arcs, and check every endpoint against the period."""
    library = netlist.library
    pins, wires = netlist.loads(wire or library.wire)
    load = pins + wires[:, None]
    arcs = _arcs(netlist)
    start_slew = library.description.input_slew_ns
    arrival = np.full((netlist.nets, 2), -np.inf)
    slew = np.full((netlist.nets, 2), start_slew)
    for bits in netlist.inputs.values():
        arrival[bits] = 0.0
    for index in range(netlist.cells):
        if netlist.cell(index).clock:
            arrival[netlist.pins[index][netlist.cell(index).clock]] = 0.0
    cause = np.full((netlist.nets, 2), -1, dtype=np.int64)
    reached = np.zeros((netlist.nets, 2))
    order = np.argsort(arcs.level, kind="stable")
    bounds = np.searchsorted(arcs.level[order], np.arange(arcs.level.max(initial=0) + 2))
    for low, high in itertools.pairwise(bounds):
        part = order[low:high]
        if not len(part):
            continue
        source, edge = arcs.source[part], arcs.source_edge[part]
        target, to = arcs.target[part], arcs.target_edge[part]
        x, y = slew[source, edge], load[target, to]
        delay = library.tables.at(arcs.delay_table[part], x, y)
        arcs.delay[part] = delay
        out = arrival[source, edge] + delay
        np.maximum.at(arrival, (target, to), out)
        hit = out >= arrival[target, to]
        cause[target[hit], to[hit]] = part[hit]
        # Slews start from the ideal value; the first arc into a net replaces it, later ones keep the worst.
        live = np.isfinite(out)
        made = library.tables.at(arcs.slew_table[part], x, y)
        np.maximum.at(reached, (target[live], to[live]), made[live])
        slew[target[live], to[live]] = reached[target[live], to[live]]
    slack, endpoint = _worst(netlist, clock_ns, arrival, slew)
    path = _path(netlist, arcs, arrival, cause, endpoint)
    name = netlist.net_names[endpoint[0]] if endpoint else "none"
    return Timing(clock_ns, slack, path, arrival, slew, load, arcs, name)


def require_possible(library: Library, clock_ns: float) -> None:
    """Refuse a clock period that is too short for a flip-flop that feeds the next one."""
    d, tables = library.description, library.tables
    flop = library.cell(d.flop)
    load = np.array([flop.capacitance[flop.inputs[0]][RISE]])
    slew = np.array([d.input_slew_ns])
    least = 0.0
    for kind in ("clock-to-output", "setup"):
        used = [t for arc in flop.timing if arc.kind == kind for t in (arc.rise, arc.fall) if t >= 0]
        second = slew if kind == "setup" else load
        least += min((float(tables.at(np.array([t]), slew, second)[0]) for t in used), default=0.0)
    if clock_ns <= least:
        raise ValueError(
            f"clock {clock_ns} ns: no design can meet it in {library.name}, where one flip-flop feeding another "
            f"already takes {least:.3f} ns"
        )


def _arcs(netlist: Netlist) -> Arcs:
    level = np.zeros(netlist.nets, dtype=np.int64)
    cells: list[int] = []
    columns: list[tuple[int, int, int, int, int, int, int]] = []
    pin_names: list[str] = []
    output_names: list[str] = []

    def add(index: int, kind: str, depth: int) -> None:
        nets = netlist.pins[index]
        for arc in netlist.cell(index).timing:
            if arc.kind != kind or arc.pin not in nets:
                continue
            for source_edge, target_edge in _EDGES[arc.sense]:
                delay, slew = (arc.rise, arc.rise_slew) if target_edge == RISE else (arc.fall, arc.fall_slew)
                if delay < 0 or (kind == "clock-to-output" and source_edge == FALL):
                    continue
                cells.append(index)
                pin_names.append(arc.related)
                output_names.append(arc.pin)
                columns.append(
                    (nets[arc.related], nets[arc.pin], source_edge, target_edge, delay, slew, depth)
                )

    for index in range(netlist.cells):
        cell = netlist.cell(index)
        if cell.kind == "flop":
            add(index, "clock-to-output", 0)
            if any(pin in netlist.pins[index] for pin in cell.outputs) and not any(
                arc.kind == "clock-to-output" for arc in cell.timing
            ):
                raise ValueError(f"library {netlist.library.name}: {cell.name} has no clock-to-output timing")
    for index in netlist.order():
        cell, nets = netlist.cell(int(index)), netlist.pins[int(index)]
        depth = 1 + max((int(level[nets[pin]]) for pin in cell.inputs), default=0)
        for pin in cell.outputs:
            if pin in nets:
                level[nets[pin]] = depth
        add(int(index), "combinational", depth)
    table = np.array(columns, dtype=np.int64).reshape(-1, 7)
    source, target, source_edge, target_edge, delay_table, slew_table, levels = table.T
    return Arcs(
        np.array(cells, dtype=np.int64),
        pin_names,
        output_names,
        source,
        target,
        source_edge,
        target_edge,
        delay_table,
        slew_table,
        level=levels,
        delay=np.zeros(len(cells)),
    )


def _worst(
    netlist: Netlist, clock_ns: float, arrival: FloatArray, slew: FloatArray
) -> tuple[float, tuple[int, int] | None]:
    """The smallest slack over flip-flops, clock gates and outputs, and the net and edge where it is."""
    tables: Tables = netlist.library.tables
    clock_slew = netlist.library.description.input_slew_ns
    nets: list[int] = []
    edges: list[int] = []
    index: list[int] = []
    for number in range(netlist.cells):
        cell = netlist.cell(number)
        if not cell.clock:
            continue
        for arc in cell.timing:
            if arc.kind != "setup" or arc.pin not in netlist.pins[number]:
                continue
            for edge, table in ((RISE, arc.rise), (FALL, arc.fall)):
                if table >= 0:
                    nets.append(netlist.pins[number][arc.pin])
                    edges.append(edge)
                    index.append(table)
    net, edge_of = np.array(nets, dtype=np.int64), np.array(edges, dtype=np.int64)
    setup = tables.at(np.array(index, dtype=np.int64), slew[net, edge_of], np.full(len(nets), clock_slew))
    slack = clock_ns - setup - arrival[net, edge_of]
    ports = np.array(sorted({b for bits in netlist.outputs.values() for b in bits}), dtype=np.int64)
    net = np.concatenate([net, ports, ports])
    edge_of = np.concatenate([edge_of, np.full(len(ports), RISE), np.full(len(ports), FALL)]).astype(np.int64)
    slack = np.concatenate([slack, clock_ns - arrival[ports, RISE], clock_ns - arrival[ports, FALL]])
    slack = np.where(np.isfinite(slack), slack, clock_ns)
    if not len(slack):
        return clock_ns, None
    worst = int(slack.argmin())
    return float(slack[worst]), (int(net[worst]), int(edge_of[worst]))


def _path(
    netlist: Netlist,
    arcs: Arcs,
    arrival: FloatArray,
    cause: NDArray[np.int64],
    endpoint: tuple[int, int] | None,
) -> list[Step]:
    steps: list[Step] = []
    at = endpoint
    while at is not None:
        arc = int(cause[at])
        if arc < 0:
            break
        cell = int(arcs.cell[arc])
        steps.append(
            Step(
                netlist.cell_names[cell],
                netlist.types[cell],
                netlist.units[cell],
                netlist.net_names[at[0]],
                "rise" if at[1] == RISE else "fall",
                float(arrival[at]),
            )
        )
        at = (int(arcs.source[arc]), int(arcs.source_edge[arc]))
    return steps[::-1]
