"""Rates and epochs of the two-stage recipe, chosen on rows held out of train; dev has no say."""

from __future__ import annotations

import dataclasses
import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass

from softermax.finetune.cells import Cell, first_stage
from softermax.finetune.run import Run, Stage
from softermax.finetune.tasks import get_task
from softermax.finetune.train import prepare, train
from softermax.progress import Progress


@dataclass(frozen=True)
class Trial:
    """One candidate for one stage of a task."""

    task: str
    model: str
    stage: str
    epochs: float
    learning_rate: float
    metric: str
    held_out: float
    """The task's figure on the held-out rows, after the last step."""
    held_out_loss: float | None
    train_rows: int
    held_out_rows: int
    chosen: bool = False


def choose_stages(
    run: Run,
    first: Sequence[Stage],
    second: Sequence[Stage],
    data_dir: str | os.PathLike[str] | None,
    report: Progress | None = None,
) -> list[Trial]:
    """Try every first stage, then every second one from the best of these in int8. The best of each is marked.

    ``run`` says task, model, seed, batch and how many rows are held out. Equal figures: the shorter stage wins.
    """
    if not run.held_out:
        raise ValueError("held_out = 0: choosing needs rows of train that are not trained on")
    # First stages as the table has them, so that it finds the chosen one in the cache. They are scored on dev, too:
    # what is compared here is not that.
    base = dataclasses.replace(run, arm="fp32", first=None)
    tried: list[tuple[Stage, Trial]] = []
    for stage in first:
        described = dataclasses.replace(base, **dataclasses.asdict(stage))
        cell = Cell.load(first_stage(described, data_dir, report) / "cell.json")
        tried.append((stage, _trial(run, "first", stage, cell.curve, cell.train_rows)))
    best = _best(tried)
    result = [dataclasses.replace(trial, chosen=stage == best) for stage, trial in tried]
    tried = []
    for stage in second:
        described = dataclasses.replace(base, arm="int8", first=best, **dataclasses.asdict(stage))
        start = first_stage(described.first_run, data_dir) / "model"
        described = dataclasses.replace(described, dev_rows=1)
        prepared = prepare(described, data_dir, start)
        with tempfile.TemporaryDirectory() as folder:
            trained = train(prepared, folder, log_steps=None, report=report, keep_model=False)
        tried.append((stage, _trial(run, "second", stage, trained.curve, len(prepared.train_rows))))
    best = _best(tried)
    return result + [dataclasses.replace(trial, chosen=stage == best) for stage, trial in tried]


def _best(tried: Sequence[tuple[Stage, Trial]]) -> Stage:
    return max(tried, key=lambda pair: (pair[1].held_out, -pair[0].epochs))[0]


def _trial(run: Run, name: str, stage: Stage, curve: list[dict[str, float]], rows: int) -> Trial:
    last = [point for point in curve if "held_out" in point][-1]
    loss = last.get("held_out_loss")
    return Trial(
        run.task,
        run.model,
        name,
        stage.epochs,
        stage.learning_rate,
        get_task(run.task).metric,
        last["held_out"],
        loss,
        rows,
        run.held_out,
    )
