"""The dear objectives, for what survives: the real flow instead of the model."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import replace

from softermax.executor import Executor
from softermax.progress import Progress, silent
from softermax.search.front import Found, spread
from softermax.search.measure import measured_spec
from softermax.silicon.stimuli import both_kinds

PAPER = "paper"
"""What every front is held against."""


def finalists(points: Sequence[Found], count: int) -> list[Found]:
    """So many of the front, evenly, `paper`, and the presets with the fold: without it their hardware is the same."""
    chosen = spread([point for point in points if point.trial is not None], count)
    presets = (point for point in points if point.trial is None)
    return [*chosen, *(point for point in presets if point.name == PAPER or "+fold" in point.name)]


def measured_points(
    points: Sequence[Found], count: int, place: Executor, report: Progress = silent
) -> list[Found]:
    """The same points, finalists with the area, energy and slack of their own netlists; of deferred specs the unit of
    weights alone, for their reciprocal is no unit."""
    chosen = finalists(points, count)
    scores = both_kinds(1)[0][0]
    items = [(point.spec.to_json(), number) for number, point in enumerate(chosen)]
    rows = place.each(
        functools.partial(measured_spec, scores=scores), items, report, lambda item: chosen[item[1]].name
    )
    found: dict[str, Found] = {}
    for point, row in zip(chosen, rows.values(), strict=True):
        units = row["units"].values()
        measured = {
            "area": round(sum(unit["area"] for unit in units), 1),
            "energy": round(sum(unit["energy"] for unit in units), 5),
            "slack_ns": min(unit["slack_ns"] for unit in units),
        }
        found[point.name] = replace(point, measured=measured)
    return [found.get(point.name, point) for point in points]
