"""The report as data: every rendering (page, Markdown, JSON) shows these values and no others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from softermax.report.verdict import RULES, WORDS, Comparison, Word
from softermax.reproduce.stage import Outcome

Cell = str | int | float | bool | None
Number = int | float


@dataclass(frozen=True)
class ReportTable:
    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    note: str = ""

    @property
    def numeric(self) -> list[bool]:
        """Which columns hold nothing but numbers."""
        kinds = [{type(row[i]) for row in self.rows} for i in range(len(self.columns))]
        return [found <= {int, float, type(None)} for found in kinds]


@dataclass(frozen=True)
class Series:
    name: str
    values: Sequence[float | None]


@dataclass(frozen=True)
class Chart:
    """``x`` are labels for bars; for lines and points, numbers on a logarithmic axis. A stacked chart's series add up."""

    name: str
    """A file name without its ending, and the id on the page."""
    title: str
    kind: Literal["bars", "stacked", "lines", "points"]
    x: Sequence[str] | Sequence[Number]
    series: Sequence[Series]
    x_label: str = ""
    y_label: str = ""
    mark: float | None = None
    """A value to draw a line at: the paper's, or one for no difference."""
    mark_label: str = ""

    def table(self) -> ReportTable:
        rows = [[at, *(series.values[i] for series in self.series)] for i, at in enumerate(self.x)]
        return ReportTable(self.title, [self.x_label or "", *(series.name for series in self.series)], rows)


@dataclass(frozen=True)
class Front:
    """Points of a search, to be clicked: as `softermax search --out` writes them, with what else stands on the same axes."""

    name: str
    """The id on the page."""
    title: str
    points: Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class Origin:
    """Where a section's figures come from."""

    what: str
    """``measured in this run``, ``measured in an earlier run`` or ``stored result``."""
    date: str
    command: str


@dataclass(frozen=True)
class Section:
    name: str
    where: str
    """The table or figure of the paper; empty for what it lacks."""
    title: str
    claim: str
    stages: Sequence[str] = ()
    origins: Sequence[Origin] = ()
    comparisons: Sequence[Comparison] = ()
    tables: Sequence[ReportTable] = ()
    charts: Sequence[Chart] = ()
    fronts: Sequence[Front] = ()
    notes: Sequence[str] = ()
    missing: Sequence[str] = ()
    """What is not there, and why."""

    @property
    def tally(self) -> dict[Word, int]:
        return tally(self.comparisons)


@dataclass(frozen=True)
class Document:
    mode: str
    date: str
    command: str
    version: str
    paper: str
    machine: dict[str, Any]
    versions: dict[str, str | None]
    outcomes: Sequence[Outcome]
    sections: Sequence[Section] = field(default_factory=list)

    @property
    def tally(self) -> dict[Word, int]:
        return tally([comparison for section in self.sections for comparison in section.comparisons])

    @property
    def rules(self) -> dict[str, str]:
        used = {c.rule for section in self.sections for c in section.comparisons}
        return {name: rule for name, rule in RULES.items() if name in used}

    def stage_table(self) -> ReportTable:
        rows: list[list[Cell]] = []
        for outcome in self.outcomes:
            status = "done before" if outcome.is_done and outcome.earlier else outcome.status
            ran = outcome.status != "not run"
            rows.append(
                [
                    outcome.name, outcome.title, status, outcome.mode if ran else None,
                    outcome.seconds if ran else None, outcome.cpu_seconds if outcome.is_done else None,
                    outcome.date or None, outcome.reason or None,
                ]
            )  # fmt: skip
        columns = ["stage", "what", "status", "size", "seconds", "CPU seconds", "date", "why"]
        return ReportTable("Stages", columns, rows)

    def to_json(self) -> dict[str, Any]:
        values = asdict(self)
        for outcome in values["outcomes"]:
            del outcome["result"]
        for section, made in zip(values["sections"], self.sections, strict=True):
            section["tally"] = made.tally
        return values | {"tally": self.tally, "rules": self.rules}


def tally(comparisons: Sequence[Comparison]) -> dict[Word, int]:
    """How often each verdict was given, the good ones first."""
    counts = {word: sum(comparison.verdict == word for comparison in comparisons) for word in WORDS}
    return {word: count for word, count in counts.items() if count}


def shown(value: Any) -> str:
    """A value as a reader sees it, the same on the page and in Markdown: numbers to four digits."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        if value and not 1e-4 <= abs(value) < 1e5:
            return f"{value:.3g}"
        return f"{value:,.0f}" if abs(value) >= 1e4 else f"{value:.4g}"
    if isinstance(value, int):
        return f"{value:,}" if abs(value) >= 10000 else str(value)
    if isinstance(value, (list, tuple)):
        return ", ".join(shown(entry) for entry in value)
    return str(value)
