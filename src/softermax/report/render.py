"""The report's three files: a page that needs nothing else (style, script and drawings are in it), Markdown, JSON.

All show the same values; the templates are in ``templates``, and what they put into the page is escaped.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

from softermax.extras import need
from softermax.files import write_text
from softermax.report.charts import NARROW, WIDE, draw
from softermax.report.document import Document, shown
from softermax.report.verdict import Word

SIGNS = {"better": "▲", "reproduced": "✓", "not reached": "✕", "undecided": "~", "not measured": "–"}
_OPEN_ROWS = 9
"""Tables with more rows are folded."""


def write(report: Document, folder: str | os.PathLike[str]) -> list[Path]:
    """``report.html``, ``report.md`` and ``report.json``, each whole or as it was before."""
    made = {
        "report.html": page(report),
        "report.md": markdown(report),
        "report.json": json.dumps(report.to_json(), indent=1, allow_nan=False) + "\n",
    }
    for name, text in made.items():
        write_text(Path(folder) / name, text)
    return [Path(folder) / name for name in made]


def page(report: Document) -> str:
    from markupsafe import Markup

    engine = _engine(autoescape=True)
    return _rendered(
        engine, "page.html", report=report, signs=SIGNS, draw=draw, wide=WIDE, narrow=NARROW, open_rows=_OPEN_ROWS,
        style=Markup(_text("static/page.css")), script=Markup(_text("static/page.js")),
        front=Markup(files("softermax.search").joinpath("static/front.js").read_text(encoding="utf-8")),
    )  # fmt: skip


def markdown(report: Document) -> str:
    # Two empty lines are one, wherever a part is left out.
    return re.sub(r"\n{3,}", "\n\n", _rendered(_engine(autoescape=False), "report.md", report=report))


def _engine(autoescape: bool) -> Any:
    jinja2 = need("jinja2", "cli")
    engine = jinja2.Environment(
        loader=jinja2.FunctionLoader(lambda name: _text(f"templates/{name}")),
        autoescape=autoescape,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    engine.filters |= {"shown": shown, "px": _pixels, "prose": _prose, "cell": _cell, "counted": counted}
    return engine


def _rendered(engine: Any, name: str, **values: Any) -> str:
    text: str = engine.get_template(name).render(**values)
    return text.lstrip("\n")


def _text(name: str) -> str:
    return files("softermax.report").joinpath(name).read_text(encoding="utf-8")


def _pixels(value: float) -> str:
    return f"{value:.1f}"


def _prose(text: str) -> str:
    """A sentence, with code between backticks as in Markdown."""
    from markupsafe import Markup, escape

    return Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(text)))


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def counted(tally: Mapping[Word, int]) -> str:
    """
    >>> counted({"better": 2, "reproduced": 1})
    '2 better, 1 reproduced'
    """
    return ", ".join(f"{count} {word}" for word, count in tally.items())
