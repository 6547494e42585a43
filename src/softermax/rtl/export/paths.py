"""What an integrator has to know of a unit's outputs for timing: which of them come straight from a register, which
through logic, and which of the inputs reach them within the same cycle."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from amaranth.lib import wiring

from softermax.rtl import yosys
from softermax.rtl.convert import to_rtlil

Bit = int | str
"""A net of the flat design, or a constant."""


@dataclass(frozen=True)
class Output:
    """An output port."""

    name: str
    registered: bool
    """Every bit is a register's, or constant."""
    reached_from: tuple[str, ...]
    """Inputs that reach it without a register between."""


def outputs(unit: wiring.Component) -> list[Output]:
    """Of every output port, in the order of the ports' names."""
    design = _flat(unit)
    ports: dict[str, Any] = design["ports"]
    inputs = {
        bit: name for name, port in ports.items() if port["direction"] == "input" for bit in port["bits"]
    }
    drivers = dict(_drivers(design))
    found = []
    for name, port in sorted(ports.items()):
        if port["direction"] == "output":
            bits = set(port["bits"])
            direct = all(isinstance(bit, str) or drivers.get(bit) == frozenset() for bit in bits)
            reached = sorted({inputs[bit] for bit in _cone(bits, drivers) if bit in inputs})
            found.append(Output(name, direct and not reached, tuple(reached)))
    return found


def _flat(unit: wiring.Component) -> dict[str, Any]:
    """The flat design as Yosys writes it in JSON."""
    with tempfile.TemporaryDirectory(prefix="softermax-") as folder:
        Path(folder, "design.il").write_text(to_rtlil(unit, "unit"), encoding="utf-8")
        yosys.run(
            ["read_rtlil design.il", "hierarchy -top unit", "proc", "flatten", "memory_collect", "opt_clean",
             "write_json design.json"],
            Path(folder),
        )  # fmt: skip
        design: dict[str, Any] = json.loads(Path(folder, "design.json").read_text(encoding="utf-8"))[
            "modules"
        ]["unit"]
    return design


def _drivers(design: dict[str, Any]) -> Iterator[tuple[Bit, frozenset[Bit]]]:
    """Of every driven bit, those that it depends on within the cycle: none of a register's."""
    for cell in design["cells"].values():
        connections: dict[str, list[Bit]] = cell["connections"]
        if cell["type"] == "$mem_v2":
            yield from _read_ports(cell["parameters"], connections)
            continue
        directions = cell["port_directions"]
        stored = "dff" in cell["type"]
        reads = [bit for port, bits in connections.items() if directions[port] == "input" for bit in bits]
        depends: frozenset[Bit] = frozenset() if stored else frozenset(reads)
        for port, bits in connections.items():
            if directions[port] == "output":
                yield from ((bit, depends) for bit in bits)


def _read_ports(
    parameters: dict[str, str], connections: dict[str, list[Bit]]
) -> Iterator[tuple[Bit, frozenset[Bit]]]:
    """A memory is read by an address in the same cycle, or by a port with a register of its own."""
    width, address_bits = int(parameters["WIDTH"], 2), int(parameters["ABITS"], 2)
    for port, clocked in enumerate(reversed(parameters["RD_CLK_ENABLE"])):
        address = connections["RD_ADDR"][port * address_bits : (port + 1) * address_bits]
        depends: frozenset[Bit] = frozenset() if clocked == "1" else frozenset(address) | {"memory"}
        yield from ((bit, depends) for bit in connections["RD_DATA"][port * width : (port + 1) * width])


def _cone(bits: set[Bit], drivers: dict[Bit, frozenset[Bit]]) -> set[Bit]:
    """All bits that these depend on within the cycle, themselves among them."""
    seen, waiting = set(bits), list(bits)
    while waiting:
        new = drivers.get(waiting.pop(), frozenset()) - seen
        seen |= new
        waiting += new
    return seen
