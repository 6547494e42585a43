"""Figure 3: the algorithm, on the paper's example, a row of real attention and drawn rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from softermax.paper import figures as paper
from softermax.report import verdict
from softermax.report.document import Chart, ReportTable, Section, Series
from softermax.report.sources import Sources
from softermax.report.verdict import Comparison

_NOTHING = 1e-12
"""What computing in another order may change."""


def section(sources: Sources) -> Section:
    said, result = paper()["algorithm"], sources.result("ladder")
    example = said["example"]
    sums = f"running sums of {example['scores']}"
    comparisons = [verdict.equal(sums, example["running_sums"], result and result["running_sums"])]
    return Section(
        "algorithm", said["where"], said["title"], said["claim"],
        stages=["ladder"],
        origins=sources.origin("ladder"),
        comparisons=[*comparisons, _online(result)] if result else comparisons,
        tables=[_steps(result), _trace(result), _errors(result)] if result else [],
        charts=[_attended(result), _mass(result)] if result else [],
        notes=[f"“{result['example']['text']}” Scores: {result['example']['source']}."] if result else [],
        missing=sources.missing("ladder"),
    )  # fmt: skip


def _online(result: Mapping[str, Any]) -> Comparison:
    steps = ("base two, online", "base two, online, integer max")
    largest = max(step["max_error"] for step in result["steps"] if step["name"] in steps)
    name = f"online and integer maximum change nothing (difference below {_NOTHING:.0e})"
    return verdict.equal(name, True, largest < _NOTHING)


def _steps(result: Mapping[str, Any]) -> ReportTable:
    return ReportTable(
        "What each idea changes",
        ["step", "compared with", "largest difference", "row sum"],
        [[s["name"], s["against"] or None, s["max_error"], s["row_sum"]] for s in result["steps"]],
    )


def _trace(result: Mapping[str, Any]) -> ReportTable:
    columns = list(result["trace"][0])
    rows = [[entry[column] for column in columns] for entry in result["trace"]]
    return ReportTable("The row as the hardware sees it: slices of 16", columns, rows)


def _attended(result: Mapping[str, Any]) -> Chart:
    row, by_name = result["example"], {step["name"]: step for step in result["steps"]}
    return Chart(
        "ladder",
        f"What '{row['query']}' attends to",
        "bars",
        _labels(row["tokens"]),
        [Series(step, by_name[step]["y"]) for step in ("softmax", "base two", "Softermax (paper)")],
        "",
        "weight",
    )


def _labels(tokens: Sequence[str]) -> list[str]:
    """Labels that differ, for a token may stand in a sentence twice."""
    seen: dict[str, int] = {}
    labels = []
    for token in tokens:
        seen[token] = seen.get(token, 0) + 1
        labels.append(token if seen[token] == 1 else f"{token} ({seen[token]})")
    return labels


def _mass(result: Mapping[str, Any]) -> Chart:
    errors = result["errors"]
    lengths = list(dict.fromkeys(e["columns"] for e in errors))
    at = {(e["spec"], e["columns"]): e["mass"] for e in errors}
    specs = dict.fromkeys(e["spec"] for e in errors)
    return Chart(
        "mass", "Probability that a row keeps, Gaussian scores", "lines", lengths,
        [Series(spec, [at[spec, n] for n in lengths]) for spec in specs],
        "scores per row", "sum of a row's outputs", mark=1.0, mark_label="softmax",
    )  # fmt: skip


def _errors(result: Mapping[str, Any]) -> ReportTable:
    errors = result["errors"]
    return ReportTable(
        f"Errors on {errors[0]['rows']} drawn rows of each length (standard deviation 2)",
        ["spec", "scores per row", "largest error", "mean row sum"],
        [[e["spec"], e["columns"], e["max_error"], e["mass"]] for e in errors],
        "Against softmax in base two for `paper`, in base e where log2(e) is folded in.",
    )
