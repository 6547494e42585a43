"""Not in the paper: the front that a search found, with the paper's words on the same axes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from softermax.report.document import Front, ReportTable, Section
from softermax.report.sources import Sources

RESULT = "search-minilm-384"
SEARCHES = {
    "search-minilm-384": "MiniLM at 384",
    "search-minilm-128": "MiniLM at 128",
    "search-mpnet-384": "MPNet at 384",
    "search-smollm2-2048": "SmolLM2 at 2048",
}
"""Stored searches, by their results."""
_WORDS = ("input", "unnormed", "powsum", "reciprocal", "product", "output")


def section(sources: Sources) -> Section:
    kept = sources.stored(RESULT)
    rows = [row for row in kept.rows if row["front"] or row["trial"] is None] if kept else []
    return Section(
        "search", "", "Specs found by machine",
        "The paper's words were chosen by hand; these are our own figures, area and energy modelled.",
        origins=[sources.stored_origin(kept)] if kept else [],
        tables=[_points(rows)] if rows else [],
        fronts=_fronts(sources),
        notes=["`softermax search --out FOLDER` finds a front; `softermax explore --front FOLDER/search.json` puts its points on a page: click one "
               "for its words, its steps and its Verilog."],
    )  # fmt: skip


def _fronts(sources: Sources) -> list[Front]:
    """Of each search that is stored: its front, the presets, the rivals."""
    found: list[Front] = []
    for name, of in SEARCHES.items():
        kept = sources.stored(name)
        if kept is None:
            continue
        points = [row for row in kept.rows if row["front"] or row["trial"] is None]
        rivals = kept.notes.get("rivals", [])
        found.append(Front(name, f"{of}: L1 over area, energy by size", [*points, *rivals]))
    return found


def _points(rows: Sequence[Mapping[str, Any]]) -> ReportTable:
    return ReportTable(
        "The front, and the presets",
        [
            "spec",
            "area, µm²",
            "energy, pJ per score",
            "L1",
            "on the front",
            *_WORDS,
            "output mode",
            "normalization",
        ],
        [
            [row["name"], row["area"], row["energy"], row["l1"], row["front"]]
            + [row["spec"][word] for word in _WORDS]
            + [row["spec"]["output_mode"], row["spec"]["normalization"]]
            for row in rows
        ],
        "Less is better in area, energy and L1. Each spec's file lies beside the search's result.",
    )
