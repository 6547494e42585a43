"""The accuracy table: cells are kept and skipped, intervals are those of a paired bootstrap."""

import dataclasses
import json

import numpy as np
import pytest

from softermax.cli import main
from softermax.finetune import cells, swap, table
from softermax.finetune.cells import Cell, fill, gather
from softermax.finetune.data import load_rows
from softermax.finetune.features import references
from softermax.finetune.recipe import SHARES, planned
from softermax.finetune.run import Run
from softermax.finetune.tasks import get_task
from softermax.results import Envelope

pytest.importorskip("modelopt")
FAST = {"learning_rate": 3e-3, "epochs": 1.0, "train_rows": 96}


def cell(arm, seed, predictions, task="rte", preset="paper"):
    right = 100 * float(np.mean(predictions == LABELS))
    run = Run(task=task, arm=arm, seed=seed, preset=preset)
    return Cell(run, {"accuracy": right}, predictions, 10, len(predictions), 1.0, "2000-01-01", {}, {})


LABELS = np.random.default_rng(0).integers(0, 2, 400)


def with_errors(share, seed):
    wrong = np.random.default_rng(seed).random(len(LABELS)) < share
    return np.where(wrong, 1 - LABELS, LABELS)


def test_the_plan_has_the_seeds_that_were_asked_for():
    runs = planned(list(SHARES))
    assert len(runs) == 3 * (5 + 3 * 3 + 5)
    assert {run.task for run in runs} == set(SHARES)
    assert len({run.cell for run in runs}) == len(runs)
    assert [run.arm for run in planned(["rte"], seeds=2, arms=["int8", "softermax"])] == [
        "int8",
        "softermax",
    ] * 2
    with pytest.raises(ValueError, match=r"unknown arm 'int4': must be one of fp32, int8, softermax"):
        planned(["rte"], arms=["int4"])


def test_cells_are_kept_as_they_finish_and_not_run_again(tiny_model, tiny_data, tmp_path, monkeypatch):
    monkeypatch.setenv("SOFTERMAX_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(swap, "SWAP_ROWS", 20)
    runs = planned(["sst2"], model=tiny_model, seeds=1, **FAST)
    assert [run.arm for run in runs] == ["fp32", "int8", "softermax"]
    assert fill(runs[:2], tmp_path, tiny_data) == 0
    first = {path.name: path.stat().st_mtime_ns for path in tmp_path.glob("*.json")}
    assert len(first) == 2
    announced = []
    fill(runs, tmp_path, tiny_data, announce=lambda n, count, run: announced.append(run.arm))
    assert announced == ["softermax"]
    assert all((tmp_path / name).stat().st_mtime_ns == before for name, before in first.items())
    done = gather(tmp_path)
    assert {c.run.arm for c in done} == {"fp32", "int8", "softermax"}
    int8 = next(c for c in done if c.run.arm == "int8")
    assert set(int8.swapped) == {"int8", *swap.SWAPS}
    labels = references(get_task("sst2"), load_rows(get_task("sst2"), "dev", tiny_data, None)[:20])
    assert int8.swapped["int8"]["accuracy"] == 100 * np.mean(int8.predictions[:20] == labels)
    assert all(round(s["accuracy"] / 5) * 5 == pytest.approx(s["accuracy"]) for s in int8.swapped.values())
    changed = [dataclasses.replace(run, epochs=2.0) for run in runs]
    with pytest.raises(ValueError, match=r"made with epochs = 1.0, not 2.0"):
        fill(changed, tmp_path, tiny_data)
    assert fill(planned(["sst2"], model=tiny_model, seeds=2, **FAST), tmp_path, tiny_data, until=0.0) == 3


def test_the_command_writes_table_json_and_plot(tiny_model, tiny_data, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("SOFTERMAX_CACHE", str(tmp_path / "cache"))
    options = ["--data-dir", str(tiny_data), "--out", str(tmp_path), "--tasks", "sst2", "--model", tiny_model]
    options += [
        "--recipe",
        "single",
        "--seeds",
        "2",
        "--learning-rate",
        "3e-3",
        "--epochs",
        "1",
        "--train-rows",
        "64",
    ]
    assert main(["accuracy", *options, "--json", "--quiet"]) == 0
    rows = json.loads(capsys.readouterr().out)
    keys = {"task", "arm", "preset", "model", "metric", "seeds", "mean", "spread", "train_rows"}
    assert all(keys <= set(row) for row in rows)
    assert [row["arm"] for row in rows] == ["fp32", "int8", "softermax"]
    kept = Envelope.load(tmp_path / "accuracy.json")
    assert kept.rows == rows
    assert kept.command.startswith("softermax accuracy --data-dir DATA --out FOLDER --tasks sst2")
    assert all(Envelope.load(tmp_path / f"accuracy-{name}.json").rows for name in ("differences", "swaps"))
    text = (tmp_path / "accuracy.md").read_text()
    assert "6 cells done, 0 to go" in text
    assert "| SST-2 | accuracy | 64 | 1 | 64 |" in text
    assert "| 92.09 | 92.20 | +0.11 |" in text
    assert (tmp_path / "accuracy.svg").is_file()


@pytest.mark.slow
def test_ray_fills_the_same_cells(tiny_model, tiny_data, tmp_path, monkeypatch, capsys):
    """Each run has a cache of its own, so that all of it is computed."""
    pytest.importorskip("ray", reason="comes with the extra ray")
    options = ["--data-dir", str(tiny_data), "--tasks", "sst2", "--model", tiny_model, "--recipe", "single"]
    options += ["--seeds", "1", "--epochs", "1", "--train-rows", "64", "--learning-rate", "3e-3"]
    options += ["--threads", "1", "--json", "--quiet"]

    def filled(place, *more):
        monkeypatch.setenv("SOFTERMAX_CACHE", str(tmp_path / f"{place}-cache"))
        assert main(["accuracy", *options, "--out", str(tmp_path / place), *more]) == 0
        rows = json.loads(capsys.readouterr().out)
        return rows, {c.run.arm: c for c in gather(tmp_path / place / "accuracy")}

    rows, done = filled("here")
    # Workers of Ray import the package anew; no cell is run in this process or a copy of it.
    monkeypatch.setattr(cells, "_run_cell", None)
    rows_of_ray, done_by_ray = filled("ray", "--ray")
    assert rows_of_ray == rows
    assert [row["arm"] for row in rows] == ["fp32", "int8", "softermax"]
    for arm, one in done.items():
        other = done_by_ray[arm]
        assert np.array_equal(one.predictions, other.predictions)
        assert (one.scores, one.swapped, one.curve) == (other.scores, other.swapped, other.curve)


def test_bootstrap_finds_a_difference_that_is_there_and_none_that_is_not():
    task = get_task("rte")
    same = [(with_errors(0.3, s), with_errors(0.3, s)) for s in range(3)]
    mean, drawn = table.bootstrap(task, same, LABELS, resamples=200)
    assert mean == 0
    assert not drawn.any()
    worse = [(with_errors(0.4, s), with_errors(0.2, s)) for s in range(3)]
    mean, drawn = table.bootstrap(task, worse, LABELS, resamples=200)
    assert mean < -10
    assert np.percentile(drawn, 97.5) < 0
    assert np.percentile(drawn, 2.5) < mean < np.percentile(drawn, 97.5)


def test_a_verdict_stands_only_where_the_interval_allows_one():
    def verdict(values):
        return table.difference_of("rte", "paper", "m", [0], 0.0, np.array(values)).verdict

    assert verdict([1.0, 2.0, 3.0]) == "better"
    assert verdict([-3.0, -2.0, -1.0]) == "worse"
    assert verdict([-0.3, 0.0, 0.3]) == "same within 0.5"
    assert verdict([-2.0, 0.0, 2.0]) == ""


def test_means_and_spreads_are_over_seeds():
    made = [cell("int8", s, with_errors(0.1 * (s + 1), s)) for s in range(3)]
    (entry,) = table.entries(made)
    figures = [c.scores["accuracy"] for c in made]
    assert entry.mean == pytest.approx(np.mean(figures))
    assert entry.spread == pytest.approx(np.std(figures, ddof=1))
    assert entry.seeds == [0, 1, 2]


def test_a_cell_survives_its_file(tmp_path):
    before = cell("softermax", 1, with_errors(0.2, 1), preset="row-scaled+fold")
    before.save(tmp_path / "cell.json")
    (after,) = gather(tmp_path)
    assert (after.predictions == before.predictions).all()
    assert after.run == before.run
    (tmp_path / "broken.json").write_text("{}")
    with pytest.raises(ValueError, match="not a cell of the accuracy table"):
        gather(tmp_path)
