"""`softermax info` and `softermax bench`: what they say, not how fast anything is."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("torch")

from softermax import PRESETS, kernels
from softermax.cli import main
from softermax.speed import kernels as bench

FIELDS = {"bench", "case", "columns", "versus", "ratio", "low", "high", "threads"}


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "COLUMNS", (64, 128))
    monkeypatch.setattr(bench, "IN_CACHE", 1 << 10)
    monkeypatch.setattr(bench, "IN_OPERATOR", 1 << 10)
    monkeypatch.setattr(bench, "SEQUENCES", (32,))


def rows(capsys: pytest.CaptureFixture[str]) -> list[dict[str, object]]:
    found: list[dict[str, object]] = json.loads(capsys.readouterr().out)
    assert found
    for row in found:
        assert set(row) == FIELDS
        assert 0 < row["low"] <= row["ratio"] <= row["high"]  # type: ignore[operator]
    return found


def test_kernels_against_everyone(small: None, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    plot = tmp_path / "time.png"
    assert main(["bench", "kernels", "--json", "--rounds", "2", "--no-large", "--plot", str(plot)]) == 0
    found = rows(capsys)
    assert {row["columns"] for row in found} == {64, 128}
    assert {row["threads"] for row in found} == {1}
    against = {row["versus"] for row in found}
    assert {"torch fp32", "memcpy"} <= against
    assert {f"int8 {name}" for name in PRESETS} <= {row["case"] for row in found}
    assert plot.read_bytes().startswith(b"\x89PNG")


def test_onnxruntime_takes_part_where_it_is_installed(
    small: None, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("onnxruntime")
    pytest.importorskip("onnx")
    assert main(["bench", "kernels", "--json", "--rounds", "2", "--no-large"]) == 0
    assert {"onnxruntime fp32", "onnxruntime QLinearSoftmax"} <= {row["versus"] for row in rows(capsys)}


def test_attention_from_int8_and_float(small: None, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "attention", "--json", "--rounds", "2"]) == 0
    found = rows(capsys)
    assert {row["versus"] for row in found} == {"SDPA fp32", "SDPA bf16"}
    assert {row["case"] for row in found} == {
        f"{mode} from {kind}" for mode in ("paper", "whole-row", "deferred") for kind in ("int8", "float")
    }


@pytest.mark.slow
def test_training_against_torch_softmax(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "training", "--json", "--rounds", "3"]) == 0
    assert {"operator paper", "encoder step paper"} <= {row["case"] for row in rows(capsys)}


def test_info_says_which_path_and_why(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(["info", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["kernel"] == kernels.isa()
    assert told["kernel"] in told["usable"]
    assert "fastest" in told["status"]
    monkeypatch.setenv("SOFTERMAX_ISA", "scalar")
    assert main(["info"]) == 0
    assert "native scalar: SOFTERMAX_ISA asks for it" in capsys.readouterr().out
    monkeypatch.setenv("SOFTERMAX_ISA", "none")
    assert main(["bench", "kernels"]) == 2
    assert "nothing to time" in capsys.readouterr().err


def test_bad_options_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "kernels", "--threads", "0"]) == 2
    assert "--threads 0: must be 1 or more" in capsys.readouterr().err
