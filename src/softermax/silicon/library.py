"""A standard-cell library as arrays: what cells do, and their NLDM timing, power and leakage tables.

Built from parsed Liberty files, kept in one unit system (see the package), saved as npz.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from softermax.files import replacing
from softermax.silicon.boolean import substitute, truth_table
from softermax.silicon.liberty import Group

FloatArray = NDArray[np.float64]
IndexArray = NDArray[np.int64]
Kind: TypeAlias = Literal["combinational", "flop", "clock-gate", "tie"]

MAX_INPUTS = 6
"""Cells with more inputs are left out: a truth table is one 64-bit word."""


@dataclass(frozen=True)
class TimingArc:
    """A delay (``combinational``, ``clock-to-output``) or a setup constraint; tables by index, -1 for none."""

    kind: Literal["combinational", "clock-to-output", "setup"]
    pin: str
    related: str
    sense: str
    rise: int
    fall: int
    rise_slew: int = -1
    fall_slew: int = -1


@dataclass(frozen=True)
class PowerArc:
    """Energy of a transition of ``pin``: of an output caused by ``related``, or, with no related pin,
    of an input. ``states`` is the truth table of ``when`` over the cell's state pins."""

    pin: str
    related: str
    states: int
    rise: int
    fall: int


@dataclass(frozen=True)
class Cell:
    """One cell. A state's bit ``i`` is the value of ``state_pins[i]``: data inputs, then for a flip-flop
    or a clock gate its clock and what it stores (``IQ``)."""

    name: str
    kind: Kind
    area: float
    inputs: tuple[str, ...]
    clock: str
    outputs: tuple[str, ...]
    functions: dict[str, int]
    """Truth table of each output over the state pins."""
    next_state: int
    """Of a flip-flop: what it stores next, over its data inputs. Of a clock gate: its enable."""
    capacitance: dict[str, tuple[float, float]]
    """Of each input when it rises and when it falls."""
    leakage: tuple[float, ...]
    """By state."""
    timing: tuple[TimingArc, ...]
    power: tuple[PowerArc, ...]

    @property
    def state_pins(self) -> tuple[str, ...]:
        return (*self.inputs, self.clock, "IQ") if self.clock else self.inputs


@dataclass(frozen=True)
class WireLoad:
    """Wire capacitance of a net by its fan-out: a table, then a slope."""

    name: str
    fanout: tuple[float, ...] = (0.0, 1.0)
    capacitance: tuple[float, ...] = (0.0, 0.0)
    slope: float = 0.0

    def __call__(self, fanout: NDArray[np.generic]) -> FloatArray:
        count = np.asarray(fanout, dtype=np.float64)
        inside = np.interp(count, self.fanout, self.capacitance)
        return np.asarray(inside + self.slope * np.maximum(count - self.fanout[-1], 0.0))

    def scaled(self, factor: float) -> WireLoad:
        return WireLoad(
            f"{factor:g} x {self.name}",
            self.fanout,
            tuple(factor * c for c in self.capacitance),
            factor * self.slope,
        )


class Tables:
    """Two-dimensional lookup tables of one shape, so that many are interpolated in one go."""

    def __init__(self, x: FloatArray, y: FloatArray, values: FloatArray, nx: IndexArray, ny: IndexArray):
        self.x, self.y, self.values, self.nx, self.ny = x, y, values, nx, ny

    def __len__(self) -> int:
        return len(self.x)

    def at(self, index: IndexArray, x: FloatArray, y: FloatArray) -> FloatArray:
        """Bilinear, and beyond the axes' ends linear in the last interval, for each table of ``index``."""
        xi = np.clip((self.x[index] <= x[:, None]).sum(axis=1) - 1, 0, self.nx[index] - 2)
        yi = np.clip((self.y[index] <= y[:, None]).sum(axis=1) - 1, 0, self.ny[index] - 2)
        x0, x1 = self.x[index, xi], self.x[index, xi + 1]
        y0, y1 = self.y[index, yi], self.y[index, yi + 1]
        fx, fy = (x - x0) / (x1 - x0), (y - y0) / (y1 - y0)
        v = self.values
        low = v[index, xi, yi] * (1 - fx) + v[index, xi + 1, yi] * fx
        high = v[index, xi, yi + 1] * (1 - fx) + v[index, xi + 1, yi + 1] * fx
        return np.asarray(low * (1 - fy) + high * fy)


@dataclass(frozen=True)
class Description:
    """What a Liberty file does not say. Custom libraries give it as JSON with these fields."""

    name: str
    flop: str
    """The flip-flop that registers are mapped to."""
    clock_gate: str = ""
    """The integrated clock gate; none means no clock gating."""
    clock_gate_pins: str = ""
    """Its pins as ``enable:clock:output``, pins to tie low behind (``E:CK:GCK``, ``ENA:CLK:GCLK:SE``)."""
    tie_high: str = ""
    tie_low: str = ""
    """``cell:pin`` of the constant drivers."""
    driver: str = ""
    """The cell assumed to drive inputs during mapping."""
    dont_use: tuple[str, ...] = ()
    """Shell patterns of cells that are not mapped to."""
    clock_ns: float = 1.0
    """The default clock period of the tables."""
    input_slew_ns: float = 0.02
    """Slew of inputs and of the ideal clock."""
    output_load_ff: float = 2.0
    wire_fanout: tuple[float, ...] = ()
    wire_capacitance_ff: tuple[float, ...] = ()
    wire_slope_ff: float = 0.0
    """Wire load by fan-out; without it the Liberty's default_wire_load."""

    @classmethod
    def from_dict(cls, values: dict[str, Any], source: str) -> Description:
        known = set(cls.__dataclass_fields__)
        unknown = sorted(set(values) - known)
        if unknown:
            raise ValueError(f"{source}: {unknown[0]}: no such field; fields are {', '.join(sorted(known))}")
        missing = [name for name in ("name", "flop") if name not in values]
        if missing:
            raise ValueError(f"{source}: {missing[0]} is missing: a description names the library and a flop")
        made: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in values.items()}
        return cls(**made)


@dataclass
class Library:
    description: Description
    voltage: float
    cells: dict[str, Cell]
    tables: Tables
    wire: WireLoad
    content: str
    """Hash of the Liberty files and the description."""
    liberty: Path = field(default_factory=Path)
    """The Liberty file that synthesis reads: the usable cells of all files, without power tables."""

    @property
    def name(self) -> str:
        return self.description.name

    def cell(self, name: str) -> Cell:
        try:
            return self.cells[name]
        except KeyError:
            raise ValueError(
                f"cell {name} is not in library {self.name}: the design is not mapped to it"
            ) from None

    def save(self, path: Path) -> None:
        cells = [asdict(cell) for cell in self.cells.values()]
        text = json.dumps(
            {
                "description": asdict(self.description),
                "voltage": self.voltage,
                "wire": asdict(self.wire),
                "content": self.content,
                "cells": cells,
            }
        )
        t = self.tables
        with replacing(path) as partial, partial.open("wb") as stream:
            np.savez(
                stream,
                text=np.array(text),
                x=t.x,
                y=t.y,
                values=t.values,
                nx=t.nx,
                ny=t.ny,
                allow_pickle=False,
            )

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Library:
        with np.load(path, allow_pickle=False) as data:
            text = json.loads(str(data["text"]))
            tables = Tables(data["x"], data["y"], data["values"], data["nx"], data["ny"])
        cells = {}
        for values in text["cells"]:
            values["timing"] = tuple(TimingArc(**arc) for arc in values["timing"])
            values["power"] = tuple(PowerArc(**arc) for arc in values["power"])
            for name in ("inputs", "outputs", "leakage"):
                values[name] = tuple(values[name])
            values["capacitance"] = {pin: (rise, fall) for pin, (rise, fall) in values["capacitance"].items()}
            cells[values["name"]] = Cell(**values)
        wire = text["wire"]
        wire["fanout"], wire["capacitance"] = tuple(wire["fanout"]), tuple(wire["capacitance"])
        description = Description.from_dict(text["description"], str(path))
        return cls(description, text["voltage"], cells, tables, WireLoad(**wire), text["content"])


class _TableBuilder:
    """Collects Liberty tables in the package's units and pads them to one shape."""

    def __init__(self) -> None:
        self._tables: list[tuple[FloatArray, FloatArray, FloatArray]] = []

    def add(self, group: Group | None, templates: dict[str, Group], units: _Units, value_scale: float) -> int:
        if group is None:
            return -1
        values_group = group.first("values")
        if values_group is None:
            raise ValueError(f"{units.source}: table {group.name} has no values")
        values = _numbers(values_group.arguments) * value_scale
        template = templates.get(group.arguments[0]) if group.arguments else None
        axes: list[tuple[str, FloatArray]] = []
        for number in ("1", "2"):
            axis = group.first(f"index_{number}") or (template.first(f"index_{number}") if template else None)
            variable = template.attributes.get(f"variable_{number}", "") if template else ""
            if axis is None or not variable:
                continue
            scale = units.capacitance if "capacitance" in variable else units.time
            axes.append((variable, _numbers(axis.arguments) * scale))
        if values.size == 1:
            axes = []
        matrix = values.reshape([len(axis) for _, axis in axes] or [1])
        slews = [i for i, (name, _) in enumerate(axes) if name in _FIRST]
        if len(axes) == 2 and slews == [1]:
            axes, matrix = axes[::-1], matrix.T
        elif len(axes) == 1 and not slews:
            axes, matrix = (
                [("input_net_transition", np.array([0.0, 1.0])), axes[0]],
                np.stack([matrix, matrix]),
            )
        x = axes[0][1] if axes else np.array([0.0])
        y = axes[1][1] if len(axes) > 1 else np.array([0.0])
        matrix = matrix.reshape(len(x), len(y))
        if len(x) == 1:
            x, matrix = np.array([x[0], x[0] + 1.0]), np.repeat(matrix, 2, axis=0)
        if len(y) == 1:
            y, matrix = np.array([y[0], y[0] + 1.0]), np.repeat(matrix, 2, axis=1)
        self._tables.append((x, y, matrix))
        return len(self._tables) - 1

    def build(self) -> Tables:
        count = len(self._tables)
        wide = max((len(x) for x, _, _ in self._tables), default=2)
        high = max((len(y) for _, y, _ in self._tables), default=2)
        # Padding is never reached: intervals are clipped to a table's own length.
        x, y = np.full((count, wide), np.inf), np.full((count, high), np.inf)
        values = np.zeros((count, wide, high))
        for i, (xs, ys, matrix) in enumerate(self._tables):
            x[i, : len(xs)], y[i, : len(ys)], values[i, : len(xs), : len(ys)] = xs, ys, matrix
        nx = np.array([len(xs) for xs, _, _ in self._tables], dtype=np.int64)
        ny = np.array([len(ys) for _, ys, _ in self._tables], dtype=np.int64)
        return Tables(x, y, values, nx, ny)


_FIRST = ("input_net_transition", "input_transition_time", "constrained_pin_transition")
"""Variables of a table's first axis here; a load or the related pin's transition is the second."""


def _numbers(texts: Sequence[str]) -> FloatArray:
    return np.array([float(v) for text in texts for v in text.replace(",", " ").split()])


@dataclass(frozen=True)
class _Units:
    """Scale of a Liberty file's units to ns, fF, fJ, nW."""

    time: float
    capacitance: float
    energy: float
    leakage: float
    source: str


_PREFIX = {"f": 1e-15, "p": 1e-12, "n": 1e-9, "u": 1e-6, "m": 1e-3, "": 1.0}


def _quantity(text: str, unit: str, source: str) -> float:
    number = text.rstrip("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
    prefix = text[len(number) :].lower().removesuffix(unit.lower())
    if not number or prefix not in _PREFIX:
        raise ValueError(f"{source}: unit {text!r} is not understood")
    return float(number) * _PREFIX[prefix]


def _units(library: Group, source: str) -> _Units:
    load = library.first("capacitive_load_unit")
    if load is None or len(load.arguments) != 2 or "time_unit" not in library.attributes:
        raise ValueError(f"{source}: the library gives no time_unit or capacitive_load_unit")
    farad = float(load.arguments[0]) * _quantity("1" + load.arguments[1], "f", source)
    second = _quantity(library.attributes["time_unit"], "s", source)
    volt = _quantity(library.attributes.get("voltage_unit", "1V"), "V", source)
    watt = _quantity(library.attributes.get("leakage_power_unit", "1nW"), "W", source)
    return _Units(second / 1e-9, farad / 1e-15, farad * volt**2 / 1e-15, watt / 1e-9, source)


def build(groups: Sequence[tuple[str, Group]], description: Description, content: str) -> Library:
    """A library from parsed Liberty files (name, group)."""
    tables = _TableBuilder()
    cells: dict[str, Cell] = {}
    voltage, wire = 0.0, None
    for source, group in groups:
        units = _units(group, source)
        templates = {
            g.arguments[0]: g for g in group.groups if g.name in ("lu_table_template", "power_lut_template")
        }
        voltage = float(group.attributes.get("nom_voltage", voltage or 0.0))
        wire = wire or _wire_load(group, units)
        for cell_group in group.all("cell"):
            cell = _cell(cell_group, templates, units, tables)
            if cell is not None:
                cells[cell.name] = cell
    if voltage <= 0:
        raise ValueError(f"library {description.name}: no nom_voltage: energy cannot be computed")
    if description.wire_fanout:
        wire = WireLoad(
            f"{description.name} by fan-out",
            description.wire_fanout,
            description.wire_capacitance_ff,
            description.wire_slope_ff,
        )
    library = Library(description, voltage, cells, tables.build(), wire or WireLoad("none"), content)
    _check(library)
    return library


def _check(library: Library) -> None:
    name, d = library.name, library.description
    for role, cell in (("flop", d.flop), ("clock_gate", d.clock_gate)):
        if cell and cell not in library.cells:
            raise ValueError(f"library {name}: {role} {cell} is not among its usable cells")
    kinds = {cell.kind for cell in library.cells.values()}
    if "combinational" not in kinds:
        raise ValueError(f"library {name}: no combinational cells")
    logic = [cell for cell in library.cells.values() if cell.kind in ("combinational", "flop")]
    silent = [cell.name for cell in logic if not cell.power]
    if silent:
        raise ValueError(
            f"library {name}: {len(silent)} of {len(logic)} cells, for example {silent[0]}, have no "
            "internal_power tables: energy would be silently too small. Use a Liberty file with NLDM power."
        )
    if not any(any(cell.leakage) for cell in logic):
        raise ValueError(f"library {name}: no cell has leakage power: energy would be silently too small")


def _wire_load(group: Group, units: _Units) -> WireLoad | None:
    name = group.attributes.get("default_wire_load")
    for model in group.all("wire_load"):
        if model.arguments and model.arguments[0] == name:
            per_length = float(model.attributes["capacitance"]) * units.capacitance
            points = [
                (float(g.arguments[0]), float(g.arguments[1]) * per_length)
                for g in model.all("fanout_length")
            ]
            points.sort()
            return WireLoad(
                name,
                (0.0, *(fanout for fanout, _ in points)),
                (0.0, *(load for _, load in points)),
                float(model.attributes.get("slope", 0.0)) * per_length,
            )
    return None


def _cell(group: Group, templates: dict[str, Group], units: _Units, tables: _TableBuilder) -> Cell | None:
    """The cell, or None for kinds that synthesis here does not use (latches, set and reset, three-state)."""
    name = group.arguments[0]
    pins = {pin.arguments[0]: pin for pin in group.all("pin")}
    inputs = [p for p, g in pins.items() if g.attributes.get("direction") == "input"]
    outputs = [p for p, g in pins.items() if g.attributes.get("direction") == "output"]
    if not outputs or any("three_state" in pins[p].attributes for p in outputs) or group.first("latch"):
        return None
    if any(
        p not in (*inputs, *outputs) and g.attributes.get("direction") != "internal" for p, g in pins.items()
    ):
        return None
    gate = group.attributes.get("clock_gating_integrated_cell", "")
    flop = group.first("ff")
    clock, stored, next_state = "", {}, "0"
    kind: Kind = "combinational" if inputs else "tie"
    if flop is not None:
        clock = flop.attributes.get("clocked_on", "")
        if clock not in inputs or {"clear", "preset"} & set(flop.attributes):
            return None
        kind, next_state = "flop", flop.attributes["next_state"]
        stored = {flop.arguments[0]: "IQ", flop.arguments[1]: "!IQ"}
    elif gate.startswith("latch_posedge"):
        clock = next((p for p in inputs if _is_true(pins[p], "clock_gate_clock_pin", "clock")), "")
        if not clock:
            return None
        kind, next_state = "clock-gate", " | ".join(p for p in inputs if p != clock)
        stored = {p: "IQ" for p, g in pins.items() if g.attributes.get("direction") == "internal"}
    elif group.first("statetable") or gate:
        return None
    data = tuple(p for p in inputs if p != clock)
    if len(data) > MAX_INPUTS or (clock and len(data) > MAX_INPUTS - 2):
        return None
    state_pins = (*data, clock, "IQ") if clock else data
    functions: dict[str, str] = {}
    for pin in outputs:
        text = pins[pin].attributes.get("function", pins[pin].attributes.get("state_function"))
        if text is None:
            return None
        functions[pin] = substitute(text, stored)

    def table_of(when: str | None) -> int:
        if not when:
            return (1 << (1 << len(state_pins))) - 1
        return truth_table(substitute(substitute(when, functions), stored), state_pins)

    supplies = {g.arguments[0] for g in group.all("pg_pin") if "ground" in g.attributes.get("pg_type", "")}
    timing: list[TimingArc] = []
    power: list[PowerArc] = []
    for pin in (*inputs, *outputs):
        for arc in pins[pin].all("timing"):
            made = _timing_arc(pin, arc, templates, units, tables)
            if made is not None:
                timing.append(made)
        for arc in pins[pin].all("internal_power"):
            # A ground pin's table repeats the charge that the supply's table already has.
            if arc.attributes.get("related_pg_pin") in supplies:
                continue
            both = arc.first("power")
            rise = tables.add(arc.first("rise_power") or both, templates, units, units.energy)
            fall = tables.add(arc.first("fall_power") or both, templates, units, units.energy)
            states = table_of(arc.attributes.get("when"))
            related = arc.attributes.get("related_pin", "")
            for one in related.split() or [""]:
                power.append(PowerArc(pin, one, states, rise, fall))
    return Cell(
        name=name,
        kind=kind,
        area=float(group.attributes.get("area", 0.0)),
        inputs=data,
        clock=clock,
        outputs=tuple(outputs),
        functions={pin: truth_table(text, state_pins) for pin, text in functions.items()},
        next_state=truth_table(substitute(next_state, stored), data),
        capacitance={p: _capacitance(pins[p], units) for p in inputs},
        leakage=_leakage(group, supplies, table_of, 1 << len(state_pins), units),
        timing=tuple(timing),
        power=tuple(power),
    )


def _capacitance(pin: Group, units: _Units) -> tuple[float, float]:
    both = pin.attributes.get("capacitance", "0")
    rise, fall = (float(pin.attributes.get(f"{edge}_capacitance", both)) for edge in ("rise", "fall"))
    return rise * units.capacitance, fall * units.capacitance


def _is_true(group: Group, *names: str) -> bool:
    return any(group.attributes.get(name) == "true" for name in names)


def _leakage(
    group: Group, supplies: set[str], table_of: Any, states: int, units: _Units
) -> tuple[float, ...]:
    entries = [g for g in group.all("leakage_power") if g.attributes.get("related_pg_pin") not in supplies]
    plain = [float(g.attributes["value"]) for g in entries if "when" not in g.attributes]
    default = plain[0] if plain else float(group.attributes.get("cell_leakage_power", 0.0))
    values = np.full(states, default)
    for entry in entries:
        if "when" in entry.attributes:
            table = table_of(entry.attributes["when"])
            values[[s for s in range(states) if table >> s & 1]] = float(entry.attributes["value"])
    return tuple(float(v) for v in values * units.leakage)


def _timing_arc(
    pin: str, arc: Group, templates: dict[str, Group], units: _Units, tables: _TableBuilder
) -> TimingArc | None:
    kind = arc.attributes.get("timing_type", "combinational")
    related = arc.attributes.get("related_pin", "")
    sense = arc.attributes.get("timing_sense", "non_unate")

    def table(name: str) -> int:
        return tables.add(arc.first(name), templates, units, units.time)

    if kind == "setup_rising":
        return TimingArc("setup", pin, related, sense, table("rise_constraint"), table("fall_constraint"))
    if kind in ("combinational", "combinational_rise", "combinational_fall", "rising_edge"):
        return TimingArc(
            "clock-to-output" if kind == "rising_edge" else "combinational",
            pin,
            related,
            sense,
            table("cell_rise"),
            table("cell_fall"),
            table("rise_transition"),
            table("fall_transition"),
        )
    return None
