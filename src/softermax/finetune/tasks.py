"""The paper's nine tasks, and one from PyPI: what a row looks like and how predictions are scored."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from softermax import paper

Predictions = NDArray[Any]
Scores = Mapping[str, float]

OWN = "own"
"""The name of the task that a user's own data makes."""
_BINARY = ("0", "1")
_ENTAILMENT = ("entailment", "not_entailment")


@dataclass(frozen=True)
class Task:
    """One task. ``labels`` are the words in the file, in the order of class numbers; empty for regression."""

    name: str
    title: str
    texts: tuple[str, ...]
    labels: tuple[str, ...]
    metric: str
    """The figure of the table, one of those that `scores` returns."""
    max_length: int = 128
    low: float = 0.0
    high: float = 5.0
    """Range of a regression's label."""

    @property
    def paper(self) -> tuple[float, float] | None:
        """The paper's BERT-Base: int8 baseline, Softermax."""
        return paper.accuracy(self.name)

    @property
    def is_regression(self) -> bool:
        return self.metric == "pearson_spearman"

    @property
    def is_squad(self) -> bool:
        return self.name == "squad"

    def scores(self, predictions: Predictions, references: Predictions) -> Scores:
        """The official metrics in per cent, from class numbers or regression values."""
        return _METRICS[self.metric](predictions, references)

    def figure(self, predictions: Predictions, references: Predictions) -> float:
        """The figure of the table alone, without the other metrics: quick enough for a bootstrap."""
        if self.metric == "accuracy":
            return _accuracy(predictions, references)["accuracy"]
        return self.scores(predictions, references)[self.metric]


def _accuracy(predictions: Predictions, references: Predictions) -> Scores:
    return {"accuracy": 100.0 * float((predictions == references).mean())}


def _accuracy_f1(predictions: Predictions, references: Predictions) -> Scores:
    from sklearn.metrics import f1_score

    scores = dict(_accuracy(predictions, references))
    if references.max(initial=0) <= 1:  # two classes
        scores["f1"] = 100.0 * float(f1_score(references, predictions, zero_division=0))
    return scores


def _matthews(predictions: Predictions, references: Predictions) -> Scores:
    from sklearn.metrics import matthews_corrcoef

    return {
        "matthews": 100.0 * float(matthews_corrcoef(references, predictions)),
        **_accuracy(predictions, references),
    }


def _pearson_spearman(predictions: Predictions, references: Predictions) -> Scores:
    from scipy.stats import pearsonr, spearmanr

    if np.ptp(predictions) == 0 or np.ptp(references) == 0:
        # A constant correlates with nothing.
        return {"pearson_spearman": 0.0, "pearson": 0.0, "spearman": 0.0}
    pearson = 100.0 * float(pearsonr(predictions, references).statistic)
    spearman = 100.0 * float(spearmanr(predictions, references).statistic)
    return {"pearson_spearman": (pearson + spearman) / 2, "pearson": pearson, "spearman": spearman}


def _exact_f1(predictions: Predictions, references: Predictions) -> Scores:
    """SQuAD's rows are already scored: columns are exact match and F1 of each question."""
    return {"f1": 100.0 * float(predictions[:, 1].mean()), "exact": 100.0 * float(predictions[:, 0].mean())}


_METRICS: dict[str, Callable[[Predictions, Predictions], Scores]] = {
    "accuracy": _accuracy_f1,
    "matthews": _matthews,
    "pearson_spearman": _pearson_spearman,
    "f1": _exact_f1,
}

_PAIR = ("sentence1", "sentence2")
TASKS: dict[str, Task] = {
    task.name: task
    for task in (
        Task("squad", "SQuAD", ("question", "context"), (), "f1", max_length=384),
        Task("rte", "RTE", _PAIR, _ENTAILMENT, "accuracy"),
        Task("cola", "CoLA", ("sentence",), _BINARY, "matthews"),
        Task("mrpc", "MRPC", _PAIR, _BINARY, "accuracy"),
        Task("qnli", "QNLI", _PAIR, _ENTAILMENT, "accuracy"),
        Task("qqp", "QQP", _PAIR, _BINARY, "accuracy"),
        Task("sst2", "SST-2", ("sentence",), _BINARY, "accuracy"),
        Task("stsb", "STS-B", _PAIR, (), "pearson_spearman"),
        Task("mnli", "MNLI", _PAIR, ("entailment", "neutral", "contradiction"), "accuracy"),
        Task("movies", "Rotten Tomatoes (PyPI)", ("sentence",), _BINARY, "accuracy"),
    )
}
"""In the order of the paper's table."""


def get_task(name: str) -> Task:
    try:
        return TASKS[name.lower().replace("-", "")]
    except KeyError:
        raise ValueError(f"unknown task {name!r}: must be one of {', '.join(TASKS)}") from None


def get_tasks(names: Sequence[str]) -> list[Task]:
    return [get_task(name) for name in names]
