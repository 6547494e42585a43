"""Own data from training to `softermax compare`: every form of one classifier on the same rows."""

from __future__ import annotations

import json
import random

import pytest

from softermax.cli import main

from .conftest import sentence

pytest.importorskip("modelopt")
pytest.importorskip("onnxruntime")


@pytest.fixture(scope="module")
def trained(tmp_path_factory, tiny_model):
    """A CSV, and a classifier in floating point that learnt it."""
    folder, rng = tmp_path_factory.mktemp("compare"), random.Random(0)
    rows = [f"{sentence(rng, i % 2)},{('bad', 'good')[i % 2]}" for i in range(160)]
    (folder / "my.csv").write_text("\n".join(["text,label", *rows]) + "\n")
    words = f"finetune --arm fp32 --model {tiny_model} --epochs 6 --batch 8 --learning-rate 1e-3 -q"
    assert main([*words.split(), "--data", str(folder / "my.csv"), "--out", str(folder / "out")]) == 0
    return folder


def test_finetune_learns_own_rows_and_keeps_their_class_names(trained):
    result = json.loads((trained / "out" / "finetune.json").read_text())
    assert result["rows"][0]["scores"]["accuracy"] > 85
    config = json.loads((trained / "out" / "model" / "config.json").read_text())
    assert config["id2label"] == {"0": "bad", "1": "good"}
    run = json.loads((trained / "out" / "model" / "run.json").read_text())
    assert (run["task"], run["data"]["path"]) == ("own", str(trained / "my.csv"))


def compare(trained, capsys, *words):
    code = main(["compare", str(trained / "out" / "model"), "--rounds", "2", "--json", "-q", *words])
    said = capsys.readouterr()
    return code, said


def test_every_form_is_accurate_small_ones_are_small_and_what_is_missing_says_why(trained, tmp_path, capsys):
    capsys.readouterr()
    code, said = compare(trained, capsys, "--no-memory", "--out", str(tmp_path))
    assert code == 0, said.err
    rows = {(row["runtime"], row["form"]): row for row in json.loads(said.out)}
    measured = [row for row in rows.values() if row["milliseconds"] is not None]
    assert len(measured) >= 5
    for row in rows.values():
        if row["accuracy"] is None:
            assert row["skipped"]
        else:
            assert row["accuracy"] > 85, row
    assert all(row["milliseconds"] > 0 for row in measured)
    assert rows["PyTorch", "fp32"]["speedup"] == 1
    assert rows["PyTorch", "int8, simulated"]["milliseconds"] is None
    assert (
        rows["onnxruntime", "int8, its dynamic"]["disk_megabytes"]
        < rows["onnxruntime", "fp32"]["disk_megabytes"]
    )
    written = json.loads((tmp_path / "compare.json").read_text())
    assert written["rows"] == list(rows.values())
    assert written["notes"]["rows"] == 20, "only the rows that were held out of training are scored"
    assert "compare.svg" in (tmp_path / "compare.md").read_text()
    assert (tmp_path / "compare.svg").is_file()


def test_memory_is_what_a_process_grows_by(trained):
    import numpy as np

    from softermax.speed.compare import Form, resident_growth

    form = Form("fp32", "PyTorch", "torch", trained / "out" / "model")
    ids = np.array([[1, 5, 6, 2]])
    found = resident_growth([form], {"input_ids": ids, "attention_mask": np.ones_like(ids)}, 1)
    assert list(found) == ["PyTorch fp32"]
    assert 0 <= found["PyTorch fp32"] < 1000


def test_a_quantised_model_is_told_to_be_the_tuned_one(trained, tmp_path, capsys):
    words = (
        f"finetune --data {trained}/my.csv --model {trained}/out/model --keep-head --epochs 0.1 --batch 8 -q"
    )
    assert main([*words.split(), "--arm", "int8", "--out", str(tmp_path)]) == 0
    capsys.readouterr()
    assert main(["compare", str(tmp_path / "model"), "-q"]) == 2
    assert "give the one in floating point that it was made of" in capsys.readouterr().err


def test_a_label_that_the_model_does_not_know_is_named(trained, tmp_path, capsys):
    (tmp_path / "other.csv").write_text("text,label\nfine,good\ndull,awful\n")
    code, said = compare(trained, capsys, "--data", str(tmp_path / "other.csv"))
    assert code == 2
    assert "other.csv, line 3, column 'label': 'awful'; must be one of bad, good" in said.err


def test_a_model_without_classes_is_refused(tiny_model, capsys):
    assert main(["compare", tiny_model, "--data", "my.csv", "-q"]) == 2
    assert "BertModel is not a classifier of texts" in capsys.readouterr().err
