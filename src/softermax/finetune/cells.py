"""The cells of the accuracy table: arms x tasks x seeds, each a JSON file once it is finished."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from softermax.cache import cache_dir
from softermax.files import write_text
from softermax.finetune.features import Features, references
from softermax.finetune.tasks import Predictions, get_task
from softermax.finetune.train import (
    ARMS,
    Arm,
    Prepared,
    Run,
    predict,
    prepare,
    settings,
    train,
    versions,
)
from softermax.models.drop_in import disable, enable
from softermax.progress import Progress

SWAPS = ("paper", "paper+fold", "row-scaled", "row-scaled+fold")
"""What is put into a fine-tuned int8 model without retraining it."""
SWAP_ROWS = 2000
"""Dev rows that the table's swaps are evaluated on, at most."""


@dataclass(frozen=True)
class Share:
    """How much of a task the table takes, so that all of it fits into some hours on two cores."""

    seeds: int
    train_rows: int | None = None
    dev_rows: int | None = None
    epochs: float = 2.0
    batch: int = 16


SHARES = {
    "stsb": Share(seeds=5, train_rows=3000),
    "rte": Share(seeds=3, train_rows=800),
    "mrpc": Share(seeds=3, train_rows=1200),
    "cola": Share(seeds=3, train_rows=3600),
    "sst2": Share(seeds=1, train_rows=5000),
    "qnli": Share(seeds=1, train_rows=2000),
    "qqp": Share(seeds=1, train_rows=2000),
    "mnli": Share(seeds=1, train_rows=2000),
    "squad": Share(seeds=1, train_rows=800, dev_rows=400, batch=4),
}
"""In the order in which they are run."""


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
    versions: dict[str, str]
    swapped: dict[str, dict[str, float]]
    """int8 arm only: scores with Softermax put in, by preset, and int8's own on the same rows."""

    def save(self, folder: Path) -> None:
        task = get_task(self.run.task)
        values = dataclasses.asdict(self)
        values["predictions"] = (
            np.round(self.predictions, 4).tolist()
            if task.is_regression or task.is_squad
            else self.predictions.astype(int).tolist()
        )
        lines = [f"  {json.dumps(k)}: {json.dumps(v)}" for k, v in values.items()]
        write_text(folder / f"{self.run.cell}.json", "{\n" + ",\n".join(lines) + "\n}\n")

    @classmethod
    def load(cls, path: Path) -> Cell:
        try:
            values = json.loads(path.read_text(encoding="utf-8"))
            values["run"] = Run(**values["run"])
            values["predictions"] = np.array(values["predictions"])
            return cls(**values)
        except (json.JSONDecodeError, KeyError, TypeError) as error:
            raise ValueError(f"{path}: not a cell of the accuracy table ({error})") from None


def gather(folder: str | os.PathLike[str]) -> list[Cell]:
    return [Cell.load(path) for path in sorted(Path(folder).glob("*.json"))]


def planned(
    tasks: Sequence[str],
    presets: Sequence[str] = ("paper",),
    model: str = "minilm",
    seeds: int | None = None,
    arms: Sequence[Arm] = ARMS,
    **changes: Any,
) -> list[Run]:
    """The runs of a table. Tasks of several seeds come first, and a seed's arms together, so that an
    interrupted table has whole comparisons where they are cheapest."""
    shares = {name: SHARES.get(name, Share(seeds=1)) for name in tasks}
    counts = {name: share.seeds if seeds is None else seeds for name, share in shares.items()}
    several = [(seed, name) for seed in range(max(counts.values())) for name in tasks if counts[name] > 1]
    once = [(0, name) for name in tasks if counts[name] == 1]
    runs: list[Run] = []
    for seed, name in several + once:
        if seed >= counts[name]:
            continue
        settings = {k: v for k, v in dataclasses.asdict(shares[name]).items() if k != "seeds"}
        settings |= {k: v for k, v in changes.items() if v is not None}
        for arm in arms:
            for preset in presets if arm == "softermax" else ("paper",):
                runs.append(Run(task=name, arm=arm, preset=preset, model=model, seed=seed, **settings))
    return runs


def is_done(run: Run, folder: Path) -> bool:
    """Whether the folder has this run's cell; an error if it has one with other settings."""
    path = folder / f"{run.cell}.json"
    if not path.is_file():
        return False
    before = Cell.load(path).run
    for field in dataclasses.fields(Run):
        old, new = getattr(before, field.name), getattr(run, field.name)
        if old != new and not (field.name == "preset" and run.arm != "softermax"):
            raise ValueError(
                f"{path}: made with {field.name} = {old!r}, not {new!r}; take another folder or delete it"
            )
    return True


def fill(
    runs: Sequence[Run],
    folder: str | os.PathLike[str],
    data_dir: str | os.PathLike[str] | None,
    announce: Callable[[int, int, Run], None] | None = None,
    report: Progress | None = None,
    until: float | None = None,
) -> int:
    """Run what is not done yet, each cell kept as soon as it is finished. Returns how many are left.

    An interrupted cell continues from its last checkpoint, which lies in the cache. ``until`` is a
    time (seconds since the epoch) after which no further cell is begun.
    """
    target = Path(folder)
    todo = [run for run in runs if not is_done(run, target)]
    for number, run in enumerate(todo):
        if until is not None and time.time() >= until:
            return len(todo) - number
        if announce:
            announce(number, len(todo), run)
        _run_cell(run, data_dir, report).save(target)
    return 0


def _run_cell(run: Run, data_dir: str | os.PathLike[str] | None, report: Progress | None) -> Cell:
    prepared = prepare(run, data_dir)
    work = cache_dir("accuracy") / run.cell
    resume = _resumable(work, run)
    result = train(prepared, work, resume=resume, report=report, keep_model=False)
    swapped: dict[str, dict[str, float]] = {}
    if run.arm == "int8":
        part = _first(prepared, SWAP_ROWS)
        labels = references(part.task, part.dev_rows)
        swapped["int8"] = dict(part.task.scores(result.predictions[: len(labels)], labels))
        for preset in SWAPS:
            enable(part.model, preset)
            swapped[preset] = dict(part.task.scores(predict(part.model, part), labels))
        disable(part.model)
    shutil.rmtree(work)
    return Cell(
        run,
        dict(result.scores),
        result.predictions,
        len(prepared.train_rows),
        len(prepared.dev_rows),
        round(result.seconds, 1),
        datetime.now(UTC).strftime("%Y-%m-%d"),
        versions(),
        swapped,
    )


def _first(prepared: Prepared, rows: int) -> Prepared:
    """The same run with the first of its dev rows. A long SQuAD context makes several features of a row."""
    dev = prepared.dev
    count = rows if dev.spans is None else sum(span.row < rows for span in dev.spans)
    some = Features(dev.features[:count], dev.spans and dev.spans[:count])
    return dataclasses.replace(prepared, dev_rows=prepared.dev_rows[:rows], dev=some)


def _resumable(work: Path, run: Run) -> bool:
    try:
        before = json.loads((work / "run.json").read_text(encoding="utf-8"))
    except (OSError, json.JSONDecodeError):
        return False
    return bool(before == settings(run))
