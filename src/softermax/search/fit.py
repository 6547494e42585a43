"""Fits the model of silicon to what was measured, and says how far off it is.

    python -m softermax.search.fit

reads ``measured.json`` and writes ``fitted.json`` beside it. Costs and residuals are fitted to the specs of the set `FITTED`
alone. What is chosen by looking at errors (terms, features, priors) is chosen by cross-validation within that set.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from softermax.files import write_text
from softermax.progress import Progress, silent
from softermax.search.residual import fitted
from softermax.search.silicon_model import (
    FITTED,
    HELD_OUT,
    QUANTITIES,
    SEEN,
    SMALL,
    Part,
    PartModel,
    PredictionError,
    SiliconModel,
    packaged,
    parts_of,
    relative_error,
    weights_of,
)
from softermax.search.terms import NORMALIZATION, POWERS, WEIGHTED_POWERS, Terms
from softermax.spec import DeferredSpec, spec_from_dict

FOLDS = 6
_RIDGE = 1e-3
_TRUSTED = 0.25
"""Of a unit: smaller parts are trusted less, for what they are off by matters less."""

_PART_OF = {"int_max": 0, "power_of_two": 1, "reduction": 2, "reciprocal": 0}
"""The place of a netlist's part in `parts_of`; what is not here is in the last one."""


@dataclass(frozen=True)
class Sample:
    """A part of a measured unit."""

    part: Part
    unit: tuple[int, str]
    """The row and the unit that it is a part of."""
    value: float
    total: float
    """Of its unit."""


def fit(rows: Sequence[Mapping[str, Any]], report: Progress = silent) -> dict[str, PartModel]:
    """Every kind of part, by quantity and kind."""
    samples: dict[str, list[Sample]] = {}
    for number, row in enumerate(rows):
        spec = spec_from_dict(row["spec"])
        for quantity in QUANTITIES:
            for unit, parts in parts_of(spec, quantity).items():
                figures = row["units"].get(unit)
                if figures is None:
                    continue
                measured = _measured_parts(unit, list(parts), figures[f"{quantity}_by_part"])
                for kind, value in measured.items():
                    sample = Sample(parts[kind], (number, unit), value, figures[quantity])
                    samples.setdefault(f"{quantity} of {kind}", []).append(sample)
                if POWERS in parts:
                    # Unnormed words are weights too; the other way round costs more than it tells.
                    part = weights_of(spec, quantity)
                    sample = Sample(part, (number, unit), measured[POWERS], figures[quantity])
                    samples.setdefault(f"{quantity} of {WEIGHTED_POWERS}", []).append(sample)
    counted = {name: PartModel(_costs(found), None) for name, found in samples.items()}
    units: dict[tuple[str, int, str], float] = {}
    for name, found in samples.items():
        for sample in found:
            if name.endswith(WEIGHTED_POWERS) and sample.unit[1] != "weights":
                continue
            unit_of = (name.partition(" of ")[0], *sample.unit)
            units[unit_of] = units.get(unit_of, 0.0) + counted[name].counted(sample.part.terms)
    made: dict[str, PartModel] = {}
    for name, found in samples.items():
        report(len(made), len(samples), name)
        wanted, noise = [], []
        for sample in found:
            small = SMALL * units[name.partition(" of ")[0], *sample.unit]
            wanted.append(np.log((sample.value + small) / (counted[name].counted(sample.part.terms) + small)))
            noise.append(max(1.0, _TRUSTED / (sample.value / sample.total + 0.01)))
        at = np.array([sample.part.features for sample in found], np.float64)
        made[name] = PartModel(counted[name].costs, fitted(at, np.array(wanted), np.array(noise)))
    report(len(made), len(samples), "")
    return made


def cross_validated(
    rows: Sequence[Mapping[str, Any]], library: str, clock_ns: float
) -> list[PredictionError]:
    """Errors on every row, each predicted by a fit that saw neither it nor others of its part."""
    part = np.random.default_rng(0).permutation(len(rows)) % FOLDS
    errors: dict[tuple[str, str], list[float]] = {}
    for fold in range(FOLDS):
        model = SiliconModel(fit([rows[i] for i in np.flatnonzero(part != fold).tolist()]), library, clock_ns)
        for i in np.flatnonzero(part == fold).tolist():
            spec = spec_from_dict(rows[i]["spec"])
            for quantity in QUANTITIES:
                off = relative_error(rows[i], quantity, model.units(spec, quantity))
                for kind in ("deferred" if isinstance(spec, DeferredSpec) else "rows", "all"):
                    errors.setdefault((quantity, kind), []).append(off)
    return [PredictionError.of(*key, found) for key, found in errors.items()]


def _measured_parts(unit: str, kinds: Sequence[str], by_part: Mapping[str, float]) -> dict[str, float]:
    found = dict.fromkeys(kinds, 0.0)
    for part, value in by_part.items():
        top = part.split(".")[0]
        known = top in _PART_OF and (top == "reciprocal") == (unit == NORMALIZATION)
        found[kinds[_PART_OF[top]] if known else kinds[-1]] += value
    return found


def _costs(samples: Sequence[Sample]) -> Terms:
    """The cost of each term, so that relative errors of whole units are least."""
    names = list(samples[0].part.terms)
    weight = np.array([1 / sample.total for sample in samples])
    matrix = np.array([[sample.part.terms[name] for name in names] for sample in samples]) * weight[:, None]
    wanted = np.array([sample.value for sample in samples]) * weight
    size = np.linalg.norm(matrix, axis=0)
    size[size == 0] = 1.0
    # The ridge keeps terms that few specs have from costing what noise says.
    held = np.sqrt(_RIDGE) * np.eye(len(names))
    costs = nonnegative(np.vstack([matrix / size, held]), np.append(wanted, np.zeros(len(names)))) / size
    return {name: float(f"{cost:.6g}") for name, cost in zip(names, costs, strict=True)}


def nonnegative(matrix: NDArray[np.float64], wanted: NDArray[np.float64]) -> NDArray[np.float64]:
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


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m softermax.search.fit")
    parser.add_argument(
        "--out", default=str(Path(__file__).parent / "fitted.json"), help="(default: the package's own)"
    )
    args = parser.parse_args(argv)
    measured = packaged("measured.json")
    library, clock_ns = measured["notes"]["library"], measured["notes"]["clock_ns"]
    rows = [row for row in measured["rows"] if row["set"] == FITTED]
    parts = fit(rows)
    model = SiliconModel(parts, library, clock_ns)
    found = {"cross validation": cross_validated(rows, library, clock_ns)}
    for name in (HELD_OUT, SEEN):
        found[name] = model.errors(row for row in measured["rows"] if row["set"] == name)
    made = {
        "command": "python -m softermax.search.fit",
        "library": library,
        "clock_ns": clock_ns,
        "specs": len(rows),
        "errors": {name: [asdict(error) for error in errors] for name, errors in found.items()},
        "parts": {
            name: {"costs": part.costs, "residual": part.residual and part.residual.to_dict()}
            for name, part in parts.items()
        },
    }
    write_text(Path(args.out), json.dumps(made) + "\n")
    for name, errors in found.items():
        for error in errors:
            print(name, error)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
