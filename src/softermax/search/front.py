"""What a search found: points judged in full, the front among them, and one of it within a budget."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from softermax.files import write_text
from softermax.spec import AnySpec, DeferredSpec, spec_from_dict

OBJECTIVES = ("area", "energy", "l1")
"""What a front is made of; less is better in each."""


@dataclass(frozen=True)
class Figures:
    """What a spec costs and how far it is from the softmax."""

    area: float
    """µm² of the units of all lanes."""
    energy: float
    """pJ per score."""
    l1: float
    kl: float
    mass: float
    whole_area: float
    """With the memory of what waits between the units."""
    whole_energy: float

    @property
    def rounded(self) -> dict[str, float]:
        return {name: float(f"{value:.6g}") for name, value in asdict(self).items()}


@dataclass(frozen=True)
class Found:
    """A spec that was judged on all rows."""

    name: str
    spec: AnySpec
    figures: Figures
    on_front: bool = False
    trial: int | None = None
    """Its number in the search; None for a preset that was not drawn."""
    measured: Mapping[str, float] | None = None
    """Area, energy and slack of its netlists, where they were made."""

    @property
    def lanes(self) -> int:
        rows = self.spec.scores if isinstance(self.spec, DeferredSpec) else self.spec
        return rows.slice_width or 1

    @property
    def values(self) -> tuple[float, float, float]:
        """What is compared: area is a lane's, or designs that take fewer scores per cycle would win by that alone."""
        return self.figures.area / self.lanes, self.figures.energy, self.figures.l1

    def row(self) -> dict[str, Any]:
        """As ``--json`` prints it."""
        row: dict[str, Any] = {"name": self.name, **self.figures.rounded, "front": self.on_front}
        if self.measured:
            row |= {f"measured_{name}": value for name, value in self.measured.items()}
        return row | {"trial": self.trial, "spec": self.spec.to_dict()}


def found_of(row: Mapping[str, Any]) -> Found:
    """The point of a row."""
    names = list(Figures.__dataclass_fields__)
    measured = {k.removeprefix("measured_"): v for k, v in row.items() if k.startswith("measured_")}
    figures = Figures(**{name: row[name] for name in names})
    return Found(
        row["name"], spec_from_dict(row["spec"]), figures, row["front"], row["trial"], measured or None
    )


def dominates(mine: Sequence[float], other: Sequence[float]) -> bool:
    """Whether a point is nowhere worse and somewhere better."""
    return all(a <= b for a, b in zip(mine, other, strict=True)) and tuple(mine) != tuple(other)


def ranks(values: Sequence[Sequence[float]]) -> list[int]:
    """0 for points that none dominates, 1 for those that only such dominate, and so on."""
    points = np.asarray(values, dtype=np.float64).reshape(len(values), -1)
    worse = (points[None] <= points[:, None]).all(-1) & (points[None] < points[:, None]).any(-1)
    found = np.full(len(points), -1)
    left = np.ones(len(points), dtype=bool)
    rank = 0
    while left.any():
        best = left & ~(worse & left[None]).any(1)
        found[best] = rank
        left &= ~best
        rank += 1
    return [int(rank) for rank in found]


def with_front(points: Iterable[Found]) -> list[Found]:
    """The same points, each told whether it is on the front, by area."""
    given = list(points)
    rank = ranks([point.values for point in given])
    marked = [replace(point, on_front=r == 0) for point, r in zip(given, rank, strict=True)]
    return sorted(marked, key=lambda point: (point.values, point.name))


def spread(points: Sequence[Found], count: int) -> list[Found]:
    """So many of the front, from its smallest to its most accurate, evenly."""
    front = sorted((p for p in points if p.on_front), key=lambda point: point.figures.l1)
    if len(front) <= count:
        return front
    return [front[i] for i in np.linspace(0, len(front) - 1, count).round().astype(int)]


def pick(points: Sequence[Found], budget: Mapping[str, float], max_loss: float | None) -> Found | None:
    """The point of a budget: the most accurate one within it, or, where the loss is limited, the one of least
    area times energy; None where there is none."""
    limits = dict(budget) | ({} if max_loss is None else {"l1": max_loss})
    within = [p for p in points if all(getattr(p.figures, name) <= most for name, most in limits.items())]
    if max_loss is None:
        return min(within, key=lambda p: (p.figures.l1, p.figures.area), default=None)
    return min(within, key=lambda p: (p.figures.area * p.figures.energy, p.figures.l1), default=None)


def read_budget(text: str) -> dict[str, float]:
    """``area=3000,energy=0.5``."""
    found: dict[str, float] = {}
    for part in text.split(","):
        name, equals, value = part.partition("=")
        try:
            found[name.strip()] = float(value)
        except ValueError:
            equals = ""
        if not equals or name.strip() not in ("area", "energy", "whole_area", "whole_energy"):
            raise ValueError(
                f"--budget {text}: must be like area=3000,energy=0.5; area, energy, whole_area or whole_energy"
            )
    return found


def write_specs(points: Iterable[Found], folder: Path) -> dict[str, Path]:
    """A spec file per point, by its name."""
    written: dict[str, Path] = {}
    for point in points:
        written[point.name] = folder / f"{point.name.replace(chr(58), chr(45))}.json"
        write_text(written[point.name], json.dumps(point.spec.to_dict(), indent=2) + "\n")
    return written
