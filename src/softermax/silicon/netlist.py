"""A mapped netlist as arrays: cells, nets, ports, levels."""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from softermax.silicon.library import Cell, FloatArray, Library, WireLoad

CONSTANT_ZERO, CONSTANT_ONE = 0, 1
"""Nets 0 and 1 are the constants."""


@dataclass
class Netlist:
    """Cells of a flat design; nets are numbers, 0 and 1 the constants."""

    name: str
    nets: int
    net_names: list[str]
    types: list[str]
    cell_names: list[str]
    units: list[str]
    """The sub-unit of each cell."""
    pins: list[dict[str, int]]
    """Net of each pin of each cell."""
    inputs: dict[str, list[int]]
    """Ports, least significant bit first."""
    outputs: dict[str, list[int]]
    clock: int
    """The clock's net, -1 for none."""
    library: Library = field(repr=False)

    @property
    def cells(self) -> int:
        return len(self.types)

    def cell(self, index: int) -> Cell:
        return self.library.cells[self.types[index]]

    def counts(self) -> dict[str, int]:
        return dict(Counter(self.types).most_common())

    @property
    def areas(self) -> FloatArray:
        return np.array([self.library.cells[t].area for t in self.types])

    @property
    def area(self) -> float:
        return float(self.areas.sum())

    def area_by_unit(self) -> dict[str, float]:
        return self.by_unit(self.areas)

    def by_unit(self, values: FloatArray) -> dict[str, float]:
        """A figure of each cell added up over sub-units, largest first; adds up to the total."""
        sums: dict[str, float] = {}
        for unit, value in zip(self.units, values, strict=True):
            sums[unit] = sums.get(unit, 0.0) + float(value)
        return dict(sorted(sums.items(), key=lambda item: -item[1]))

    def loads(self, wire: WireLoad) -> tuple[FloatArray, FloatArray]:
        """Capacitance of each net: its pins (nets, rise and fall), and its wire. The clock's nets have no
        wire: there is no clock tree."""
        pin_load = np.zeros((self.nets, 2))
        fanout = np.zeros(self.nets)
        clocked = np.zeros(self.nets, dtype=bool)
        for index in range(self.cells):
            cell = self.cell(index)
            for pin, capacitance in cell.capacitance.items():
                net = self.pins[index][pin]
                pin_load[net] += capacitance
                fanout[net] += 1
                clocked[net] |= pin == cell.clock
        for bits in self.outputs.values():
            for net in bits:
                pin_load[net] += self.library.description.output_load_ff
                fanout[net] += 1
        wires = wire(fanout)
        wires[clocked] = 0.0
        return pin_load, np.asarray(wires)

    def order(self) -> NDArray[np.int64]:
        """Combinational cells so that each comes after those that drive it."""
        driver: dict[int, int] = {}
        for index in range(self.cells):
            if self.cell(index).kind == "combinational":
                for pin in self.cell(index).outputs:
                    if pin in self.pins[index]:
                        driver[self.pins[index][pin]] = index
        waiting: dict[int, int] = {}
        users: dict[int, list[int]] = {}
        ready: deque[int] = deque()
        for index in dict.fromkeys(driver.values()):
            sources = {driver[n] for p in self.cell(index).inputs if (n := self.pins[index][p]) in driver}
            waiting[index] = len(sources)
            for source in sources:
                users.setdefault(source, []).append(index)
            if not sources:
                ready.append(index)
        done: list[int] = []
        while ready:
            index = ready.popleft()
            done.append(index)
            for user in users.get(index, ()):
                waiting[user] -= 1
                if waiting[user] == 0:
                    ready.append(user)
        if len(done) != len(waiting):
            stuck = [i for i, count in waiting.items() if count > 0]
            names = ", ".join(self.net_names[self.pins[i][self.cell(i).outputs[0]]] for i in stuck[:4])
            raise ValueError(
                f"{self.name}: {len(stuck)} cells form a combinational loop, through nets {names}"
            )
        return np.array(done, dtype=np.int64)


def read(mapped: dict[str, Any], top: str, library: Library) -> Netlist:
    """A netlist from Yosys' JSON. Every cell must be one of the library's."""
    module = mapped["modules"][top]
    numbers: dict[int | str, int] = {"0": CONSTANT_ZERO, "1": CONSTANT_ONE, "x": CONSTANT_ZERO}
    names = ["0", "1"]

    def net(bit: int | str) -> int:
        if bit not in numbers:
            numbers[bit] = len(names)
            names.append(f"n{len(names)}")
        return numbers[bit]

    for name, entry in module["netnames"].items():
        for position, bit in enumerate(entry["bits"]):
            if isinstance(bit, int) and (bit not in numbers or not entry.get("hide_name")):
                number = net(bit)
                names[number] = name if len(entry["bits"]) == 1 else f"{name}[{position}]"
    types, cell_names, units, pins = [], [], [], []
    for name, entry in module["cells"].items():
        kind = entry["type"]
        if kind not in library.cells:
            reason = (
                "a cell of the logic that was not mapped" if kind.startswith("$") else "not a usable cell"
            )
            raise ValueError(f"{top}: cell {name} of type {kind} is {reason} of library {library.name}")
        cell = library.cells[kind]
        connected = {pin: net(bits[0]) for pin, bits in entry["connections"].items() if bits}
        open_pins = [p for p in cell.capacitance if p not in connected]
        if open_pins:
            raise ValueError(f"{top}: input {open_pins[0]} of cell {name} ({kind}) is not connected")
        types.append(kind)
        cell_names.append(name)
        units.append(str(entry["attributes"].get("unit", "top")))
        pins.append(connected)
    ports = {"input": {}, "output": {}}  # type: dict[str, dict[str, list[int]]]
    for name, entry in module["ports"].items():
        ports[entry["direction"]][name] = [net(bit) for bit in entry["bits"]]
    inputs, outputs = ports["input"], ports["output"]
    netlist = Netlist(top, len(names), names, types, cell_names, units, pins, inputs, outputs, -1, library)
    netlist.clock = _clock(netlist)
    return netlist


def _clock(netlist: Netlist) -> int:
    """The one net that clocks everything, directly or through clock gates."""
    gated = {}
    roots: set[int] = set()
    for index in range(netlist.cells):
        cell = netlist.cell(index)
        if cell.kind == "clock-gate":
            gated[netlist.pins[index][cell.outputs[0]]] = netlist.pins[index][cell.clock]
    for index in range(netlist.cells):
        cell = netlist.cell(index)
        if cell.clock:
            net = netlist.pins[index][cell.clock]
            while net in gated:
                net = gated[net]
            roots.add(net)
    ports = {bits[0] for bits in netlist.inputs.values() if len(bits) == 1}
    wrong = [net for net in roots if net not in ports]
    if wrong:
        raise ValueError(
            f"{netlist.name}: net {netlist.net_names[wrong[0]]} clocks cells and is neither an input "
            "nor the output of a clock gate"
        )
    if len(roots) > 1:
        raise ValueError(f"{netlist.name}: {len(roots)} clocks; there must be one")
    return roots.pop() if roots else -1
