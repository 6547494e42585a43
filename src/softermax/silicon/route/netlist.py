"""A layout as a netlist that our own meter takes: with a clock tree, and the capacitance of its wires.

The simulator knows a clock, clock gates and what they clock. So a routed netlist is simulated with every flip-flop at the clock
or the gate above its part of the tree, all at the same time, and the tree is given the transitions of what drives it afterwards.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from softermax.silicon.library import Cell, FloatArray, WireLoad
from softermax.silicon.netlist import CONSTANT_ONE, CONSTANT_ZERO, Netlist
from softermax.silicon.route.openroad import Layout
from softermax.silicon.simulation import Activity
from softermax.silicon.timing import FALL, RISE
from softermax.silicon.verilog import cell_name, port_bit

CLOCK_TREE, BUFFERS = "clock tree", "buffers"
"""Sub-units of the cells that layout adds."""


@dataclass
class RoutedNetlist(Netlist):
    """With wires of their own in place of a wire load."""

    wires: FloatArray
    tree: dict[int, int]
    """By net of the clock tree: the net of the clock or of the gate that it repeats."""
    resized: int
    """Cells of the mapped netlist that have another drive strength now."""

    def loads(self, wire: WireLoad) -> tuple[FloatArray, FloatArray]:
        return super().loads(wire)[0], self.wires

    @property
    def tree_cells(self) -> list[int]:
        return [index for index in range(self.cells) if self.units[index] == CLOCK_TREE]

    def without_tree(self) -> Netlist:
        """For simulation: flip-flops and gates clocked by what their part of the tree repeats."""
        pins = list(self.pins)
        for index in range(self.cells):
            clock = self.cell(index).clock
            if clock and pins[index][clock] in self.tree:
                pins[index] = pins[index] | {clock: self.tree[pins[index][clock]]}
        return replace(self, pins=pins)

    def with_tree(self, activity: Activity) -> Activity:
        """What `without_tree` did, and the tree's transitions with it."""
        toggles, counters = activity.toggles.copy(), activity.counters.copy()
        for net, source in self.tree.items():
            toggles[net] = toggles[source]
        places = {int(index): position for position, index in enumerate(activity.cells)}
        for index in self.tree_cells:
            position, net = places[index], self.pins[index][self.cell(index).outputs[0]]
            rises, falls = (int(toggles[net, edge]) for edge in (RISE, FALL))
            # One output and one input: counters by edge and by the input's level after it.
            at = activity.out_offset[position]
            counters[at : at + 4] = 0
            counters[at + 2 * RISE + 1], counters[at + 2 * FALL] = rises, falls
            # The clock is high for half of each cycle in which it comes.
            high, state = rises // 2, activity.state_offset[position]
            total = activity.copies * activity.cycles
            counters[state], counters[state + 1] = total - high, high
        return replace(activity, netlist=self, toggles=toggles, counters=counters)


def routed(layout: Layout, mapped: Netlist) -> RoutedNetlist:
    """A layout of a mapped netlist, whose cells keep their sub-units."""
    numbers = {"0": CONSTANT_ZERO, "1": CONSTANT_ONE}
    names = ["0", "1"]

    def number(net: str) -> int:
        if net not in numbers:
            numbers[net] = len(names)
            names.append(net)
        return numbers[net]

    own = {cell_name(index): index for index in range(mapped.cells)}
    types = [kind for _, kind, _ in layout.cells]
    pins = [{pin: number(net) for pin, net in connected.items()} for _, _, connected in layout.cells]
    for (name, kind, _), connected in zip(layout.cells, pins, strict=True):
        missing = [pin for pin in mapped.library.cell(kind).capacitance if pin not in connected]
        if missing:
            raise ValueError(
                f"layout of {mapped.name}: input {missing[0]} of cell {name} ({kind}) is not connected"
            )
    units = [mapped.units[own[name]] if name in own else BUFFERS for name, _, _ in layout.cells]
    resized = sum(name in own and mapped.types[own[name]] != kind for name, kind, _ in layout.cells)
    inputs, outputs = (
        {
            port: [number(layout.ports[port_bit(port, i)]) for i in range(len(bits))]
            for port, bits in some.items()
        }
        for some in (mapped.inputs, mapped.outputs)
    )
    clock_port = next(name for name, bits in mapped.inputs.items() if mapped.clock in bits)
    clock = inputs[clock_port][0]
    wires = np.zeros(len(names))
    for net, capacitance in layout.wires_ff.items():
        if net in numbers:
            wires[numbers[net]] = capacitance
    netlist = RoutedNetlist(
        mapped.name, len(names), names, types, [name for name, _, _ in layout.cells], units, pins, inputs, outputs,
        clock, mapped.library, wires, {}, resized,
    )  # fmt: skip
    _follow_clock(netlist)
    return netlist


def _follow_clock(netlist: RoutedNetlist) -> None:
    """Find the tree: buffers from the clock, and from each clock gate, down to what they clock."""
    readers: dict[int, list[int]] = {}
    waiting = [(netlist.clock, netlist.clock)]
    for index in range(netlist.cells):
        cell = netlist.cell(index)
        if cell.kind == "combinational":
            for pin in cell.inputs:
                readers.setdefault(netlist.pins[index][pin], []).append(index)
        elif cell.kind == "clock-gate":
            gated = netlist.pins[index][cell.outputs[0]]
            waiting.append((gated, gated))
    while waiting:
        net, source = waiting.pop()
        for index in readers.get(net, ()):
            cell = netlist.cell(index)
            if not _is_buffer(cell):
                raise ValueError(
                    f"{netlist.name}: cell {netlist.cell_names[index]} ({cell.name}) of the clock tree is no buffer"
                )
            netlist.units[index] = CLOCK_TREE
            out = netlist.pins[index][cell.outputs[0]]
            netlist.tree[out] = source
            waiting.append((out, source))


def _is_buffer(cell: Cell) -> bool:
    return len(cell.inputs) == len(cell.outputs) == 1 and cell.functions[cell.outputs[0]] == 0b10
