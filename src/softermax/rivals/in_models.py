"""What each design does to models without retraining, gathered from stored results: a column per task and per context."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from softermax.rivals.page import Row
from softermax.rivals.registry import PREFIX

SWAPS = "rivals/glue/accuracy-swaps"
"""The result of `softermax accuracy --swaps`: designs put into models that were fine-tuned in int8."""
EVALUATED = "rivals/evaluate"
"""Where there is none: the result of `softermax evaluate` on one fine-tuned model."""
TASKS = {"stsb": "STS-B", "mrpc": "MRPC", "rte": "RTE", "cola": "CoLA", "sst2": "SST-2"}
"""What a reader calls a task."""
_BESIDE = ("task", "model", "seeds", "int8")
"""Keys of a row of swaps that are no design."""
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
    swaps = load(SWAPS)
    if not swaps:
        points = {
            str(row["attention"]): float(row["difference"]) for row in load(EVALUATED) if row["difference"]
        }
        found |= {"STS-B, points": points} if points else {}
    for row in swaps:
        task = TASKS.get(row["task"], row["task"])
        found[f"{task}, points"] = {name: float(row[name]) for name in row if name not in _BESIDE}
    losses = load(PERPLEXITY)
    for context in sorted({row["context"] for row in losses}):
        mine = {str(row["variant"]): float(row["perplexity"]) for row in losses if row["context"] == context}
        exact = mine.pop("exact", None)
        if exact and mine:
            found[f"perplexity at {context}, %"] = {
                name: round(100 * (value / exact - 1), 6) for name, value in mine.items()
            }
    return found
