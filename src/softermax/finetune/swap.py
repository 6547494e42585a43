"""Without retraining: Softermax put into a fine-tuned model, and what each choice loses."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from transformers import AutoTokenizer

from softermax.finetune.features import Features, make_features, references
from softermax.finetune.run import read_trained, rows_of, task_of
from softermax.finetune.tasks import Predictions
from softermax.finetune.train import Prepared, predict
from softermax.models.drop_in import enable, use_softmax
from softermax.models.quantization import load

SWAPS = ("paper", "paper+fold", "lean+fold", "row-scaled", "row-scaled+fold", "lean-row-scaled+fold")
"""What is put into a fine-tuned int8 model without retraining it."""
SWAP_ROWS = 2000
"""Dev rows that the accuracy table's swaps are evaluated on, at most."""


def evaluate_swaps(
    folder: str | os.PathLike[str],
    data_dir: str | os.PathLike[str] | None = None,
    dev_rows: int | None = None,
    swaps: Sequence[str] = SWAPS,
) -> list[dict[str, Any]]:
    """Scores of a fine-tuned model with the exact softmax and with each of ``swaps``, and the losses."""
    prepared = load_trained(folder, data_dir, dev_rows)
    task = prepared.task
    labels = references(task, prepared.dev_rows)
    base = dict(task.scores(predict(use_softmax(prepared.model), prepared), labels))
    result = [{"attention": f"exact softmax ({prepared.run.arm})", **base, "difference": 0.0}]
    for preset, scores in swap_scores(prepared, swaps).items():
        difference = scores[task.metric] - base[task.metric]
        result.append({"attention": preset, **scores, "difference": difference})
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
        preset: dict(prepared.task.scores(predict(enable(prepared.model, preset), prepared), labels))
        for preset in swaps
    }
    use_softmax(prepared.model)
    return found


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
