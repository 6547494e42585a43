"""What each design does to models without retraining, gathered from stored results: a column per task and per context."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from softermax.rivals.page import Row
from softermax.rivals.registry import PREFIX

EVALUATED = {
    title: f"rivals/{task}/evaluate"
    for title, task in {"STS-B": "stsb", "MRPC": "mrpc", "SST-2": "sst2"}.items()
}
"""Results of `softermax evaluate` on fine-tuned models, by what a reader calls the task."""
PERPLEXITY = "rivals/perplexity"
"""The result of `softermax perplexity`."""

Load = Callable[[str], Sequence[Row]]
"""The rows of a result by its name, none where there is none."""


def attention_of(row: Row) -> str:
    """What a command calls the design of a row of `softermax rivals`."""
    return str(row["name"]) if row["kind"] == "ours" else PREFIX + str(row["name"])


def in_models(load: Load) -> dict[str, dict[str, float]]:
    """By column, then by design: points of a task's score, and per cent of perplexity, against the exact softmax.

    >>> rows = {"rivals/perplexity": [
    ...     {"context": 512, "variant": "exact", "perplexity": 40.0},
    ...     {"context": 512, "variant": "rival:ita", "perplexity": 42.0}]}
    >>> in_models(lambda name: rows.get(name, []))
    {'perplexity at 512, %': {'rival:ita': 5.0}}
    """
    found: dict[str, dict[str, float]] = {}
    for task, name in EVALUATED.items():
        points = {
            str(row["attention"]): float(row["difference"])
            for row in load(name)
            if not str(row["attention"]).startswith("exact")
        }
        if points:
            found[f"{task}, points"] = points
    losses = load(PERPLEXITY)
    for context in sorted({row["context"] for row in losses}):
        mine = {str(row["variant"]): float(row["perplexity"]) for row in losses if row["context"] == context}
        exact = mine.pop("exact", None)
        if exact and mine:
            found[f"perplexity at {context}, %"] = {
                name: round(100 * (value / exact - 1), 6) for name, value in mine.items()
            }
    return found
