"""Not in the paper: a language model without retraining."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from softermax.report.document import ReportTable, Section
from softermax.report.sources import Sources


def section(sources: Sources) -> Section:
    result, origins = sources.result("perplexity"), sources.origin("perplexity")
    rows: Sequence[Mapping[str, Any]] = result["rows"] if result else []
    missing = sources.missing("perplexity")
    if result is None and (kept := sources.stored("perplexity")) is not None:
        rows, origins, missing = kept.rows, [sources.stored_origin(kept)], []
    return Section(
        "perplexity", "", "A language model without retraining",
        "The paper measures BERT only; these are our own figures.",
        stages=["perplexity"],
        origins=origins,
        tables=[_measured(rows)] if rows else [],
        missing=missing,
    )  # fmt: skip


def _text(row: Mapping[str, Any]) -> tuple[str, str, int]:
    return row["model"], row["text"], row["context"]


def _measured(rows: Sequence[Mapping[str, Any]]) -> ReportTable:
    exact = {_text(row): row["perplexity"] for row in rows if row["variant"] == "exact"}
    return ReportTable(
        "Perplexity without retraining",
        ["model", "text", "context", "attention", "perplexity", "to exact, %"],
        [
            [*_text(row), row["variant"], row["perplexity"],
             100 * (row["perplexity"] / exact[_text(row)] - 1) if _text(row) in exact else None]
            for row in rows
        ],
        "Less is better. `:deferred` divides once per output instead of once per score.",
    )  # fmt: skip
