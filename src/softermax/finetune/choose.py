"""Rates of the two-stage recipe, chosen on rows held out of train; dev has no say.

Some hundred held-out rows of one task tell rates apart only where they are far apart, and of nine tasks with four other rates
each, some would be better by chance. So a rate is judged on the average over the tasks that tried it, and a task departs from
that only where its own rows are as clear.
"""

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

CLEAR = 2
"""Standard errors by which another rate must be better, for all tasks or for one of them."""


@dataclass(frozen=True)
class Trial:
    """One candidate for one stage of a task."""

    task: str
    model: str
    stage: str
    epochs: float
    learning_rate: float
    factor: float
    """Of the recipe's own rate."""
    metric: str
    held_out: float
    """The task's figure on the held-out rows, after the last step."""
    difference: float
    """To the recipe's own stage, on the same rows."""
    error: float
    """Of the difference: standard deviation over resampled rows."""
    train_rows: int
    held_out_rows: int


def try_stages(
    run: Run,
    first: Sequence[Stage],
    second: Sequence[Stage],
    data_dir: str | os.PathLike[str] | None,
    report: Progress | None = None,
) -> list[Trial]:
    """Try every first stage, then every second one, in int8, from the first of the first stages.

    ``run`` says task, model, seed, batch and how many rows are held out. The stage named first is the recipe's own.
    """
    if not run.held_out:
        raise ValueError("held_out = 0: choosing needs rows of train that are not trained on")
    base = dataclasses.replace(run, arm="fp32", first=None, dev_rows=1)
    found = []
    for stage in first:
        model = (
            first_stage(dataclasses.replace(base, **dataclasses.asdict(stage)), data_dir, report) / "model"
        )
        prepared = prepare(base, data_dir, model)
        found.append((stage, held_out_predictions(prepared)[0]))
    trials = _compared(run, "first", prepared, found)
    found = []
    for stage in second:
        described = dataclasses.replace(base, arm="int8", first=first[0], **dataclasses.asdict(stage))
        start = first_stage(described.first_run, data_dir) / "model"
        prepared = prepare(described, data_dir, start)
        with tempfile.TemporaryDirectory() as folder:
            train(prepared, folder, log_steps=None, report=report, keep_model=False)
        found.append((stage, held_out_predictions(prepared)[0]))
    return trials + _compared(run, "second", prepared, found)


def _compared(
    run: Run, stage_name: str, prepared: Prepared, found: Sequence[tuple[Stage, Predictions]]
) -> list[Trial]:
    """A trial of each stage."""
    task = get_task(run.task)
    labels = references(task, prepared.held_rows)
    own = found[0][1]
    trials = []
    for stage, predictions in found:
        difference, drawn = bootstrap(task, [(predictions, own)], labels)
        trials.append(
            Trial(
                run.task,
                run.model,
                stage_name,
                stage.epochs,
                stage.learning_rate,
                stage.learning_rate / found[0][0].learning_rate,
                task.metric,
                task.figure(predictions, labels),
                difference,
                float(np.std(drawn)),
                len(prepared.train_rows),
                len(prepared.held_rows),
            )
        )
    return trials


@dataclass(frozen=True)
class Average:
    """A factor of the recipe's rate, over the tasks that tried it."""

    stage: str
    factor: float
    tasks: int
    difference: float
    error: float
    chosen: bool


def averages(trials: Sequence[Trial]) -> list[Average]:
    """What each factor gives on the average over tasks. The recipe's own stays unless another one is clearly better."""
    found = []
    for stage, factor in dict.fromkeys((trial.stage, trial.factor) for trial in trials):
        mine = [trial for trial in trials if (trial.stage, trial.factor) == (stage, factor)]
        mean = float(np.mean([trial.difference for trial in mine]))
        error = float(np.linalg.norm([trial.error for trial in mine])) / len(mine)
        found.append(Average(stage, factor, len(mine), mean, error, chosen=False))
    best: dict[str, Average] = {}
    for entry in found:
        if entry.factor == 1 or entry.difference > max(CLEAR * entry.error, best[entry.stage].difference):
            best[entry.stage] = entry
    return [dataclasses.replace(entry, chosen=entry is best[entry.stage]) for entry in found]


def departs(trial: Trial, found: Sequence[Average]) -> bool:
    """Whether a task's own held-out rows call for this rate against the one for all tasks."""
    common = next(entry for entry in found if entry.stage == trial.stage and entry.chosen)
    return trial.factor != common.factor and trial.difference > CLEAR * trial.error


def are_of(
    trials: Sequence[Trial],
    run: Run,
    first: Sequence[Stage],
    second: Sequence[Stage],
    data_dir: str | os.PathLike[str] | None,
) -> bool:
    """Whether these are the trials that `try_stages` would make."""
    rows = len(rows_of(run, "train", data_dir)) - run.held_out
    wanted = [("first", stage) for stage in first] + [("second", stage) for stage in second]
    return [(t.stage, Stage(t.epochs, t.learning_rate), t.train_rows, t.held_out_rows) for t in trials] == [
        (name, stage, rows, run.held_out) for name, stage in wanted
    ]


def choice_page(trials: Sequence[Trial]) -> str:
    """Markdown: each rate over all tasks that tried it, and every trial."""
    found = averages(trials)
    lines = [
        "# Rates of the two stages, tried on rows held out of train",
        "",
        "A rate is tried as a multiple of the recipe's, with the recipe's epochs and seed 0. The difference to the recipe's has a",
        "standard error from a paired bootstrap over the held-out rows. Another rate is taken for all tasks if it is better by more",
        f"than {CLEAR} of them on the average; a task departs from that where its own rows are as clear. Dev is not looked at.",
        "",
        "| stage | times the recipe's rate | tasks | difference | chosen |",
        "|---|---|---|---|---|",
    ]
    for entry in found:
        lines.append(
            f"| {entry.stage} | {entry.factor:g} | {entry.tasks} | {entry.difference:+.2f} ± {entry.error:.2f} "
            f"| {'x' if entry.chosen else ''} |"
        )
    lines += [
        "",
        "| task | model | stage | rows | epochs | rate | metric | held out | difference | departs |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for t in trials:
        title = TASKS[t.task].title if t.task in TASKS else t.task
        lines.append(
            f"| {title} | {t.model} | {t.stage} | {t.train_rows} | {t.epochs:g} | {t.learning_rate:g} | {t.metric} "
            f"| {t.held_out:.2f} | {t.difference:+.2f} ± {t.error:.2f} | {'x' if departs(t, found) else ''} |"
        )
    return "\n".join(lines) + "\n"
