"""Figure 5: energy over the sequence length."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from softermax.paper import figures as paper
from softermax.report import verdict
from softermax.report.document import Cell, Chart, ReportTable, Section, Series
from softermax.report.names import LIBRARIES, SCHEMES
from softermax.report.sections.processing_element import pe_rows
from softermax.report.sources import MeasuredRow, Sources
from softermax.report.verdict import Comparison


def section(sources: Sources) -> Section:
    said, missing = paper()["sweep"], sources.missing("pe")
    rows, origins = pe_rows(sources, "pe-sweep")
    rows = [row for row in rows if row["baseline"] == "two-pass"]
    comparisons: list[Comparison] = []
    charts: list[Chart] = []
    table: list[list[Cell]] = []
    for library in dict.fromkeys(row["library"] for row in rows):
        swept = [one for one in _swept(rows) if one.library == library]
        comparisons += [_judged(one) for one in swept]
        charts += [_ratios(library, swept)] if swept else []
        table += [row for one in swept for row in _energies(one)]
    for width in paper()["setup"]["rows"]["lanes"]:
        if not any(c.name.startswith(f"{width} wide") for c in comparisons):
            why = "" if missing else "softermax reproduce --full --stage pe measures it"
            comparisons.append(verdict.slope(f"{width} wide", [], [], why))
    energies = ReportTable(
        "µJ per head", ["wide", "library", "tokens", "lean FP16, two passes", *SCHEMES], table
    )
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


@dataclass(frozen=True)
class _Sweep:
    """A PE of one width in one library, over sequence lengths."""

    library: str
    width: int
    lengths: list[int]
    rows: list[MeasuredRow]

    @property
    def place(self) -> str:
        return f"{self.width} wide, {LIBRARIES.get(self.library, self.library)}"

    def energy(self, scheme: str | None) -> list[float | None]:
        """Microjoules by length; those of the baseline without a scheme, None where nothing was measured."""
        column = "energy_pj" if scheme else "baseline_energy_pj"
        at = {row["sequence"]: row[column] / 1e6 for row in self.rows if row["scheme"] == (scheme or "fixed")}
        return [at.get(length) for length in self.lengths]


def _swept(rows: Sequence[MeasuredRow]) -> list[_Sweep]:
    found = []
    for library, width in sorted({(row["library"], row["width"]) for row in rows}):
        like = [row for row in rows if (row["library"], row["width"]) == (library, width)]
        lengths = sorted({row["sequence"] for row in like})
        if len(lengths) > 1:
            found.append(_Sweep(library, width, lengths, like))
    return found


def _judged(swept: _Sweep) -> Comparison:
    ours, theirs = ([e for e in swept.energy(scheme) if e is not None] for scheme in ("fixed", None))
    name = f"{swept.place}, {swept.lengths[0]} to {swept.lengths[-1]} tokens"
    when = dict.fromkeys(row["measured"] for row in swept.rows if row["scheme"] == "fixed")
    return verdict.slope(name, ours, theirs, "; ".join(when))


def _ratios(library: str, swept: Sequence[_Sweep]) -> Chart:
    """Two curves over seven decades look like one: what differs is their ratio."""
    lengths = sorted({length for one in swept for length in one.lengths})
    series = []
    for scheme in ("fixed", "deferred"):
        for one in swept:
            pairs = zip(one.lengths, one.energy(scheme), one.energy(None), strict=True)
            at = {length: ours / theirs for length, ours, theirs in pairs if ours and theirs}
            if at:
                name = f"Softermax, {SCHEMES[scheme]}, {one.width} wide"
                series.append(Series(name, [at.get(length) for length in lengths]))
    title = f"Energy of Q·Kᵀ and softmax of one head over FP16's, {LIBRARIES.get(library, library)}"
    return Chart(
        f"sweep-{library}",
        title,
        "lines",
        lengths,
        series,
        "tokens",
        "energy ratio",
        1.0,
        "lean FP16, two passes",
    )


def _energies(swept: _Sweep) -> list[list[Cell]]:
    columns = [swept.energy(scheme) for scheme in (None, *SCHEMES)]
    return [
        [swept.width, swept.library, length, *(column[i] for column in columns)]
        for i, length in enumerate(swept.lengths)
    ]
