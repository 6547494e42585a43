"""The report's three files, each whole or as it was before."""

from __future__ import annotations

import json
import os
from pathlib import Path

from softermax.files import write_text
from softermax.report import markdown, page
from softermax.report.document import Report


def write(report: Report, folder: str | os.PathLike[str]) -> list[Path]:
    """``report.html``, ``report.md`` and ``report.json``."""
    target = Path(folder)
    made = {
        "report.html": page.render(report),
        "report.md": markdown.render(report),
        "report.json": json.dumps(report.to_json(), indent=1, allow_nan=False) + "\n",
    }
    for name, text in made.items():
        write_text(target / name, text)
    return [target / name for name in made]
