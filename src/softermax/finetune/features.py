"""Rows as token ids, batches of like lengths, and model outputs as predictions."""

from __future__ import annotations

import collections
import random
import re
import string
from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import Dataset, Sampler

from softermax.finetune.data import Example, Question, Rows
from softermax.finetune.tasks import Predictions, Task

STRIDE = 128
MAX_ANSWER_TOKENS = 30
BEST_POSITIONS = 20

Feature: TypeAlias = dict[str, Any]


class Features(Dataset[Feature]):
    """Tokenised rows. One row makes one feature, except that a long SQuAD context makes several."""

    def __init__(self, features: list[Feature], spans: list[Span] | None = None) -> None:
        self.features = features
        self.spans = spans
        self.lengths = [len(feature["input_ids"]) for feature in features]

    def __len__(self) -> int:
        return len(self.features)

    def __getitem__(self, index: int) -> Feature:
        return self.features[index]


class Span:
    """Where a SQuAD feature's tokens lie in its context, and whose question it is."""

    def __init__(self, row: int, offsets: list[tuple[int, int] | None]) -> None:
        self.row = row
        self.offsets = offsets
        """Characters of each token, None outside the context."""


def make_features(task: Task, rows: Rows, tokenizer: Any, max_length: int, training: bool) -> Features:
    if task.is_squad:
        return _squad_features([r for r in rows if isinstance(r, Question)], tokenizer, max_length, training)
    labelled = [r for r in rows if isinstance(r, Example)]
    texts = [[row.texts[column] for row in labelled] for column in range(len(task.texts))]
    encoded = tokenizer(*texts, truncation=True, max_length=max_length, padding=False)
    features = []
    for i, row in enumerate(labelled):
        feature = {name: encoded[name][i] for name in encoded}
        feature["labels"] = float(row.label) if task.is_regression else int(row.label)
        features.append(feature)
    return Features(features)


def _squad_features(rows: list[Question], tokenizer: Any, max_length: int, training: bool) -> Features:
    encoded = tokenizer(
        [r.question.strip() for r in rows],
        [r.context for r in rows],
        truncation="only_second",
        max_length=max_length,
        stride=min(STRIDE, max_length // 3),
        return_overflowing_tokens=True,
        return_offsets_mapping=True,
        padding=False,
    )
    features, spans = [], []
    inputs = [name for name in encoded if name not in ("overflow_to_sample_mapping", "offset_mapping")]
    for i, row in enumerate(encoded["overflow_to_sample_mapping"]):
        in_context = [part == 1 for part in encoded.sequence_ids(i)]
        offsets = [
            tuple(o) if inside else None
            for o, inside in zip(encoded["offset_mapping"][i], in_context, strict=True)
        ]
        feature = {name: encoded[name][i] for name in inputs}
        if training:
            start, end = _answer_tokens(rows[row], offsets)
            feature["start_positions"], feature["end_positions"] = start, end
        features.append(feature)
        spans.append(Span(row, offsets))
    return Features(features, spans)


def _answer_tokens(row: Question, offsets: Sequence[Any]) -> tuple[int, int]:
    """First and last token of the answer, or the first token of all where this window lacks it."""
    first, last = row.start, row.start + len(row.answers[0])
    inside = [i for i, o in enumerate(offsets) if o is not None]
    if not inside or offsets[inside[0]][0] > first or offsets[inside[-1]][1] < last:
        return 0, 0
    start = max(i for i in inside if offsets[i][0] <= first)
    end = min(i for i in inside if offsets[i][1] >= last)
    return start, max(start, end)


class Bucketing(Sampler[int]):
    """Shuffled batches of like lengths, so that little is padded.

    The order depends on seed, epoch and the global batch only, never on the number of processes, and
    the rows that do not fill a last batch sit out the epoch: every step sees ``batch`` rows.
    """

    def __init__(self, lengths: Sequence[int], batch: int, seed: int, pool: int = 32) -> None:
        if len(lengths) < batch:
            raise ValueError(f"{len(lengths)} rows to train on are fewer than a batch of {batch}")
        self.lengths, self.batch, self.seed, self.pool = lengths, batch, seed, pool
        self.epoch = 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __len__(self) -> int:
        return len(self.lengths) // self.batch * self.batch

    def __iter__(self) -> Iterator[int]:
        rng = random.Random(f"{self.seed}/{self.epoch}")
        order = list(range(len(self.lengths)))
        rng.shuffle(order)
        order = order[: len(self)]
        batches: list[list[int]] = []
        for first in range(0, len(order), self.batch * self.pool):
            pool = sorted(order[first : first + self.batch * self.pool], key=lambda i: self.lengths[i])
            batches += [pool[i : i + self.batch] for i in range(0, len(pool), self.batch)]
        rng.shuffle(batches)
        for batch in batches:
            # Rows of one length would always meet the same process otherwise.
            rng.shuffle(batch)
            yield from batch


def collate(tokenizer: Any, features: Sequence[Feature]) -> dict[str, Tensor]:
    """A batch, padded to its longest row."""
    inputs = [
        {k: v for k, v in f.items() if k in ("input_ids", "attention_mask", "token_type_ids")}
        for f in features
    ]
    batch: dict[str, Tensor] = dict(tokenizer.pad(inputs, return_tensors="pt"))
    for name in ("labels", "start_positions", "end_positions"):
        if name in features[0]:
            batch[name] = torch.tensor([f[name] for f in features])
    return batch


def decode(task: Task, output: Any, features: Features, rows: Rows) -> Predictions:
    """Class numbers, regression values, or for SQuAD exact match and F1 of each question."""
    if task.is_squad:
        questions = [r for r in rows if isinstance(r, Question)]
        answers = best_answers(output[0], output[1], features, questions)
        return np.array([exact_and_f1(a, q.answers) for a, q in zip(answers, questions, strict=True)])
    logits = np.asarray(output)
    return logits[:, 0] if task.is_regression else logits.argmax(axis=1)


def references(task: Task, rows: Rows) -> Predictions:
    if task.is_squad:
        return np.zeros(len(rows))  # already scored in `decode`
    return np.array([r.label for r in rows if isinstance(r, Example)])


def best_answers(
    starts: NDArray[Any], ends: NDArray[Any], features: Features, rows: list[Question]
) -> list[str]:
    """The answer of each question: the span with the best sum of logits over all of its windows."""
    best: dict[int, tuple[float, str]] = collections.defaultdict(lambda: (-np.inf, ""))
    assert features.spans is not None
    for span, start_logits, end_logits in zip(features.spans, starts, ends, strict=True):
        count = len(span.offsets)
        context = rows[span.row].context
        first = [i for i in np.argsort(-start_logits[:count])[:BEST_POSITIONS] if span.offsets[i]]
        last = [i for i in np.argsort(-end_logits[:count])[:BEST_POSITIONS] if span.offsets[i]]
        for i in first:
            for j in last:
                if i <= j < i + MAX_ANSWER_TOKENS:
                    score = float(start_logits[i] + end_logits[j])
                    if score > best[span.row][0]:
                        begin, end = span.offsets[i], span.offsets[j]
                        assert begin is not None
                        assert end is not None
                        best[span.row] = (score, context[begin[0] : end[1]])
    return [best[row][1] for row in range(len(rows))]


def _normalised(answer: str) -> list[str]:
    """Words of an answer as SQuAD compares them: lower case, no punctuation, no articles."""
    bare = "".join(c for c in answer.lower() if c not in string.punctuation)
    return re.sub(r"\b(a|an|the)\b", " ", bare).split()


def exact_and_f1(answer: str, golds: Sequence[str]) -> tuple[float, float]:
    """SQuAD's two scores of an answer, each the best over the accepted ones."""
    words = _normalised(answer)
    exact = f1 = 0.0
    for gold in golds:
        wanted = _normalised(gold)
        exact = max(exact, float(words == wanted))
        common = sum((collections.Counter(words) & collections.Counter(wanted)).values())
        if not words or not wanted:
            f1 = max(f1, float(words == wanted))
        elif common:
            precision, recall = common / len(words), common / len(wanted)
            f1 = max(f1, 2 * precision * recall / (precision + recall))
    return exact, f1
