"""The paper's unit table beside ours: area, energy and their ratios to the FP16 baseline."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace

from softermax.executor import each
from softermax.progress import Progress, silent
from softermax.silicon import pdk
from softermax.silicon.flow import COPIES, ROWS, Result, measure_unit
from softermax.silicon.memory import NODE_OF_LIBRARY, Node, node_of
from softermax.silicon.stimuli import COLUMNS, Scores, both_kinds
from softermax.silicon.timing import require_possible
from softermax.silicon.units import (
    BASELINES,
    NORMALIZATION,
    TAIL,
    UNNORMED,
    WEIGHTS,
    NormalizationUnit,
    SpecUnit,
    Unit,
    UnnormedUnit,
    label_of,
    presets_of,
    units_of,
)
from softermax.silicon.whole import (
    BOTH,
    WHOLE,
    UnitFigures,
    Waiting,
    cost_of_waiting,
    waiting_of_baseline,
    waiting_of_spec,
)
from softermax.spec import SoftermaxSpec, spec_from_dict

_ORDER = (UNNORMED, NORMALIZATION, WEIGHTS, TAIL)


@dataclass(frozen=True)
class UnitRow:
    """A unit of ours beside a baseline's; without ratios where the baseline has no unit that does the same.

    ``whole`` is a whole softmax: both units, and the memory of what waits between them (`softermax.silicon.whole`);
    ``both units`` is the same without that memory.
    """

    unit: str
    width: int
    library: str
    preset: str
    baseline: str
    clock_ns: float
    slack_ns: float
    baseline_slack_ns: float | None
    area_um2: float
    area_ratio: float | None
    energy_pj_per_element: float
    energy_ratio: float | None
    energy_ratio_zero_delay: float | None

    @property
    def meets(self) -> bool:
        return self.slack_ns >= 0 and (self.baseline_slack_ns is None or self.baseline_slack_ns >= 0)


@dataclass(frozen=True)
class WaitingRow:
    """What a design keeps between its units, and what its memories cost."""

    library: str
    width: int
    design: str
    waits: str
    bits_per_element: float
    area_um2: float
    energy_pj_per_element: float


@dataclass(frozen=True)
class UnitTable:
    rows: list[UnitRow]
    results: list[Result]
    stimulus: str
    """The scores that the rows' energies are of."""
    columns: int
    note: str
    """Why there are no recorded scores, if there are none."""
    waiting: list[WaitingRow] = field(default_factory=list)

    def to_json(self) -> list[dict[str, object]]:
        return [asdict(row) for row in self.rows]

    def by_sub_unit(self) -> list[dict[str, object]]:
        """A row per design: its cells, where its slowest path runs, and what each sub-unit costs."""
        rows: list[dict[str, object]] = []
        for result in self.results:
            path = [step.split()[2] for step in result.critical_path]
            rows.append(
                {
                    "library": result.library,
                    "width": result.width,
                    "unit": result.unit,
                    "design": result.preset or result.design,
                    "cells": sum(result.cells.values()),
                    "slowest path": f"{len(path)} cells: {', '.join(dict.fromkeys(path))}",
                    "area, µm²": _parts(result.area_by_unit),
                    "energy, pJ per element": _parts(result.energy_by_unit(self.stimulus)),
                }
            )
        return rows


def _parts(values: dict[str, float]) -> str:
    """The parts of a sum, largest first, without those below a hundredth."""
    least = sum(values.values()) / 100
    large = sorted((name for name in values if values[name] >= least), key=lambda name: -values[name])
    return ", ".join(
        f"{name} {values[name]:.0f}" if values[name] >= 100 else f"{name} {values[name]:.3g}"
        for name in large
    )


@dataclass(frozen=True)
class Order:
    """A unit to be measured in a library: what a worker process gets."""

    unit: Unit
    library: str
    pdk_root: str | None
    clock_ns: float | None

    @property
    def label(self) -> str:
        return f"{self.unit.label}, {self.library}"


Measure = Callable[[Sequence[Scores], Order], Result]


def measure_order(scores: Sequence[Scores], order: Order) -> Result:
    library = pdk.load(order.library, order.pdk_root)
    clock = order.clock_ns or library.description.clock_ns
    return measure_unit(order.unit, library, clock, scores)


def orders_of(
    libraries: Sequence[str] = ("nangate45",),
    widths: Sequence[int] | None = None,
    clock_ns: float | None = None,
    pdk_root: str | None = None,
    baselines: Sequence[str] = BASELINES,
    presets: Sequence[str] | None = None,
    specs: Sequence[str] | None = None,
) -> list[Order]:
    """The designs to measure: the table's own ``presets``, all of them unless given, or ``specs`` by name or file.

    Without widths presets are 16 wide and a spec is as wide as its slices. Specs are checked, libraries are parsed and
    the clock is tried here, before any work.
    """
    ours = _units(widths, presets, specs)
    orders: list[Order] = []
    for library in libraries:
        loaded = pdk.load(library, pdk_root)
        require_possible(loaded, clock_ns or loaded.description.clock_ns)
        for width in dict.fromkeys(unit.width for unit in ours):
            for name in _ORDER:
                chosen = [unit for unit in ours if (unit.width, unit.name) == (width, name)]
                theirs = [unit for some in chosen[:1] for unit in map(some.against, baselines) if unit]
                orders += [Order(unit, library, pdk_root, clock_ns) for unit in (*theirs, *chosen)]
    return list(dict.fromkeys(orders))


def _units(
    widths: Sequence[int] | None, presets: Sequence[str] | None, specs: Sequence[str] | None
) -> list[SpecUnit]:
    units: list[SpecUnit] = []
    if presets is not None or not specs:
        own = {width: presets_of(width) for width in (widths or (16,))}
        known = sorted({preset for names in own.values() for preset in names})
        unknown = sorted(set(presets or ()) - set(known))
        if unknown:
            raise ValueError(f"preset {unknown[0]!r}: at these widths it must be one of {', '.join(known)}")
        for width, names in own.items():
            for preset in names:
                if presets is None or preset in presets:
                    units += units_of(preset, width)
    labels: dict[str, str] = {}
    for name in specs or ():
        if labels.setdefault(label_of(name), name) != name:
            raise ValueError(
                f"specs {labels[label_of(name)]} and {name} have the same name: rename one of them"
            )
        for wide in widths or (None,):
            units += units_of(name, wide)
    return list(dict.fromkeys(units))


def build_table(
    orders: Sequence[Order],
    baselines: Sequence[str] = BASELINES,
    workers: int | None = None,
    progress: Progress = silent,
    measure: Measure = measure_order,
    ray: str | None = None,
) -> UnitTable:
    """Measure every design, many at a time, and put ours beside each baseline."""
    scores, note = both_kinds(COPIES * ROWS)
    work = functools.partial(measure, scores)
    found = each(work, orders, workers, progress, lambda order: order.label, ray)
    for order, result in found.items():
        same = [r for o, r in found.items() if o.library == order.library]
        if not any(r.meets for r in same):
            least = min(r.clock_ns - r.slack_ns for r in same)
            raise ValueError(
                f"clock {result.clock_ns} ns: no design meets it in {order.library}; the fastest needs {least:.3f} ns"
            )
    stimulus = scores[0].name
    rows = []
    for order, ours in found.items():
        if isinstance(order.unit, SpecUnit):
            mine = UnitFigures.of(ours, stimulus)
            for baseline in baselines:
                unit = order.unit.against(baseline)
                if unit is not None:
                    theirs = found[replace(order, unit=unit)]
                    rows.append(_row(order.unit.name, ours, baseline, mine, UnitFigures.of(theirs, stimulus)))
            if order.unit.name == TAIL:
                rows.append(_row(TAIL, ours, "", mine, None))
    wholes = _whole_rows(found, baselines, stimulus)
    waiting = _waiting_rows(wholes, found)
    return UnitTable(rows + wholes, list(found.values()), stimulus, COLUMNS, note, waiting)


def _whole_rows(found: Mapping[Order, Result], baselines: Sequence[str], stimulus: str) -> list[UnitRow]:
    """Whole softmaxes, of units that are made of the same spec; without their memory where none is modelled."""
    rows = []
    for order, ours in found.items():
        if not isinstance(order.unit, NormalizationUnit):
            continue
        of_sums = next((o for o in found if _makes_sums_for(o, order)), None)
        for baseline in baselines if of_sums else ():
            assert of_sums is not None
            mine, theirs = (
                sum_of_both(found[first], found[second], stimulus)
                for first, second in (
                    (of_sums, order),
                    (against(of_sums, baseline), against(order, baseline)),
                )
            )
            rows.append(_row(BOTH, ours, baseline, mine, theirs))
            if order.library in NODE_OF_LIBRARY:
                mine += waiting_cost(ours, waiting_of(ours))
                theirs += waiting_cost(ours, waiting_of(ours, baseline))
                rows.append(_row(WHOLE, ours, baseline, mine, theirs))
    return sorted(rows, key=lambda row: row.unit == WHOLE)


def _waiting_rows(wholes: Sequence[UnitRow], found: Mapping[Order, Result]) -> list[WaitingRow]:
    rows: dict[WaitingRow, None] = {}
    for row in wholes:
        if row.unit != WHOLE:
            continue
        place = (row.library, row.width)
        ours = next(r for r in found.values() if (r.library, r.width, r.preset) == (*place, row.preset))
        for design, kept in ((row.preset, waiting_of(ours)), (row.baseline, waiting_of(ours, row.baseline))):
            cost = waiting_cost(ours, kept)
            waits = ", ".join(waiting.what for waiting in kept)
            bits = sum(waiting.slice_bits for waiting in kept) / row.width
            figures = (round(bits, 2), round(cost.area_um2, 1), round(cost.pj, 4))
            rows[WaitingRow(*place, design, waits, *figures)] = None
    return list(rows)


def _makes_sums_for(order: Order, normalization: Order) -> bool:
    """Whether a unit makes the sums that a Normalization unit divides by."""
    unit, other = order.unit, normalization.unit
    return (
        isinstance(unit, UnnormedUnit)
        and isinstance(other, NormalizationUnit)
        and unit.name == UNNORMED
        and (order.library, unit.spec, unit.registered)
        == (normalization.library, other.spec, other.registered)
    )


def against(order: Order, baseline: str) -> Order:
    """The baseline's unit that does the same in the same library."""
    assert isinstance(order.unit, SpecUnit)
    unit = order.unit.against(baseline)
    assert unit is not None
    return replace(order, unit=unit)


def sum_of_both(unnormed: Result, normalization: Result, stimulus: str) -> UnitFigures:
    return UnitFigures.of(unnormed, stimulus) + UnitFigures.of(normalization, stimulus)


def waiting_of(ours: Result, baseline: str = "") -> tuple[Waiting, ...]:
    """What a baseline keeps at our unit's width, or without one what we keep."""
    if baseline:
        return waiting_of_baseline(baseline, ours.width)
    spec = spec_from_dict(ours.spec or {})
    assert isinstance(spec, SoftermaxSpec)
    return waiting_of_spec(spec)


def waiting_cost(ours: Result, kept: Sequence[Waiting], node: Node | None = None) -> UnitFigures:
    """The memories of what is kept, at the width, clock and voltage of a unit."""
    return cost_of_waiting(kept, node or node_of(ours.library), COLUMNS, ours.clock_ns)


def _row(unit: str, result: Result, baseline: str, ours: UnitFigures, theirs: UnitFigures | None) -> UnitRow:
    def over(mine: float, other: float | None) -> float | None:
        return None if other is None else round(mine / other, 4)

    return UnitRow(
        unit,
        result.width,
        result.library,
        result.preset,
        baseline,
        result.clock_ns,
        round(ours.slack_ns, 4),
        round(theirs.slack_ns, 4) if theirs else None,
        round(ours.area_um2, 2),
        over(ours.area_um2, theirs.area_um2 if theirs else None),
        round(ours.pj, 5),
        over(ours.pj, theirs.pj if theirs else None),
        over(ours.pj_zero_delay, theirs.pj_zero_delay if theirs else None),
    )
