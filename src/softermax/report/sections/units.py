"""Table IV: area and energy of the units over the FP16 baseline's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from softermax.paper import figures as paper
from softermax.report import verdict
from softermax.report.document import Chart, ReportTable, Section, Series
from softermax.report.names import BASELINES, LIBRARIES, UNITS
from softermax.report.sources import MeasuredRow, Sources
from softermax.report.verdict import Comparison

_MEASURES = ("area", "energy")


def section(sources: Sources) -> Section:
    said, result = paper()["units"], sources.result("units")
    same = ("unit", "width", "library", "preset", "baseline")
    rows, origins = sources.rows("units", ("silicon",), same)
    like = [row for row in rows if _is_paper(row)]
    notes = []
    if result is not None and result["late"]:
        notes.append("These designs miss the clock: " + "; ".join(result["late"]) + ".")
    if result is not None and result["note"]:
        notes.append(f"Gaussian scores only: {result['note']}.")
    return Section(
        "units", said["where"], said["title"], said["claim"],
        stages=["units"],
        origins=origins,
        comparisons=_judged(like),
        tables=[_measured(rows)] if rows else [],
        charts=[_ratios(measure, like) for measure in _MEASURES] if like else [],
        notes=notes,
        missing=sources.missing("units"),
    )  # fmt: skip


def _is_paper(row: Mapping[str, Any]) -> bool:
    """The paper's words at this width, against two passes of either kind."""
    preset = "paper-32" if row["width"] == 32 else "paper"
    return row["baseline"] in BASELINES and row["preset"] == preset


def _judged(rows: Sequence[MeasuredRow]) -> list[Comparison]:
    found = []
    for unit, ratios in paper()["units"]["ratios"].items():
        for measure, printed in ratios.items():
            name = f"{UNITS[unit]}, {measure}"
            mine = [row for row in rows if row["unit"] == unit]
            for row in mine:
                place = f"{LIBRARIES.get(row['library'], row['library'])}, {row['width']} wide"
                ours, over = row[f"{measure}_ratio"], BASELINES[row["baseline"]]
                found.append(verdict.ratio(f"{name} over {over}, {place}", printed, ours, row["measured"]))
            if not mine:
                found.append(verdict.ratio(name, printed, None))
    return found


def _ratios(measure: str, rows: Sequence[MeasuredRow]) -> Chart:
    ratios = paper()["units"]["ratios"]
    at = {
        (f"{row['library']}, {row['width']}", row["unit"]): row[f"{measure}_ratio"]
        for row in rows
        if row["baseline"] == "two-pass"
    }
    places = dict.fromkeys(place for place, _ in at)
    return Chart(
        f"units-{measure}",
        f"{measure.capitalize()} of the units over lean FP16",
        "bars",
        list(UNITS.values()),
        [
            Series("paper, 7 nm", [ratios[unit][measure] for unit in UNITS]),
            *(Series(place, [at.get((place, unit)) for unit in UNITS]) for place in places),
        ],
        "",
        f"{measure} ratio",
    )


def _measured(rows: Sequence[MeasuredRow]) -> ReportTable:
    columns = {
        "unit": "unit", "width": "wide", "library": "library", "preset": "spec", "baseline": "baseline", "clock_ns": "ns",
        "area_um2": "area, µm²", "area_ratio": "area ratio", "energy_pj_per_element": "pJ per score",
        "energy_ratio": "energy ratio", "measured": "measured",
    }  # fmt: skip
    return ReportTable(
        "Units against the FP16 baseline",
        list(columns.values()),
        [[row.get(key) for key in columns] for row in rows],
        "Gate level, with glitches, rows of 384 attention scores of MiniLM. Two-pass and online are our lean FP16 units; generic IEEE components, "
        "of two passes too, are the kind that we take the paper's baseline to be of.",
    )
