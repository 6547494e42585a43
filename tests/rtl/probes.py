"""Words inside a design, seen by probes: a module around it refers to them by their paths, so that the design is the very
Verilog that is exported."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from amaranth.hdl import ShapeLike
from amaranth.lib import data, wiring

from softermax.rtl.convert import to_verilog
from softermax.rtl.simulation import TOP, Port, Simulation

PROBED = "probed"


@dataclass(frozen=True)
class Probe:
    """Words inside a design in all cycles in which ``valid`` is 1, as if they left by a stream.

    Both are Verilog expressions. A signal's path begins with ``probed``: ``probed.part.signal``.
    """

    valid: str
    fields: Mapping[str, tuple[str, ShapeLike]]
    """Expressions and their shapes."""

    @property
    def layout(self) -> data.StructLayout:
        return data.StructLayout({name: shape for name, (_, shape) in self.fields.items()})


class ProbedSimulation(Simulation):
    """A component's simulation with streams of what its probes see beside its own."""

    def __init__(self, component: wiring.Component, probes: Mapping[str, Probe]) -> None:
        self._probes = probes
        super().__init__(component)

    def design(self, component: wiring.Component) -> str:
        verilog = to_verilog(component, PROBED) + around(self.ports, self._probes)
        self.ports += [Port(name, False, probe.layout) for name, probe in self._probes.items()]
        return verilog


def around(ports: Sequence[Port], probes: Mapping[str, Probe]) -> str:
    """The module around a design that hands its probes out."""
    declared, connected, assigned = ["input clk", "input rst"], [".clk(clk)", ".rst(rst)"], []

    def declare(name: str, bits: int, is_input: bool) -> None:
        there, back = ("input", "output") if is_input else ("output", "input")
        declared.extend(
            [f"{there} [{bits - 1}:0] {name}__payload", f"{there} {name}__valid", f"{back} {name}__ready"]
        )

    for port in ports:
        declare(port.name, port.layout.size, port.is_input)
        connected += [f".{port.name}__{part}({port.name}__{part})" for part in ("payload", "valid", "ready")]
    for name, probe in probes.items():
        declare(name, probe.layout.size, False)
        assigned.append(f"  assign {name}__valid = {probe.valid};")
        for (_, field), (expression, _) in zip(probe.layout, probe.fields.values(), strict=True):
            top = field.offset + field.width - 1
            assigned.append(f"  assign {name}__payload[{top}:{field.offset}] = {expression};")
    return "\n".join(
        [
            f"module {TOP} ({', '.join(declared)});",
            f"  {PROBED} {PROBED} ({', '.join(connected)});",
            *assigned,
            "endmodule",
            "",
        ]
    )
