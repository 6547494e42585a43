"""Rivals in silicon: their units and whole softmaxes beside ours, in the same cells, at the same clock, on the same scores.

A rival takes the recorded scores in words of its own. Its constants are wired: those that it calibrates on one layer's scores,
the layer in the middle by its largest score. Scores of other layers that are larger saturate. A whole softmax is its units and the
memory of what waits between them, with room for two rows, as everywhere (`softermax.silicon.whole`).
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from softermax.executor import each
from softermax.fixedpoint import IntArray
from softermax.golden import BoolArray
from softermax.progress import Progress, silent
from softermax.results import Envelope
from softermax.rivals import PREFIX, Rival
from softermax.rtl.rivals.parts.interface import WHOLE, Hardware
from softermax.rtl.rivals.parts.two_pass import TwoPassSum
from softermax.rtl.rivals.registry import built, get_hardware
from softermax.silicon import pdk
from softermax.silicon.flow import COPIES, ROWS, Result
from softermax.silicon.jobs import RESET_CYCLES, GateJob
from softermax.silicon.memory import NODE_OF_LIBRARY, node_of
from softermax.silicon.stimuli import COLUMNS, Scores, both_kinds
from softermax.silicon.table import Order, WaitingRow, measure_order
from softermax.silicon.timing import require_possible
from softermax.silicon.units import SpecUnit, Unit, begun, count_of, paper_at, units_of
from softermax.silicon.whole import BOTH, UnitFigures, Waiting, added, cost_of_waiting, waiting_of_spec

OURS = ("paper", "row-scaled", "lean", "lean-row-scaled")
"""What stands beside rivals: the presets, as the rivals' table calls them, folded to base e."""
_LAYERS = 6
"""Of the recorded model."""
_END_CYCLES = 8
"""After the last transfer was due."""


@dataclass(frozen=True)
class RivalUnit(Unit):
    """A unit of a rival, of which the constants are known."""

    rival: Rival
    lanes: int
    name: str
    design = "rival"
    module = "rival_unit"

    @property
    def hardware(self) -> Hardware:
        return get_hardware(self.rival.name)

    @property
    def width(self) -> int:
        return self.lanes

    @property
    def shown(self) -> str:
        return PREFIX + self.rival.name

    def described(self) -> dict[str, object]:
        return super().described() | {"design": self.shown}

    def make(self) -> object:
        return self.hardware.make(self.name, self.rival, self.lanes)

    def rows(self, scores: Scores, count: int) -> tuple[IntArray, BoolArray]:
        raw = self.rival.quantize(scores.values[:count].astype(np.float64))
        return raw, np.ones(raw.shape, dtype=np.bool_)

    def job(self, scores: Scores, copies: int, rows: int) -> GateJob:
        raw, mask = self.rows(scores, copies * rows)
        streams = self.hardware.streams(self.rival, self.lanes, raw, mask)[self.name]
        unit = self.component()
        per_row = -(-raw.shape[1] // self.lanes)
        inputs: dict[str, tuple[int, int]] = {}
        """Stream to the cycle of its first transfer, and from there to the same of the next row."""
        if isinstance(unit, TwoPassSum):
            # The next row's first pass runs beside this row's second one, two cycles later so that the max is free.
            period = per_row + 2
            inputs = {"first_pass": (0, period), "second_pass": (per_row + unit.max_latency, period)}
            last = per_row + unit.max_latency + rows * period + unit.sum_latency
        elif hasattr(unit, "row_interval"):
            period = max(per_row, unit.row_interval)
            inputs = {"finished": (0, period), "kept": (unit.row_latency, period)}
            last = unit.row_latency + rows * period + unit.latency
        else:
            inputs = {"slices": (0, per_row)}
            last = rows * per_row + max(unit.latency, getattr(unit, "sum_latency", 0))
        job = begun(self, RESET_CYCLES + last + _END_CYCLES, copies, raw.size)
        for stream, (start, period) in inputs.items():
            payload = job.payload(stream, streams[stream])
            each_row = count_of(streams[stream], copies) // rows
            for row in range(rows):
                of_row = payload[row * each_row : (row + 1) * each_row]
                job.send(stream, RESET_CYCLES + start + row * period, of_row)
        for stream in streams:
            if stream not in inputs:
                job.receive(stream, streams[stream])
        return job


@dataclass(frozen=True)
class RivalRow:
    """A unit of a rival or of ours, or a whole softmax."""

    name: str
    unit: str
    width: int
    library: str
    clock_ns: float
    slack_ns: float
    area_um2: float
    pj_per_element: float
    pj_zero_delay: float


@dataclass(frozen=True)
class RivalTable:
    rows: list[RivalRow]
    waiting: list[WaitingRow]
    stimulus: str
    note: str
    """Why there are no recorded scores, if there are none."""
    words_equal: int
    """Output words of netlists that were compared with their models', at least."""

    def to_json(self) -> list[dict[str, object]]:
        return [asdict(row) for row in self.rows]

    def notes(self) -> dict[str, Any]:
        """What `kept_beside` needs beyond the rows to make the same table again."""
        return {
            "stimulus": self.stimulus,
            "words_equal": self.words_equal,
            "waiting": [asdict(row) for row in self.waiting],
        }

    @property
    def late(self) -> list[str]:
        """What to say of designs that miss the clock."""
        return [
            f"{row.name} {row.unit}, {row.width} wide, {row.library}: misses {row.clock_ns} ns by {-row.slack_ns} ns"
            for row in self.rows
            if row.slack_ns < 0
        ]


def rival_orders(
    names: Sequence[str],
    libraries: Sequence[str],
    widths: Sequence[int],
    clock_ns: float | None,
    pdk_root: str | None,
    scores: Scores,
    ours: Sequence[str] = OURS,
) -> list[Order]:
    """The units of some rivals, ``all`` for every one that is built, then ours. Names are checked before any work."""
    units = rival_units(names, widths, scores, ours)
    orders = []
    for library in libraries:
        loaded = pdk.load(library, pdk_root)
        require_possible(loaded, clock_ns or loaded.description.clock_ns)
        orders += [Order(unit, library, pdk_root, clock_ns) for unit in units]
    return orders


def rival_units(
    names: Sequence[str], widths: Sequence[int], scores: Scores, ours: Sequence[str] = OURS
) -> list[Unit]:
    chosen = list(built()) if "all" in names else list(dict.fromkeys(names))
    hardware = [get_hardware(name.removeprefix(PREFIX)) for name in chosen]
    values = middle_layer(scores)
    units: list[Unit] = []
    for width in widths:
        for one in hardware:
            rival = one.fitted(one.model.calibrated(values), width)
            units += [RivalUnit(rival, width, name) for name in one.units]
        for preset in ours:
            units += units_of(paper_at(width) if preset == "paper" else preset, width)
    return units


def middle_layer(scores: Scores) -> NDArray[np.float64]:
    """Rows of the layer whose largest score is the median of all layers'; rows come layer by layer."""
    layers = sorted(
        np.array_split(scores.values.astype(np.float64), _LAYERS), key=lambda rows: np.abs(rows).max()
    )
    return layers[_LAYERS // 2]


def measure_rivals(
    names: Sequence[str],
    libraries: Sequence[str] = ("nangate45",),
    widths: Sequence[int] = (16,),
    clock_ns: float | None = None,
    pdk_root: str | None = None,
    workers: int | None = None,
    progress: Progress = silent,
    ray: str | None = None,
    ours: Sequence[str] = OURS,
) -> RivalTable:
    """Measure every unit, in parallel processes, and add whole softmaxes up."""
    scores, note = both_kinds(COPIES * ROWS)
    orders = rival_orders(names, libraries, widths, clock_ns, pdk_root, scores[0], ours)
    work = functools.partial(measure_order, scores)
    found = each(work, orders, workers, progress, lambda order: order.label, ray)
    rows, waiting = _rows(found, scores[0].name)
    words = sum(result.words_equal for result in found.values())
    return RivalTable(rows, waiting, scores[0].name, note, words)


def kept_beside(table: RivalTable, stored: Envelope) -> RivalTable:
    """The table with those designs of a stored one that it has not, in the order of the registry, ours last.

    Both must have been measured with the same tools at the same clock on scores of the same kind. What was measured of a stored
    design stays; its memories, which are modelled, are counted as the table's are.
    """
    notes = stored.notes
    missing = {"stimulus", "words_equal", "waiting"} - set(notes)
    if missing:
        raise ValueError(
            f"stored rows have no {', '.join(sorted(missing))} in their notes: measure all designs"
        )
    if notes["stimulus"] != table.stimulus:
        raise ValueError(
            f"stored rows are of {notes['stimulus']} scores, these of {table.stimulus}: measure all designs"
        )
    before = [RivalRow(**row) for row in stored.rows]
    clocks = {row.library: row.clock_ns for row in table.rows}
    for row in before:
        if clocks.get(row.library, row.clock_ns) != row.clock_ns:
            raise ValueError(
                f"stored rows of {row.library} have a clock of {row.clock_ns} ns, these {clocks[row.library]} ns: measure all"
            )
    fresh = {(row.library, row.width, row.name) for row in table.rows}
    rows = [row for row in before if (row.library, row.width, row.name) not in fresh]
    waiting = [WaitingRow(**row) for row in notes["waiting"]]
    waiting = [row for row in waiting if (row.library, row.width, row.design) not in fresh]
    rows, waiting = _counted_anew(rows, waiting)
    return replace(
        table,
        rows=sorted([*rows, *table.rows], key=lambda row: _place(row.library, row.width, row.name)),
        waiting=sorted(
            [*waiting, *table.waiting], key=lambda row: _place(row.library, row.width, row.design)
        ),
        # Words of netlists that others took the place of do not count, and stored rows do not tell how many those were.
        words_equal=table.words_equal + (notes["words_equal"] if len(rows) == len(before) else 0),
    )


def _counted_anew(
    rows: Sequence[RivalRow], waiting: Sequence[WaitingRow]
) -> tuple[list[RivalRow], list[WaitingRow]]:
    """Whole softmaxes of stored units, with the memories of today."""
    widths = sorted({row.width for row in rows if row.unit == BOTH})
    units = rival_units(["all"], widths, both_kinds(COPIES * ROWS)[0][0]) if widths else []
    by_design = {(unit.width, _name(unit)): unit for unit in units}
    made: dict[tuple[str, int, str], tuple[RivalRow, WaitingRow]] = {}
    for row in rows:
        if row.unit == BOTH and row.library in NODE_OF_LIBRARY:
            both = UnitFigures(row.slack_ns, row.area_um2, row.pj_per_element, row.pj_zero_delay)
            unit = by_design[row.width, row.name]
            made[row.library, row.width, row.name] = _whole(row.library, row.clock_ns, unit, both)
    return (
        [
            made.get((row.library, row.width, row.name), (row,))[0] if row.unit == WHOLE else row
            for row in rows
        ],
        [made[key][1] if (key := (row.library, row.width, row.design)) in made else row for row in waiting],
    )


def _whole(library: str, clock_ns: float, unit: Unit, both: UnitFigures) -> tuple[RivalRow, WaitingRow]:
    """Both units of a design with the memory of what waits between them, and that memory; ``unit`` is either of them."""
    name, width, kept = _name(unit), unit.width, _kept(unit)
    cost = cost_of_waiting(kept, node_of(library), COLUMNS, clock_ns)
    what = ", ".join(one.what for one in kept)
    bits = round(sum(one.slice_bits for one in kept) / width, 2)
    memory = WaitingRow(library, width, name, what, bits, round(cost.area_um2, 1), round(cost.pj, 4))
    return _row(name, WHOLE, width, library, clock_ns, both + cost), memory


def _place(library: str, width: int, name: str) -> tuple[bool, str, int, int]:
    """Where a design stands in the table; units of one keep their order. The library of the table's figures comes first."""
    order = [*built(), *(f"{preset}+fold" for preset in (*OURS[:1], paper_at(32), *OURS[1:]))]
    return library != "nangate45", library, width, order.index(name) if name in order else len(order)


def _rows(found: Mapping[Order, Result], stimulus: str) -> tuple[list[RivalRow], list[WaitingRow]]:
    together: dict[tuple[str, int, str], dict[str, Order]] = {}
    for order in found:
        key = (order.library, order.unit.width, _name(order.unit))
        together.setdefault(key, {})[order.unit.name] = order
    rows: list[RivalRow] = []
    waiting: list[WaitingRow] = []
    for (library, width, name), orders in together.items():
        results = {unit: found[order] for unit, order in orders.items()}
        clock = next(iter(results.values())).clock_ns
        figures = {unit: UnitFigures.of(result, stimulus) for unit, result in results.items()}
        if WHOLE not in figures:
            figures[BOTH] = added(figures.values())
        rows += [_row(name, unit, width, library, clock, one) for unit, one in figures.items()]
        if BOTH in figures and library in NODE_OF_LIBRARY:
            whole, memory = _whole(library, clock, next(iter(orders.values())).unit, figures[BOTH])
            rows.append(whole)
            waiting.append(memory)
    return rows, waiting


def _name(unit: Unit) -> str:
    """As the rivals' table calls the design of a unit."""
    if isinstance(unit, RivalUnit):
        return unit.rival.name
    assert isinstance(unit, SpecUnit)
    return f"{unit.preset}+fold"


def _kept(unit: Unit) -> tuple[Waiting, ...]:
    if isinstance(unit, RivalUnit):
        kept = unit.hardware.waiting(unit.rival)
        return tuple(Waiting(one.what, one.bits, unit.width, one.beside, reads=one.reads) for one in kept)
    assert isinstance(unit, SpecUnit)
    return waiting_of_spec(unit.rows_spec)


def _row(name: str, unit: str, width: int, library: str, clock: float, figures: UnitFigures) -> RivalRow:
    return RivalRow(
        name,
        unit,
        width,
        library,
        clock,
        round(figures.slack_ns, 4),
        round(figures.area_um2, 2),
        round(figures.pj, 5),
        round(figures.pj_zero_delay, 5),
    )
