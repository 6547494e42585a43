"""The report as one HTML page that needs nothing else: style, script and drawings are in it."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from html import escape
from importlib.resources import files
from typing import Any

from softermax.report.charts import NARROW, WIDE, draw
from softermax.report.document import Chart, Report, Section, Table, shown
from softermax.report.verdict import Comparison, Word

SIGNS: dict[str, str] = {
    "better": "▲", "reproduced": "✓", "not reached": "✕", "undecided": "~", "not measured": "–",
}  # fmt: skip
_OPEN_ROWS = 9
"""Tables with more rows are folded."""

# Before the first paint, so that a dark page does not flash; without scripts the page is light.
_THEME = 'document.documentElement.dataset.theme = matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";'


def render(report: Report) -> str:
    static = files("softermax.report").joinpath("static")
    style, script = (static.joinpath(name).read_text(encoding="utf-8") for name in ("page.css", "page.js"))
    return "\n".join(
        [
            "<!doctype html>",
            '<html lang="en" data-theme="light">',
            "<head>",
            '<meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; "
            "script-src 'unsafe-inline'; img-src data: blob:\">",
            "<title>Softermax, reproduced</title>",
            '<link rel="icon" href="data:,">',
            f"<script>{_THEME}</script>",
            f"<style>\n{style}</style>",
            "</head>",
            "<body>",
            '<a class="skip" href="#glance">Skip to the results</a>',
            '<div class="page">',
            *_header(report),
            "<main>",
            *_glance(report),
            *(line for section in report.sections for line in _section(section)),
            *_made(report),
            "</main>",
            "<footer>The same content: <code>report.md</code>, <code>report.json</code>.</footer>",
            "</div>",
            '<div id="tip" role="status" hidden></div>',
            f"<script>\n{script}</script>",
            "</body>",
            "</html>",
            "",
        ]
    )


def _header(report: Report) -> list[str]:
    return [
        "<header>",
        "<div>",
        "<h1>Softermax, reproduced</h1>",
        f'<p class="lead">{escape(report.paper)}</p>',
        f'<p class="lead">{escape(report.date)} · softermax {escape(report.version)} · {escape(report.mode)} run · '
        f"{shown(report.machine['cores'])} cores, {escape(str(report.machine['architecture']))}, "
        f"{escape(str(report.machine['kernels']))}</p>",
        "</div>",
        '<button id="theme" type="button">Dark</button>',
        "</header>",
    ]


def _glance(report: Report) -> list[str]:
    tiles = [
        f'<div class="tile {_class(word)}"><b>{count}</b><span>{SIGNS[word]} {word}</span></div>'
        for word, count in report.tally.items()
    ]
    rows = []
    for section in report.sections:
        tally = " ".join(_chip(word, count) for word, count in section.tally.items())
        if not tally:
            tally = f'<span class="note">{"no figures in the paper" if section.tables else "nothing measured"}</span>'
        rows.append(
            f'<tr><td class="where">{escape(section.where or "ours")}</td>'
            f'<td><a href="#{section.name}">{escape(section.title)}</a></td><td>{tally}</td></tr>'
        )
    rules = [f"<li><b>{name}</b>: {escape(rule)}</li>" for name, rule in report.rules.items()]
    return [
        '<section id="glance">',
        '<div class="head"><h2>At a glance</h2></div>',
        '<p class="claim">Every table and figure of the paper beside what was measured here. A verdict is computed '
        "from the two figures, never written by hand.</p>",
        f'<div class="tiles">{"".join(tiles)}</div>',
        '<div class="scroll"><table class="overview stack"><thead><tr><th>paper</th><th>what</th><th>verdicts</th></tr>'
        "</thead><tbody>",
        *rows,
        "</tbody></table></div>",
        f"<details><summary>How verdicts are reached</summary><ul>{''.join(rules)}</ul></details>",
        "</section>",
    ]


def _class(word: Word) -> str:
    return word.replace(" ", "-")


def _chip(word: Word, count: int | None = None) -> str:
    number = f"{count} " if count is not None else ""
    return f'<span class="verdict {_class(word)}">{SIGNS[word]} {number}{word}</span>'


def _section(section: Section) -> list[str]:
    lines = [
        f'<section id="{section.name}">',
        f'<div class="head"><span class="where">{escape(section.where or "Ours")}</span>'
        f"<h2>{escape(section.title)}</h2></div>",
        f'<p class="claim">{escape(section.claim)}</p>',
    ]
    if section.missing:
        lines += [
            '<div class="missing" role="note">',
            *(f"<p>{escape(m)}</p>" for m in section.missing),
            "</div>",
        ]
    if section.comparisons:
        lines += _comparisons(section.comparisons)
    for chart in section.charts:
        lines += _figure(chart)
    for table in section.tables:
        lines += _folded(table)
    if section.notes:
        lines += ['<div class="notes">', *(f"<p>{_prose(note)}</p>" for note in section.notes), "</div>"]
    if section.origins:
        lines.append('<div class="origin">')
        for origin in section.origins:
            lines.append(
                f"<p>{escape(origin.what.capitalize())}, {escape(origin.date)}: <code>{escape(origin.command)}</code></p>"
            )
        lines.append("</div>")
    return [*lines, "</section>"]


def _comparisons(comparisons: Sequence[Comparison]) -> list[str]:
    rows = [
        f'<tr><th scope="row">{escape(c.name)}</th>'
        f'<td class="number" data-label="paper">{escape(shown(c.paper))}</td>'
        f'<td class="number" data-label="here">{escape(shown(c.ours))}</td>'
        f'<td>{_chip(c.verdict)}</td><td class="note">{escape(c.note)}</td></tr>'
        for c in comparisons
    ]
    return [
        '<div class="scroll"><table class="comparisons stack"><thead><tr><th></th><th class="number">paper</th>'
        '<th class="number">here</th><th>verdict</th><th></th></tr></thead><tbody>',
        *rows,
        "</tbody></table></div>",
    ]


def _prose(text: str) -> str:
    """A sentence, with code between backticks as in Markdown."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(text))


def _folded(table: Table) -> list[str]:
    """Short tables stand open."""
    state = " open" if len(table.rows) <= _OPEN_ROWS else ""
    return [
        f"<details{state}><summary>{escape(table.title)}</summary>",
        *_table(table),
        "</details>",
    ]


def _table(table: Table) -> list[str]:
    numeric = [
        all(
            isinstance(row[i], (int, float, type(None))) and not isinstance(row[i], bool)
            for row in table.rows
        )
        for i in range(len(table.columns))
    ]

    def line(cells: Sequence[Any], tag: str) -> str:
        made = [
            f"<{tag}{' class=number' if number else ''}>{escape(shown(cell))}</{tag}>"
            for cell, number in zip(cells, numeric, strict=True)
        ]
        return f"<tr>{''.join(made)}</tr>"

    note = [f'<p class="table-note">{_prose(table.note)}</p>'] if table.note else []
    return [
        f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(table.title)}"><table><thead>',
        line(table.columns, "th"),
        "</thead><tbody>",
        *(line(row, "td") for row in table.rows),
        "</tbody></table></div>",
        *note,
    ]


def _figure(chart: Chart) -> list[str]:
    data = chart.table()
    rows = json.dumps([list(data.columns), *(list(row) for row in data.rows)]).replace("<", "\\u003c")
    buttons = "".join(
        f'<button type="button" data-save="{kind}" aria-label="Download {escape(chart.title)} as {kind.upper()}">'
        f"{kind.upper()}</button>"
        for kind in ("svg", "png", "csv")
    )
    return [
        f'<figure id="{escape(chart.name)}">',
        f'<div class="bar"><figcaption>{escape(chart.title)}</figcaption><div class="buttons">{buttons}</div></div>',
        f'<div class="drawing wide">{draw(chart, WIDE)}</div>',
        f'<div class="drawing narrow">{draw(chart, NARROW)}</div>',
        f'<script type="application/json">{rows}</script>',
        "<details><summary>Values</summary>",
        *_table(Table(data.title, data.columns, data.rows)),
        "</details>",
        "</figure>",
    ]


def _made(report: Report) -> list[str]:
    facts = {
        "command": report.command,
        "machine": ", ".join(
            f"{name.replace('_', ' ')} {shown(value)}" for name, value in report.machine.items()
        ),
        "versions": ", ".join(
            f"{name} {value or 'not installed'}" for name, value in report.versions.items()
        ),
    }
    return [
        '<section id="made">',
        '<div class="head"><h2>How this was made</h2></div>',
        '<dl class="facts">',
        *(
            f"<dt>{name}</dt><dd>{f'<code>{escape(value)}</code>' if name == 'command' else escape(value)}</dd>"
            for name, value in facts.items()
        ),
        "</dl>",
        *_table(report.stage_table()),
        "</section>",
    ]
