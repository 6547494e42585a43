"""Area and energy of a spec's units in milliseconds instead of a minute: a model that is fitted to measured netlists.

What a part of a unit costs is a sum over what it is made of (`softermax.search.terms`), each term at a cost that is fitted, none
below zero; times what a Gaussian process over the spec's fields says is left (`softermax.search.residual`). Both are fitted part
by part (`softermax.search.fit`, ``fitted.json``) to drawn specs that went through the real flow (`softermax.search.measure`,
``measured.json``): NanGate's 45 nm cells, the library's clock, recorded attention in rows of 384, gate delays and glitches.
`SiliconModel.held_out` says how far off it is on specs that no fit and no choice has seen.

Energies are of those rows whatever the searched rows are: another model's scores change them little, words change them much.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from typing import Any

import numpy as np

from softermax.search.activity import Activity, activity, energy_terms
from softermax.search.features import features
from softermax.search.residual import Residual
from softermax.search.terms import (
    NORMALIZATION,
    POWERS,
    RECIPROCAL,
    UNNORMED,
    WEIGHTED_POWERS,
    WEIGHTS,
    Terms,
    area_terms,
    lanes_of,
    reciprocal_terms,
)
from softermax.silicon.memory import node_of
from softermax.silicon.whole import cost_of_waiting, waiting_of_spec
from softermax.spec import AnySpec, DeferredSpec, spec_from_dict

QUANTITIES = ("area", "energy")
FITTED, HELD_OUT, SEEN = "fitted", "held out", "seen"
"""The sets of measured specs. A model is fitted to the first. Nothing was ever chosen by the second, nor was it looked at before
this fit was final; the third was never fitted to either, but earlier fits were judged by it."""
CLOSE = 0.1
"""A prediction is close if it is off by no more."""
SMALL = 0.02
"""Of a unit: parts that are not more than this may be off by any factor."""


@dataclass(frozen=True)
class Silicon:
    """A spec's units: µm² in all, pJ per score; and with the memory of what waits between them."""

    area: float
    energy: float
    whole_area: float
    whole_energy: float


@dataclass(frozen=True)
class PartModel:
    """What a kind of part costs: its terms', and what is left."""

    costs: Terms
    residual: Residual | None

    def counted(self, terms: Terms) -> float:
        return sum(value * self.costs[name] for name, value in terms.items())


@dataclass(frozen=True)
class Part:
    """A part of a spec's unit, as a model sees it."""

    terms: Terms
    features: Sequence[float]


@dataclass(frozen=True)
class PredictionError:
    """How far off predictions are on specs that were not fitted to: relative errors of a spec's units together."""

    quantity: str
    kind: str
    """``rows``, ``deferred`` or ``all``."""
    specs: int
    median: float
    nine_tenths: float
    """What nine of ten stay below."""
    largest: float
    close: float
    """The share that is off by `CLOSE` at most."""

    @classmethod
    def of(cls, quantity: str, kind: str, errors: Sequence[float]) -> PredictionError:
        off = np.abs(errors)
        middle, most = np.quantile(off, (0.5, 0.9))
        close = float((off <= CLOSE).mean())
        return cls(quantity, kind, len(off), float(middle), float(most), float(off.max()), close)


def packaged(name: str) -> Any:
    return json.loads(files("softermax.search").joinpath(name).read_text(encoding="utf-8"))


class SiliconModel:
    """The fitted parts, by quantity and kind."""

    def __init__(self, parts: Mapping[str, PartModel], library: str, clock_ns: float) -> None:
        self._parts = dict(parts)
        self._library, self._clock_ns = library, clock_ns

    @classmethod
    @lru_cache(maxsize=1)
    def load(cls) -> SiliconModel:
        """The one that comes with the package."""
        made = packaged("fitted.json")
        parts = {
            name: PartModel(
                part["costs"], Residual.of_dict(part["residual"]) if part["residual"] is not None else None
            )
            for name, part in made["parts"].items()
        }
        return cls(parts, made["library"], made["clock_ns"])

    @property
    def content(self) -> str:
        """Changes with every cost."""
        return json.dumps(
            {
                name: [part.costs, None if part.residual is None else part.residual.to_dict()]
                for name, part in self._parts.items()
            },
            sort_keys=True,
        )

    def predict(self, spec: AnySpec, columns: int) -> Silicon:
        """Figures of a spec in rows of so many scores."""
        area, energy = (sum(self.units(spec, quantity).values()) for quantity in QUANTITIES)
        if isinstance(spec, DeferredSpec):
            return Silicon(area, energy, area, energy)  # no row waits for its sum
        node = node_of(self._library)
        waits = cost_of_waiting(waiting_of_spec(spec), node, columns, self._clock_ns)
        return Silicon(area, energy, area + waits.area_um2, energy + waits.pj)

    def units(self, spec: AnySpec, quantity: str) -> dict[str, float]:
        """What each unit of a spec costs."""
        found: dict[str, float] = {}
        for unit, parts in parts_of(spec, quantity).items():
            models = {kind: self._parts[f"{quantity} of {kind}"] for kind in parts}
            counted = {kind: models[kind].counted(part.terms) for kind, part in parts.items()}
            small = SMALL * sum(counted.values())
            found[unit] = 0.0
            for kind, part in parts.items():
                left = models[kind].residual
                factor = 1.0 if left is None else math.exp(left(part.features))
                found[unit] += max((counted[kind] + small) * factor - small, 0.0)
        return found

    def errors(self, rows: Iterable[Mapping[str, Any]]) -> list[PredictionError]:
        """On measured rows."""
        found: dict[tuple[str, str], list[float]] = {}
        for row in rows:
            spec = spec_from_dict(row["spec"])
            kind = "deferred" if isinstance(spec, DeferredSpec) else "rows"
            for quantity in QUANTITIES:
                off = relative_error(row, quantity, self.units(spec, quantity))
                for of in (kind, "all"):
                    found.setdefault((quantity, of), []).append(off)
        return [PredictionError.of(*key, errors) for key, errors in found.items()]

    def held_out(self) -> list[PredictionError]:
        """On the specs that were held out."""
        return self.errors(row for row in packaged("measured.json")["rows"] if row["set"] == HELD_OUT)


def relative_error(row: Mapping[str, Any], quantity: str, predicted: Mapping[str, float]) -> float:
    """Of a measured row's units together."""
    true = {unit: figures[quantity] for unit, figures in row["units"].items()}
    return float(sum(predicted[unit] for unit in true) / sum(true.values()) - 1)


@lru_cache(maxsize=1024)
def parts_of(spec: AnySpec, quantity: str) -> dict[str, dict[str, Part]]:
    """The parts of a spec's units, by unit and kind."""
    units = (WEIGHTS,) if isinstance(spec, DeferredSpec) else (UNNORMED, NORMALIZATION)
    active = None if quantity == "area" else _active(spec)
    if active is None:
        found = {unit: area_terms(spec, unit) for unit in units}
    else:
        found = {unit: energy_terms(spec, unit, active) for unit in units}
    if isinstance(spec, DeferredSpec):
        # Once per row, whoever divides by it.
        found[RECIPROCAL] = {RECIPROCAL: reciprocal_terms(spec)}
    lanes = lanes_of(spec)
    return {
        unit: {
            kind: Part(_scaled(terms, lanes, quantity), features(kind, spec, active))
            for kind, terms in kinds.items()
        }
        for unit, kinds in found.items()
    }


def weights_of(spec: AnySpec, quantity: str) -> Part:
    """The powers of two of a spec that normalises rows, as if they were weights."""
    part = parts_of(spec, quantity)[UNNORMED][POWERS]
    active = None if quantity == "area" else _active(spec)
    return Part(part.terms, features(WEIGHTED_POWERS, spec, active))


@lru_cache(maxsize=1024)
def _active(spec: AnySpec) -> Activity:
    return activity(spec)


def _scaled(terms: Terms, lanes: int, quantity: str) -> Terms:
    """Terms of the whole unit for an area, per score for an energy."""
    per_lane, per_row = (lanes, 1.0) if quantity == "area" else (1.0, 1.0 / lanes)
    return {name: value * (per_row if name.startswith("row") else per_lane) for name, value in terms.items()}
