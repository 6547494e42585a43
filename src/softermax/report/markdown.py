"""The report as Markdown: the same comparisons, tables and charts, these as tables of their values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from softermax.report.document import Report, Section, Table, shown


def render(report: Report) -> str:
    lines = [
        "# Softermax, reproduced",
        "",
        f"{report.paper}",
        "",
        f"{report.date}, softermax {report.version}, {report.mode} run: `{report.command}`",
        "",
        "## At a glance",
        "",
        *_rows(
            ["paper", "what", "verdicts"],
            [
                [
                    s.where or "ours",
                    s.title,
                    ", ".join(f"{n} {word}" for word, n in s.tally.items())
                    or ("no figures in the paper" if s.tables else "nothing measured"),
                ]
                for s in report.sections
            ],
        ),
        "",
        "In all: " + ", ".join(f"{count} {word}" for word, count in report.tally.items()) + ".",
        "",
        "How verdicts are reached:",
        "",
        *(f"- **{name}**: {rule}" for name, rule in report.rules.items()),
        "",
    ]
    for section in report.sections:
        lines += _section(section)
    lines += [
        "## How this was made",
        "",
        "- machine: "
        + ", ".join(f"{name.replace('_', ' ')} {shown(v)}" for name, v in report.machine.items()),
        "- versions: " + ", ".join(f"{name} {v or 'not installed'}" for name, v in report.versions.items()),
        "",
        *_table(report.stage_table()),
    ]
    return "\n".join(lines)


def _section(section: Section) -> list[str]:
    lines = [f"## {section.where + ': ' if section.where else ''}{section.title}", "", section.claim, ""]
    for reason in section.missing:
        lines += [f"> {reason}", ""]
    if section.comparisons:
        lines += _rows(
            ["", "paper", "here", "verdict", "rule", ""],
            [[c.name, c.paper, c.ours, c.verdict, c.rule, c.note] for c in section.comparisons],
        )
        lines.append("")
    for table in [*(chart.table() for chart in section.charts), *section.tables]:
        lines += _table(table)
    for note in section.notes:
        lines += [note, ""]
    for origin in section.origins:
        lines += [f"{origin.what.capitalize()}, {origin.date}: `{origin.command}`", ""]
    return lines


def _table(table: Table) -> list[str]:
    note = [table.note, ""] if table.note else []
    return [f"### {table.title}", "", *_rows(table.columns, table.rows), "", *note]


def _rows(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> list[str]:
    def line(cells: Sequence[Any]) -> str:
        return "| " + " | ".join(shown(cell).replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"

    return [line(columns), "|" + "---|" * len(columns), *(line(row) for row in rows)]
