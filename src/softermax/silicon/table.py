"""The paper's unit table beside ours: area, energy and their ratios to the FP16 baseline."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from softermax.progress import Progress, silent
from softermax.silicon import pdk
from softermax.silicon.flow import COPIES, GLITCHES, ROWS, ZERO_DELAY, Result, measure_unit
from softermax.silicon.parallel import each
from softermax.silicon.stimuli import COLUMNS, Scores, both_kinds
from softermax.silicon.timing import require_possible
from softermax.silicon.units import (
    BASELINES,
    NORMALIZATION,
    TAIL,
    UNNORMED,
    WEIGHTS,
    SpecUnit,
    Unit,
    label_of,
    presets_of,
    units_of,
)

_ORDER = (UNNORMED, NORMALIZATION, WEIGHTS, TAIL)


@dataclass(frozen=True)
class UnitRow:
    """A unit of ours beside a baseline's; without ratios where the baseline has no unit that does the same."""

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
class UnitTable:
    rows: list[UnitRow]
    results: list[Result]
    stimulus: str
    """The scores that the rows' energies are of."""
    columns: int
    note: str
    """Why there are no recorded scores, if there are none."""

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


def _measure(order: Order, scores: Sequence[Scores]) -> Result:
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
) -> UnitTable:
    """Measure every design, in parallel processes, and put ours beside each baseline."""
    scores, note = both_kinds(COPIES * ROWS)
    work = functools.partial(_measure, scores=scores)
    found = each(work, orders, workers, progress, lambda order: order.label)
    for order, result in found.items():
        same = [r for o, r in found.items() if o.library == order.library]
        if not any(r.meets for r in same):
            least = min(r.clock_ns - r.slack_ns for r in same)
            raise ValueError(
                f"clock {result.clock_ns} ns: no design meets it in {order.library}; the fastest needs {least:.3f} ns"
            )
    rows = []
    for order, ours in found.items():
        if isinstance(order.unit, SpecUnit):
            for baseline in baselines:
                unit = order.unit.against(baseline)
                if unit is not None:
                    theirs = found[Order(unit, order.library, order.pdk_root, order.clock_ns)]
                    rows.append(_row(ours, baseline, theirs, scores[0].name))
            if order.unit.name == TAIL:
                rows.append(_row(ours, "", None, scores[0].name))
    return UnitTable(rows, list(found.values()), scores[0].name, COLUMNS, note)


def _row(ours: Result, baseline: str, theirs: Result | None, stimulus: str) -> UnitRow:
    def over(mine: float, other: float | None) -> float | None:
        return None if other is None else round(mine / other, 4)

    mine, settled = (ours.pj(stimulus, mode) for mode in (GLITCHES, ZERO_DELAY))
    return UnitRow(
        ours.unit,
        ours.width,
        ours.library,
        ours.preset,
        baseline,
        ours.clock_ns,
        round(ours.slack_ns, 4),
        round(theirs.slack_ns, 4) if theirs else None,
        round(ours.area_um2, 2),
        over(ours.area_um2, theirs.area_um2 if theirs else None),
        round(mine, 5),
        over(mine, theirs.pj(stimulus, GLITCHES) if theirs else None),
        over(settled, theirs.pj(stimulus, ZERO_DELAY) if theirs else None),
    )
