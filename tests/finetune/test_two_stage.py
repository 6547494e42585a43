"""Two stages: one fp32 model per task and seed, and every arm from that same checkpoint."""

import json
import shutil
from pathlib import Path

import pytest
import torch

from softermax.cli import main
from softermax.finetune import cells, table
from softermax.finetune.cells import Cell, fill, first_stage, gather, gather_first
from softermax.finetune.choose import Trial, averages, choice_page, departs, try_stages
from softermax.finetune.recipe import TRIED_ROWS, TWO_STAGE, candidates, planned
from softermax.finetune.run import Run, Stage, run_from, settings
from softermax.finetune.swap import evaluate_swaps
from softermax.finetune.tasks import TASKS
from softermax.finetune.train import OutOfTime, prepare, train
from softermax.models.absorb import is_absorbed
from softermax.results import Envelope

pytest.importorskip("modelopt")
CHOICE = Path(__file__).parents[2] / "docs" / "results" / "accuracy-choice.json"
SMALL = {
    "epochs": 1.0,
    "learning_rate": 1e-3,
    "first_epochs": 3.0,
    "first_learning_rate": 5e-3,
    "batch": 16,
    "held_out": 24,
    "train_rows": 120,
}


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("SOFTERMAX_CACHE", str(tmp_path / "cache"))


def runs_of(model, **changes):
    return planned(["sst2"], model=model, seeds=1, recipe="two-stage", **(SMALL | changes))


def test_the_recipes_rates_are_those_that_trials_on_rows_held_out_of_train_chose():
    trials = [Trial(**row) for row in Envelope.load(CHOICE).rows]
    found = averages(trials)
    assert {one.task for one in trials} == set(TWO_STAGE)
    for one in trials:
        own = getattr(TWO_STAGE[one.task], one.stage)
        assert (one.factor == 1) == (Stage(one.epochs, one.learning_rate) == own)
    assert {entry.stage: entry.factor for entry in found if entry.chosen} == {"first": 1, "second": 1}
    assert not [one for one in trials if departs(one, found)]


def test_every_task_of_the_paper_has_its_schedule():
    assert set(TWO_STAGE) == {name for name, task in TASKS.items() if task.paper}
    runs = planned(list(TWO_STAGE), recipe="two-stage")
    assert len(runs) == 6 * sum(schedule.seeds for schedule in TWO_STAGE.values())
    assert [(run.arm, run.preset) for run in runs[:6]] == [
        ("fp32", "paper"),
        ("int8", "paper"),
        ("softermax", "paper"),
        ("softermax", "paper+absorbed"),
        ("softermax", "paper+fold"),
        ("softermax", "lean+fold"),
    ]
    assert all(run.first and run.train_rows is None for run in runs)
    assert len({run.cell for run in runs}) == len(runs)
    changed = planned(["rte", "cola"], recipe="two-stage", first_epochs=9.0, learning_rate=1e-5)
    assert {(run.first.epochs, run.learning_rate) for run in changed} == {(9.0, 1e-5)}


def test_a_run_of_two_stages_survives_its_file():
    run = Run(preset="paper+absorbed", first=Stage(3.0, 1e-4), held_out=5)
    assert run_from(json.loads(json.dumps(settings(run)))) == run
    assert run.is_absorbed
    assert settings(run)["spec"] == settings(Run(preset="paper"))["spec"]
    with pytest.raises(ValueError, match=r"either a fold or \+absorbed"):
        Run(preset="paper+fold+absorbed")


def test_all_arms_start_from_one_model_that_is_trained_once(tiny_model, tiny_data, tmp_path, monkeypatch):
    trained = []
    original = cells.train

    def counted(prepared, *args, **options):
        trained.append((prepared.run.arm, prepared.run.first is None))
        return original(prepared, *args, **options)

    monkeypatch.setattr(cells, "train", counted)
    runs = runs_of(tiny_model)
    out, models = tmp_path / "cells", tmp_path / "models"
    assert fill(runs, out, tiny_data, models=models) == 0
    assert trained.count(("fp32", True)) == 1
    assert len(trained) == 1 + len(runs)
    done, (first,) = gather(out), gather_first(out)
    assert {(c.run.arm, c.run.preset) for c in done} == {(r.arm, r.preset) for r in runs}
    assert len({c.start for c in done}) == 1
    assert done[0].start
    assert first.scores["accuracy"] > 90
    assert all(c.train_rows == 96 for c in [*done, first])
    # Curves: the loss by step, the held-out rows before the first step and after the last.
    for cell in [*done, first]:
        held = [point for point in cell.curve if "held_out" in point]
        assert held[0]["step"] == 0
        assert held[-1]["step"] == max(point["step"] for point in cell.curve)
        assert any("loss" in point for point in cell.curve)
    assert held[-1]["held_out"] > held[0]["held_out"]
    # The models of all cells are there, each what its arm says.
    assert is_absorbed(prepare_kept(models / runs[3].cell))
    assert evaluate_swaps(models / runs[1].cell, tiny_data, swaps=["paper"])[1]["attention"] == "paper"
    entry = next(e for e in table.entries(done) if e.preset == "paper+absorbed")
    assert (entry.epochs, entry.first_epochs) == (1.0, 3.0)
    (stage,) = table.first_stages([first])
    assert len(stage.losses) == 5
    assert stage.losses[-1] < stage.losses[0]
    # Further specs are put into the kept int8 model without training.
    before = len(trained)
    assert cells.add_swaps(runs, out, tiny_data, models, ["paper", "whole-row"]) == 1
    assert len(trained) == before
    int8 = next(c for c in gather(out) if c.run.arm == "int8")
    assert "whole-row" in int8.swapped
    assert cells.add_swaps(runs, out, tiny_data, models, ["whole-row"]) == 0


def prepare_kept(folder):
    from softermax.models.quantization import load

    return load(folder)


def test_arms_of_different_checkpoints_are_not_compared(tiny_data):
    import numpy as np

    def cell(arm, start):
        run = Run(task="sst2", arm=arm, first=Stage(1.0, 1e-4))
        return Cell(run, {"accuracy": 1.0}, np.zeros(64), 1, 64, 1.0, "2000-01-01", {}, {}, start)

    assert table.differences([cell("int8", "a"), cell("softermax", "a")], tiny_data, resamples=5)
    with pytest.raises(ValueError, match="from different first stages"):
        table.differences([cell("int8", "a"), cell("softermax", "b")], tiny_data, resamples=5)


def test_out_of_time_leaves_a_checkpoint_and_the_same_command_goes_on(
    tiny_model, tiny_data, tmp_path, monkeypatch
):
    runs = runs_of(tiny_model)[:1]
    clock = iter(range(10**6))
    monkeypatch.setattr("softermax.finetune.train.time.time", lambda: float(next(clock)))
    with pytest.raises(OutOfTime, match=r"step \d+ of 18"):
        first_stage(runs[0].first_run, tiny_data, until=8.0)
    monkeypatch.undo()
    monkeypatch.setenv("SOFTERMAX_CACHE", str(tmp_path / "cache"))
    (work,) = (tmp_path / "cache" / "accuracy" / "first").iterdir()
    assert list(work.glob("checkpoint-*"))
    assert not (work / "cell.json").exists()
    resumed = Cell.load(first_stage(runs[0].first_run, tiny_data) / "cell.json")
    monkeypatch.setenv("SOFTERMAX_CACHE", str(tmp_path / "fresh"))
    whole = Cell.load(first_stage(runs[0].first_run, tiny_data) / "cell.json")
    assert resumed.curve == whole.curve
    assert (resumed.predictions == whole.predictions).all()


def test_the_first_stage_is_another_one_when_settings_or_data_change(tiny_model, tiny_data, tmp_path):
    run = runs_of(tiny_model, first_epochs=1.0)[0].first_run
    folder = first_stage(run, tiny_data)
    assert first_stage(run, tiny_data) == folder
    other = tmp_path / "data"
    shutil.copytree(tiny_data, other)
    path = other / "glue" / "sst2" / "train.tsv"
    path.write_text(path.read_text().replace("fine", "great"))
    assert first_stage(run, other) != folder
    assert first_stage(runs_of(tiny_model, first_epochs=2.0)[0].first_run, tiny_data) != folder


def test_cells_of_different_start_folders_have_different_names(tiny_model, tmp_path):
    from transformers import AutoModel

    other = tmp_path / "other" / Path(tiny_model).name
    shutil.copytree(tiny_model, other)
    assert Run(model=str(other)).cell == Run(model=tiny_model).cell
    model = AutoModel.from_pretrained(other)
    with torch.no_grad():
        model.embeddings.word_embeddings.weight += 1
    model.save_pretrained(other)
    assert Run(model=str(other)).cell != Run(model=tiny_model).cell
    assert Run(model="one/bert").cell != Run(model="two/bert").cell
    assert Run(model="minilm", task="rte").cell == "minilm-rte-softermax-paper-0"


@pytest.fixture(scope="module")
def trained(tiny_model, tiny_data, tmp_path_factory):
    """Folders of fine-tuned models: fp32 and int8, two labels."""
    root = tmp_path_factory.mktemp("trained")
    for arm in ("fp32", "int8"):
        run = Run(task="sst2", arm=arm, model=tiny_model, epochs=1.0, learning_rate=5e-3, batch=16)
        train(prepare(run, tiny_data), root / arm)
    return root


def test_a_head_is_fresh_unless_it_is_to_be_kept(trained, tiny_model, tiny_data):
    from softermax.models.quantization import load

    folder = str(trained / "fp32" / "model")
    own = load(folder).classifier.weight
    kept = prepare(Run(task="sst2", arm="fp32", model=folder, keep_head=True), tiny_data)
    assert torch.equal(kept.model.classifier.weight, own)
    fresh = [prepare(Run(task="sst2", arm="fp32", model=folder, seed=s), tiny_data).model for s in (0, 0, 1)]
    assert not torch.equal(fresh[0].classifier.weight, own)
    assert torch.equal(fresh[0].classifier.weight, fresh[1].classifier.weight)
    assert not torch.equal(fresh[0].classifier.weight, fresh[2].classifier.weight)
    assert torch.equal(
        fresh[0].bert.embeddings.word_embeddings.weight, kept.model.bert.embeddings.word_embeddings.weight
    )


def test_a_start_folder_with_another_label_count_gets_a_fresh_head_or_a_clear_error(trained, tiny_data):
    folder = str(trained / "fp32" / "model")
    assert prepare(Run(task="stsb", arm="fp32", model=folder), tiny_data).model.classifier.out_features == 1
    with pytest.raises(ValueError, match=r"its head is for another number of labels \(classifier"):
        prepare(Run(task="stsb", arm="fp32", model=folder, keep_head=True), tiny_data)


def test_a_pretrained_body_has_no_head_to_keep(tiny_model, tiny_data):
    with pytest.raises(ValueError, match=r"its head is missing \(classifier"):
        prepare(Run(task="sst2", model=tiny_model, keep_head=True), tiny_data)


@pytest.mark.parametrize("arm", ["fp32", "int8", "softermax"])
def test_an_int8_start_folder_is_refused(trained, tiny_data, arm):
    with pytest.raises(
        ValueError, match=r"cannot be loaded \(it is quantised already; start from the fp32 model"
    ):
        prepare(Run(task="sst2", arm=arm, model=str(trained / "int8" / "model")), tiny_data)


def test_an_absorbed_start_folder_is_refused_where_its_base_does_not_fit(tiny_model, tiny_data, tmp_path):
    from softermax.models.absorb import absorb_base

    ready = prepare(Run(task="sst2", arm="fp32", model=tiny_model), tiny_data)
    absorb_base(ready.model).save_pretrained(tmp_path)
    ready.tokenizer.save_pretrained(tmp_path)
    for wrong in ({"arm": "fp32"}, {"arm": "int8"}, {"preset": "paper+fold"}):
        with pytest.raises(ValueError, match="absorbed in its weights"):
            prepare(Run(task="sst2", model=str(tmp_path), **wrong), tiny_data)
    assert is_absorbed(prepare(Run(task="sst2", model=str(tmp_path)), tiny_data).model)


def test_held_out_rows_are_not_trained_on(tiny_model, tiny_data):
    ready = prepare(Run(task="sst2", arm="fp32", model=tiny_model, held_out=40, batch=16), tiny_data)
    assert len(ready.train_rows) == 192 - 40
    assert len(ready.held_rows) == 40
    again = prepare(Run(task="sst2", arm="fp32", model=tiny_model, held_out=40, batch=16, seed=7), tiny_data)
    assert again.held_rows == ready.held_rows
    with pytest.raises(ValueError, match="192 rows held out of 192"):
        prepare(Run(task="sst2", model=tiny_model, held_out=192), tiny_data)


def test_scoring_held_out_rows_leaves_training_as_it_is(tiny_model, tiny_data, tmp_path, monkeypatch):
    run = Run(task="sst2", arm="int8", model=tiny_model, held_out=40, batch=16, epochs=1.0)
    scored = train(prepare(run, tiny_data), tmp_path / "a", log_steps=1, keep_model=False)
    assert any("held_out" in point for point in scored.curve)
    monkeypatch.setattr("softermax.finetune.train.score_held_out", lambda prepared: (0.0, None))
    blind = train(prepare(run, tiny_data), tmp_path / "b", log_steps=1, keep_model=False)
    assert scored.losses == blind.losses
    assert (scored.predictions == blind.predictions).all()


def test_questions_have_held_out_scores_too(tiny_model, tiny_data, tmp_path):
    run = Run(task="squad", arm="fp32", model=tiny_model, held_out=20, batch=16, epochs=1.0, max_length=40)
    result = train(prepare(run, tiny_data), tmp_path, keep_model=False)
    held = [point for point in result.curve if "held_out" in point]
    assert len(held) >= 2
    assert all(0 <= point["held_out"] <= 100 for point in held)


def test_candidates_are_the_recipes_own_rate_half_and_twice(tiny_model):
    (run,) = runs_of(tiny_model)[:1]
    tried, first, second = candidates(run)
    assert tried == run
    assert first[0] == run.first
    assert second[0] == Stage(run.epochs, run.learning_rate)
    for own, *others in (first, second):
        assert {other.epochs for other in others} == {own.epochs}
        assert {other.learning_rate / own.learning_rate for other in others} == {0.5, 2.0}


def test_large_tasks_are_tried_on_fewer_rows_unless_asked():
    (run,) = planned(["sst2"], seeds=1, arms=["int8"], recipe="two-stage")
    assert candidates(run)[0].train_rows == TRIED_ROWS["sst2"]
    (run,) = planned(["sst2"], seeds=1, arms=["int8"], recipe="two-stage", train_rows=900)
    assert candidates(run)[0].train_rows == 900


def test_stages_are_tried_on_held_out_rows(tiny_model, tiny_data):
    (run,) = runs_of(tiny_model)[:1]
    slow, fast = Stage(1.0, 1e-6), Stage(3.0, 5e-3)
    trials = try_stages(run, [slow, fast], [Stage(1.0, 1e-4)], tiny_data)
    assert [(t.stage, t.learning_rate) for t in trials] == [
        ("first", 1e-6),
        ("first", 5e-3),
        ("second", 1e-4),
    ]
    assert [t.factor for t in trials] == pytest.approx([1, 5000, 1])
    assert trials[1].difference == pytest.approx(trials[1].held_out - trials[0].held_out)
    assert trials[1].difference > trials[1].error > 0
    assert trials[0].difference == trials[0].error == trials[2].error == 0
    assert {(t.train_rows, t.held_out_rows) for t in trials} == {(96, 24)}


def trial(task="stsb", factor=1.0, difference=0.0, error=0.0, stage="first"):
    return Trial(
        task,
        "minilm",
        stage,
        4.0,
        factor * 1e-4,
        factor,
        "accuracy",
        80 + difference,
        difference,
        error,
        90,
        10,
    )


def test_a_rate_is_taken_for_all_tasks_only_where_their_average_is_clear():
    def chosen(*others):
        tasks = {other.task for other in others}
        found = averages([*(trial(task) for task in sorted(tasks)), *others])
        return next(entry for entry in found if entry.chosen)

    # Each task alone is within two errors of its own; two of them together are not.
    assert chosen(trial("stsb", 0.5, 1.5, 1.0)).factor == 1
    assert chosen(trial("stsb", 0.5, 1.5, 1.0), trial("rte", 0.5, 1.5, 1.0)).factor == 0.5
    assert chosen(trial("stsb", 0.5, 1.5, 1.0), trial("rte", 0.5, -1.5, 1.0)).factor == 1
    # Of two that are, the better one, wherever it stands.
    half, twice = trial("stsb", 0.5, 3.0, 1.0), trial("stsb", 2.0, 4.0, 1.0)
    assert chosen(half, twice).factor == chosen(twice, half).factor == 2
    both = averages([trial(), half, trial(stage="second"), trial(factor=2.0, difference=-1, stage="second")])
    assert [(entry.stage, entry.factor, entry.chosen) for entry in both] == [
        ("first", 1, False),
        ("first", 0.5, True),
        ("second", 1, True),
        ("second", 2, False),
    ]
    error = averages([trial(), trial("rte"), trial("stsb", 0.5, 1, 3.0), trial("rte", 0.5, 1, 4.0)])[-1].error
    assert error == pytest.approx(2.5)


def test_a_task_departs_from_the_rate_for_all_only_where_its_own_rows_are_clear():
    trials = [trial(), trial("rte"), trial("stsb", 0.5, 2.5, 1.0), trial("rte", 0.5, -3.0, 1.0)]
    found = averages(trials)
    assert [entry.chosen for entry in found] == [True, False]
    assert [departs(one, found) for one in trials] == [False, False, True, False]
    page = choice_page(trials)
    assert "| first | 0.5 | 2 | -0.25 ± 0.71 |  |" in page
    assert "| STS-B | minilm | first | 90 | 4 | 5e-05 | accuracy | 82.50 | +2.50 ± 1.00 | x |" in page


def test_the_command_keeps_tasks_whose_rates_were_tried(tiny_model, tiny_data, tmp_path, capsys, monkeypatch):
    asked = []

    def tried(run, first, second, *others):
        asked.append(run.task)
        stages = [("first", stage, first[0]) for stage in first] + [
            ("second", stage, second[0]) for stage in second
        ]
        return [
            Trial(
                run.task,
                run.model,
                name,
                stage.epochs,
                stage.learning_rate,
                stage.learning_rate / own.learning_rate,
                "accuracy",
                90.0,
                0.0,
                1.0,
                run.train_rows - run.held_out,
                run.held_out,
            )
            for name, stage, own in stages
        ]

    monkeypatch.setattr("softermax.finetune.choose.try_stages", tried)
    options = ["accuracy", "--choose", "--data-dir", str(tiny_data), "--out", str(tmp_path)]
    options += ["--tasks", "sst2", "--model", tiny_model, "--train-rows", "80", "--held-out", "16"]
    assert main([*options, "--json", "--quiet"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["stage"] for row in rows] == ["first"] * 3 + ["second"] * 3
    assert (tmp_path / "accuracy-choice.md").read_text().count("| SST-2 |") == 6
    # What is there is not tried again; other settings are.
    assert main([*options, "--quiet"]) == 0
    assert len(asked) == 1
    assert main([*options, "--train-rows", "70", "--quiet"]) == 0
    assert len(asked) == 2
    assert {row["train_rows"] for row in Envelope.load(tmp_path / "accuracy-choice.json").rows} == {54}
    # A task more joins them.
    assert main([*options, "--tasks", "stsb", "--train-rows", "70", "--quiet"]) == 0
    assert [row["task"] for row in Envelope.load(tmp_path / "accuracy-choice.json").rows] == ["sst2"] * 6 + [
        "stsb"
    ] * 6


def test_the_command_writes_table_curves_and_pictures(tiny_model, tiny_data, tmp_path, capsys):
    options = ["--data-dir", str(tiny_data), "--out", str(tmp_path), "--tasks", "sst2", "--model", tiny_model]
    options += ["--seeds", "1", "--learning-rate", "1e-3", "--first-learning-rate", "5e-3", "--epochs", "1"]
    options += [
        "--first-epochs",
        "2",
        "--train-rows",
        "80",
        "--held-out",
        "16",
        "--presets",
        "paper+absorbed",
    ]
    assert main(["accuracy", *options, "--json", "--quiet"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [(row["arm"], row["preset"]) for row in rows] == [
        ("fp32", None),
        ("int8", None),
        ("softermax", "paper+absorbed"),
    ]
    assert Envelope.load(tmp_path / "accuracy.json").rows == rows
    points = Envelope.load(tmp_path / "accuracy-curves.json").rows
    assert {point["stage"] for point in points} == {"first", "second"}
    (stage,) = Envelope.load(tmp_path / "accuracy-first.json").rows
    assert (stage["task"], stage["seed"], stage["epochs"]) == ("sst2", 0, 2.0)
    assert stage["losses"][0] > stage["losses"][-1]
    text = (tmp_path / "accuracy.md").read_text()
    assert "### First stage" in text
    assert "`paper+absorbed`" in text
    assert (tmp_path / "accuracy-curves.svg").is_file()
    assert main(["accuracy", *options, "--gather", "--quiet"]) == 0


def test_an_empty_table_is_not_written(tiny_model, tiny_data, tmp_path, capsys, monkeypatch):
    options = [
        "--data-dir",
        str(tiny_data),
        "--out",
        str(tmp_path / "out"),
        "--tasks",
        "sst2",
        "--model",
        tiny_model,
    ]
    assert main(["accuracy", *options, "--gather"]) == 2
    assert "no cell is there" in capsys.readouterr().err
    monkeypatch.setattr("softermax.finetune.cells.fill", lambda *args: 5)
    assert main(["accuracy", *options, "--seeds", "1", "--held-out", "16"]) == 0
    assert "no cell is finished yet" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
