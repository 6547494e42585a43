"""A mapped netlist as Verilog of library cells, for other tools. Names of a flattened design are no Verilog identifiers:
nets and cells go by number, ports bit by bit."""

from __future__ import annotations

from softermax.silicon.netlist import CONSTANT_ONE, Netlist

MODULE = "netlist"


def net_name(net: int) -> str:
    return f"n{net}" if net > CONSTANT_ONE else f"1'b{net}"


def cell_name(index: int) -> str:
    return f"u{index}"


def port_bit(port: str, position: int) -> str:
    """The scalar port of one bit of a port."""
    return "p_" + "".join(c if c.isalnum() else "_" for c in port) + f"_{position}"


def ports(netlist: Netlist) -> tuple[list[str], list[str], list[str]]:
    """Names and declarations with one port for each bit, and assignments where ports share a net."""
    names, lines, assigns = [], [], []
    for direction, of_design in (("input", netlist.inputs), ("output", netlist.outputs)):
        for port, bits in of_design.items():
            for position, net in enumerate(bits):
                name = port_bit(port, position)
                names.append(name)
                lines.append(f"  {direction} {name};")
                target, source = (net_name(net), name) if direction == "input" else (name, net_name(net))
                assigns.append(f"  assign {target} = {source};")
    return names, lines, assigns


def mapped(netlist: Netlist) -> str:
    """Instances of library cells."""
    names, lines, assigns = ports(netlist)
    text = [f"module {MODULE} ({', '.join(names)});", *lines]
    text += [f"  wire n{net};" for net in range(2, netlist.nets)] + assigns
    for index in range(netlist.cells):
        pins = ", ".join(f".{pin}({net_name(net)})" for pin, net in netlist.pins[index].items())
        text.append(f"  {netlist.types[index]} {cell_name(index)} ({pins});")
    return "\n".join([*text, "endmodule", ""])
