"""Figure 5: energy over the sequence length."""

from __future__ import annotations

from collections.abc import Sequence

from softermax.paper import figures as paper
from softermax.report import verdict
from softermax.report.document import Cell, Chart, ReportTable, Section, Series
from softermax.report.names import LIBRARIES, SCHEMES
from softermax.report.sections.processing_element import pe_rows
from softermax.report.sources import MeasuredRow, Sources
from softermax.report.verdict import Comparison


def section(sources: Sources) -> Section:
    said, missing = paper()["sweep"], sources.missing("pe")
    rows, origins = pe_rows(sources)
    rows = [row for row in rows if row["baseline"] == "two-pass"]
    comparisons: list[Comparison] = []
    charts: list[Chart] = []
    table: list[list[Cell]] = []
    for library, width in dict.fromkeys((row["library"], row["width"]) for row in rows):
        like = [row for row in rows if (row["library"], row["width"]) == (library, width)]
        lengths = sorted({row["sequence"] for row in like})
        if len(lengths) > 1:
            place = f"{width} wide, {LIBRARIES.get(library, library)}"
            comparisons.append(_judged(place, like, lengths))
            charts.append(_ratios(f"sweep-{library}-{width}", place, like, lengths))
            table += _energies(like, lengths)
    for width in paper()["setup"]["rows"]["lanes"]:
        if not any(c.name.startswith(f"{width} wide") for c in comparisons):
            why = "" if missing else "softermax reproduce --full --stage pe measures it"
            comparisons.append(verdict.slope(f"{width} wide", [], [], why))
    energies = ReportTable("µJ per head", ["wide", "library", "tokens", "FP16, two passes", *SCHEMES], table)
    return Section(
        "sweep", said["where"], said["title"], said["claim"],
        stages=["pe"],
        origins=origins,
        comparisons=comparisons,
        tables=[energies] if table else [],
        charts=charts,
        notes=[said["note"], "Energy grows with the square of the length, so the curves show its ratio."],
        missing=missing,
    )  # fmt: skip


def _energy(rows: Sequence[MeasuredRow], scheme: str | None, lengths: Sequence[int]) -> list[float | None]:
    """Microjoules by length; those of the baseline without a scheme, None where nothing was measured."""
    column = "energy_pj" if scheme else "baseline_energy_pj"
    at = {row["sequence"]: row[column] / 1e6 for row in rows if row["scheme"] == (scheme or "fixed")}
    return [at.get(length) for length in lengths]


def _judged(place: str, rows: Sequence[MeasuredRow], lengths: Sequence[int]) -> Comparison:
    ours, theirs = ([e for e in _energy(rows, s, lengths) if e is not None] for s in ("fixed", None))
    when = dict.fromkeys(row["measured"] for row in rows if row["scheme"] == "fixed")
    return verdict.slope(f"{place}, {lengths[0]} to {lengths[-1]} tokens", ours, theirs, "; ".join(when))


def _ratios(name: str, place: str, rows: Sequence[MeasuredRow], lengths: Sequence[int]) -> Chart:
    """Two curves over seven decades look like one: what differs is their ratio."""
    theirs = _energy(rows, None, lengths)
    return Chart(
        name, f"Energy of Q·Kᵀ and softmax of one head over FP16's, {place}", "lines", lengths,
        [
            Series(f"Softermax, {SCHEMES[scheme]}",
                   [a and b and a / b for a, b in zip(_energy(rows, scheme, lengths), theirs, strict=True)])
            for scheme in SCHEMES
            if scheme != "row-scaled" and any(row["scheme"] == scheme for row in rows)
        ],
        "tokens", "energy ratio", mark=1.0, mark_label="FP16, two passes",
    )  # fmt: skip


def _energies(rows: Sequence[MeasuredRow], lengths: Sequence[int]) -> list[list[Cell]]:
    columns = [_energy(rows, scheme, lengths) for scheme in (None, *SCHEMES)]
    return [
        [rows[0]["width"], rows[0]["library"], length, *(column[i] for column in columns)]
        for i, length in enumerate(lengths)
    ]
