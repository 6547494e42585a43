"""One row through a rival, with the words between, as plain JSON values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from softermax.explorer.compute import errors_of, log_softmax
from softermax.explorer.request import Impossible, RequestError, read_scores, require_only
from softermax.rivals import Normalised, Rival, get_rival, options_of, rivals
from softermax.rivals.designs.arrays import largest
from softermax.rivals.options import Normalisation
from softermax.rivals.pareto import ERROR, front, wholes
from softermax.spec import LOG2E


def names() -> list[str]:
    """Every rival, and after it the same with our normalisations."""
    found = [design for design in rivals().values() if design.about.kind == "rival"]
    return [entry.name for design in found for entry in (design, *options_of(design))]


def built_points(
    rows: Sequence[Mapping[str, Any]], width: int = 16, library: str = "nangate45"
) -> list[dict[str, Any]]:
    """Rows of `softermax rivals` as points of error against cost: whole softmaxes of one width and library.

    A point is on the front if nobody is both smaller and nearer. Its ``spec`` is what the page chooses: a rival's name, null
    for ours.
    """
    found = wholes(rows, width, library)
    ahead = front(found, "area_um2")
    return [
        {
            "name": row["name"],
            "area": row["area_um2"],
            "energy": row["pj_per_element"],
            "l1": row[ERROR],
            "front": row["name"] in ahead,
            "trial": None,
            "spec": row["name"] if row["kind"] == "rival" else None,
        }
        for row in found
    ]


def rival_steps(request: Mapping[str, Any]) -> dict[str, Any]:
    """What the page shows of a rival: its scores, max, exponentials, their sum, output words, and the error to the softmax.

    The scale is calibrated on the row itself. A design without a max, exponentials or a sum of its own has null there.
    """
    require_only(request, "scores", "rival")
    design = _read_rival(request)
    scores, mask = read_scores(request)
    with np.errstate(over="ignore"):
        fitted = design.calibrated(scores, mask)
    raw = fitted.quantize(scores)
    row, keep = raw[None], mask[None]
    try:
        with np.errstate(over="ignore", invalid="ignore"):
            value = np.asarray(fitted.probabilities(row, keep))[0]
    except ValueError as error:
        raise Impossible(str(error), "rival") from None
    if not np.isfinite(value).all():
        raise Impossible(f"{fitted.name}: scores up to {scores.max():g} are beyond what it can hold", "rival")
    exact = log_softmax(scores * LOG2E, mask)
    return {
        "name": fitted.name,
        "title": fitted.about.title,
        "gives": fitted.gives,
        "confidence": fitted.about.confidence,
        "sources": list(fitted.about.sources),
        "scale": fitted.scale,
        "mask": mask.tolist(),
        "input": raw.tolist(),
        **_between(fitted, row, keep),
        "output": np.asarray(fitted.words(row, keep))[0].tolist(),
        "value": value.tolist(),
        "softmax": np.exp2(exact).tolist(),
        "row_sum": float(value.sum()),
        "l1": float(np.abs(value - np.exp2(exact)).sum()),
        "errors": errors_of(value, exact),
    }


def _between(fitted: Rival, row: Any, keep: Any) -> dict[str, Any]:
    inner = fitted.design if isinstance(fitted, Normalisation) else fitted
    if not isinstance(inner, Normalised):
        return {"max": None, "exponentials": None, "unit": None, "total": None}
    found = inner.unnormed(row, keep)
    return {
        "max": int(largest(row, keep, -(2**31))[0, 0]) if keep.any() else None,
        "exponentials": np.asarray(found.words)[0].tolist(),
        "unit": found.unit,
        "total": int(np.asarray(found.total)[0, 0]),
    }


def _read_rival(request: Mapping[str, Any]) -> Rival:
    name = request.get("rival")
    if not isinstance(name, str):
        raise RequestError(f"rival must be a name, got {type(name).__name__}", "rival")
    try:
        return get_rival(name)
    except ValueError as error:
        raise RequestError(str(error), "rival") from None
