"""Without retraining: Softermax put into a fine-tuned model, and what each choice loses."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import AutoTokenizer, PreTrainedModel

from softermax.finetune.features import Features, collate, make_features, references
from softermax.finetune.run import read_trained, rows_of, task_of
from softermax.finetune.tasks import Predictions
from softermax.finetune.train import Prepared, predict
from softermax.models.drop_in import enable, use_softmax
from softermax.models.quantization import load
from softermax.models.rivals import betas_of

SWAPS = ("paper", "paper+fold", "lean+fold", "row-scaled", "row-scaled+fold", "lean-row-scaled+fold")
"""What is put into a fine-tuned int8 model without retraining it."""
FITTED_ROWS = 64
"""Dev rows that ConSmax's constants are fitted to; their labels are not read."""
SWAP_ROWS = 2000
"""Dev rows that the accuracy table's swaps are evaluated on, at most."""


def evaluate_swaps(
    folder: str | os.PathLike[str],
    data_dir: str | os.PathLike[str] | None = None,
    dev_rows: int | None = None,
    swaps: Sequence[str] = SWAPS,
    known: Sequence[Mapping[str, Any]] = (),
    keep: Callable[[list[dict[str, Any]]], object] | None = None,
) -> list[dict[str, Any]]:
    """Scores of a fine-tuned model with the exact softmax and with each of ``swaps``, and the losses.

    ``known`` rows of the same model and dev rows are not scored again. ``keep`` gets all rows after each new one.
    """
    prepared = load_trained(folder, data_dir, dev_rows)
    task = prepared.task
    labels = references(task, prepared.dev_rows)
    result = [dict(row) for row in known]
    if not result:
        own = dict(task.scores(predict(use_softmax(prepared.model), prepared), labels))
        result.append({"attention": f"exact softmax ({prepared.run.arm})", **own, "difference": 0.0})
    base = result[0][task.metric]
    for preset in swaps:
        if preset not in {row["attention"] for row in result}:
            scores = swap_scores(prepared, [preset])[preset]
            result.append({"attention": preset, **scores, "difference": scores[task.metric] - base})
            if keep is not None:
                keep(result)
    return result


def load_trained(
    folder: str | os.PathLike[str],
    data_dir: str | os.PathLike[str] | None = None,
    dev_rows: int | None = None,
) -> Prepared:
    """A model that fine-tuning wrote, with dev rows and nothing to train on."""
    path = Path(folder)
    run = read_trained(path)
    task = task_of(run)
    rows = rows_of(dataclasses.replace(run, dev_rows=dev_rows or run.dev_rows), "dev", data_dir)
    tokenizer = AutoTokenizer.from_pretrained(path)
    model = load(path)
    longest = getattr(model.config, "max_position_embeddings", 512)
    dev = make_features(
        task, rows, tokenizer, min(run.max_length or task.max_length, longest), training=False
    )
    return Prepared(run, task, tokenizer, model, [], rows, Features([]), dev)


def swap_scores(prepared: Prepared, swaps: Sequence[str]) -> dict[str, dict[str, float]]:
    """Scores with each of ``swaps`` in the model; afterwards it has the exact softmax."""
    labels = references(prepared.task, prepared.dev_rows)
    found = {
        preset: dict(prepared.task.scores(predict(_put_in(prepared, preset), prepared), labels))
        for preset in swaps
    }
    use_softmax(prepared.model)
    return found


def _put_in(prepared: Prepared, preset: str) -> PreTrainedModel:
    """The model with another attention. Constants that a first pass fits see rows of all lengths, not the longest alone."""
    model = enable(prepared.model, preset)
    if betas_of(model):
        lengths = np.argsort(prepared.dev.lengths, kind="stable")
        picked = lengths[np.linspace(0, len(lengths) - 1, min(FITTED_ROWS, len(lengths))).astype(int)]
        batch = collate(prepared.tokenizer, [prepared.dev[int(row)] for row in picked])
        with torch.no_grad():
            model.eval()(**{name: value.to(model.device) for name, value in batch.items()})
    return model


def table_swaps(
    prepared: Prepared, predictions: Predictions, swaps: Sequence[str]
) -> dict[str, dict[str, float]]:
    """The scores of ``swaps`` on the first `SWAP_ROWS` dev rows, and the model's own (``int8``) from its predictions."""
    part = _first_rows(prepared, SWAP_ROWS)
    labels = references(part.task, part.dev_rows)
    own = dict(part.task.scores(predictions[: len(labels)], labels))
    return {"int8": own} | swap_scores(part, swaps)


def _first_rows(prepared: Prepared, rows: int) -> Prepared:
    """The same run with the first of its dev rows. A long SQuAD context makes several features of a row."""
    dev = prepared.dev
    count = rows if dev.spans is None else sum(span.row < rows for span in dev.spans)
    some = Features(dev.features[:count], dev.spans and dev.spans[:count])
    return dataclasses.replace(prepared, dev_rows=prepared.dev_rows[:rows], dev=some)
