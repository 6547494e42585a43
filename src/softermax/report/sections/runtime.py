"""Figure 1: where the time of a BERT-Large layer goes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from softermax.paper import figures as paper
from softermax.report import verdict
from softermax.report.document import Chart, ReportTable, Section, Series
from softermax.report.sources import Sources
from softermax.report.verdict import Comparison

_PARTS = ("matrix products", "softmax", "dropout", "rest")


def section(sources: Sources) -> Section:
    said, result = paper()["runtime"], sources.result("breakdown")
    rows = sorted(result["rows"], key=lambda row: int(row["sequence"])) if result else []
    comparisons: list[Comparison] = []
    charts: list[Chart] = []
    for precision, softmax in dict.fromkeys((row["precision"], row["softmax"]) for row in rows):
        like = [row for row in rows if (row["precision"], row["softmax"]) == (precision, softmax)]
        if softmax == "torch":
            ends = f"{like[0]['sequence']} to {like[-1]['sequence']} tokens"
            shares = [row["softmax_share"] for row in like]
            comparisons.append(verdict.growth(f"share of softmax from {ends}, {precision}", shares))
        if precision == "fp32":
            charts.append(_shares(like, softmax))
    if not rows:
        comparisons.append(verdict.growth("share of softmax, longer sequences", []))
    return Section(
        "runtime", said["where"], said["title"], said["claim"],
        stages=["breakdown"],
        origins=sources.origin("breakdown"),
        comparisons=comparisons,
        tables=[_times(rows)] if rows else [],
        charts=charts,
        notes=[
            said["note"],
            "Measured on this machine's CPU with tensors of the layer's shapes, one part at a time.",
        ],
        missing=sources.missing("breakdown"),
    )  # fmt: skip


def _name(softmax: str) -> str:
    return "torch.softmax" if softmax == "torch" else "Softermax"


def _times(rows: Sequence[Mapping[str, Any]]) -> ReportTable:
    return ReportTable(
        "A BERT-Large layer, milliseconds",
        ["tokens", "precision", "softmax by", *_PARTS, "share of softmax, %"],
        [
            [row["sequence"], row["precision"], _name(row["softmax"])]
            + [round(row["milliseconds"][part], 3) for part in _PARTS]
            + [round(100 * row["softmax_share"], 2)]
            for row in rows
        ],
    )


def _shares(rows: Sequence[Mapping[str, Any]], softmax: str) -> Chart:
    totals = [sum(row["milliseconds"].values()) for row in rows]
    return Chart(
        f"runtime-{'softmax' if softmax == 'torch' else 'softermax'}",
        f"Where the time goes with {_name(softmax)}, fp32",
        "stacked",
        [str(row["sequence"]) for row in rows],
        [
            Series(part, [100 * row["milliseconds"][part] / t for row, t in zip(rows, totals, strict=True)])
            for part in _PARTS
        ],
        "tokens",
        "% of a layer's time",
    )
