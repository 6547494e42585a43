"""Every netlist that a PE is made of, measured: its lanes and its softmax units, ours and the baselines'."""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import as_completed
from dataclasses import dataclass

from softermax.progress import Progress, silent
from softermax.rtl.pe.config import CONFIGS
from softermax.silicon import pdk
from softermax.silicon.flow import GLITCHES, Result
from softermax.silicon.flow import measure as measure_unit
from softermax.silicon.parallel import processes
from softermax.silicon.pe import lanes as pe_lanes
from softermax.silicon.pe.lanes import Lane, Operands
from softermax.silicon.pe.units import score_normalization_unit, weight_unit
from softermax.silicon.stimuli import Scores
from softermax.silicon.table import stimuli
from softermax.silicon.units import Unit, baseline_unit, softermax_unit

BASELINES = ("two-pass", "online")
UNNORMED, NORMALIZATION = "unnormed", "normalization"
SCORE_NORMALIZATION, WEIGHTS = "score normalization", "weights"


@dataclass(frozen=True)
class Measured:
    """Gate-level figures of everything that a PE of one width is made of."""

    library: str
    width: int
    clock_ns: float
    lanes: dict[str, Lane]
    units: dict[tuple[str, str], Result]
    """By unit and design: (unnormed, paper), (weights, deferred), (normalization, two-pass), ..."""
    stimulus: str
    note: str

    def pj_per_score(self, unit: str, design: str) -> float:
        return self.units[unit, design].pj(self.stimulus, GLITCHES)

    def late(self) -> list[str]:
        """What misses the clock, and by how much."""
        slacks = {f"{name} lane": lane.slack_ns for name, lane in self.lanes.items()}
        slacks |= {f"{unit} {design}": result.slack_ns for (unit, design), result in self.units.items()}
        return [f"{name} {slack:.3f} ns" for name, slack in slacks.items() if slack < 0]


@dataclass(frozen=True)
class Part:
    """One netlist, by name: designs do not travel between processes. Without a design it is a lane."""

    name: str
    design: str = ""

    def unit(self, width: int) -> Unit:
        if self.design in BASELINES:
            return baseline_unit(self.name, self.design, width)
        if self.name == SCORE_NORMALIZATION:
            return score_normalization_unit(self.design, width)
        if self.name == WEIGHTS:
            return weight_unit(width)
        return softermax_unit(self.name, self.design, width)


def fixed_preset(width: int) -> str:
    return "paper-32" if width == 32 else "paper"


def parts_of(width: int, baselines: Sequence[str] = BASELINES) -> list[Part]:
    """The netlists of a width. Normalization of unnormed words is there for comparison: our PE keeps scores."""
    presets = (fixed_preset(width), "row-scaled")
    return [
        *(Part(UNNORMED, baseline) for baseline in baselines),
        *(Part(NORMALIZATION, baseline) for baseline in baselines),
        *(Part(SCORE_NORMALIZATION, preset) for preset in presets),
        *(Part(UNNORMED, preset) for preset in presets),
        Part(NORMALIZATION, presets[0]),
        Part(WEIGHTS, "deferred"),
        *(Part(name) for name in pe_lanes.LANES),
    ]


def measure(
    library_name: str,
    width: int,
    pdk_root: str | None = None,
    clock_ns: float | None = None,
    baselines: Sequence[str] = BASELINES,
    progress: Progress = silent,
    workers: int | None = None,
) -> Measured:
    """Every netlist that a PE of this width needs, in parallel processes."""
    library = pdk.load(library_name, pdk_root)
    clock = clock_ns or library.description.clock_ns
    operands, note = pe_lanes.operands()
    scores, no_scores = stimuli()
    parts = parts_of(width, baselines)
    found: dict[Part, Lane | Result] = {}
    with processes(workers or os.cpu_count() or 1) as pool:
        waiting = {
            pool.submit(_measure, part, library_name, pdk_root, clock, width, operands, scores): part
            for part in parts
        }
        for done in as_completed(waiting):
            part = waiting[done]
            found[part] = done.result()
            progress(
                len(found), len(parts), f"{part.name} {part.design or 'lane'}, {width} wide, {library_name}"
            )
    lanes = {part.name: figures for part in parts if isinstance(figures := found[part], Lane)}
    units = {
        (part.name, part.design): figures for part in parts if isinstance(figures := found[part], Result)
    }
    return Measured(library_name, width, clock, lanes, units, scores[0].name, note or no_scores)


def _measure(
    part: Part,
    library_name: str,
    pdk_root: str | None,
    clock_ns: float,
    width: int,
    operands: Operands,
    scores: list[Scores],
) -> Lane | Result:
    library = pdk.load(library_name, pdk_root)
    if not part.design:
        return pe_lanes.measure(part.name, CONFIGS[width], library, clock_ns, operands)
    # The PE's own units are not in the units' table: the kind of scores that is reported is enough.
    own = part.name in (SCORE_NORMALIZATION, WEIGHTS)
    return measure_unit(part.unit(width), library, clock_ns, scores[:1] if own else scores)
