"""The cells of the accuracy table: arms x tasks x seeds, each a JSON file once it is finished."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import os
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from softermax.cache import cache_dir, key
from softermax.executor import Executor
from softermax.files import write_text
from softermax.finetune.data import load_rows
from softermax.finetune.run import Run, run_from, settings, start_name
from softermax.finetune.swap import SWAPS, load_trained, table_swaps
from softermax.finetune.tasks import Predictions, get_task
from softermax.finetune.train import OutOfTime, Prepared, Result, prepare, train
from softermax.progress import Progress, silent
from softermax.results import today, versions

PACKAGES = ("softermax", "torch", "transformers", "accelerate", "nvidia-modelopt")
"""Whose versions a result depends on."""
FIRST = "first"
"""The folder, beside the cells, of the first stages' own."""


@dataclass(frozen=True)
class Cell:
    """A finished run: what was run, and every prediction, so that intervals can be computed later."""

    run: Run
    scores: dict[str, float]
    predictions: Predictions
    train_rows: int
    dev_rows: int
    seconds: float
    date: str
    versions: dict[str, str | None]
    swapped: dict[str, dict[str, float]]
    """int8 arm only: scores with Softermax put in, by preset, and int8's own on the same rows."""
    start: str | None = None
    """A digest of the first stage's weights: arms are compared only if they began with the same."""
    curve: list[dict[str, float]] = field(default_factory=list)
    """Losses, and scores of the rows held out of train, by step."""

    def save(self, path: Path) -> None:
        task = get_task(self.run.task)
        values = dataclasses.asdict(self)
        values["predictions"] = (
            np.round(self.predictions, 4).tolist()
            if task.is_regression or task.is_squad
            else self.predictions.astype(int).tolist()
        )
        lines = [f"  {json.dumps(k)}: {json.dumps(v)}" for k, v in values.items()]
        write_text(path, "{\n" + ",\n".join(lines) + "\n}\n")

    @classmethod
    def load(cls, path: Path) -> Cell:
        try:
            values = json.loads(path.read_text(encoding="utf-8"))
            values["run"] = run_from(values["run"])
            values["predictions"] = np.array(values["predictions"])
            return cls(**values)
        except (json.JSONDecodeError, KeyError, TypeError) as error:
            raise ValueError(f"{path}: not a cell of the accuracy table ({error})") from None


def gather(folder: str | os.PathLike[str]) -> list[Cell]:
    return [Cell.load(path) for path in sorted(Path(folder).glob("*.json"))]


def gather_first(folder: str | os.PathLike[str]) -> list[Cell]:
    """The first stages that the cells of a folder started from."""
    return gather(Path(folder) / FIRST)


def is_done(run: Run, folder: Path) -> bool:
    """Whether the folder has this run's cell; an error if it has one with other settings."""
    path = folder / f"{run.cell}.json"
    if not path.is_file():
        return False
    before = Cell.load(path).run
    for name in (entry.name for entry in dataclasses.fields(Run)):
        old, new = getattr(before, name), getattr(run, name)
        if old != new and not (name == "preset" and run.arm != "softermax"):
            raise ValueError(
                f"{path}: made with {name} = {old!r}, not {new!r}; take another folder or delete it"
            )
    return True


def fill(
    runs: Sequence[Run],
    folder: str | os.PathLike[str],
    data_dir: str | os.PathLike[str] | None,
    announce: Callable[[int, int, Run], None] | None = None,
    report: Progress | None = None,
    until: float | None = None,
    models: str | os.PathLike[str] | None = None,
    swaps: Sequence[str] = SWAPS,
    place: Executor | None = None,
) -> int:
    """Run what is not done yet, each cell kept as soon as it is finished. Returns how many are left.

    An interrupted cell continues from its last checkpoint, which lies in the cache, as the models of first stages do.
    ``until`` is a time (seconds since the epoch) at which the cell under way stops with a checkpoint. ``models`` is a
    folder that keeps the model of every cell. ``swaps`` are put into the int8 arm's model after training. ``place`` works on
    several cells at a time; its nodes must share the folders and the cache.
    """
    target = Path(folder)
    todo = [run for run in runs if not is_done(run, target)]
    if place is not None:
        kept = Path(models) if models else None
        work = functools.partial(
            _cell_in_time, folder=target, data_dir=data_dir, until=until, models=kept, swaps=swaps
        )
        return _fill_at(
            place, todo, work, functools.partial(_first_in_time, data_dir=data_dir, until=until), report
        )
    for number, run in enumerate(todo):
        if until is not None and time.time() >= until:
            return len(todo) - number
        if announce:
            announce(number, len(todo), run)
        try:
            _run_cell(run, target, data_dir, report, until, Path(models) if models else None, swaps)
        except OutOfTime:
            return len(todo) - number
    return 0


def _fill_at(
    place: Executor,
    todo: Sequence[Run],
    work: Callable[[Run], bool],
    first: Callable[[Run], bool],
    report: Progress | None,
) -> int:
    """Cells many at a time. First stages come before, each once: two cells must not train the same one."""
    shared = {run.first_run.cell: run.first_run for run in todo if run.first is not None}
    show = report or silent
    place.each(first, list(shared.values()), show, lambda run: f"first stage of {run.cell}")
    return sum(not done for done in place.each(work, todo, show, lambda run: run.cell).values())


def _cell_in_time(
    run: Run,
    folder: Path,
    data_dir: str | os.PathLike[str] | None,
    until: float | None,
    models: Path | None,
    swaps: Sequence[str],
) -> bool:
    """Whether a cell was finished."""
    try:
        _run_cell(run, folder, data_dir, None, until, models, swaps)
    except OutOfTime:
        return False
    return True


def _first_in_time(run: Run, data_dir: str | os.PathLike[str] | None, until: float | None) -> bool:
    try:
        first_stage(run, data_dir, None, until)
    except OutOfTime:
        return False
    return True


def _run_cell(
    run: Run,
    folder: Path,
    data_dir: str | os.PathLike[str] | None,
    report: Progress | None,
    until: float | None,
    models: Path | None,
    swaps: Sequence[str],
) -> None:
    start = digest = None
    if run.first is not None:
        first = first_stage(run.first_run, data_dir, report, until)
        start, digest = first / "model", _weights_digest(first / "model")
        same = folder / FIRST / f"{run.first_run.cell}.json"
        if not same.is_file():
            Cell.load(first / "cell.json").save(same)
    prepared = prepare(run, data_dir, start)
    work = cache_dir("accuracy") / f"{run.cell}-{_key(run, data_dir)}"
    result = train(
        prepared,
        work,
        resume=_resumable(work, run),
        log_steps=None,
        report=report,
        keep_model=models is not None,
        until=until,
    )
    swapped = table_swaps(prepared, result.predictions, swaps) if run.arm == "int8" else {}
    cell = _cell(prepared, result, swapped, digest)
    if models is not None:
        shutil.rmtree(models / run.cell, ignore_errors=True)
        shutil.copytree(work / "model", models / run.cell)
    cell.save(folder / f"{run.cell}.json")
    shutil.rmtree(work)


def add_swaps(
    runs: Sequence[Run],
    folder: str | os.PathLike[str],
    data_dir: str | os.PathLike[str] | None,
    models: str | os.PathLike[str],
    swaps: Sequence[str],
) -> int:
    """Put ``swaps`` that finished int8 cells do not have yet into their kept models. Returns how many cells gained."""
    changed = 0
    for run in runs:
        path, model = Path(folder) / f"{run.cell}.json", Path(models) / run.cell
        if run.arm != "int8" or not path.is_file() or not model.is_dir():
            continue
        cell = Cell.load(path)
        missing = [preset for preset in swaps if preset not in cell.swapped]
        if missing:
            more = table_swaps(load_trained(model, data_dir), cell.predictions, missing)
            dataclasses.replace(cell, swapped=cell.swapped | more).save(path)
            changed += 1
    return changed


def first_stage(
    run: Run,
    data_dir: str | os.PathLike[str] | None,
    report: Progress | None = None,
    until: float | None = None,
) -> Path:
    """The cache's folder of an fp32 run: ``model``, and ``cell.json`` with its scores and its curve. Trained if it is
    not there, resumed if it was interrupted.

    Its name covers the run's settings, the start model's weights, the rows and the libraries' versions. It leaves this
    package's own code out: a change there would cost hours. A cell keeps a digest of the weights that it started
    from instead, and only arms of one start are compared.
    """
    work = cache_dir("accuracy", FIRST) / f"{run.cell}-{_key(run, data_dir)}"
    if (work / "cell.json").is_file():
        return work
    prepared = prepare(run, data_dir)
    resume = _resumable(work, run)
    result = train(prepared, work, resume=resume, log_steps=None, report=report, until=until)
    cell = _cell(prepared, result, {}, None)
    for checkpoint in work.glob("checkpoint-*"):
        shutil.rmtree(checkpoint)
    # Last: its presence says that the model is complete.
    cell.save(work / "cell.json")
    return work


def _cell(
    prepared: Prepared, result: Result, swapped: dict[str, dict[str, float]], start: str | None
) -> Cell:
    return Cell(
        prepared.run,
        dict(result.scores),
        result.predictions,
        len(prepared.train_rows),
        len(prepared.dev_rows),
        round(result.seconds, 1),
        today(),
        versions(PACKAGES),
        swapped,
        start,
        result.curve,
    )


def _key(run: Run, data_dir: str | os.PathLike[str] | None) -> str:
    """Of everything that a run depends on but this package's code."""
    rows = hashlib.sha256()
    for row in load_rows(get_task(run.task), "train", data_dir, run.train_rows):
        rows.update(repr(dataclasses.astuple(row)).encode())
    # Without fields at their defaults: a field that is new says nothing about runs that were made before it.
    usual = {entry.name: entry.default for entry in dataclasses.fields(Run)} | {
        "model": run.model,
        "spec": None,
    }
    values = {name: value for name, value in settings(run).items() if value != usual[name]}
    depends = (
        json.dumps(values, sort_keys=True),
        start_name(run.model),
        rows.hexdigest(),
        versions(PACKAGES),
    )
    return key(*depends)[:12]


def _weights_digest(model: Path) -> str:
    digest = hashlib.sha256()
    for path in sorted(model.glob("*.safetensors")):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


def _resumable(work: Path, run: Run) -> bool:
    try:
        before = json.loads((work / "run.json").read_text(encoding="utf-8"))
    except (OSError, json.JSONDecodeError):
        return False
    return bool(before == settings(run))
