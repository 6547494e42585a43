"""Rows of your own: a CSV, a file of JSON lines or a folder that ``datasets`` saved, as a task of its own.

Classes are the label column's values in the rows to train on. What is wrong is named by file, line and column.
"""

from __future__ import annotations

import csv
import io
import json
import os
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from softermax.extras import need
from softermax.files import read_text
from softermax.finetune.data import Example
from softermax.finetune.tasks import OWN, Task

TEXT_COLUMNS = (("text",), ("sentence",), ("sentence1", "sentence2"))
"""What is looked for, in this order, unless text columns are named."""
LABEL_COLUMN = "label"
DEV_SHARE = 0.125
_DEV_SPLITS = ("validation", "dev", "test")
_DELIMITERS = {".csv": ",", ".tsv": "\t"}
_LINES = (".jsonl", ".json", ".ndjson")
_SEED = 2


@dataclass(frozen=True)
class OwnData:
    """Where rows lie, and the names of their columns."""

    path: str
    dev: str | None = None
    """Rows to score, in a file of their own; else a share of ``path``, or the dev split of a folder that has splits."""
    texts: tuple[str, ...] | None = None
    label: str = LABEL_COLUMN
    dev_share: float = DEV_SHARE

    def __post_init__(self) -> None:
        if not 0 < self.dev_share < 1:
            raise ValueError(f"dev share = {self.dev_share}: must be above 0 and below 1")
        if self.texts is not None and len(self.texts) not in (1, 2):
            raise ValueError(f"text columns {', '.join(self.texts)}: must be one column or two")


@dataclass(frozen=True)
class OwnTask:
    """The task that the data makes, with its rows."""

    task: Task
    train: list[Example]
    dev: list[Example]


@dataclass(frozen=True)
class _Record:
    where: str
    values: Mapping[str, Any]


def read_own_task(data: OwnData) -> OwnTask:
    """Rows to train on and to score, and the task whose classes are those of the former."""
    splits = _read(data.path)
    train = splits["train"] if "train" in splits else next(iter(splits.values()))
    if data.dev is not None:
        dev = _only_split(data.dev, _read(data.dev))
    else:
        named = [splits[name] for name in _DEV_SPLITS if name in splits]
        train, dev = (train, named[0]) if named else _shared_out(train, data)
    texts, label = _columns(train[0], data)
    classes = _classes([_label(record, label) for record in train])
    if len(classes) < 2:
        raise ValueError(
            f"{data.path}: column {label!r} has one value only, {classes[0]!r}; must have 2 classes or more"
        )
    task = Task(OWN, Path(data.path).name, texts, classes, "accuracy")
    return OwnTask(task, *(_examples(rows, texts, label, classes) for rows in (train, dev)))


def read_labelled(data: OwnData, classes: Sequence[str]) -> list[Example]:
    """All rows, for a model that knows its classes already."""
    records = _only_split(data.path, _read(data.path))
    texts, label = _columns(records[0], data)
    return _examples(records, texts, label, classes)


def _examples(
    records: Sequence[_Record], texts: Sequence[str], label: str, classes: Sequence[str]
) -> list[Example]:
    made = []
    for record in records:
        value = _label(record, label)
        if value not in classes:
            raise ValueError(
                f"{record.where}, column {label!r}: {value!r}; must be one of {', '.join(classes)}"
            )
        made.append(Example(tuple(_text(record, column) for column in texts), classes.index(value)))
    return made


def _columns(first: _Record, data: OwnData) -> tuple[tuple[str, ...], str]:
    there = ", ".join(first.values)
    texts = data.texts or next((c for c in TEXT_COLUMNS if all(name in first.values for name in c)), None)
    if texts is None:
        raise ValueError(
            f"{first.where}: no column 'text' or 'sentence'; name one of {there} with --text-column"
        )
    for name, option in (*((name, "text") for name in texts), (data.label, "label")):
        if name not in first.values:
            raise ValueError(f"{first.where}: no column {name!r}; name one of {there} with --{option}-column")
    return texts, data.label


def _text(record: _Record, column: str) -> str:
    value = record.values.get(column)
    if not isinstance(value, str) or not value.strip():
        raise ValueError(f"{record.where}, column {column!r}: {value!r}; must be text that is not empty")
    return value


def _label(record: _Record, column: str) -> str:
    value = record.values.get(column)
    if isinstance(value, (str, int)) and str(value).strip():
        return str(value).strip()
    raise ValueError(
        f"{record.where}, column {column!r}: {value!r}; must be a class, a word or a whole number"
    )


def _classes(labels: Sequence[str]) -> tuple[str, ...]:
    """Numbers in the order of their values, words in that of the alphabet."""
    found = set(labels)
    numbers = all(label.removeprefix("-").isdecimal() for label in found)
    return tuple(sorted(found, key=int) if numbers else sorted(found))


def _shared_out(records: list[_Record], data: OwnData) -> tuple[list[_Record], list[_Record]]:
    """A share of the rows to score, the same for every arm and seed."""
    count = round(data.dev_share * len(records))
    if not 0 < count < len(records):
        raise ValueError(
            f"{data.path}: {len(records)} rows leave {count} of them to score with a share of {data.dev_share:g}; "
            "must be at least one, and one to train on"
        )
    chosen = set(random.Random(_SEED).sample(range(len(records)), count))
    return (
        [record for i, record in enumerate(records) if i not in chosen],
        [record for i, record in enumerate(records) if i in chosen],
    )


def _only_split(path: str, splits: Mapping[str, list[_Record]]) -> list[_Record]:
    """All rows, or the dev split of a folder that has several."""
    return next((splits[name] for name in _DEV_SPLITS if name in splits), next(iter(splits.values())))


def _read(path: str) -> dict[str, list[_Record]]:
    """Records by split; a file has one."""
    place = Path(path)
    if place.is_dir():
        splits = _from_datasets(place)
    elif not place.is_file():
        raise ValueError(f"--data {path}: no such file or folder")
    elif place.suffix in _DELIMITERS:
        splits = {"all": list(_from_csv(place, _DELIMITERS[place.suffix]))}
    elif place.suffix in _LINES:
        splits = {"all": list(_from_json_lines(place))}
    else:
        raise ValueError(
            f"--data {path}: ends in {place.suffix!r}; must be one of {', '.join([*_DELIMITERS, *_LINES])}, "
            "or a folder that datasets saved"
        )
    for name, records in splits.items():
        if not records:
            raise ValueError(f"{path}: no rows" + ("" if name == "all" else f" in its split {name!r}"))
    return splits


def _from_csv(path: Path, delimiter: str) -> Iterator[_Record]:
    reader = csv.reader(
        io.StringIO(read_text(path).removeprefix("\ufeff"), newline=""), delimiter=delimiter, strict=True
    )
    try:
        header = next(reader, [])
        before = reader.line_num
        for cells in reader:
            where = f"{path}, line {before + 1}"
            before = reader.line_num
            if not cells:
                continue
            if len(cells) != len(header):
                raise ValueError(f"{where}: {len(cells)} cells, the header has {len(header)}")
            yield _Record(where, dict(zip(header, cells, strict=True)))
    except csv.Error as error:
        raise ValueError(f"{path}, line {reader.line_num}: not CSV ({error})") from None


def _from_json_lines(path: Path) -> Iterator[_Record]:
    for number, line in enumerate(read_text(path).split("\n"), start=1):
        if not line.strip():
            continue
        where = f"{path}, line {number}"
        try:
            values = json.loads(line)
        except json.JSONDecodeError as error:
            raise ValueError(f"{where}: not JSON ({error.msg}); must be one object per line") from None
        if not isinstance(values, dict):
            raise ValueError(f"{where}: {line.strip()[:40]!r}; must be one object per line")
        yield _Record(where, values)


def _from_datasets(folder: Path) -> dict[str, list[_Record]]:
    datasets: Any = need("datasets", "transformers")
    try:
        loaded = datasets.load_from_disk(os.fspath(folder))
    except (OSError, ValueError, KeyError, TypeError) as error:
        reason = str(error).strip().splitlines()[0]
        raise ValueError(f"--data {folder}: not a folder that datasets saved ({reason})") from None
    splits = loaded if isinstance(loaded, Mapping) else {"all": loaded}
    return {str(name): _dataset_records(folder, str(name), table) for name, table in splits.items()}


def _dataset_records(folder: Path, split: str, table: Any) -> list[_Record]:
    named = {
        column: feature.names for column, feature in table.features.items() if hasattr(feature, "int2str")
    }
    part = "" if split == "all" else f", split {split!r}"
    return [
        _Record(
            f"{folder}{part}, row {number}",
            {
                k: named[k][v] if k in named and isinstance(v, int) and 0 <= v < len(named[k]) else v
                for k, v in row.items()
            },
        )
        for number, row in enumerate(table)
    ]
