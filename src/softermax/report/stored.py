"""Results stored in the source tree, ``docs/results``: shown, labelled, where this run has not measured the like."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import softermax
from softermax.reproduce.stages.models import MODEL

_COMMAND = re.compile(r"^(?:    |Command: `)?(softermax [a-z]+ [^`\n]*)", re.MULTILINE)
_ISO = re.compile(r"\b\d{4}-\d{2}-\d{2}\b")
_LONG = re.compile(r"\b\d{1,2} (?:January|February|March|April|May|June|July|August|September|October|November"
                   r"|December) \d{4}\b")  # fmt: skip


@dataclass(frozen=True)
class Stored:
    """A stored result, and what its page says about where it comes from."""

    values: Any
    date: str
    command: str


def folder() -> Path | None:
    """``docs/results`` of the source tree that this package is run from; None for an installed one."""
    root = Path(softermax.__file__).parents[2]
    found = root / "docs" / "results"
    return found if found.is_dir() and (root / "pyproject.toml").is_file() else None


def load(name: str) -> Stored | None:
    """``NAME.json``, with date and command from ``NAME.md`` beside it."""
    here = folder()
    if here is None or not (here / f"{name}.json").is_file():
        return None
    values = json.loads((here / f"{name}.json").read_text(encoding="utf-8"))
    page = here / f"{name}.md"
    said = page.read_text(encoding="utf-8") if page.is_file() else ""
    return Stored(values, date_in(said), "; ".join(commands_in(said)))


def date_in(page: str) -> str:
    """The latest date above the page's first table."""
    head = page.partition("\n|")[0]
    dates = _ISO.findall(head)
    dates += [datetime.strptime(text, "%d %B %Y").strftime("%Y-%m-%d") for text in _LONG.findall(head)]
    return max(dates, default="date not recorded")


def commands_in(page: str) -> list[str]:
    """The commands above the page's first table; where users' folders are asked for, no folder of ours."""
    found = _COMMAND.findall(page.partition("\n|")[0])
    return [re.sub(r"\.\./\S+/", "", command).strip() for command in found]


def load_accuracy() -> Stored | None:
    """Entries and differences of the stored accuracy table, of the model that the report is about."""
    found = load("accuracy")
    here = folder()
    if found is None or here is None:
        return None
    path = here / "accuracy-differences.json"
    differences = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else []
    ours = {
        name: [row for row in rows if row["model"] == MODEL]
        for name, rows in (("entries", found.values), ("differences", differences))
    }
    return Stored(ours, found.date, found.command)
