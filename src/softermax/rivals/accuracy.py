"""How far each design is from the softmax: L1 and KL of its rows, and the mass that rows keep.

All designs see the same scores: Gaussian rows of a fixed seed and, where they are given, recorded ones. Recorded scores are
(layers, heads, rows, elements): each layer is calibrated by itself, as in a model, or each head of it where a design is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
from numpy.typing import NDArray

from softermax.progress import Progress, silent
from softermax.rivals.designs.exact import softmax
from softermax.rivals.designs.interface import Rival
from softermax.rivals.registry import all_designs

Scores = NDArray[np.float64]

GAUSSIAN = {"128": (128, 1.0), "128_wide": (128, 3.0), "384": (384, 2.0), "2048": (2048, 1.0)}
"""By a column's name: elements of a row, and the deviation of its scores."""
ROWS = 200
LENGTHS = (128, 384, 512, 1024, 2048, 4096, 8192)
"""Rows whose mass is taken, with scores of deviation 1."""
_ELEMENTS = 2**19
"""Of a length, at most: long rows are few."""


def gaussian(length: int, deviation: float, rows: int = ROWS, seed: int = 0) -> Scores:
    return np.random.default_rng((seed, length)).normal(0.0, deviation, (rows, length))


def l1(found: Scores, exact: Scores) -> float:
    """The sum of absolute differences per row, mean over rows."""
    return float(np.abs(found - exact).sum(-1).mean())


def divergence(found: Scores, exact: Scores) -> float:
    """KL of the normalised result from the softmax, in nats, mean over rows: its zeros cost nothing, lost shape does.

    A row that came out as all zero counts as uniform.
    """
    total = found.sum(-1, keepdims=True)
    share = np.where(total > 0, found / np.where(total > 0, total, 1.0), 1 / found.shape[-1])
    terms = share * (np.log(np.where(share > 0, share, 1.0)) - np.log(np.maximum(exact, 1e-300)))
    return float(terms.sum(-1).mean())


def mass(found: Scores) -> float:
    """What a row adds up to, mean over rows."""
    return float(found.sum(-1).mean())


def measure_design(design: Rival, recorded: Scores | None = None, seed: int = 0) -> dict[str, Any]:
    """The row of one design."""
    row: dict[str, Any] = {"name": design.name, "kind": design.about.kind}
    for column, (length, deviation) in GAUSSIAN.items():
        scores = gaussian(length, deviation, seed=seed)
        found, exact = design.compute(scores), _exact(scores)
        row[f"l1_{column}"], row[f"kl_{column}"] = l1(found, exact), divergence(found, exact)
    if recorded is not None:
        alike = recorded.reshape(-1, *recorded.shape[2:]) if design.per_head else recorded
        found = np.stack([design.compute(scores) for scores in alike]).reshape(recorded.shape)
        exact = _exact(recorded)
        row["l1_recorded"], row["kl_recorded"] = l1(found, exact), divergence(found, exact)
        row["mass_recorded"] = mass(found)
    for length in LENGTHS:
        rows = min(ROWS, _ELEMENTS // length)
        row[f"mass_{length}"] = mass(design.compute(gaussian(length, 1.0, rows, seed)))
    about = design.about
    return row | {
        "title": about.title,
        "takes": about.takes,
        "gives": design.gives,
        "confidence": about.confidence,
        "needs": asdict(about.needs),
        "sources": list(about.sources),
        "claims": list(about.claims),
    }


def _exact(scores: Scores) -> Scores:
    found: Scores = softmax(scores, np.ones_like(scores, dtype=bool))
    return found


def measure_rivals(
    designs: Sequence[Rival] | None = None,
    recorded: Scores | None = None,
    seed: int = 0,
    report: Progress = silent,
) -> list[dict[str, Any]]:
    """The rows of many designs, by default all of them."""
    chosen = list(designs) if designs is not None else all_designs()
    rows = []
    for number, design in enumerate(chosen):
        report(number, len(chosen), design.name)
        rows.append(measure_design(design, recorded, seed))
    report(len(chosen), len(chosen), "")
    return rows
