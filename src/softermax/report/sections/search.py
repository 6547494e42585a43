"""Not in the paper: the front that a search found, with the paper's words on the same axes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from softermax.report.document import Chart, ReportTable, Section, Series
from softermax.report.sources import Sources

RESULT = "search-minilm-384"
_WORDS = ("input", "unnormed", "powsum", "reciprocal", "product", "output")


def section(sources: Sources) -> Section:
    kept = sources.stored(RESULT)
    rows = [row for row in kept.rows if row["front"] or row["trial"] is None] if kept else []
    return Section(
        "search", "", "Specs found by machine",
        "The paper's words were chosen by hand; these are our own figures, area and energy modelled.",
        origins=[sources.stored_origin(kept)] if kept else [],
        tables=[_points(rows)] if rows else [],
        charts=[_front(rows)] if rows else [],
        notes=["`softermax search --out FOLDER` finds a front; `softermax explore --front FOLDER/search.json` puts its points on a page: click one "
               "for its words, its steps and its Verilog."],
    )  # fmt: skip


def _front(rows: Sequence[Mapping[str, Any]]) -> Chart:
    ordered = sorted(rows, key=lambda row: row["area"])

    def of(name: str, wanted: Sequence[bool]) -> Series:
        return Series(name, [row["l1"] if keep else None for row, keep in zip(ordered, wanted, strict=True)])

    return Chart(
        "search-front",
        "L1 to the softmax over area, MiniLM's attention in rows of 384",
        "lines",
        [row["area"] for row in ordered],
        [
            of("on the front", [row["front"] for row in ordered]),
            of("presets", [row["trial"] is None for row in ordered]),
        ],
        "area of the units, µm²",
        "L1, mean over rows",
    )


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
