"""A mapped netlist as Verilog of equations, for simulators."""

from __future__ import annotations

from collections.abc import Mapping

from softermax.silicon.library import Cell
from softermax.silicon.netlist import Netlist
from softermax.silicon.verilog import net_name, ports


def equations(
    netlist: Netlist, delays: Mapping[int, tuple[int, int]] | None = None, body: str = "", unit: str = "1ps"
) -> str:
    """Equations with delays (rise, fall) in units of time for the output nets given, inertial as Verilog's are.

    ``body`` is added to the module: a test bench's initial block.
    """
    names, lines, assigns = ports(netlist)
    delays = delays or {}
    text = [f"`timescale {unit}/{unit}", f"module netlist ({', '.join(names)});", *lines]
    text += [f"  wire n{net};" for net in range(2, netlist.nets)] + assigns
    for index in range(netlist.cells):
        cell, nets = netlist.cell(index), netlist.pins[index]
        if cell.kind == "flop":
            text += _stored(cell, nets, f"s{index}", f"always @(posedge {net_name(nets[cell.clock])})", "<=")
        elif cell.kind == "clock-gate":
            text += _stored(cell, nets, f"s{index}", "always @*", "=")
        state = {pin: net_name(nets[pin]) for pin in cell.state_pins if pin != "IQ"} | {"IQ": f"s{index}"}
        for pin in cell.outputs:
            if pin in nets:
                rise, fall = delays.get(nets[pin], (0, 0))
                wait = f"#({rise}, {fall}) " if rise or fall else ""
                value = _lookup(cell.functions[pin], [state[p] for p in cell.state_pins])
                text.append(f"  assign {wait}{net_name(nets[pin])} = {value};")
    return "\n".join([*text, body, "endmodule", ""])


def _stored(cell: Cell, nets: Mapping[str, int], name: str, when: str, operator: str) -> list[str]:
    value = _lookup(cell.next_state, [net_name(nets[pin]) for pin in cell.inputs])
    guard = f"if (!{net_name(nets[cell.clock])}) " if cell.kind == "clock-gate" else ""
    return [f"  reg {name} = 0;", f"  {when} {guard}{name} {operator} {value};"]


def _lookup(table: int, pins: list[str]) -> str:
    """A truth table looked up by the pins it depends on: one operation, so that no hazard of an equation's
    terms disturbs a delay."""
    used = [
        i
        for i in range(len(pins))
        if any((table >> s ^ table >> (s ^ 1 << i)) & 1 for s in range(1 << len(pins)))
    ]
    bits = 0
    for index in range(1 << len(used)):
        state = sum((index >> n & 1) << i for n, i in enumerate(used))
        bits |= (table >> state & 1) << index
    if not used:
        return f"1'b{bits}"
    if len(used) == 1:
        return pins[used[0]] if bits == 0b10 else f"~{pins[used[0]]}"
    index_bits = ", ".join(pins[i] for i in reversed(used))
    size = 1 << len(used)
    return f"{size}'h{bits:x} >> {{{index_bits}}}"
