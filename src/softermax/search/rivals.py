"""Other people's softmaxes on the axes of a search: their error on the same rows, area and energy of their measured units."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from softermax.results import Envelope
from softermax.rivals.accuracy import divergence, l1, mass
from softermax.rivals.designs.interface import Rival
from softermax.rivals.registry import get_rival, rivals
from softermax.search.objectives import RecordedRows

UNITS, WHOLE = "both units", "whole"
"""The units of a result of ``softermax silicon --rivals``."""
_NOTE = (
    "A rival: both of its units by the same flow, cells, clock and scores. Not the same in all: its input is calibrated int8 of "
    "each layer, its constants are wired for one layer, its output has a word of its own, and its energy is the mean of twice as many rows."
)
_TRAINED = " It is meant to be trained with: without that its error says little."


def rival_points(rows: RecordedRows, path: str | Path, width: int) -> list[dict[str, Any]]:
    """A row per rival that was measured at this width. It has no spec; ``note`` says what is not comparable."""
    measured = [row for row in Envelope.load(path).rows if row.get("width") == width]
    names = list(dict.fromkeys(str(row.get("name")) for row in measured if row.get("name") in rivals()))
    if not names:
        raise ValueError(
            f"--rivals-from {path}: has no rival at width {width}; must be a result of softermax silicon --rivals all"
        )
    return [_point(rows, get_rival(name), _units(measured, name)) for name in names]


def _units(rows: Sequence[Mapping[str, Any]], name: str) -> dict[str, Mapping[str, Any]]:
    # Of several libraries the one that specs are measured in.
    return {row["unit"]: row for row in rows if row["name"] == name and row["library"] == "nangate45"}


def _point(rows: RecordedRows, rival: Rival, units: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    found = np.zeros(rows.scores.shape)
    # Calibrated as in a model: layer by layer, or head by head.
    alike = np.stack([rows.layer, rows.head if rival.per_head else 0 * rows.head])
    for group in np.unique(alike, axis=1).T:
        of = (alike == group[:, None]).all(axis=0)
        found[of] = rival.compute(rows.scores[of], rows.mask[of])
    whole = units.get(WHOLE)
    # A rival that keeps nothing between two units is one unit.
    both = units.get(UNITS, whole)
    if both is None:
        raise ValueError(f"{rival.name}: was measured in parts only; must have {UNITS!r} or {WHOLE!r}")
    point = {
        "name": rival.name,
        "area": both["area_um2"],
        "energy": both["pj_per_element"],
        "l1": l1(found, rows.exact),
        "kl": divergence(found, rows.exact),
        "mass": mass(found),
        "measured_slack_ns": both["slack_ns"],
        "front": False,
        "trial": None,
        "spec": None,
        "note": _NOTE + (_TRAINED if rival.about.needs.retraining else ""),
    }
    # What waits between the units was sized for rows of 384.
    if whole is not None and rows.columns == 384:
        point |= {"whole_area": whole["area_um2"], "whole_energy": whole["pj_per_element"]}
    return {
        name: float(f"{value:.6g}") if isinstance(value, float) else value for name, value in point.items()
    }
