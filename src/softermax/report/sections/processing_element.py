"""Table IV: area and energy of the processing element."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from softermax.paper import figures as paper
from softermax.report import verdict
from softermax.report.document import Chart, Origin, ReportTable, Section, Series
from softermax.report.names import BASELINES, LIBRARIES, SCHEMES
from softermax.report.sources import MeasuredRow, Sources
from softermax.report.verdict import Comparison

_COMPONENTS = 8
"""Parts of a PE that the chart names; the smaller ones are put together."""


def pe_rows(sources: Sources, stored: str = "pe") -> tuple[list[MeasuredRow], list[Origin]]:
    """What the PE costs, by width, library, scheme, baseline and sequence; ``stored`` is ``pe`` or ``pe-sweep``."""
    rows, origins = sources.rows("pe", (stored,), ("width", "sequence", "library", "scheme", "baseline"))
    for row in rows:
        row.setdefault("baseline_energy_pj", row["energy_pj"] / row["energy_ratio"])
    return rows, origins


def section(sources: Sources) -> Section:
    said, result = paper()["pe"], sources.result("pe")
    rows, origins = pe_rows(sources)
    rows = [row for row in rows if row["sequence"] == said["sequence"]]
    return Section(
        "pe", said["where"], said["title"], said["claim"],
        stages=["pe"],
        origins=origins,
        comparisons=_judged(rows, said),
        tables=[_measured(rows, said["sequence"])] if rows else [],
        charts=_components(rows),
        notes=[
            "Gates are simulated, memories are CACTI's, control and wires between the parts are left out of both designs.",
            *_common(rows),
            *(result["notes"] if result else []),
        ],
        missing=sources.missing("pe"),
    )  # fmt: skip


def _judged(rows: Sequence[MeasuredRow], said: dict[str, Any]) -> list[Comparison]:
    like = [row for row in rows if row["baseline"] in BASELINES and row["scheme"] in ("fixed", "deferred")]
    like.sort(
        key=lambda row: (
            row["scheme"] != "fixed",
            row["baseline"] == "generic",
            row["library"] != "nangate45",
            -row["width"],
        )
    )
    found = []
    for row in like:
        place = (
            f"{LIBRARIES.get(row['library'], row['library'])}, {row['width']} wide, {SCHEMES[row['scheme']]}"
        )
        own = " (ours)" if row["scheme"] != "fixed" else ""
        wide = "" if row["width"] == said["width"] else f"; the paper's is {said['width']} wide"
        for measure, printed in said["ratios"].items():
            name = f"PE, {measure} over {BASELINES[row['baseline']]}, {place}{own}"
            found.append(verdict.ratio(name, printed, row[f"{measure}_ratio"], row["measured"] + wide))
    if not any(row["width"] == said["width"] for row in like):
        why = "softermax reproduce --full --stage pe measures it"
        for measure, printed in said["ratios"].items():
            name = f"PE, {measure}, {said['width']} wide, {SCHEMES['fixed']}"
            found.append(verdict.ratio(name, printed, None, why))
    return found


def _measured(rows: Sequence[MeasuredRow], sequence: int) -> ReportTable:
    return ReportTable(
        f"Q·Kᵀ and softmax of one head, sequence {sequence}",
        ["wide", "library", "scheme", "baseline", "area ratio", "energy ratio", "µJ", "baseline µJ", "measured"],
        [
            [row["width"], row["library"], row["scheme"], row["baseline"], row["area_ratio"], row["energy_ratio"],
             round(row["energy_pj"] / 1e6, 3), round(row["baseline_energy_pj"] / 1e6, 3), row["measured"]]
            for row in rows
        ],
    )  # fmt: skip


def _common(rows: Sequence[MeasuredRow]) -> list[str]:
    """How much of the baseline's energy no softmax can save, for it is spent in both designs alike."""
    for row in rows:
        if row["scheme"] == "fixed" and row["baseline"] == "two-pass" and "breakdown" in row:
            parts = row["breakdown"].values()
            alike = sum(p["baseline_energy_pj"] for p in parts if p["energy_pj"] == p["baseline_energy_pj"])
            share = alike / sum(p["baseline_energy_pj"] for p in parts)
            return [
                f"What both designs spend alike (MACs, their buffers, loading operands) is by itself {share:.2f} of the "
                f"baseline's energy, {row['width']} wide at {LIBRARIES.get(row['library'], row['library'])}."
            ]
    return []


def _components(rows: Sequence[MeasuredRow]) -> list[Chart]:
    """Where a PE's energy goes: ours beside the baseline, the widest measured."""
    like = [
        row
        for row in rows
        if row["baseline"] == "two-pass" and row["scheme"] in SCHEMES and "breakdown" in row
    ]
    if not like:
        return []
    widest = max(like, key=lambda row: (row["width"], row["library"] == "nangate45"))
    width, library = widest["width"], widest["library"]
    chosen = {row["scheme"]: row for row in like if (row["width"], row["library"]) == (width, library)}
    if "fixed" not in chosen:
        return []
    designs = {"baseline": _microjoules(chosen["fixed"], "baseline_energy_pj")}
    designs |= {scheme: _microjoules(row, "energy_pj") for scheme, row in chosen.items()}
    parts = list(dict.fromkeys(part for design in designs.values() for part in design))
    parts.sort(key=lambda part: -max(design.get(part, 0.0) for design in designs.values()))
    named, rest = parts[: _COMPONENTS - 1], parts[_COMPONENTS - 1 :]
    series = [Series(part, [design.get(part, 0.0) for design in designs.values()]) for part in named]
    if rest:
        series.append(Series("other", [sum(d.get(part, 0.0) for part in rest) for d in designs.values()]))
    title = f"Energy of one head by component, {width} wide, {library}"
    return [Chart("pe-energy", title, "stacked", list(designs), series, "", "µJ")]


def _microjoules(row: MeasuredRow, column: str) -> dict[str, float]:
    return {part: values[column] / 1e6 for part, values in row["breakdown"].items()}
