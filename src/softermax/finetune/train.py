"""One run: pretrained model, calibration, fine-tuning, predictions. On Trainer and Accelerate.

The arms differ in arithmetic only: ``fp32`` trains in floating point, ``int8`` adds 8-bit weights and
activations under an exact softmax (the paper's baseline), ``softermax`` puts Softermax into that.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import os
import shutil
import tempfile
import time
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from softermax.extras import need

if not TYPE_CHECKING:
    need("accelerate", "transformers")
    need("transformers", "transformers")

import numpy as np
import torch
from accelerate import PartialState
from transformers import (
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
from softermax.finetune.data import Rows, load_rows
from softermax.finetune.features import Bucketing, Features, collate, decode, make_features, references
from softermax.finetune.tasks import Predictions, Scores, Task, get_task
from softermax.models.drop_in import disable, enable
from softermax.models.pretrained import allowed_models, find_model
from softermax.models.quantization import quantize
from softermax.models.quantization import save as save_model
from softermax.progress import Progress
from softermax.spec import get_spec

Arm = Literal["fp32", "int8", "softermax"]
ARMS: tuple[Arm, ...] = ("fp32", "int8", "softermax")
"""Called with steps done, steps in all and a note."""

CALIBRATION_ROWS = 256
EVAL_BATCH = 64


@dataclass(frozen=True)
class Run:
    """What is trained. Two runs with equal fields give equal results on the same machine."""

    task: str = "movies"
    arm: Arm = "softermax"
    preset: str = "paper"
    """The spec of the softermax arm; other arms ignore it."""
    model: str = "minilm"
    seed: int = 0
    epochs: float = 2.0
    learning_rate: float = 1e-4
    batch: int = 32
    """Rows a step, over all processes."""
    train_rows: int | None = None
    dev_rows: int | None = None
    max_length: int | None = None
    warmup: float = 0.1
    """Share of the steps."""
    dropout: float | None = None
    """None keeps the model's own."""

    def __post_init__(self) -> None:
        get_task(self.task)
        if self.arm not in ARMS:
            raise ValueError(f"unknown arm {self.arm!r}: must be one of {', '.join(ARMS)}")
        if self.arm == "softermax":
            get_spec(self.preset)
        for name in ("epochs", "learning_rate", "batch"):
            if getattr(self, name) <= 0:
                raise ValueError(f"{name} = {getattr(self, name)}: must be above 0")
        if self.max_length is not None and self.max_length < 8:
            raise ValueError(f"max_length = {self.max_length}: must be 8 or more")
        if not 0 <= self.warmup < 1:
            raise ValueError(f"warmup = {self.warmup}: must be 0 to below 1")

    @property
    def cell(self) -> str:
        """The name of this run's place in a table."""
        preset = f"-{Path(self.preset).stem}" if self.arm == "softermax" else ""
        model = Path(self.model).name
        return f"{model}-{self.task}-{self.arm}{preset}-{self.seed}".replace("+", "-")


def settings(run: Run) -> dict[str, Any]:
    """What ``run.json`` holds: the fields of a run, and the spec that its preset names."""
    spec = get_spec(run.preset).to_dict() if run.arm == "softermax" else None
    return {**dataclasses.asdict(run), "spec": spec}


def read_run(path: Path) -> Run:
    values = json.loads(path.read_text(encoding="utf-8"))
    values.pop("spec", None)
    return Run(**values)


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


@dataclass(frozen=True)
class Result:
    scores: Scores
    predictions: Predictions
    losses: list[float]
    seconds: float


def prepare(run: Run, data_dir: str | os.PathLike[str] | None = None) -> Prepared:
    """Read the data, build and calibrate the model. Whatever is wrong with the input shows here."""
    task = get_task(run.task)
    rows = [
        load_rows(task, "train", data_dir, run.train_rows),
        load_rows(task, "dev", data_dir, run.dev_rows),
    ]
    tokenizer, model = load_pretrained(run.model, task, run.seed, run.dropout)
    longest = getattr(model.config, "max_position_embeddings", 512)
    length = min(run.max_length or task.max_length, longest)
    train, dev = (
        make_features(task, part, tokenizer, length, training)
        for part, training in zip(rows, (True, False), strict=True)
    )
    Bucketing(train.lengths, run.batch, run.seed)
    if run.arm == "softermax":
        enable(model, run.preset)
    else:
        disable(model)
    prepared = Prepared(run, task, tokenizer, model, rows[0], rows[1], train, dev)
    if run.arm != "fp32":
        calibrate(prepared)
    return prepared


def load_pretrained(
    name: str, task: Task, seed: int, dropout: float | None = None
) -> tuple[Any, PreTrainedModel]:
    """Tokenizer and model with a fresh head, the same for a seed whatever the arm."""
    where = find_model(name)
    if where.gguf_file:
        raise ValueError(f"model {name!r}: a GGUF file cannot be fine-tuned here")
    set_seed(seed)
    head: dict[str, Any] = {}
    if not task.is_squad:
        head["num_labels"] = 1 if task.is_regression else len(task.labels)
        if task.is_regression:
            head["problem_type"] = "regression"
    auto = AutoModelForQuestionAnswering if task.is_squad else AutoModelForSequenceClassification
    try:
        tokenizer = AutoTokenizer.from_pretrained(where.path)
        model = auto.from_pretrained(where.path, **head)
    except (OSError, ValueError, KeyError) as error:
        reason = str(error).strip().splitlines()[0]
        raise ValueError(f"model {name!r} cannot be loaded ({reason}); {allowed_models()}") from error
    if dropout is not None:
        for module in model.modules():
            if isinstance(module, torch.nn.Dropout):
                module.p = dropout
    return tokenizer, model


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


class _Trainer(Trainer):
    """Trainer with our bucketing, and a loss that is the mean over rows whatever the model accepts."""

    def __init__(self, run: Run, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._run = run
        self.model_accepts_loss_kwargs = False

    def _get_train_sampler(self, train_dataset: Any = None) -> Any:
        dataset: Any = train_dataset if train_dataset is not None else self.train_dataset
        return Bucketing(dataset.lengths, self._run.batch, self._run.seed)

    def compute_loss(
        self, model: Any, inputs: Any, return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Any:
        outputs = model(**inputs)
        return (outputs["loss"], outputs) if return_outputs else outputs["loss"]


class _Log(TrainerCallback):
    """A line of JSON for every logged step, with the time left, and the caller's progress display."""

    def __init__(self, path: Path, report: Progress | None) -> None:
        self.path, self.report = path, report
        self.started = 0.0
        self.first_step = 0
        self.losses: list[float] = []

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.started, self.first_step = time.monotonic(), state.global_step
        self.losses = [entry["loss"] for entry in state.log_history if "loss" in entry]

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


def train(
    prepared: Prepared,
    out: str | os.PathLike[str],
    resume: bool = False,
    checkpoint_steps: int = 100,
    log_steps: int = 10,
    report: Progress | None = None,
    keep_model: bool = True,
) -> Result:
    """Fine-tune and evaluate. ``out`` gets ``run.json``, ``log.jsonl``, checkpoints, and the model."""
    run, folder = prepared.run, Path(out)
    checkpoint = check_folder(run, folder, resume)
    processes = PartialState().num_processes
    if run.batch % processes:
        raise ValueError(f"batch = {run.batch}: not a multiple of the {processes} processes")
    main = PartialState().is_main_process
    if main:
        folder.mkdir(parents=True, exist_ok=True)
        write_text(folder / "run.json", json.dumps(settings(run), indent=2) + "\n")
    log = _Log(folder / "log.jsonl", report)
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
    trainer.train(resume_from_checkpoint=str(checkpoint) if checkpoint else None)
    predictions = predict(prepared.model, prepared, trainer)
    scores = prepared.task.scores(predictions, references(prepared.task, prepared.dev_rows))
    if main and keep_model:
        save_model(prepared.model, folder / "model")
        prepared.tokenizer.save_pretrained(folder / "model")
        write_text(folder / "model" / "run.json", json.dumps(settings(run), indent=2) + "\n")
    return Result(scores, predictions, log.losses, time.monotonic() - started)


def check_folder(run: Run, folder: Path, resume: bool) -> Path | None:
    """The checkpoint to resume from; an error if the folder holds another run."""
    if not resume:
        return None
    if not (folder / "run.json").is_file():
        raise ValueError(f"{folder}: nothing to resume, there is no run.json")
    before = json.loads((folder / "run.json").read_text(encoding="utf-8"))
    for name, value in settings(run).items():
        if before.get(name) != value:
            raise ValueError(
                f"{folder}: its checkpoint has {name} = {before.get(name)!r}, not {value!r}; "
                "resume with the same settings, or take another folder"
            )
    complete = [c for c in folder.glob("checkpoint-*") if _is_complete(c)]
    return max(complete, key=lambda c: int(c.name.rpartition("-")[2]), default=None)


def _is_complete(checkpoint: Path) -> bool:
    """The trainer's state is written last; a run that was killed while saving lacks it."""
    try:
        json.loads((checkpoint / "trainer_state.json").read_text(encoding="utf-8"))
    except (OSError, json.JSONDecodeError):
        return False
    return True


def predict(model: PreTrainedModel, prepared: Prepared, trainer: Trainer | None = None) -> Predictions:
    """Predictions for the dev rows, in their order; batches hold rows of like lengths."""
    if trainer is None:
        # A Trainer makes its output folder even if nothing is trained.
        with tempfile.TemporaryDirectory() as folder:
            return predict(model, prepared, _evaluator(model, prepared, folder))
    order = np.argsort(prepared.dev.lengths, kind="stable")[::-1]
    ordered = Features([prepared.dev[int(i)] for i in order])
    trainer.args.per_device_eval_batch_size = EVAL_BATCH
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


def versions() -> dict[str, str]:
    names = ("softermax", "torch", "transformers", "accelerate", "nvidia-modelopt")
    return {name: version(name) for name in names}
