"""A search that was made before: its points, for finalists and rivals that come later.

Nothing is drawn again, so a point's figures and the time that its search took stay what they were.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from softermax.results import Envelope
from softermax.search.engine import figures_of
from softermax.search.front import Found, found_of
from softermax.search.objectives import RecordedRows, golden_error
from softermax.search.silicon_model import SiliconModel

IN_MODELS = ("perplexity", "perplexity_lost", "perplexity_low", "perplexity_high", "score_lost")
"""Columns of a row that are no point's: what finalists did in a model."""
CLOSE = 1e-4
"""Figures are stored with six digits, and sums may end otherwise on another machine."""


def load_search(path: str | Path) -> Envelope:
    """What ``softermax search --out`` wrote."""
    made = Envelope.load(path)
    if not made.rows or not all({"front", "trial", "spec", "l1"} <= set(row) for row in made.rows):
        raise ValueError(
            f"--from {path}: not a search's result; softermax search --out FOLDER writes search.json"
        )
    return made


def points_of(made: Envelope, rows: RecordedRows, silicon: SiliconModel, path: str | Path) -> list[Found]:
    """Its points, where the same rows and the same model of silicon still judge its presets as they did."""
    points = [found_of(row) for row in made.rows]
    for point in points:
        if point.trial is not None:
            continue
        now = figures_of(golden_error(point.spec, rows), silicon.predict(point.spec, rows.columns))
        for name, value in asdict(point.figures).items():
            if not math.isclose(value, getattr(now, name), rel_tol=CLOSE):
                raise ValueError(
                    f"--from {path}: {point.name} has {name} {value:g} there and {getattr(now, name):g} here; the scores must be "
                    "those of that search (--model, --length, --rows, --text, --scores), or search anew"
                )
    return points


def known_in_models(made: Envelope) -> dict[str, dict[str, Any]]:
    """What its finalists did in a model, by their names."""
    return {row["name"]: {name: row[name] for name in IN_MODELS if name in row} for row in made.rows}


def provenance(made: Envelope) -> list[dict[str, Any]]:
    """The commands before this one that a result is made of, the first one the search itself."""
    before: Sequence[Mapping[str, Any]] = made.notes.get("earlier", [])
    own = {
        "command": made.command,
        "date": made.date,
        "versions": dict(made.versions),
        "machine": dict(made.machine),
    }
    return [*map(dict, before), own]
