"""How much the ratios depend on what is assumed: clock, wire load, glitch model, scores, baseline, borders of a unit, and of
a whole softmax the memory of what waits.

One assumption changes at a time. What is measured is cached like the table's figures, so that a run that
was cut short goes on where it ended, and the case without a change costs nothing after the table.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from softermax.executor import each
from softermax.progress import Progress, silent
from softermax.silicon import pdk
from softermax.silicon.flip_flops import KeptLaneUnit, cost_in_flip_flops
from softermax.silicon.flow import GLITCHES, ZERO_DELAY, Result, measure_unit
from softermax.silicon.library import WireLoad
from softermax.silicon.memory import NODE_OF_LIBRARY, Node, as_published, node_of
from softermax.silicon.stimuli import Scores
from softermax.silicon.table import Order, against, orders_of, waiting_cost, waiting_of
from softermax.silicon.units import (
    BASELINES,
    NORMALIZATION,
    UNNORMED,
    BaselineUnit,
    DivisionUnit,
    NormalizationUnit,
    SpecUnit,
    TwoPassUnit,
    Unit,
    paper_at,
)
from softermax.silicon.whole import (
    BOTH,
    WHOLE,
    UnitFigures,
    Waiting,
    added,
    waiting_for_third_pass,
    waiting_of_baseline,
    waiting_of_spec,
)

NONE = "none"
_ONE_RING = 1.5
"""Rows in a ring: one that waits, and what comes in until its sum is known, at most half of one with rows of 384."""


@dataclass(frozen=True)
class Case:
    """One change of the assumptions. Clock and wires are factors of the library's own. At another clock both
    designs are mapped anew; other wires are put into the table's netlists."""

    change: str
    clock: float = 1.0
    wires: float = 1.0
    base_two: bool = False
    """Two passes with powers of two, for scores that carry log2(e) in their scale as ours do."""
    registered: bool = False
    """Registers after our outputs: the lanes of the baselines end in registers, ours in gates."""

    def is_of(self, baseline: str) -> bool:
        """Whether the case says something of a baseline: the lean units of two passes alone have a base two."""
        return baseline == "two-pass" or not self.base_two

    def changed(self, unit: Unit) -> Unit:
        """What takes the unit's place."""
        if self.base_two and isinstance(unit, TwoPassUnit | DivisionUnit) and self.is_of(unit.baseline):
            return replace(unit, base_two=True)
        return replace(unit, registered=True) if self.registered and isinstance(unit, SpecUnit) else unit


CASES = (
    Case(NONE),
    Case("clock period 0.9 times", clock=0.9),
    Case("clock period 1.5 times", clock=1.5),
    Case("no wires", wires=0.0),
    Case("wires doubled", wires=2.0),
    Case("FP16 in base two, with the fold", base_two=True),
    Case("our outputs registered", registered=True),
)


@dataclass(frozen=True)
class Variation:
    """The ratios of one unit under one change of the assumptions, with one kind of scores."""

    library: str
    width: int
    unit: str
    preset: str
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
        return measure_unit(self.case.changed(self.order.unit), library, clock, scores, wire)


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
        for order in orders_of([library], [width], clock_ns, pdk_root, baselines, varied_at(width)):
            if isinstance(order.unit, SpecUnit):
                for baseline in baselines:
                    unit = order.unit.against(baseline)
                    assert unit is not None
                    theirs = Order(unit, order.library, order.pdk_root, order.clock_ns)
                    cases = [case for case in CASES if case.is_of(baseline)]
                    for case in cases if baseline == baselines[0] else cases[:1]:
                        pairs.append((Task(order, case), Task(theirs, case)))
    return pairs


def varied_at(width: int) -> list[str]:
    """The presets that are varied."""
    return [paper_at(width), "lean"]


def vary(
    pairs: Sequence[tuple[Task, Task]],
    scores: Sequence[Scores],
    workers: int | None = None,
    progress: Progress = silent,
    ray: str | None = None,
) -> list[Variation]:
    """Measure every design, many at a time, and put ours beside the baseline for each kind of scores: unit by unit,
    then whole softmaxes."""
    # The table's own first: they are mapped once, and most are cached.
    measured = {task for pair in pairs for task in (*pair, *_kept_lanes(*pair))}
    tasks = sorted(measured, key=lambda task: CASES.index(task.case))
    work = functools.partial(Task.run, scores=scores)
    found = each(
        work,
        tasks,
        workers,
        progress,
        lambda task: f"{task.order.label}, {task.case.change}",
        ray,
    )
    compared = [_Compared.of(ours, theirs, found) for ours, theirs in pairs]
    alone = [one.variation(kind.name) for one in compared for kind in scores]
    return alone + [one for kind in scores for one in _wholes(compared, kind.name, found)]


def _kept_lanes(ours: Task, theirs: Task) -> list[Task]:
    """What waits between the units of a whole softmax, in flip-flops: measured once, where nothing is changed."""
    unit, other = ours.order.unit, theirs.order.unit
    if not isinstance(unit, NormalizationUnit) or ours.case.change != NONE:
        return []
    assert isinstance(other, BaselineUnit)
    lanes = [KeptLaneUnit(waiting, unit.rows_spec) for waiting in waiting_of_spec(unit.rows_spec)]
    lanes += [KeptLaneUnit(waiting) for waiting in waiting_of_baseline(other.baseline, unit.width)]
    return [replace(ours, order=replace(ours.order, unit=lane)) for lane in lanes]


@dataclass(frozen=True)
class _Compared:
    """One of our units beside a baseline's in a case."""

    order: Order
    case: Case
    baseline: str
    ours: Result
    theirs: Result

    @classmethod
    def of(cls, ours: Task, theirs: Task, found: Mapping[Task, Result]) -> _Compared:
        assert isinstance(theirs.order.unit, BaselineUnit)
        return cls(ours.order, ours.case, theirs.order.unit.baseline, found[ours], found[theirs])

    def figures(self, scores: str) -> tuple[UnitFigures, UnitFigures]:
        return UnitFigures.of(self.ours, scores), UnitFigures.of(self.theirs, scores)

    def variation(self, scores: str) -> Variation:
        return self.varied(self.ours.unit, self.case.change, scores, *self.figures(scores))

    def varied(
        self, unit: str, change: str, scores: str, ours: UnitFigures, theirs: UnitFigures
    ) -> Variation:
        pairs = (
            (ours.area_um2, theirs.area_um2),
            (ours.pj, theirs.pj),
            (ours.pj_zero_delay, theirs.pj_zero_delay),
        )
        return Variation(
            self.order.library,
            self.ours.width,
            unit,
            self.ours.preset,
            self.baseline,
            change,
            scores,
            self.ours.clock_ns,
            round(ours.slack_ns, 4),
            round(theirs.slack_ns, 4),
            *(round(mine / other, 4) for mine, other in pairs),
        )


def _wholes(compared: Sequence[_Compared], scores: str, found: Mapping[Task, Result]) -> Iterator[Variation]:
    """Whole softmaxes in every case, and with other memories for what waits between their units."""
    units = {(one.ours.unit, _place(one), one.baseline, one.case.change): one for one in compared}
    for (unit, place, baseline, change), second in units.items():
        first = units.get((UNNORMED, place, baseline, change))
        if unit != NORMALIZATION or first is None:
            continue
        ours, theirs = (a + b for a, b in zip(first.figures(scores), second.figures(scores), strict=True))
        yield second.varied(BOTH, change, scores, ours, theirs)
        if change == NONE:
            yield _in_flip_flops(second, scores, ours, theirs, found)
        if second.order.library not in NODE_OF_LIBRARY:
            continue
        yield _with_memories(second, change, scores, ours, theirs)
        if change == NONE:
            yield from _other_memories(second, scores, ours, theirs)
        if change == NONE and baseline == "two-pass":
            # What the second pass does is done once more, of scores that are read once more.
            anew = theirs + _parts_of(first.theirs, scores, ("subtract", "exponential"))
            third = waiting_for_third_pass(first.theirs.width)
            change = "FP16 makes its exponentials anew instead of keeping them"
            yield _with_memories(second, change, scores, ours, anew, their_memory=third)
            factor = units.get((NORMALIZATION, place, "online", NONE))
            if factor is not None:
                multiplied = first.figures(scores)[1] + factor.figures(scores)[1]
                change = "FP16 multiplies with a factor instead of dividing"
                yield _with_memories(second, change, scores, ours, multiplied)


def _in_flip_flops(
    one: _Compared, scores: str, ours: UnitFigures, theirs: UnitFigures, found: Mapping[Task, Result]
) -> Variation:
    sides: dict[bool, list[UnitFigures]] = {True: [], False: []}
    for task in _kept_lanes(Task(one.order, one.case), Task(against(one.order, one.baseline), one.case)):
        lane = task.order.unit
        assert isinstance(lane, KeptLaneUnit)
        sides[lane.spec is not None].append(cost_in_flip_flops(lane, found[task], scores))
    return one.varied(
        WHOLE,
        "flip-flops instead of memories",
        scores,
        ours + added(sides[True]),
        theirs + added(sides[False]),
    )


def _place(one: _Compared) -> tuple[object, ...]:
    return one.order.library, one.ours.width, one.ours.preset


def _with_memories(
    one: _Compared,
    change: str,
    scores: str,
    ours: UnitFigures,
    theirs: UnitFigures,
    their_memory: Sequence[Waiting] | None = None,
    node: Node | None = None,
    rows: float | None = None,
) -> Variation:
    kept = [waiting_of(one.ours), their_memory or waiting_of(one.ours, one.baseline)]
    if rows is not None:
        kept = [tuple(replace(waiting, rows=rows) for waiting in some) for some in kept]
    mine, other = (waiting_cost(one.ours, some, node) for some in kept)
    return one.varied(WHOLE, change, scores, ours + mine, theirs + other)


def _other_memories(
    one: _Compared, scores: str, ours: UnitFigures, theirs: UnitFigures
) -> Iterator[Variation]:
    """What waits in other memories, in both designs."""
    made = functools.partial(_with_memories, one, scores=scores, ours=ours, theirs=theirs)
    yield made(change=f"rings of {_ONE_RING:g} rows instead of two rows", rows=_ONE_RING)
    node = node_of(one.order.library)
    for factor in (0.5, 2.0):
        yield made(change=f"memories' energy {factor:g} times", node=replace(node, energy_factor=factor))
    for factor in (0.5, 2.0):
        yield made(change=f"memories' area {factor:g} times", node=replace(node, area_factor=factor))
    for change, published in as_published(one.order.library).items():
        yield made(change=change, node=published)


def _parts_of(result: Result, scores: str, names: tuple[str, ...]) -> UnitFigures:
    """Some sub-units of a design."""
    area = sum(value for name, value in result.area_by_unit.items() if name.startswith(names))
    pj, settled = (
        sum(value for name, value in result.energy_by_unit(scores, mode).items() if name.startswith(names))
        for mode in (GLITCHES, ZERO_DELAY)
    )
    return UnitFigures(result.slack_ns, area, pj, settled)
