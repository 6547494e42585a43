"""Own rows: CSV, JSON lines and folders of datasets become a task; what is wrong is named where it stands."""

from __future__ import annotations

import json
import re

import pytest

from softermax.finetune.own_data import OwnData, read_labelled, read_own_task


def write_csv(path, rows, header="text,label"):
    path.write_text("\n".join([header, *rows]) + "\n", encoding="utf-8")
    return str(path)


def test_a_csv_is_a_task_whose_classes_are_its_labels(tmp_path):
    rows = [f'"one, and\ntwo {i}",{("good", "bad", "so so")[i % 3]}' for i in range(24)]
    own = read_own_task(OwnData(write_csv(tmp_path / "my.csv", rows)))
    assert own.task.labels == ("bad", "good", "so so")
    assert (len(own.train), len(own.dev)) == (21, 3)
    assert {row.texts[0] for row in own.train + own.dev} == {f"one, and\ntwo {i}" for i in range(24)}
    whole = read_labelled(OwnData(str(tmp_path / "my.csv")), own.task.labels)
    assert [row.label for row in whole[:3]] == [1, 0, 2]


def test_numbers_are_classes_in_the_order_of_their_values(tmp_path):
    lines = [json.dumps({"sentence1": "a", "sentence2": f"b {i}", "label": 2 + i % 9}) for i in range(40)]
    path = tmp_path / "my.jsonl"
    path.write_text("\n".join(lines))
    own = read_own_task(OwnData(str(path), dev=str(path)))
    assert own.task.labels == tuple(str(n) for n in range(2, 11))
    assert own.dev[3].texts == ("a", "b 3")
    assert len(own.train) == len(own.dev) == 40


def test_a_folder_of_datasets_brings_its_splits_and_class_names(tmp_path):
    datasets = pytest.importorskip("datasets")
    features = datasets.Features(
        {"review": datasets.Value("string"), "stars": datasets.ClassLabel(names=["low", "high"])}
    )
    parts = {
        name: datasets.Dataset.from_dict({"review": ["x", "y"], "stars": [1, 0]}, features=features)
        for name in ("train", "validation")
    }
    datasets.DatasetDict(parts).save_to_disk(str(tmp_path / "saved"))
    own = read_own_task(OwnData(str(tmp_path / "saved"), texts=("review",), label="stars"))
    assert own.task.labels == ("high", "low")
    assert [row.label for row in own.dev] == [0, 1]


WRONG = {
    "a cell too many": ("a,b,c", "line 4: 3 cells, the header has 2"),
    "empty text": (" ,0", "line 4, column 'text': ' '; must be text that is not empty"),
    "empty label": ("x,", "line 4, column 'label': ''; must be a class"),
    "open quote": ('"x,0', "line 4: not CSV (unexpected end of data)"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_broken_row_is_named_by_line_and_column(name, tmp_path):
    line, expected = WRONG[name]
    path = write_csv(tmp_path / "my.csv", ["a,0", "b,1", line])
    with pytest.raises(ValueError, match=re.escape(f"my.csv, {expected}")):
        read_own_task(OwnData(path, dev=path))


def test_a_label_that_was_not_trained_on_is_named_with_those_that_were(tmp_path):
    train = write_csv(tmp_path / "train.csv", ["a,0", "b,1"])
    dev = write_csv(tmp_path / "dev.csv", ["a,0", "b,7"])
    with pytest.raises(ValueError, match=r"dev\.csv, line 3, column 'label': '7'; must be one of 0, 1"):
        read_own_task(OwnData(train, dev=dev))


def test_a_missing_column_is_named_with_those_there_are(tmp_path):
    path = write_csv(tmp_path / "my.csv", ["a,0", "b,1"], header="review,stars")
    with pytest.raises(ValueError, match=r"no column 'text' or 'sentence'; name one of review, stars with"):
        read_own_task(OwnData(path, dev=path))
    with pytest.raises(ValueError, match="no column 'label'; name one of review, stars with --label-column"):
        read_own_task(OwnData(path, dev=path, texts=("review",)))


def test_one_class_is_not_a_task(tmp_path):
    with pytest.raises(ValueError, match="one value only, '0'; must have 2 classes or more"):
        read_own_task(OwnData(write_csv(tmp_path / "my.csv", ["a,0", "b,0", "c,0", "d,0", "e,0"])))
