"""Table III: accuracy after fine-tuning."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from softermax.finetune.tasks import TASKS
from softermax.paper import accuracy as paper_accuracy
from softermax.paper import figures as paper
from softermax.report import verdict
from softermax.report.document import Chart, Origin, ReportTable, Section, Series
from softermax.report.sources import STORED, Sources
from softermax.report.verdict import Comparison
from softermax.reproduce.stages import MODEL

BASE, LARGE = "BERT-Base", "BERT-Large"
NINE = [task for task in TASKS if paper_accuracy(task)]
"""The paper's tasks, in its order."""

_Found = Mapping[str, Sequence[Mapping[str, Any]]]


def section(sources: Sources) -> Section:
    said = paper()["accuracy"]
    worst = said["worst_drop"]
    found, origins, missing = _found(sources)
    measured = [*(_task(task, found, worst) for task in NINE), *means(found, worst)]
    if any(origin.what == STORED for origin in origins):
        when = f"stored, {origins[0].date}; "
        measured = [replace(c, note=when + c.note) if c.ours is not None else c for c in measured]
    short, arms, losses = _short_run(sources, worst)
    return Section(
        "accuracy", said["where"], said["title"], said["claim"],
        stages=["finetune", "accuracy"],
        origins=[*sources.origin("finetune"), *origins],
        comparisons=[short, *measured, _not_measured(LARGE, worst)],
        tables=[*arms, _levels(found)],
        charts=losses,
        notes=[
            f"The mean difference in the paper's table is {_paper_mean(BASE):+.2f} points for {BASE} and "
            f"{_paper_mean(LARGE):+.2f} for {LARGE}."
        ],
        missing=[*sources.missing("finetune"), *missing],
    )  # fmt: skip


def _found(sources: Sources) -> tuple[_Found, list[Origin], list[str]]:
    """Entries and differences: of this run, or stored ones of the model that the stages train."""
    result = sources.result("accuracy")
    if result is not None:
        return result, sources.origin("accuracy"), []
    kept = sources.stored("accuracy")
    differences = sources.stored("accuracy-differences")
    if kept is None or differences is None:
        return {"entries": [], "differences": []}, [], sources.missing("accuracy")
    ours = {
        "entries": [row for row in kept.rows if row["model"] == MODEL],
        "differences": [row for row in differences.rows if row["model"] == MODEL],
    }
    return ours, [sources.stored_origin(kept)], []


def _entry(found: _Found, task: str, arm: str, preset: str | None = None) -> Mapping[str, Any] | None:
    like = (e for e in found["entries"] if (e["task"], e["arm"], e["preset"]) == (task, arm, preset))
    return next(like, None)


def _difference(found: _Found, task: str, preset: str) -> Mapping[str, Any] | None:
    return next((d for d in found["differences"] if (d["task"], d["preset"]) == (task, preset)), None)


def _interval(difference: Mapping[str, Any] | None) -> tuple[float, float] | None:
    return (difference["low"], difference["high"]) if difference else None


def _between(interval: tuple[float, float] | None) -> str:
    return f", 95 % between {interval[0]:+.2f} and {interval[1]:+.2f}" if interval else ""


def _seeds(entry: Mapping[str, Any]) -> str:
    count = len(entry["seeds"])
    return f"{count} seed{'s' if count > 1 else ''}"


def _paper_difference(task: str, model: str = BASE) -> float:
    int8, softermax = paper_accuracy(task, model) or (0.0, 0.0)
    return softermax - int8


def _paper_mean(model: str) -> float:
    return sum(_paper_difference(task, model) for task in NINE) / len(NINE)


def _task(task: str, found: _Found, worst: float) -> Comparison:
    int8, softermax = _entry(found, task, "int8"), _entry(found, task, "softermax", "paper")
    gained = round(softermax["mean"] - int8["mean"], 2) if int8 and softermax else None
    interval = _interval(_difference(found, task, "paper"))
    seeds = _seeds(softermax) if softermax else "no run of this task is at hand"
    name = f"{TASKS[task].title}: points over int8"
    return verdict.drop(
        name, round(_paper_difference(task), 2), gained, interval, worst, seeds + _between(interval)
    )


def means(found: _Found, worst: float) -> list[Comparison]:
    """Over all nine tasks: the paper's words, and the same with the fold where it was trained too."""
    comparisons = []
    for preset, what in (("paper", ""), ("paper+fold", ", folded")):
        is_whole = all(_difference(found, task, preset) for task in NINE)
        mean = _difference(found, "average", preset) if is_whole else None
        if mean is None and preset != "paper":
            continue
        interval = _interval(mean)
        comparisons.append(
            verdict.drop(
                f"Mean of nine tasks{what}: points over int8", round(_paper_mean(BASE), 2),
                round(mean["mean"], 2) if mean else None, interval, worst,
                f"on equal seeds{_between(interval)}" if mean else "not all tasks are at hand",
            )
        )  # fmt: skip
    return comparisons


def _not_measured(model: str, worst: float) -> Comparison:
    why = (
        f"no package registry has {model}; softermax accuracy --model NAME --data-dir DATA measures it "
        "where the Hugging Face hub can be reached"
    )
    name = f"{model}, mean of nine tasks: points over int8"
    return verdict.drop(name, round(_paper_mean(model), 2), None, None, worst, why)


def _levels(found: _Found) -> ReportTable:
    ours = [("fp32", None), ("int8", None), ("softermax", "paper"), ("softermax", "paper+fold")]
    rows = []
    for task in NINE:
        printed = [figure for model in (BASE, LARGE) for figure in paper_accuracy(task, model) or ()]
        entries = [_entry(found, task, arm, preset) for arm, preset in ours]
        rows.append([TASKS[task].title, *printed, *(entry["mean"] if entry else None for entry in entries)])
    return ReportTable(
        "The paper's models beside ours, per cent",
        ["task", *(f"{model} {arm}" for model in (BASE, LARGE) for arm in ("int8", "Softermax")),
         "our fp32", "our int8", "our Softermax", "our Softermax, folded"],
        rows,
        "Ours is MiniLM (6 layers, 22.7 M parameters) on a part of the data: compare differences, not levels. "
        "Folded: log2(e) in the scores' scale, so that base two computes the softmax of base e.",
    )  # fmt: skip


def _short_run(sources: Sources, worst: float) -> tuple[Comparison, list[ReportTable], list[Chart]]:
    """The fine-tuning of this run: real text, few rows."""
    result = sources.result("finetune")
    name = "movie reviews, short run, not in the paper: points over int8"
    if result is None:
        return verdict.drop(name, None, None, None, worst, "the stage finetune gave no result"), [], []
    first = result["entries"][0]
    size = f"{first['train_rows']:,} rows to train, {first['dev_rows']:,} to test, {_seeds(first)}"
    gained = _difference(result, "movies", "paper")
    interval = _interval(gained)
    comparison = verdict.drop(
        name, None, gained["mean"] if gained else None, interval, worst, size + _between(interval)
    )
    return comparison, [_arms(result, size), *_swapped(result)], [_losses(result)]


def _arms(result: Mapping[str, Any], size: str) -> ReportTable:
    several = len(result["entries"][0]["seeds"]) > 1
    return ReportTable(
        "Fine-tuned on movie reviews, accuracy in per cent",
        ["arm", "accuracy", *(["spread over seeds"] if several else [])],
        [
            [f"Softermax, {e['preset']}" if e["preset"] else e["arm"], e["mean"], *([e["spread"]] if several else [])]
            for e in result["entries"]
        ],
        f"{size}; half of the reviews are positive. All arms start from one fp32 stage, with the same rows and seeds. A "
        "sample this small moves by points from one seed to the next: the interval above says how far it can be trusted.",
    )  # fmt: skip


def _losses(result: Mapping[str, Any]) -> Chart:
    """That the model learns before its arithmetic is changed."""
    stages = result["first_stages"]
    fifths = [f"{20 * n} to {20 * (n + 1)} %" for n in range(len(stages[0]["losses"]))]
    return Chart(
        "finetune-loss",
        "Training loss of the fp32 stage on movie reviews",
        "bars",
        fifths,
        [Series(f"seed {stage['seed']}", stage["losses"]) for stage in stages],
        "share of the steps",
        "mean loss",
        mark=math.log(2),
        mark_label="guessing",
    )


def _swapped(result: Mapping[str, Any]) -> list[ReportTable]:
    title = "Softermax put into the fine-tuned int8 model without retraining, points"
    tables = []
    for row in (r for r in result["swaps"] if r["task"] != "average"):
        specs = [key for key in row if key not in ("task", "model", "seeds", "int8")]
        tables.append(ReportTable(title, ["int8", *specs], [[row[key] for key in ("int8", *specs)]]))
    return tables
