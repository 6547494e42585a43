"""The paper's unit table beside ours: area, energy and their ratios to the FP16 baseline."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from softermax.progress import Progress, silent
from softermax.silicon import pdk
from softermax.silicon.flow import COPIES, GLITCHES, ROWS, ZERO_DELAY, Result, measure
from softermax.silicon.parallel import each
from softermax.silicon.stimuli import COLUMNS, Scores, gaussian, recorded
from softermax.silicon.timing import require_possible
from softermax.silicon.units import BASELINES, Unit, baseline_unit, presets_of, softermax_unit

UNITS = ("unnormed", "normalization")
PAPER = {
    "unnormed": {"area_ratio": 0.25, "energy_ratio": 0.10},
    "normalization": {"area_ratio": 0.65, "energy_ratio": 0.39},
}
"""The paper's Table IV, against DesignWare components at 7 nm, 16 bits."""


@dataclass(frozen=True)
class Row:
    unit: str
    width: int
    library: str
    preset: str
    baseline: str
    clock_ns: float
    slack_ns: float
    baseline_slack_ns: float
    area_um2: float
    area_ratio: float
    energy_pj_per_element: float
    energy_ratio: float
    energy_ratio_zero_delay: float

    @property
    def meets(self) -> bool:
        return self.slack_ns >= 0 and self.baseline_slack_ns >= 0


@dataclass(frozen=True)
class Table:
    rows: list[Row]
    results: list[Result]
    stimulus: str
    """The scores that the rows' energies are of."""
    columns: int
    note: str
    """Why there are no recorded scores, if there are none."""

    def to_json(self) -> list[dict[str, object]]:
        return [asdict(row) for row in self.rows]

    def by_sub_unit(self) -> list[dict[str, object]]:
        """A row a design: its cells, where its slowest path runs, and what each sub-unit costs."""
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
                    "energy, pJ an element": _parts(result.energy_by_unit(self.stimulus, GLITCHES)),
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
    """What a worker process measures: names, because designs do not travel between processes."""

    unit: str
    design: str
    preset: str
    width: int
    library: str
    pdk_root: str | None
    clock_ns: float | None

    def make(self) -> Unit:
        if self.design == "softermax":
            return softermax_unit(self.unit, self.preset, self.width)
        return baseline_unit(self.unit, self.design, self.width)


def stimuli() -> tuple[list[Scores], str]:
    """Recorded scores first where they can be had, then Gaussian ones."""
    real, note = recorded()
    made = gaussian(COPIES * ROWS)
    return ([real, made] if real is not None else [made]), note


def _measure(order: Order, scores: Sequence[Scores]) -> Result:
    library = pdk.load(order.library, order.pdk_root)
    clock = order.clock_ns or library.description.clock_ns
    return measure(order.make(), library, clock, scores)


def orders_of(
    libraries: Sequence[str] = ("nangate45",),
    widths: Sequence[int] = (16,),
    clock_ns: float | None = None,
    pdk_root: str | None = None,
    baselines: Sequence[str] = BASELINES,
    presets: Sequence[str] | None = None,
) -> list[Order]:
    """The designs to measure. Libraries are parsed and the clock is checked here, before any work."""
    known = {preset for width in widths for unit in UNITS for preset in presets_of(unit, width)}
    unknown = sorted(set(presets or ()) - known)
    if unknown:
        raise ValueError(f"preset {unknown[0]!r}: allowed at these widths is {', '.join(sorted(known))}")
    orders: list[Order] = []
    for library in libraries:
        loaded = pdk.load(library, pdk_root)
        require_possible(loaded, clock_ns or loaded.description.clock_ns)
        for width in widths:
            common = (width, library, pdk_root, clock_ns)
            for unit in UNITS:
                orders += [Order(unit, baseline, "", *common) for baseline in baselines]
                for preset in presets_of(unit, width):
                    if presets is None or preset in presets:
                        orders.append(Order(unit, "softermax", preset, *common))
    return orders


def build(
    orders: Sequence[Order],
    baselines: Sequence[str] = BASELINES,
    workers: int | None = None,
    progress: Progress = silent,
) -> Table:
    """Measure every design, in parallel processes, and put ours beside each baseline."""
    scores, note = stimuli()
    found = _run(orders, scores, workers, progress)
    for order, result in found.items():
        same = [r for o, r in found.items() if o.library == order.library]
        if not any(r.meets for r in same):
            least = min(r.clock_ns - r.slack_ns for r in same)
            raise ValueError(
                f"clock {result.clock_ns} ns: no design meets it in {order.library}; the fastest needs {least:.3f} ns"
            )
    rows = []
    for order, ours in found.items():
        if order.design != "softermax":
            continue
        for baseline in baselines:
            theirs = found[_baseline_of(order, baseline)]
            rows.append(_row(ours, theirs, baseline, scores[0].name))
    return Table(rows, list(found.values()), scores[0].name, COLUMNS, note)


def _baseline_of(order: Order, baseline: str) -> Order:
    return Order(order.unit, baseline, "", order.width, order.library, order.pdk_root, order.clock_ns)


def _run(
    orders: Sequence[Order],
    scores: Sequence[Scores],
    workers: int | None,
    progress: Progress,
) -> dict[Order, Result]:
    work = functools.partial(_measure, scores=scores)
    return each(
        work,
        orders,
        workers,
        progress,
        lambda o: f"{o.unit} {o.preset or o.design}, {o.width} wide, {o.library}",
    )


def _row(ours: Result, theirs: Result, baseline: str, stimulus: str) -> Row:
    mine, other = ours.pj(stimulus, GLITCHES), theirs.pj(stimulus, GLITCHES)
    settled = ours.pj(stimulus, ZERO_DELAY) / theirs.pj(stimulus, ZERO_DELAY)
    return Row(
        ours.unit,
        ours.width,
        ours.library,
        ours.preset,
        baseline,
        ours.clock_ns,
        round(ours.slack_ns, 4),
        round(theirs.slack_ns, 4),
        round(ours.area_um2, 2),
        round(ours.area_um2 / theirs.area_um2, 4),
        round(mine, 5),
        round(mine / other, 4),
        round(settled, 4),
    )
