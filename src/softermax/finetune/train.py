"""One run: pretrained model, calibration, fine-tuning, predictions. On Trainer and Accelerate.

The arms differ in arithmetic only: ``fp32`` trains in floating point, ``int8`` adds 8-bit weights and
activations under an exact softmax (the paper's baseline), ``softermax`` puts Softermax into that.
"""

from __future__ import annotations

import copy
import functools
import json
import os
import shutil
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from softermax.extras import need

if not TYPE_CHECKING:
    need("accelerate", "transformers")
    need("transformers", "transformers")

import numpy as np
import torch
from accelerate import PartialState
from transformers import (
    AutoConfig,
    AutoModelForQuestionAnswering,
    AutoModelForSequenceClassification,
    AutoTokenizer,
    PreTrainedModel,
    Trainer,
    TrainerCallback,
    TrainingArguments,
    set_seed,
)

from softermax.files import write_text
from softermax.finetune.data import Rows, split_rows
from softermax.finetune.features import Bucketing, Features, collate, decode, make_features, references
from softermax.finetune.memory import keep_freed_memory
from softermax.finetune.products import training_products
from softermax.finetune.run import Run, check_folder, rows_of, settings, task_of
from softermax.finetune.tasks import OWN, Predictions, Scores, Task
from softermax.models.absorb import absorb_base, is_absorbed
from softermax.models.drop_in import INT8, enable, use_softmax
from softermax.models.pretrained import allowed_models, find_model
from softermax.models.quantization import quantize
from softermax.models.quantization import save as save_model
from softermax.models.rivals import betas_of
from softermax.progress import Progress

CALIBRATION_ROWS = 256
EVAL_TOKENS = 2048
"""Per batch of an evaluation on a CPU: more do not fit its caches, and take longer."""
EVAL_BATCH = 64
"""Rows per batch of an evaluation on a GPU, and at most on a CPU."""
HELD_OUT_SCORES = 10
"""How often the held-out rows are scored while a stage trains, at most, beside its begin; and not more often than
every half epoch, because that costs time."""
CURVE_POINTS = 40
"""Mean losses that a stage's curve has, about."""


class OutOfTime(Exception):
    """Training stopped at the time given, with a checkpoint to go on from."""


@dataclass
class Prepared:
    """Everything a run needs, checked, before any training."""

    run: Run
    task: Task
    tokenizer: Any
    model: PreTrainedModel
    train_rows: Rows
    dev_rows: Rows
    train: Features
    dev: Features
    held_rows: Rows = field(default_factory=list)
    held: Features = field(default_factory=lambda: Features([]))
    """Rows of train that are scored on the way and not trained on."""


@dataclass(frozen=True)
class Result:
    scores: Scores
    predictions: Predictions
    losses: list[float]
    seconds: float
    curve: list[dict[str, float]]
    """Mean losses since the entry before, and scores of the held-out rows, by step."""


def prepare(
    run: Run, data_dir: str | os.PathLike[str] | None = None, start: str | os.PathLike[str] | None = None
) -> Prepared:
    """Read the data, build and calibrate the model. Whatever is wrong with the input shows here.

    ``start`` is the folder of the model that a run's first stage gave; its head is kept.
    """
    task = task_of(run)
    rows, held_rows = split_rows(rows_of(run, "train", data_dir), run.held_out)
    dev_rows = rows_of(run, "dev", data_dir)
    keep = run.keep_head or start is not None
    name = run.model if start is None else os.fspath(start)
    tokenizer, model = load_pretrained(name, task, run.seed, run.dropout, keep)
    longest = getattr(model.config, "max_position_embeddings", 512)
    length = min(run.max_length or task.max_length, longest)
    train, held, dev = (
        make_features(task, part, tokenizer, length, training) if part else Features([])
        for part, training in ((rows, True), (held_rows, False), (dev_rows, False))
    )
    Bucketing(train.lengths, run.batch, run.seed)
    if run.is_absorbed:
        absorb_base(model, run.spec_name)
    elif is_absorbed(model) and (run.arm != "softermax" or run.base != "paper"):
        raise ValueError(
            f"model {name!r}: log2(e) is absorbed in its weights, so it needs a preset without fold"
        )
    elif run.arm == "softermax":
        enable(model, run.preset)
    else:
        use_softmax(model)
    prepared = Prepared(run, task, tokenizer, model, rows, dev_rows, train, dev, held_rows, held)
    if run.arm != "fp32":
        calibrate(prepared)
    return prepared


def load_pretrained(
    name: str, task: Task, seed: int, dropout: float | None = None, keep_head: bool = False
) -> tuple[Any, PreTrainedModel]:
    """Tokenizer and model with a fresh head, the same for a seed whatever the arm; or with the model's own head."""
    where = find_model(name)
    if where.gguf_file:
        raise ValueError(f"model {name!r}: a GGUF file cannot be fine-tuned here")
    set_seed(seed)
    auto = AutoModelForQuestionAnswering if task.is_squad else AutoModelForSequenceClassification
    try:
        config = AutoConfig.from_pretrained(where.path)
        if getattr(config, INT8, None) is not None:
            raise ValueError("it is quantised already; start from the fp32 model that it was made of")
        if not task.is_squad:
            # In this order: one label fits a regression only.
            config.problem_type = "regression" if task.is_regression else None
            config.num_labels = 1 if task.is_regression else len(task.labels)
            if task.name == OWN:
                config.id2label = dict(enumerate(task.labels))
                config.label2id = {label: number for number, label in enumerate(task.labels)}
        tokenizer = AutoTokenizer.from_pretrained(where.path)
        model, info = auto.from_pretrained(
            where.path, config=config, ignore_mismatched_sizes=True, output_loading_info=True
        )
    except (OSError, ValueError, KeyError) as error:
        reason = str(error).strip().splitlines()[0]
        raise ValueError(f"model {name!r} cannot be loaded ({reason}); {allowed_models()}") from error
    _settle_head(model, info, name, task, seed, keep_head)
    if dropout is not None:
        for module in model.modules():
            if isinstance(module, torch.nn.Dropout):
                module.p = dropout
    return tokenizer, model


def _settle_head(
    model: PreTrainedModel, info: dict[str, Any], name: str, task: Task, seed: int, keep_head: bool
) -> None:
    """Keep the head that was loaded, or make a fresh one; an error if the weights do not fit that."""
    heads = {path for path, child in model.named_children() if child is not model.base_model}
    own = {path for path in model.state_dict() if path.split(".")[0] in heads}
    other_size = {entry[0] if isinstance(entry, tuple) else entry for entry in info["mismatched_keys"]}
    if other_size - own:
        raise ValueError(
            f"model {name!r}: {min(other_size - own)} has another size than its config.json says"
        )
    absent = own & (set(info["missing_keys"]) | other_size)
    if keep_head and absent:
        why = "is for another number of labels" if other_size else "is missing"
        raise ValueError(f"model {name!r}: its head {why} ({min(absent)}), and {task.name} is to keep it")
    if not keep_head and absent != own:
        set_seed(seed)
        fresh = type(model)(copy.deepcopy(model.config))
        for path in heads:
            getattr(model, path).load_state_dict(getattr(fresh, path).state_dict())


def calibrate(prepared: Prepared) -> None:
    """Scales of the activations, from the first rows of the first epoch's order."""
    order = Bucketing(prepared.train.lengths, prepared.run.batch, prepared.run.seed)
    chosen = [index for _, index in zip(range(CALIBRATION_ROWS), order, strict=False)]
    batches = []
    for first in range(0, len(chosen), prepared.run.batch):
        batch = collate(
            prepared.tokenizer, [prepared.train[i] for i in chosen[first : first + prepared.run.batch]]
        )
        batches.append(
            {k: v for k, v in batch.items() if k in ("input_ids", "attention_mask", "token_type_ids")}
        )
    quantize(prepared.model, batches)


CONSTANTS_RATE = 100
"""The learning rate of ConSmax's betas over that of weights. A gamma is a beta's factor, and must stay above 0."""


class _Trainer(Trainer):
    """Trainer with our bucketing, and a loss that is the mean over rows whatever the model accepts."""

    def __init__(self, run: Run, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._run = run
        self.model_accepts_loss_kwargs = False

    def _get_train_sampler(self, train_dataset: Any = None) -> Any:
        dataset: Any = train_dataset if train_dataset is not None else self.train_dataset
        return Bucketing(dataset.lengths, self._run.batch, self._run.seed)

    def create_optimizer(self, model: Any = None) -> Any:
        """ConSmax's betas get a rate of their own: at that of weights they would stay where they are."""
        made = self.optimizer is not None
        optimizer = super().create_optimizer(model)
        betas = betas_of(self.model) if self.model is not None and not made else []
        if betas:
            theirs = {id(parameter) for parameter in betas}
            for group in optimizer.param_groups:
                group["params"] = [one for one in group["params"] if id(one) not in theirs]
            rate = CONSTANTS_RATE * self.args.learning_rate
            optimizer.add_param_group({"params": betas, "lr": rate, "weight_decay": 0.0})
        return optimizer

    def compute_loss(
        self, model: Any, inputs: Any, return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Any:
        outputs = model(**inputs)
        return (outputs["loss"], outputs) if return_outputs else outputs["loss"]


class _Log(TrainerCallback):
    """A line of JSON for every logged step, with the time left; the curve; and the caller's progress display."""

    def __init__(self, path: Path, prepared: Prepared, report: Progress | None, until: float | None) -> None:
        self.path, self.prepared, self.report, self.until = path, prepared, report, until
        self.started = 0.0
        self.first_step = 0
        self.losses: list[float] = []

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.started, self.first_step = time.monotonic(), state.global_step
        self.losses = [entry["loss"] for entry in state.log_history if "loss" in entry]
        if state.global_step == 0:
            self._score(state)

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
        if "loss" not in (logs or {}):
            return
        self.losses.append(logs["loss"])
        if not state.is_world_process_zero:
            return
        seconds = time.monotonic() - self.started
        done = state.global_step - self.first_step
        left = seconds / max(done, 1) * (state.max_steps - state.global_step)
        line = {
            "step": state.global_step,
            "steps": state.max_steps,
            "epoch": round(logs["epoch"], 4),
            "loss": logs["loss"],
            "learning_rate": logs["learning_rate"],
            "seconds": round(seconds, 2),
            "seconds_left": round(left, 2),
        }
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if self.report and state.is_world_process_zero:
            note = f"loss {self.losses[-1]:.3f}" if self.losses else ""
            self.report(state.global_step, state.max_steps, note)
        every = max(
            1, state.max_steps // HELD_OUT_SCORES, int(state.max_steps / self.prepared.run.epochs / 2)
        )
        if state.global_step % every == 0 or state.global_step == state.max_steps:
            self._score(state)
        if self.until is not None and time.time() >= self.until:
            control.should_save = control.should_training_stop = True

    def _score(self, state: Any) -> None:
        """The held-out rows as the model is now. The trainer's own history keeps it, and a checkpoint with it."""
        if self.prepared.held_rows:
            figure, loss = score_held_out(self.prepared)
            entry = {"step": state.global_step, "epoch": round(state.epoch or 0.0, 4)}
            state.log_history.append({**entry, "held_out": figure, "held_out_loss": loss})


def score_held_out(prepared: Prepared) -> tuple[float, float | None]:
    """The task's figure on the held-out rows, and the mean loss over their batches (not for SQuAD)."""
    predictions, loss = held_out_predictions(prepared)
    return prepared.task.figure(predictions, references(prepared.task, prepared.held_rows)), loss


def held_out_predictions(prepared: Prepared) -> tuple[Predictions, float | None]:
    """For the held-out rows, as the model is now, and the mean loss over their batches (not for SQuAD)."""
    model, task = prepared.model, prepared.task
    was_training = model.training
    model.eval()
    order = np.argsort(prepared.held.lengths, kind="stable")
    outputs: list[tuple[Any, ...]] = []
    losses = []
    with torch.no_grad():
        for first in range(0, len(order), prepared.run.batch):
            chosen = order[first : first + prepared.run.batch]
            batch = collate(prepared.tokenizer, [prepared.held[int(i)] for i in chosen])
            output = model(**{name: value.to(model.device) for name, value in batch.items()})
            loss = output.get("loss")
            if loss is not None:
                losses.append((float(loss), len(chosen)))
            logits = (output["start_logits"], output["end_logits"]) if task.is_squad else (output["logits"],)
            outputs += zip(*(part.float().cpu().numpy() for part in logits), strict=True)
    model.train(was_training)
    rows = [outputs[i] for i in np.argsort(order)]
    stacked = [_stacked([row[part] for row in rows]) for part in range(len(rows[0]))]
    found = decode(task, stacked if task.is_squad else stacked[0], prepared.held, prepared.held_rows)
    count = sum(rows for _, rows in losses)
    return found, sum(loss * rows for loss, rows in losses) / count if count else None


def _stacked(rows: list[Any]) -> Any:
    """Logits of rows of different lengths in one array; what is padded can be no answer."""
    whole = np.full((len(rows), max(len(row) for row in rows)), -np.inf, dtype=np.float32)
    for line, row in zip(whole, rows, strict=True):
        line[: len(row)] = row
    return whole


def train(
    prepared: Prepared,
    out: str | os.PathLike[str],
    resume: bool = False,
    checkpoint_steps: int = 100,
    log_steps: int | None = 10,
    report: Progress | None = None,
    keep_model: bool = True,
    until: float | None = None,
) -> Result:
    """Fine-tune and evaluate. ``out`` gets ``run.json``, ``log.jsonl``, checkpoints, and the model.

    ``log_steps`` is None for about `CURVE_POINTS` of them. At the time ``until`` (seconds since the epoch) a checkpoint
    is written and `OutOfTime` raised.
    """
    run, folder = prepared.run, Path(out)
    checkpoint = check_folder(run, folder, resume)
    processes = PartialState().num_processes
    if run.batch % processes:
        raise ValueError(f"batch = {run.batch}: not a multiple of the {processes} processes")
    if log_steps is None:
        log_steps = max(1, int(len(prepared.train) // run.batch * run.epochs) // CURVE_POINTS)
    keep_freed_memory()
    main = PartialState().is_main_process
    if main:
        folder.mkdir(parents=True, exist_ok=True)
        write_text(folder / "run.json", json.dumps(settings(run), indent=2) + "\n")
    log = _Log(folder / "log.jsonl", prepared, report, until)
    if main and checkpoint is None:
        log.path.unlink(missing_ok=True)
        # Those of an earlier run would be taken for this one's when it is resumed.
        for old in folder.glob("checkpoint-*"):
            shutil.rmtree(old)
    started = time.monotonic()
    # Dropout starts from the same state in every arm, however many numbers calibration drew.
    set_seed(run.seed)
    trainer = _Trainer(
        run,
        model=prepared.model,
        args=TrainingArguments(
            output_dir=str(folder),
            per_device_train_batch_size=run.batch // processes,
            num_train_epochs=run.epochs,
            learning_rate=run.learning_rate,
            weight_decay=0.01,
            warmup_steps=run.warmup,
            logging_steps=log_steps,
            save_steps=checkpoint_steps,
            save_total_limit=1,
            seed=run.seed,
            report_to=[],
            disable_tqdm=True,
            log_level="error",
            remove_unused_columns=False,
            dataloader_pin_memory=torch.cuda.is_available(),
            use_cpu=not torch.cuda.is_available(),
            average_tokens_across_devices=False,
        ),
        train_dataset=prepared.train,
        data_collator=functools.partial(collate, prepared.tokenizer),
        callbacks=[log],
    )
    _silence(trainer)
    with training_products(prepared.model, run.products):
        trainer.train(resume_from_checkpoint=str(checkpoint) if checkpoint else None)
    if until is not None and time.time() >= until:
        raise OutOfTime(f"{run.cell}: step {trainer.state.global_step} of {trainer.state.max_steps}")
    predictions = predict(prepared.model, prepared, trainer)
    scores = prepared.task.scores(predictions, references(prepared.task, prepared.dev_rows))
    if main and keep_model:
        save_model(prepared.model, folder / "model")
        prepared.tokenizer.save_pretrained(folder / "model")
        write_text(folder / "model" / "run.json", json.dumps(settings(run), indent=2) + "\n")
    return Result(scores, predictions, log.losses, time.monotonic() - started, _curve(trainer))


def _curve(trainer: Trainer) -> list[dict[str, float]]:
    wanted = ("step", "epoch", "loss", "learning_rate", "held_out", "held_out_loss")
    entries = [
        {k: entry[k] for k in wanted if entry.get(k) is not None} for entry in trainer.state.log_history
    ]
    return [entry for entry in entries if "loss" in entry or "held_out" in entry]


def predict(model: PreTrainedModel, prepared: Prepared, trainer: Trainer | None = None) -> Predictions:
    """Predictions for the dev rows, in their order; batches hold rows of like lengths."""
    if trainer is None:
        # A Trainer makes its output folder even if nothing is trained.
        with tempfile.TemporaryDirectory() as folder:
            return predict(model, prepared, _evaluator(model, prepared, folder))
    order = np.argsort(prepared.dev.lengths, kind="stable")[::-1]
    ordered = Features([prepared.dev[int(i)] for i in order])
    fitting = EVAL_BATCH if torch.cuda.is_available() else EVAL_TOKENS // max(prepared.dev.lengths)
    trainer.args.per_device_eval_batch_size = max(1, min(EVAL_BATCH, fitting))
    output = trainer.predict(ordered).predictions
    back = np.argsort(order)
    restored = tuple(part[back] for part in output) if isinstance(output, tuple) else output[back]
    return decode(prepared.task, restored, prepared.dev, prepared.dev_rows)


def _evaluator(model: PreTrainedModel, prepared: Prepared, folder: str) -> Trainer:
    trainer = _Trainer(
        prepared.run,
        model=model,
        args=TrainingArguments(
            output_dir=folder,
            report_to=[],
            disable_tqdm=True,
            log_level="error",
            remove_unused_columns=False,
            use_cpu=not torch.cuda.is_available(),
            dataloader_pin_memory=torch.cuda.is_available(),
        ),
        data_collator=functools.partial(collate, prepared.tokenizer),
    )
    _silence(trainer)
    return trainer


def _silence(trainer: Trainer) -> None:
    """Without its bar the Trainer prints every log; ours go to a file and to the caller."""
    from transformers.trainer_callback import PrinterCallback

    trainer.remove_callback(PrinterCallback)
