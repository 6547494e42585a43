"""What --out holds after a command that measures: the rows in their envelope, and a page."""

import json

import pytest

from softermax.cli import main
from softermax.results import Envelope

pytest.importorskip("modelopt")


def printed(capsys):
    return json.loads(capsys.readouterr().out)


def test_finetune_and_evaluate_write_their_rows_with_command_and_versions(
    tiny_model, tiny_data, tmp_path, capsys
):
    options = [
        "--task",
        "sst2",
        "--arm",
        "int8",
        "--model",
        tiny_model,
        "--data-dir",
        str(tiny_data),
        "--out",
    ]
    size = ["--epochs", "1", "--train-rows", "64", "--batch", "16", "--held-out", "16", "--json", "--quiet"]
    assert main(["finetune", *options, str(tmp_path / "run"), *size]) == 0
    run = printed(capsys)
    kept = Envelope.load(tmp_path / "run" / "finetune.json")
    assert kept.rows == [{name: value for name, value in run.items() if name != "losses"}]
    assert kept.command.startswith("softermax finetune --task sst2")
    assert str(tmp_path) not in kept.command
    assert kept.versions["torch"]
    assert any("held_out" in point for point in kept.notes["curve"])
    trained = str(tmp_path / "run" / "model")
    more = ["--data-dir", str(tiny_data), "--out", str(tmp_path / "out"), "--presets", "paper+fold", "--json"]
    assert main(["evaluate", trained, *more]) == 0
    rows = printed(capsys)
    assert [row["attention"] for row in rows] == ["exact softmax (int8)", "paper+fold"]
    assert Envelope.load(tmp_path / "out" / "evaluate.json").rows == rows
    assert "| paper+fold |" in (tmp_path / "out" / "evaluate.md").read_text()


def test_attention_writes_its_layers_named_after_model_and_spec(tiny_model, tmp_path, capsys):
    text = tmp_path / "text.txt"
    text.write_text("fine bad word1 word2 great dull " * 40)
    options = ["--model", tiny_model, "--spec", "paper+fold", "--text", str(text), "--length", "32", "--json"]
    assert main(["attention", *options, "--out", str(tmp_path)]) == 0
    rows = printed(capsys)
    assert Envelope.load(tmp_path / "attention-tinybert-paper+fold.json").rows == rows
    assert "| layer |" in (tmp_path / "attention-tinybert-paper+fold.md").read_text()
