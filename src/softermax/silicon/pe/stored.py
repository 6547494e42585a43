"""The figures of a PE's netlists as rows of a result, and back: what memories cost can be changed without measuring any again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from softermax.results import Envelope
from softermax.rtl.pe.config import CONFIGS
from softermax.silicon.flow import GLITCHES, EnergyResult, Result
from softermax.silicon.pages import PageSection
from softermax.silicon.pe.lanes import LANES
from softermax.silicon.pe.measurement import PEFigures, designs_of, key_of
from softermax.silicon.units import Unit

LANE = "lane"


def netlist_rows(figures: PEFigures) -> list[dict[str, Any]]:
    """A row per netlist: its area, its energy with glitches per step or score, and both by sub-unit."""
    named = {(name, LANE): lane for name, lane in figures.lanes.items()} | figures.units
    rows = []
    for (unit, design), result in named.items():
        scores = figures.operands if design == LANE else figures.stimulus
        rows.append(
            {
                "library": figures.library,
                "width": figures.width,
                "clock_ns": figures.clock_ns,
                "unit": unit,
                "design": design,
                "scores": scores,
                "area_um2": round(result.area_um2, 4),
                "pj": round(result.pj(scores), 7),
                "slack_ns": round(result.slack_ns, 4),
                "area_by_unit": {name: round(area, 3) for name, area in result.area_by_unit.items()},
                "pj_by_unit": {name: round(pj, 6) for name, pj in result.energy_by_unit(scores).items()},
            }
        )
    return rows


def netlist_sections(rows: Sequence[Mapping[str, Any]]) -> list[PageSection]:
    text = "Energies are with glitches: of a lane per step, of a unit per score."
    shown = [{n: value for n, value in row.items() if not n.endswith("_by_unit")} for row in rows]
    return [PageSection("Netlists", text, shown)]


def stored_pe(path: Path, library: str, width: int, baselines: Sequence[str]) -> PEFigures:
    """What `netlist_rows` wrote of the paper's PE of a width."""
    config = CONFIGS[width]
    found = {
        (row["unit"], row["design"]): row
        for row in Envelope.load(path).rows
        if (row["library"], row["width"]) == (library, width)
    }
    wanted = [(lane.name, LANE) for lane in LANES]
    wanted += [key_of(unit) for unit in designs_of(config, baselines) if isinstance(unit, Unit)]
    for unit, design in wanted:
        if (unit, design) not in found:
            raise ValueError(f"--netlists {path}: has no {unit} {design} of {library}, {width} wide")
    results = {name: _result(found[name]) for name in wanted}
    one = found[wanted[-1]]
    return PEFigures(
        library,
        config,
        one["clock_ns"],
        {unit: result for (unit, design), result in results.items() if design == LANE},
        {name: result for name, result in results.items() if name[1] != LANE},
        one["scores"],
        found[wanted[0]]["scores"],
        "",
    )


def _result(row: Mapping[str, Any]) -> Result:
    """What a PE's tables take of a result."""
    energy = EnergyResult(row["scores"], GLITCHES, row["pj"], dict(row["pj_by_unit"]), 0.0, 0.0, 0.0)
    return Result(
        unit=row["unit"],
        design=row["design"],
        preset="",
        width=row["width"],
        library=row["library"],
        clock_ns=row["clock_ns"],
        wire="",
        area_um2=row["area_um2"],
        area_by_unit=dict(row["area_by_unit"]),
        cells={},
        # Of some that met their clock it was not stored by how much.
        slack_ns=row["slack_ns"] or 0.0,
        critical_path=[],
        words_equal=0,
        energy=[energy],
    )
