"""A unit's datasheet in Markdown: parameters, ports, payloads, timing."""

from __future__ import annotations

import json
from typing import Any

from amaranth.hdl import Shape
from amaranth.lib import data

from softermax.rtl.axi_stream import AxiStream
from softermax.rtl.export.bench import commands
from softermax.rtl.export.paths import outputs
from softermax.rtl.export.pins import Stream, clocking, streams
from softermax.rtl.skid_buffer import Registered, skid_registers
from softermax.rtl.unit import Event, Unit

_MEANING = {
    "x": "raw scores, lane 0 lowest",
    "mask": "a bit per lane, 1 where the lane takes part",
    "row": "row id",
    "first": "first slice of its row",
    "last": "last slice of its row",
    "u": "unnormed words, lane 0 lowest",
    "max": "running integer max of the slice; in a row's last slice the row's max",
    "powsum": "PowSum of the row",
    "y": "probabilities, lane 0 lowest",
    "exponent": "the row's exponent: a probability is y / 2^(fraction bits + exponent)",
    "v": "values of each lane, all columns of lane 0 lowest",
    "o": "outputs, column 0 lowest, before they are divided by 2^exponent",
}
_AXI_MEANING = {
    "s_axis_tdata": "raw scores, lane 0 lowest",
    "s_axis_tkeep": "the mask: a bit per byte",
    "s_axis_tlast": "last slice of its row",
    "s_axis_tid": "row id",
    "m_axis_tdata": "probabilities, lane 0 lowest",
    "m_axis_tkeep": "all ones; a masked lane's probability is zero",
    "m_axis_tlast": "last slice of its row",
    "m_axis_tid": "row id",
    "m_axis_tuser": "the row's exponent: a probability is tdata / 2^(fraction bits + exponent), signed",
}
_OF_OUTPUTS = {"exponent": "what the row's outputs are divided by is 2^exponent"}


def datasheet(unit: Unit, name: str, component: Unit | AxiStream | None = None) -> str:
    """The datasheet of a unit whose module is called ``name``; of the unit with AXI4-Stream ports, if ``component``
    is that."""
    component = unit if component is None else component
    ports, clock = streams(component), clocking(component)
    lines = [f"# {name}", "", unit.description(), ""]
    lines += ["## Parameters", "", "| parameter | value |", "|---|---|"]
    lines += [f"| {key} | {value} |" for key, value in unit.parameters().items()]
    lines += ["", "## Ports", "", "| port | direction | bits | |", "|---|---|---|---|"]
    level = "low" if clock.active_low else "high"
    lines += [f"| `{clock.clock}` | in | 1 | rising edge |"]
    lines += [f"| `{clock.reset}` | in | 1 | synchronous, {level}; no register has an initial value |"]
    for port in ports:
        lines += _port(port, component)
    lines += [
        "",
        "A transfer happens at a rising edge with both `valid` and `ready` high. Once `valid`, a source keeps",
    ]
    lines += ["`valid` and payload until the transfer.", ""]
    lines += _lanes(component) if isinstance(component, AxiStream) else _payloads(ports)
    lines += [*_paths(component), ""]
    lines += [
        "## Timing",
        "",
        f"One slice every {unit.cycles_per_slice} cycle, without gaps while the sinks are ready.",
        "",
    ]
    called = {"slices": "s_axis", "probabilities": "m_axis"} if isinstance(component, AxiStream) else {}
    events = []
    for event in unit.timing():
        stream = called.get(event.stream, event.stream)
        events.append(Event(stream, event.cycles, event.meaning.replace(f"`{event.stream}`", f"`{stream}`")))
    lines += [f"- {event.meaning}" for event in events] + ["", "```", *_diagram(ports, events), "```", ""]
    lines += [
        "As [WaveJSON](https://wavedrom.com/):",
        "",
        "```json",
        json.dumps(_wave(events), indent=1),
        "```",
        "",
        *_bench(name),
    ]
    return "\n".join(lines) + "\n"


def _port(port: Stream, component: Unit | AxiStream) -> list[str]:
    into, out = ("in", "out") if port.is_input else ("out", "in")
    meaning = _AXI_MEANING if isinstance(component, AxiStream) else {}
    return [
        *(
            f"| `{part}` | {into} | {bits} | {meaning.get(part, 'see below')} |"
            for part, bits in port.payload
        ),
        f"| `{port.valid}` | {into} | 1 | a payload is offered |",
        f"| `{port.ready}` | {out} | 1 | it is taken at the next rising edge |",
    ]


def _payloads(ports: list[Stream]) -> list[str]:
    lines = []
    for port in ports:
        lines += [f"### Payload of `{port.name}`", "", "| bits | field | shape | |", "|---|---|---|---|"]
        meaning = _MEANING | (_OF_OUTPUTS if port.name == "outputs" else {})
        lines += [_field(field_name, field, meaning[field_name]) for field_name, field in port.layout]
        lines.append("")
    return lines


def _lanes(component: AxiStream) -> list[str]:
    """How lanes lie in the bytes of an AXI4-Stream."""
    rows = []
    top: Any = component.top
    for name, layout, words in (
        ("s_axis", component.s_axis, top.slices.payload.shape()["x"]),
        ("m_axis", component.m_axis, top.probabilities.payload.shape()["y"]),
    ):
        word, lane = Shape.cast(words.shape.elem_shape), layout["tdata"].shape.elem_shape.width
        kind = "signed" if word.signed else "unsigned"
        rows.append(
            f"| `{name}_tdata` | {component.lanes} | {lane // 8} | {lane}·i to {lane}·i + {word.width - 1} | {kind} |"
        )
    return [
        "### Lanes",
        "",
        "| port | lanes | bytes per lane | bits of lane i | word |",
        "|---|---|---|---|---|",
        *rows,
        "",
        "Bits of an input lane above its word are not looked at; those of an output lane are zero. A lane takes part if the bit of",
        "`s_axis_tkeep` of its lowest byte is set. The slice after one with `tlast` is the first one of its row id's next row.",
        "",
    ]


def _paths(component: Unit | AxiStream) -> list[str]:
    found = outputs(component)
    lines = [
        "## Combinational paths",
        "",
        "| output | driven by | inputs that reach it within the cycle |",
        "|---|---|---|",
    ]
    for output in found:
        driver = "a register, or constant" if output.registered else "logic"
        reached = ", ".join(f"`{name}`" for name in output.reached_from)
        lines.append(f"| `{output.name}` | {driver} | {reached or 'none'} |")
    ports = streams(component)
    theirs = {port.ready for port in ports if not port.is_input}
    ours = {port.ready for port in ports if port.is_input}
    loose = [f"`{output.name}`" for output in found if not output.registered]
    ready = [
        f"`{output.name}` on {' and '.join(f'`{name}`' for name in output.reached_from if name in theirs)}"
        for output in found
        if output.name in ours and theirs & set(output.reached_from)
    ]
    lines += [
        "",
        f"Unregistered outputs: {', '.join(loose) or 'none'}.",
        f"Ready that depends on downstream ready within the cycle: {'; '.join(ready) or 'none'}.",
    ]
    unit = component.top if isinstance(component, AxiStream) else component
    cost = f"{skid_registers(unit)} flip-flops and two cycles of latency"
    if isinstance(unit, Registered):
        lines += [f"Skid buffers on all streams see to it; they cost {cost}."]
    elif loose or ready:
        lines += [
            f"`softermax rtl --registered` puts skid buffers on all streams, which ends both for {cost}."
        ]
    return lines


def _bench(name: str) -> list[str]:
    return [
        "## Test bench",
        "",
        f"`{name}_tb.sv` offers the vectors of `{name}_*.hex` and compares every output. It relies on no initial value, resets",
        "the unit in mid-stream, holds streams up at random and until everything is full, and prints PASS or FAIL.",
        "In this folder, with either simulator:",
        "",
        "```",
        *commands(name),
        "```",
        "",
        f"`test_{name}.py` goes through the same vectors in [cocotb](https://www.cocotb.org/): `python test_{name}.py`, in",
        "Icarus or, with `SIM=verilator`, in Verilator.",
        "",
        f"`{name}.core` is for FuseSoC (targets `default`, `lint` and `sim`), `{name}.xml` is the description in IP-XACT",
        "(IEEE 1685-2014). There are no registers that software could reach.",
        "",
        "`softermax rtl --check` runs the plain bench as it writes these files; it needs no simulator but the Python package",
        "`verilator` and a C++ compiler.",
    ]


def _field(name: str, field: data.Field, meaning: str) -> str:
    top = f"{field.offset + field.width - 1}:{field.offset}"
    shape, element = "", field.shape
    while isinstance(element, data.ArrayLayout):
        shape, element = f"{shape}{element.length} × ", element.elem_shape
    word = Shape.cast(element)
    shape += f"{'signed' if word.signed else 'unsigned'} {word.width}"
    return f"| {top} | `{name}` | {shape} | {meaning} |"


def _diagram(ports: list[Stream], events: list[Event]) -> list[str]:
    cycles = max(max(event.cycles) for event in events) + 2
    width = max(len(port.name) for port in ports) + 6
    lines = ["cycle".ljust(width) + "".join(f"{cycle:>4}" for cycle in range(cycles))]
    for event in events:
        marks = {cycle: f"#{slice_}" for slice_, cycle in enumerate(event.cycles)}
        shown = "".join(f"{marks.get(cycle, '.'):>4}" for cycle in range(cycles))
        lines.append(event.stream.ljust(width) + shown)
    return lines


def _wave(events: list[Event]) -> dict[str, Any]:
    cycles = max(max(event.cycles) for event in events) + 2
    signals: list[dict[str, Any]] = [{"name": "clk", "wave": "p" + "." * (cycles - 1)}]
    for event in events:
        moves = [cycle in event.cycles for cycle in range(cycles)]
        signals += [
            {"name": f"{event.stream} valid", "wave": "".join("1" if move else "0" for move in moves)},
            {
                "name": f"{event.stream} payload",
                "wave": "".join("=" if move else "x" for move in moves),
                "data": [str(slice_) for slice_ in range(len(event.cycles))],
            },
        ]
    return {"signal": signals}
