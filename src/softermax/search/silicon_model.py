"""Area and energy of a spec's units in milliseconds instead of a minute: a model that is fitted to measured netlists.

What a part of a unit costs is a sum over what it is made of (`softermax.search.terms`). Each term's cost is fitted, none below zero,
part by part, to drawn specs that went through the real flow (`softermax.search.measure`, ``measured.json``): NanGate's 45 nm
cells, the library's clock, recorded attention in rows of 384, gate delays and glitches. `SiliconModel.held_out` says how far off
it is on specs that a fit has not seen.

Energies are of those rows whatever the searched rows are: another model's scores change them little, words change them much.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from typing import Any

import numpy as np
from numpy.typing import NDArray

from softermax.search.terms import (
    NORMALIZATION,
    RECIPROCAL,
    UNNORMED,
    WEIGHTS,
    Terms,
    activity,
    area_terms,
    energy_terms,
    lanes_of,
    reciprocal_terms,
)
from softermax.silicon.memory import node_of
from softermax.silicon.whole import cost_of_waiting, waiting_of_spec
from softermax.spec import AnySpec, DeferredSpec, spec_from_dict

QUANTITIES = ("area", "energy")
HELD_OUT = 4
"""Specs are held out of a fit in so many parts, each in turn."""
_RIDGE = 1e-3


@dataclass(frozen=True)
class Silicon:
    """A spec's units: µm² in all, pJ per score; and with the memory of what waits between them."""

    area: float
    energy: float
    whole_area: float
    whole_energy: float


_PART_OF = {"int_max": 0, "power_of_two": 1, "reduction": 2, "reciprocal": 0}
"""The place of a netlist's part in `terms_of`; what is not here is in the last one."""


def _measured_parts(unit: str, kinds: Sequence[str], by_part: Mapping[str, float]) -> dict[str, float]:
    found = dict.fromkeys(kinds, 0.0)
    for part, value in by_part.items():
        top = part.split(".")[0]
        known = top in _PART_OF and (top == "reciprocal") == (unit == NORMALIZATION)
        found[kinds[_PART_OF[top]] if known else kinds[-1]] += value
    return found


def _scaled(terms: Terms, lanes: int, quantity: str) -> Terms:
    """Terms of the whole unit for an area, per score for an energy."""
    per_lane, per_row = (lanes, 1.0) if quantity == "area" else (1.0, 1.0 / lanes)
    return {name: value * (per_row if name.startswith("row") else per_lane) for name, value in terms.items()}


@dataclass(frozen=True)
class HeldOut:
    """How far off predictions are on specs that were not fitted to: relative errors of a spec's units together."""

    quantity: str
    specs: int
    median: float
    nine_tenths: float
    """What nine of ten stay below."""
    largest: float

    @classmethod
    def of(cls, quantity: str, errors: Sequence[float]) -> HeldOut:
        middle, most = np.quantile(errors, (0.5, 0.9))
        return cls(quantity, len(errors), float(middle), float(most), max(errors))


class SiliconModel:
    """Costs of all terms, fitted to measured rows (see `softermax.search.measure`)."""

    def __init__(self, rows: Sequence[Mapping[str, Any]], library: str, clock_ns: float) -> None:
        self.rows = list(rows)
        self._library, self._clock_ns = library, clock_ns
        self._costs = _fitted(self.rows)

    @classmethod
    @lru_cache(maxsize=1)
    def load(cls) -> SiliconModel:
        """The one that comes with the package."""
        made = json.loads(files("softermax.search").joinpath("measured.json").read_text(encoding="utf-8"))
        return cls(made["rows"], made["notes"]["library"], made["notes"]["clock_ns"])

    @property
    def content(self) -> str:
        """Changes with every cost."""
        return json.dumps(self._costs, sort_keys=True)

    def predict(self, spec: AnySpec, columns: int) -> Silicon:
        """Figures of a spec in rows of so many scores."""
        area, energy = (sum(_units(spec, quantity, self._costs).values()) for quantity in QUANTITIES)
        if isinstance(spec, DeferredSpec):
            return Silicon(area, energy, area, energy)  # no row waits for its sum
        node = node_of(self._library).at_logic_voltage()
        waits = cost_of_waiting(waiting_of_spec(spec), node, columns, self._clock_ns)
        return Silicon(area, energy, area + waits.area_um2, energy + waits.pj)

    def held_out(self, folds: int = HELD_OUT) -> list[HeldOut]:
        """Errors on every spec, each predicted by a fit that saw neither it nor others of its part."""
        errors: dict[str, list[float]] = {quantity: [] for quantity in QUANTITIES}
        for fold in range(folds):
            costs = _fitted([row for n, row in enumerate(self.rows) if n % folds != fold])
            for row in self.rows[fold::folds]:
                for quantity in QUANTITIES:
                    predicted = _units(spec_from_dict(row["spec"]), quantity, costs)
                    true = {unit: figures[quantity] for unit, figures in row["units"].items()}
                    errors[quantity].append(abs(sum(predicted[u] for u in true) / sum(true.values()) - 1))
        return [HeldOut.of(quantity, found) for quantity, found in errors.items()]


@lru_cache(maxsize=1024)
def _terms(spec: AnySpec, quantity: str) -> dict[str, dict[str, Terms]]:
    """The terms of a spec's units, by unit and kind of part."""
    units = (WEIGHTS,) if isinstance(spec, DeferredSpec) else (UNNORMED, NORMALIZATION)
    if quantity == "area":
        found = {unit: area_terms(spec, unit) for unit in units}
    else:
        active = activity(spec)
        found = {unit: energy_terms(spec, unit, active) for unit in units}
    if isinstance(spec, DeferredSpec):
        # Once per row, whoever divides by it.
        found[RECIPROCAL] = {RECIPROCAL: reciprocal_terms(spec)}
    lanes = lanes_of(spec)
    return {
        unit: {kind: _scaled(terms, lanes, quantity) for kind, terms in kinds.items()}
        for unit, kinds in found.items()
    }


def _units(spec: AnySpec, quantity: str, costs: Mapping[str, Terms]) -> dict[str, float]:
    return {
        unit: sum(
            value * costs[f"{quantity} of {kind}"][name]
            for kind, terms in kinds.items()
            for name, value in terms.items()
        )
        for unit, kinds in _terms(spec, quantity).items()
    }


def _fitted(rows: Iterable[Mapping[str, Any]]) -> dict[str, Terms]:
    """The cost of each term of each kind of part, so that relative errors of whole units are least."""
    samples: dict[str, list[tuple[Terms, float, float]]] = {}
    for row in rows:
        spec = spec_from_dict(row["spec"])
        for quantity in QUANTITIES:
            terms = _terms(spec, quantity)
            for unit, figures in row["units"].items():
                parts = _measured_parts(unit, list(terms[unit]), figures[f"{quantity}_by_part"])
                for kind, value in parts.items():
                    sample = terms[unit][kind], value, figures[quantity]
                    samples.setdefault(f"{quantity} of {kind}", []).append(sample)
    return {name: _costs(found) for name, found in samples.items()}


def _costs(samples: Sequence[tuple[Terms, float, float]]) -> Terms:
    names = list(samples[0][0])
    weight = np.array([1 / total for _, _, total in samples])
    matrix = np.array([[terms[name] for name in names] for terms, _, _ in samples]) * weight[:, None]
    wanted = np.array([value for _, value, _ in samples]) * weight
    size = np.linalg.norm(matrix, axis=0)
    size[size == 0] = 1.0
    # The ridge keeps terms that few specs have from costing what noise says.
    held = np.sqrt(_RIDGE) * np.eye(len(names))
    costs = _nonnegative(np.vstack([matrix / size, held]), np.append(wanted, np.zeros(len(names)))) / size
    return dict(zip(names, map(float, costs), strict=True))


def _nonnegative(matrix: NDArray[np.float64], wanted: NDArray[np.float64]) -> NDArray[np.float64]:
    """Least squares without negative coefficients, after Lawson and Hanson."""
    found = np.zeros(matrix.shape[1])
    used = np.zeros(matrix.shape[1], dtype=bool)
    for _ in range(10 * len(found)):
        gain = np.where(used, -np.inf, matrix.T @ (wanted - matrix @ found))
        if gain.max() <= 1e-12:
            break
        used[gain.argmax()] = True
        while True:
            best = np.zeros(len(found))
            best[used] = np.linalg.lstsq(matrix[:, used], wanted, rcond=None)[0]
            below = used & (best <= 0)
            if not below.any():
                break
            step = (found[below] / (found[below] - best[below])).min()
            found = found + step * (best - found)
            used &= found > 1e-14
        found = best
    return found
