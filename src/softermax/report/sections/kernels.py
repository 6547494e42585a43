"""Not in the paper: the native kernels' speed on this CPU."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from softermax.report.document import Chart, ReportTable, Section, Series
from softermax.report.sources import Sources

_RIVALS = ("torch fp32", "onnxruntime fp32")


def section(sources: Sources) -> Section:
    result = sources.result("kernels")
    rows = result["rows"] if result else []
    return Section(
        "kernels", "", "Kernel speed on this CPU", "The paper times no software; these are our own figures.",
        stages=["kernels"],
        origins=sources.origin("kernels"),
        tables=[_measured(rows)] if rows else [],
        charts=[chart for rival in _RIVALS for chart in _against(rival, rows)],
        notes=[f"Our path here: {result['isa']}; torch runs {result['torch_isa']}."] if result else [],
        missing=sources.missing("kernels"),
    )  # fmt: skip


def _measured(rows: Sequence[Mapping[str, Any]]) -> ReportTable:
    return ReportTable(
        "Ratios of time",
        ["bench", "case", "columns", "against", "their time over ours", "low", "high"],
        [
            [row["bench"], row["case"], row["columns"], row["versus"], round(row["ratio"], 3), round(row["low"], 3),
             round(row["high"], 3)]
            for row in rows
        ],
        "Median of interleaved rounds; eight of ten lie between low and high.",
    )  # fmt: skip


def _against(rival: str, rows: Sequence[Mapping[str, Any]]) -> list[Chart]:
    """Rows in the cache, by their length; none where the rival was not timed."""
    like = [r for r in rows if (r["bench"], r["versus"]) == ("kernels", rival) and "64 Mi" not in r["case"]]
    cases = dict.fromkeys(row["case"] for row in like)
    columns = sorted({row["columns"] for row in like})
    at = {(row["case"], row["columns"]): row["ratio"] for row in like}
    chart = Chart(
        f"kernels-{rival.split()[0]}", f"Times as fast as {rival} softmax, one thread", "lines", columns,
        [Series(case, [at.get((case, n)) for n in columns]) for case in cases],
        "scores per row", "their time over ours", mark=1.0, mark_label="equal",
    )  # fmt: skip
    return [chart] if like else []
