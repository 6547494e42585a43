"""Not in the paper: other people's hardware softmaxes beside ours, error against cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from softermax.report import stored
from softermax.report.document import Cell, Chart, ReportTable, Section, Series
from softermax.report.sources import Sources
from softermax.rivals.in_models import attention_of, in_models
from softermax.rivals.page import designs
from softermax.rivals.pareto import ERROR, front, wholes

Row = Mapping[str, Any]

COSTS = {"area_um2": "area, µm²", "pj_per_element": "pJ per element"}
_LIBRARY = "nangate45"


def section(sources: Sources) -> Section:
    kept = sources.stored("rivals")
    rows: Sequence[Row] = kept.rows if kept else []
    rows = [row for row in rows if ERROR in row]
    widths = sorted({row["width"] for row in rows if row.get("library") == _LIBRARY})
    # No stage of a run measures them, so nothing is missing from one.
    notes = [] if kept else ["No table of rivals is stored: softermax rivals --out docs/results makes one."]
    if kept and not widths:
        notes = [
            "No rival was measured in silicon: softermax silicon --rivals all --out docs/results does that."
        ]
    return Section(
        "rivals", "", "Other hardware softmaxes",
        "The paper compares with an FP16 unit only; here are rivals of its own kind, by the same flow.",
        origins=[sources.stored_origin(kept)] if kept else [],
        tables=[
            *([_accuracy(rows)] if rows else []),
            *(_cost(wholes(rows, width, _LIBRARY), width) for width in widths),
        ],
        charts=[
            _chart(wholes(rows, width, _LIBRARY), width, cost) for width in widths for cost in COSTS
        ],
        notes=notes,
    )  # fmt: skip


def _accuracy(rows: Sequence[Row]) -> ReportTable:
    models = in_models(_stored_rows)
    return ReportTable(
        "Error of each design",
        ["design", "out", "L1, recorded", "KL, recorded", "mass, 128", "mass, 2048", "mass, 8192", *models],
        [
            [
                row["name"], row["gives"], row[ERROR], row["kl_recorded"],
                *(row[f"mass_{length}"] for length in (128, 2048, 8192)),
                *(column.get(attention_of(row)) for column in models.values()),
            ]
            for row in designs(rows)
        ],
        "L1 and KL to the softmax on recorded attention; mass is what a Gaussian row adds up to. Points and perplexity are changes "
        "without retraining.",
    )  # fmt: skip


def _stored_rows(name: str) -> Sequence[Row]:
    found = stored.load(name)
    return found.rows if found else []


def _cost(rows: Sequence[Row], width: int) -> ReportTable:
    best = {cost: front(rows, cost) for cost in COSTS}

    def line(row: Row) -> list[Cell]:
        first = [COSTS[cost].split(",")[0] for cost in COSTS if row["name"] in best[cost]]
        return [row["name"], row["kind"], row["area_um2"], row["pj_per_element"], row["slack_ns"], row[ERROR],
                " and ".join(first).replace("pJ per element", "energy")]  # fmt: skip

    return ReportTable(
        f"Whole softmaxes, {width} lanes, {_LIBRARY}",
        ["design", "whose", *COSTS.values(), "slack, ns", "L1, recorded", "least error for its"],
        [line(row) for row in rows],
        "Both units and the memory of what waits between them. The last column says where nobody is both cheaper and nearer.",
    )


def _chart(rows: Sequence[Row], width: int, cost: str) -> Chart:
    at = sorted({float(row[cost]) for row in rows})
    return Chart(
        f"rivals-{cost.replace('_', '-')}-{width}",
        f"Error against {COSTS[cost]}, {width} lanes",
        "points",
        at,
        [Series(row["name"], [row[ERROR] if x == row[cost] else None for x in at]) for row in rows],
        x_label=COSTS[cost],
        y_label="L1, recorded",
    )
