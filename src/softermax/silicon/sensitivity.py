"""How much the ratios depend on what is assumed: clock, wire load, glitch model, scores, baseline.

One assumption changes at a time. What is measured is cached like the table's figures, so that a run that
was cut short goes on where it ended, and the case without a change costs nothing after the table.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from softermax.progress import Progress, silent
from softermax.silicon import pdk
from softermax.silicon.flow import GLITCHES, ZERO_DELAY, Result, measure_unit
from softermax.silicon.library import WireLoad
from softermax.silicon.parallel import each
from softermax.silicon.stimuli import Scores
from softermax.silicon.table import Order, orders_of
from softermax.silicon.units import BASELINES, BaselineUnit, SpecUnit, paper_at

NONE = "none"


@dataclass(frozen=True)
class Case:
    """One change of the assumptions. Clock and wires are factors of the library's own. At another clock both
    designs are mapped anew; other wires are put into the table's netlists."""

    change: str
    clock: float = 1.0
    wires: float = 1.0


CASES = (
    Case(NONE),
    Case("clock period 0.9 times", clock=0.9),
    Case("clock period 1.5 times", clock=1.5),
    Case("no wires", wires=0.0),
    Case("wires doubled", wires=2.0),
)


@dataclass(frozen=True)
class Variation:
    """The ratios of one unit under one change of the assumptions, with one kind of scores."""

    library: str
    width: int
    unit: str
    baseline: str
    change: str
    scores: str
    clock_ns: float
    slack_ns: float
    baseline_slack_ns: float
    area_ratio: float
    energy_ratio: float
    energy_ratio_zero_delay: float


@dataclass(frozen=True)
class Task:
    """A design under a case: what a worker process measures."""

    order: Order
    case: Case

    def run(self, scores: Sequence[Scores]) -> Result:
        library = pdk.load(self.order.library, self.order.pdk_root)
        clock = (self.order.clock_ns or library.description.clock_ns) * self.case.clock
        wire = library.wire
        if self.case.wires != 1.0:
            wire = wire.scaled(self.case.wires) if self.case.wires else WireLoad("no wires")
        return measure_unit(self.order.unit, library, clock, scores, wire)


def tasks_of(
    libraries: Sequence[str] = ("nangate45",),
    widths: Sequence[int] = (16,),
    clock_ns: float | None = None,
    pdk_root: str | None = None,
    baselines: Sequence[str] = BASELINES,
) -> list[tuple[Task, Task]]:
    """Ours and the baseline of every variation. Of the baselines the first goes through all cases; the others
    differ from it in kind, not in how they answer to clock and wires."""
    pairs: list[tuple[Task, Task]] = []
    for library, width in itertools.product(libraries, widths):
        for order in orders_of([library], [width], clock_ns, pdk_root, baselines, [paper_at(width)]):
            if isinstance(order.unit, SpecUnit):
                for baseline in baselines:
                    unit = order.unit.against(baseline)
                    assert unit is not None
                    theirs = Order(unit, order.library, order.pdk_root, order.clock_ns)
                    for case in CASES if baseline == baselines[0] else CASES[:1]:
                        pairs.append((Task(order, case), Task(theirs, case)))
    return pairs


def vary(
    pairs: Sequence[tuple[Task, Task]],
    scores: Sequence[Scores],
    workers: int | None = None,
    progress: Progress = silent,
) -> list[Variation]:
    """Measure every design, in parallel processes, and put ours beside the baseline for each kind of scores."""
    # The table's own first: they are mapped once, and most are cached.
    tasks = sorted({task for pair in pairs for task in pair}, key=lambda task: CASES.index(task.case))
    work = functools.partial(Task.run, scores=scores)
    found = each(
        work,
        tasks,
        workers,
        progress,
        lambda task: f"{task.order.label}, {task.case.change}",
    )
    return [
        _variation(ours, found[ours], theirs, found[theirs], kind.name)
        for ours, theirs in pairs
        for kind in scores
    ]


def _variation(task: Task, ours: Result, other: Task, theirs: Result, scores: str) -> Variation:
    assert isinstance(other.order.unit, BaselineUnit)
    ratios = [ours.pj(scores, mode) / theirs.pj(scores, mode) for mode in (GLITCHES, ZERO_DELAY)]
    return Variation(
        task.order.library,
        ours.width,
        ours.unit,
        other.order.unit.baseline,
        task.case.change,
        scores,
        ours.clock_ns,
        round(ours.slack_ns, 4),
        round(theirs.slack_ns, 4),
        round(ours.area_um2 / theirs.area_um2, 4),
        *(round(ratio, 4) for ratio in ratios),
    )
