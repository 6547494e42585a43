"""Every netlist that a PE is made of, measured: its lanes and its softmax units, ours and the baselines'."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass

from softermax.executor import each
from softermax.progress import Progress, silent
from softermax.rtl.pe.config import PEConfig
from softermax.silicon import pdk
from softermax.silicon.flow import COPIES, ROWS, Result, measure_unit
from softermax.silicon.pe.lanes import LANES, LaneDesign
from softermax.silicon.pe.operands import Operands, operands
from softermax.silicon.pe.units import SCORE_NORMALIZATION, ScoreNormalizationUnit
from softermax.silicon.stimuli import Scores, both_kinds
from softermax.silicon.units import (
    BASELINES,
    NORMALIZATION,
    UNNORMED,
    WEIGHTS,
    BaselineUnit,
    NormalizationUnit,
    Unit,
    UnnormedUnit,
    WeightUnit,
    baseline_unit,
    paper_at,
)
from softermax.spec import PRESETS, DeferredSpec, SoftermaxSpec

DEFERRED = "deferred"
LEAN_SCHEMES = ("lean", "lean-row-scaled")
"""With row products (A10)."""


@dataclass(frozen=True)
class PEFigures:
    """Gate-level figures of everything that a PE is made of."""

    library: str
    config: PEConfig
    clock_ns: float
    lanes: dict[str, Result]
    units: dict[tuple[str, str], Result]
    """By unit and design: (unnormed, paper), (weights, deferred), (normalization, two-pass), ..."""
    stimulus: str
    operands: str
    note: str

    @property
    def width(self) -> int:
        return self.config.lanes

    def pj_per_score(self, unit: str, design: str) -> float:
        return self.units[unit, design].pj(self.stimulus)

    def pj_per_step(self, lane: str) -> float:
        return self.lanes[lane].pj(self.operands)

    def late(self) -> list[str]:
        """What misses the clock, and by how much."""
        slacks = {f"{name} lane": lane.slack_ns for name, lane in self.lanes.items()}
        slacks |= {f"{unit} {design}": result.slack_ns for (unit, design), result in self.units.items()}
        return [f"{name} {slack:.3f} ns" for name, slack in slacks.items() if slack < 0]


def spec_of(scheme: str, width: int) -> SoftermaxSpec:
    """``fixed`` is the paper's words; the other schemes are called as their presets."""
    return PRESETS["paper" if scheme == "fixed" else scheme].replace(slice_width=width)


def preset_of(scheme: str, width: int) -> str:
    """What a scheme's spec is called."""
    return paper_at(width) if scheme == "fixed" else scheme


def deferred_spec(width: int) -> DeferredSpec:
    return DeferredSpec(scores=spec_of("fixed", width))


def designs_of(config: PEConfig, baselines: Sequence[str] = BASELINES) -> list[Unit | LaneDesign]:
    """The netlists of a PE. Normalization of unnormed words is there for comparison: our PE keeps scores, which the
    lean one takes as they are (A10)."""
    width = config.lanes
    fixed, lean = (
        {preset_of(scheme, width): spec_of(scheme, width) for scheme in schemes}
        for schemes in (("fixed", "row-scaled"), LEAN_SCHEMES)
    )
    paper = paper_at(width)
    return [
        *(baseline_unit(UNNORMED, baseline, width) for baseline in baselines),
        *(baseline_unit(NORMALIZATION, baseline, width) for baseline in baselines),
        *(ScoreNormalizationUnit(spec, name) for name, spec in fixed.items()),
        *(UnnormedUnit(spec, name) for name, spec in (fixed | lean).items()),
        *(NormalizationUnit(spec, name) for name, spec in ({paper: fixed[paper]} | lean).items()),
        WeightUnit(deferred_spec(width), DEFERRED),
        *(lane(config) for lane in LANES),
    ]


def measure_pe(
    library_name: str,
    config: PEConfig,
    pdk_root: str | None = None,
    clock_ns: float | None = None,
    baselines: Sequence[str] = BASELINES,
    progress: Progress = silent,
    workers: int | None = None,
    ray: str | None = None,
) -> PEFigures:
    """Every netlist that a PE needs, many at a time (`softermax.executor`)."""
    library = pdk.load(library_name, pdk_root)
    clock = clock_ns or library.description.clock_ns
    data, note = operands()
    scores, no_scores = both_kinds(COPIES * ROWS)
    work = functools.partial(_measure, library_name, pdk_root, clock, data, scores)
    designs = designs_of(config, baselines)
    found = each(work, designs, workers, progress, lambda design: f"{design.label}, {library_name}", ray)
    lanes = {design.name: figures for design, figures in found.items() if isinstance(design, LaneDesign)}
    units = {key_of(unit): figures for unit, figures in found.items() if isinstance(unit, Unit)}
    return PEFigures(library_name, config, clock, lanes, units, scores[0].name, data.name, note or no_scores)


def key_of(unit: Unit) -> tuple[str, str]:
    """By unit and design."""
    return unit.name, unit.baseline if isinstance(unit, BaselineUnit) else unit.shown


def _measure(
    library_name: str,
    pdk_root: str | None,
    clock_ns: float,
    data: Operands,
    scores: list[Scores],
    design: Unit | LaneDesign,
) -> Result:
    library = pdk.load(library_name, pdk_root)
    if isinstance(design, LaneDesign):
        return design.measure_lane(library, clock_ns, data)
    # The PE's own units are not in the units' table: the kind of scores that is reported is enough.
    own = design.name in (SCORE_NORMALIZATION, WEIGHTS)
    return measure_unit(design, library, clock_ns, scores[:1] if own else scores)
