"""Without retraining: Softermax put into a fine-tuned model, and what each choice loses."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from transformers import AutoTokenizer

from softermax.finetune.cells import SWAPS
from softermax.finetune.data import load_rows
from softermax.finetune.features import make_features, references
from softermax.finetune.tasks import get_task
from softermax.finetune.train import Prepared, predict, read_run
from softermax.models.drop_in import disable, enable
from softermax.models.quantization import load


def evaluate_swaps(
    folder: str | os.PathLike[str],
    data_dir: str | os.PathLike[str] | None = None,
    dev_rows: int | None = None,
) -> list[dict[str, Any]]:
    """Scores of a fine-tuned model with the exact softmax and with each of `SWAPS`, and the losses."""
    path = Path(folder)
    try:
        run = read_run(path / "run.json")
    except (OSError, json.JSONDecodeError, TypeError):
        raise ValueError(f"{path}: no run.json; it must be the folder `model` of a fine-tuning run") from None
    if run.arm == "softermax":
        raise ValueError(f"{path}: was trained with Softermax; without retraining means an int8 or fp32 arm")
    task = get_task(run.task)
    rows = load_rows(task, "dev", data_dir, dev_rows or run.dev_rows)
    model = load(path)
    tokenizer = AutoTokenizer.from_pretrained(path)
    dev = make_features(task, rows, tokenizer, run.max_length or task.max_length, training=False)
    prepared = Prepared(run, task, tokenizer, model, [], rows, dev, dev)
    labels = references(task, rows)
    base = dict(task.scores(predict(disable(model), prepared), labels))
    result = [{"attention": f"exact softmax ({run.arm})", **base, "difference": 0.0}]
    for preset in SWAPS:
        scores = dict(task.scores(predict(enable(model, preset), prepared), labels))
        difference = scores[task.metric] - base[task.metric]
        result.append({"attention": preset, **scores, "difference": difference})
    return result
