"""`softermax info` and `softermax bench`: what they say, not how fast anything is."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")

from softermax import PRESETS, kernels
from softermax.cli import main
from softermax.results import Envelope
from softermax.speed import attention, race
from softermax.speed import kernels as bench

FIELDS = {"bench", "case", "columns", "versus", "ratio", "low", "high", "threads"}


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "COLUMNS", (64, 128))
    monkeypatch.setattr(bench, "IN_CACHE", 1 << 10)
    monkeypatch.setattr(bench, "IN_OPERATOR", 1 << 10)
    monkeypatch.setattr(attention, "SEQUENCES", (32,))


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


@pytest.mark.parametrize("columns", bench.COLUMNS)
def test_memcpy_is_a_limit_its_source_and_copy_do_not_alias(columns: int) -> None:
    """At a distance of whole pages a processor confuses the two, and memcpy takes ten times as long."""
    x = bench.scores(max(1, bench.IN_CACHE // columns), columns)
    distances = set()
    for distance in bench.DISTANCES:
        out = bench.placed_apart(x, distance)
        assert out.shape == x.shape
        distances.add((out.ctypes.data - x.ctypes.data) % 4096)
    assert distances == set(bench.DISTANCES)
    assert 0 not in distances
    copy = bench.copying(x)
    copy()
    (out,) = [cell.cell_contents for cell in copy.__closure__ or () if cell.cell_contents is not x]
    assert np.array_equal(out, x)


def test_memcpy_is_the_fastest_of_several_places(monkeypatch: pytest.MonkeyPatch) -> None:
    x = bench.scores(4, 64)
    # By this clock a copy takes a second, and half of one to the fourth place.
    calls = iter(
        value for place in range(5) for run in range(5) for value in (0.0, 0.5 if place == 3 else 1.0)
    )
    monkeypatch.setattr(bench.time, "perf_counter", lambda: next(calls))
    copy = bench.copying(x)
    (out,) = [cell.cell_contents for cell in copy.__closure__ or () if cell.cell_contents is not x]
    assert (out.ctypes.data - x.ctypes.data) % 4096 == bench.DISTANCES[3]


def test_a_race_reports_their_time_over_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0

    def takes(seconds: float) -> Callable[[], None]:
        def call() -> None:
            nonlocal now
            now += seconds

        return call

    monkeypatch.setattr(race.time, "thread_time", lambda: now)
    made = race.Race("bench", "case", 8, 4, lambda: {"softermax": takes(0.5), "other": takes(2.0)})
    said: list[tuple[int, int, str]] = []
    (found,) = race.run_races([made], 3, 1, lambda *step: said.append(step))
    assert (found.versus, found.ratio, found.low, found.high) == ("other", 4.0, 4.0, 4.0)
    assert found.nanoseconds == pytest.approx(0.5 / 4 * 1e9)
    assert said == [(0, 1, "case, 8"), (1, 1, "")]


def test_a_result_is_written_with_what_it_comes_from(
    small: None, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert main(["bench", "attention", "--rounds", "2", "--json", "--out", str(tmp_path)]) == 0
    found = Envelope.load(tmp_path / "bench-attention.json")
    assert found.rows == rows(capsys)
    assert found.command == "softermax bench attention --rounds 2 --json --out FOLDER"
    assert found.versions["torch"] is not None
    assert found.machine["kernels"] == kernels.isa()
    assert str(tmp_path) not in (tmp_path / "bench-attention.json").read_text()
    assert f"Measured on {found.date}" in (tmp_path / "bench-attention.md").read_text()


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
