"""Table I: the words, and the tables that they need."""

from __future__ import annotations

from softermax.paper import figures as paper
from softermax.report import verdict
from softermax.report.document import ReportTable, Section
from softermax.report.sources import Sources

_WORDS = {
    "input": "input", "max": "LocalMax", "unnormed": "unnormed", "powsum": "PowSum",
    "reciprocal": "reciprocal", "output": "output",
}  # fmt: skip
"""Fields of a spec by their names in the paper."""


def section(sources: Sources) -> Section:
    said, result = paper()["bitwidths"], sources.result("ladder")
    words = result["words"] if result else {}
    segments = said["pow2_segments"]
    ours = result["pow2_segments"] if result else None
    fitted = result["tables"] if result else []
    tables = ReportTable(
        "The linear piece-wise tables",
        ["function", "segments", "largest error", "in units of its word"],
        [[t["function"], t["segments"], t["max_error"], t["units"]] for t in fitted],
    )
    return Section(
        "bitwidths", said["where"], said["title"], said["claim"],
        stages=["ladder"],
        origins=sources.origin("ladder"),
        comparisons=[
            *(verdict.equal(f"{_WORDS[name]} word", word, words.get(name)) for name, word in said["words"].items()),
            verdict.equal(f"segments of 2^x ({segments['where']})", segments["value"], ours),
        ],
        tables=[tables] if fitted else [],
        notes=["What the paper leaves open is settled in the arithmetic's documentation, A1 to A9."],
        missing=sources.missing("ladder"),
    )  # fmt: skip
