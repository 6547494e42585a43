"""Rates of the two-stage recipe, chosen on rows held out of train; dev has no say."""

from __future__ import annotations

import dataclasses
import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from softermax.finetune.cells import first_stage
from softermax.finetune.features import references
from softermax.finetune.run import Run, Stage, rows_of
from softermax.finetune.table import bootstrap
from softermax.finetune.tasks import TASKS, Predictions, get_task
from softermax.finetune.train import Prepared, held_out_predictions, prepare, train
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
    difference: float
    """To the recipe's own stage, on the same rows."""
    error: float
    """Of the difference: standard deviation over resampled rows."""
    train_rows: int
    held_out_rows: int
    chosen: bool


def choose_stages(
    run: Run,
    first: Sequence[Stage],
    second: Sequence[Stage],
    data_dir: str | os.PathLike[str] | None,
    report: Progress | None = None,
) -> list[Trial]:
    """Try every first stage, then every second one, in int8, from the first stage that was chosen.

    ``run`` says task, model, seed, batch and how many rows are held out. The stage named first is the recipe's own, and stays
    unless another one is better by more than the standard error: some hundred rows cannot tell more.
    """
    if not run.held_out:
        raise ValueError("held_out = 0: choosing needs rows of train that are not trained on")
    # First stages as the table has them, so that it finds the chosen one in the cache. They are scored on dev, too:
    # what is compared here is not that.
    base = dataclasses.replace(run, arm="fp32", first=None)
    found = []
    for stage in first:
        model = (
            first_stage(dataclasses.replace(base, **dataclasses.asdict(stage)), data_dir, report) / "model"
        )
        prepared = prepare(dataclasses.replace(base, dev_rows=1), data_dir, model)
        found.append((stage, held_out_predictions(prepared)[0]))
    trials = _compared(run, "first", prepared, found)
    best = next(stage for stage, trial in zip(first, trials, strict=True) if trial.chosen)
    found = []
    for stage in second:
        described = dataclasses.replace(base, arm="int8", first=best, **dataclasses.asdict(stage))
        start = first_stage(described.first_run, data_dir) / "model"
        prepared = prepare(dataclasses.replace(described, dev_rows=1), data_dir, start)
        with tempfile.TemporaryDirectory() as folder:
            train(prepared, folder, log_steps=None, report=report, keep_model=False)
        found.append((stage, held_out_predictions(prepared)[0]))
    return trials + _compared(run, "second", prepared, found)


def _compared(
    run: Run, stage_name: str, prepared: Prepared, found: Sequence[tuple[Stage, Predictions]]
) -> list[Trial]:
    """A trial of each stage, the best marked."""
    task = get_task(run.task)
    labels = references(task, prepared.held_rows)
    own = found[0][1]
    trials = []
    for stage, predictions in found:
        difference, drawn = bootstrap(task, [(predictions, own)], labels)
        figure = task.figure(predictions, labels)
        error = float(np.std(drawn))
        sizes = (len(prepared.train_rows), len(prepared.held_rows))
        trials.append(
            Trial(
                run.task,
                run.model,
                stage_name,
                stage.epochs,
                stage.learning_rate,
                task.metric,
                figure,
                difference,
                error,
                *sizes,
                chosen=False,
            )
        )
    better = [trial for trial in trials if trial.difference > trial.error]
    best = max(better, key=lambda trial: trial.difference, default=trials[0])
    return [dataclasses.replace(trial, chosen=trial is best) for trial in trials]


def are_of(
    trials: Sequence[Trial],
    run: Run,
    first: Sequence[Stage],
    second: Sequence[Stage],
    data_dir: str | os.PathLike[str] | None,
) -> bool:
    """Whether these are the trials that `choose_stages` would make."""
    rows = len(rows_of(run, "train", data_dir)) - run.held_out
    wanted = [("first", stage) for stage in first] + [("second", stage) for stage in second]
    return [(t.stage, Stage(t.epochs, t.learning_rate), t.train_rows, t.held_out_rows) for t in trials] == [
        (name, stage, rows, run.held_out) for name, stage in wanted
    ]


def choice_page(trials: Sequence[Trial]) -> str:
    """Markdown: every trial, and each rate over all tasks that tried it."""
    lines = [
        "# Rates of the two stages, tried on rows held out of train",
        "",
        "Each task's first row is the recipe's own. The difference to it has a standard error from a paired bootstrap over",
        "the held-out rows; another rate is chosen only where it is better by more than that. Dev is not looked at.",
        "",
        "| task | stage | epochs | rate | metric | held out | difference | chosen |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for t in trials:
        title = TASKS[t.task].title if t.task in TASKS else t.task
        lines.append(
            f"| {title} | {t.stage} | {t.epochs:g} | {t.learning_rate:g} | {t.metric} | {t.held_out:.2f} "
            f"| {t.difference:+.2f} ± {t.error:.2f} | {'x' if t.chosen else ''} |"
        )
    lines += [
        "",
        "Averaged over the tasks that tried a rate:",
        "",
        "| stage | rate | tasks | difference |",
        "|---|---|---|---|",
    ]
    for stage, rate in dict.fromkeys((t.stage, t.learning_rate) for t in trials):
        mine = [t for t in trials if (t.stage, t.learning_rate) == (stage, rate)]
        mean = float(np.mean([t.difference for t in mine]))
        error = float(np.linalg.norm([t.error for t in mine])) / len(mine)
        lines.append(f"| {stage} | {rate:g} | {len(mine)} | {mean:+.2f} ± {error:.2f} |")
    return "\n".join(lines) + "\n"
