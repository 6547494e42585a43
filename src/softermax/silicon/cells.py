"""Liberty groups to cells and tables, in the package's units, and to the text that synthesis reads."""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from softermax.silicon.boolean import substitute, truth_table
from softermax.silicon.liberty import Group, quoted, write
from softermax.silicon.library import (
    MAX_INPUTS,
    Cell,
    Description,
    FloatArray,
    Kind,
    Library,
    PowerArc,
    Tables,
    TimingArc,
    WireLoad,
)


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
    first = _units(groups[0][1], groups[0][0])
    for source, group in groups:
        units = _units(group, source)
        if replace(units, source=first.source) != first:
            raise ValueError(f"{source}: its units are not those of {first.source}")
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
    group: Group, supplies: set[str], table_of: Callable[[str | None], int], states: int, units: _Units
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


_SYNTHESIS_DROPS = ("internal_power", "leakage_power", "pg_pin", "wire_load", "power_lut_template", "output_voltage",
                    "input_voltage", "operating_conditions", "normalized_driver_waveform", "define",
                    "rise_capacitance_range", "fall_capacitance_range", "voltage_map", "library_features")  # fmt: skip


def for_synthesis(groups: Sequence[tuple[str, Group]], library: Library) -> str:
    """One Liberty text of the cells that may be mapped to, all files together: `build` has seen to it that they
    share their units."""
    allowed = {
        name
        for name, cell in library.cells.items()
        if not any(fnmatch.fnmatchcase(name, pattern) for pattern in library.description.dont_use)
        and len(cell.inputs) <= MAX_INPUTS
    }
    parts: list[str] = []
    head = groups[0][1]
    seen: set[str] = set()
    for _, group in groups:
        for child in group.groups:
            label = f"{child.name} {child.arguments}"
            if child.name == "cell":
                if child.arguments[0] in allowed:
                    parts.append(write(child, _SYNTHESIS_DROPS, 1))
            elif child.name not in _SYNTHESIS_DROPS and (group is head or child.name == "lu_table_template"):
                if label not in seen:
                    parts.append(write(child, _SYNTHESIS_DROPS, 1))
                seen.add(label)
    attributes = [
        f"  {key} : {quoted(value)};" for key, value in head.attributes.items() if "wire_load" not in key
    ]
    return f"library ({library.name}) {{\n" + "\n".join(attributes + parts) + "\n}\n"
