"""What is trained: the description of one run. Checked without PyTorch, so that a bad option is refused at once."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, get_args

from softermax.finetune.data import Rows, Split, load_rows, subset
from softermax.finetune.own_data import OwnData, read_own_task
from softermax.finetune.tasks import OWN, Task, get_task
from softermax.rivals import Rival, get_attention

Arm = Literal["fp32", "int8", "softermax"]
ARMS: tuple[Arm, ...] = get_args(Arm)
Products = Literal["float32", "bfloat16"]
PRODUCTS: tuple[Products, ...] = get_args(Products)
ABSORBED = "+absorbed"
"""At the end of a preset's name: log2(e) is absorbed into the query weights before training."""


@dataclass(frozen=True)
class Stage:
    """How long a stage trains, and how fast."""

    epochs: float
    learning_rate: float


@dataclass(frozen=True)
class Run:
    """What is trained. Two runs with equal fields give equal results on the same machine."""

    task: str = "movies"
    arm: Arm = "softermax"
    preset: str = "paper"
    """The spec of the softermax arm, with ``+absorbed`` where log2(e) goes into the weights, or ``rival:NAME``; other
    arms ignore it."""
    model: str = "minilm"
    seed: int = 0
    epochs: float = 2.0
    learning_rate: float = 1e-4
    batch: int = 32
    """Rows per step, over all processes."""
    train_rows: int | None = None
    dev_rows: int | None = None
    max_length: int | None = None
    warmup: float = 0.1
    """Share of the steps."""
    dropout: float | None = None
    """None keeps the model's own."""
    keep_head: bool = False
    """Start with the head that ``model`` has instead of a fresh one."""
    held_out: int = 0
    """Rows of train that are not trained on, but scored along the way: the curve of the training."""
    first: Stage | None = None
    """An fp32 stage before this one, shared by all arms of a seed."""
    data: OwnData | None = None
    """Rows of one's own, for the task ``own``."""
    products: Products = "float32"
    """The type that linear layers multiply in while they train; dev is scored in float32."""

    def __post_init__(self) -> None:
        if (self.data is not None) != (self.task == OWN):
            raise ValueError(f"task = {self.task!r}: own data is the task {OWN!r}, and needs it")
        if self.data is None:
            get_task(self.task)
        if self.arm not in ARMS:
            raise ValueError(f"unknown arm {self.arm!r}: must be one of {', '.join(ARMS)}")
        if self.arm == "softermax":
            base = self.base
            if self.is_absorbed and base != "paper":
                raise ValueError(f"preset = {self.preset!r}: either a fold or {ABSORBED}, not both")
        stages = {"": self} | ({"first stage: ": self.first} if self.first else {})
        for where, stage in stages.items():
            for name in ("epochs", "learning_rate"):
                if getattr(stage, name) <= 0:
                    raise ValueError(f"{where}{name} = {getattr(stage, name)}: must be above 0")
        if self.products not in PRODUCTS:
            raise ValueError(f"unknown products {self.products!r}: must be one of {', '.join(PRODUCTS)}")
        if self.batch <= 0:
            raise ValueError(f"batch = {self.batch}: must be above 0")
        for name in ("train_rows", "dev_rows"):
            if getattr(self, name) is not None and getattr(self, name) < 1:
                raise ValueError(f"{name} = {getattr(self, name)}: must be 1 or more")
        if self.held_out < 0:
            raise ValueError(f"held_out = {self.held_out}: must be 0 or more")
        if self.max_length is not None and self.max_length < 8:
            raise ValueError(f"max_length = {self.max_length}: must be 8 or more")
        if not 0 <= self.warmup < 1:
            raise ValueError(f"warmup = {self.warmup}: must be 0 to below 1")
        if self.dropout is not None and not 0 <= self.dropout < 1:
            raise ValueError(f"dropout = {self.dropout}: must be 0 to below 1")

    @property
    def is_absorbed(self) -> bool:
        return self.arm == "softermax" and self.preset.endswith(ABSORBED)

    @property
    def spec_name(self) -> str:
        """What `get_attention` takes."""
        return self.preset.removesuffix(ABSORBED)

    @property
    def base(self) -> str:
        """``paper`` where scores are powers of two as they are; ``fold`` for base e, which every rival has."""
        spec = get_attention(self.spec_name)
        return "fold" if isinstance(spec, Rival) else spec.base

    @property
    def first_run(self) -> Run:
        """The fp32 stage that this run starts from, as a run of its own."""
        if self.first is None:
            raise ValueError(f"{self.cell}: has one stage only")
        return dataclasses.replace(
            self,
            arm="fp32",
            preset="paper",
            first=None,
            epochs=self.first.epochs,
            learning_rate=self.first.learning_rate,
        )

    @property
    def cell(self) -> str:
        """The name of this run's place in a table."""
        preset = f"-{Path(self.preset).stem}" if self.arm == "softermax" else ""
        name = f"{start_name(self.model)}-{self.task}-{self.arm}{preset}-{self.seed}"
        return name.replace("+", "-").replace(":", "-")


def start_name(model: str) -> str:
    """A model's name in the names of files. Folders of one name differ in a digest of what they hold."""
    folder = Path(model)
    if not folder.is_dir():
        return model.replace("/", "--")
    return f"{folder.resolve().name}-{folder_digest(folder)[:8]}"


def folder_digest(folder: Path) -> str:
    """Of a model's config and weights."""
    files = sorted(path for path in folder.iterdir() if path.suffix in (".json", ".safetensors", ".bin"))
    state = tuple((path.name, path.stat().st_size, path.stat().st_mtime_ns) for path in files)
    return _digest(folder.resolve(), state)


@lru_cache(maxsize=64)
def _digest(folder: Path, state: tuple[tuple[str, int, int], ...]) -> str:
    digest = hashlib.sha256()
    for name, _, _ in state:
        digest.update(name.encode() + b"\0" + hashlib.sha256((folder / name).read_bytes()).digest())
    return digest.hexdigest()


def settings(run: Run) -> dict[str, Any]:
    """What ``run.json`` holds: the fields of a run, and the spec that its preset names."""
    spec = _setting(run) if run.arm == "softermax" else None
    values = {**dataclasses.asdict(run), "spec": spec}
    if run.data is None:
        del values["data"]  # as in the files of runs from before there was own data
    return values


def _setting(run: Run) -> dict[str, Any]:
    spec = get_attention(run.spec_name)
    return {"rival": spec.name} if isinstance(spec, Rival) else spec.to_dict()


def run_from(values: dict[str, Any]) -> Run:
    """A run from the fields that a file holds."""
    known = {k: v for k, v in values.items() if k != "spec"}
    if known.get("first") is not None:
        known["first"] = Stage(**known["first"])
    if known.get("data") is not None:
        texts = known["data"]["texts"]
        known["data"] = OwnData(**known["data"] | {"texts": None if texts is None else tuple(texts)})
    return Run(**known)


def task_of(run: Run) -> Task:
    """The task by its name, or the one that own data makes."""
    return get_task(run.task) if run.data is None else read_own_task(run.data).task


def rows_of(run: Run, split: Split, data_dir: str | os.PathLike[str] | None = None) -> Rows:
    """The rows that a run takes of a split."""
    limit = run.train_rows if split == "train" else run.dev_rows
    if run.data is None:
        return load_rows(get_task(run.task), split, data_dir, limit)
    own = read_own_task(run.data)
    return subset(own.train if split == "train" else own.dev, split, limit)


def read_run(path: Path) -> Run:
    return run_from(json.loads(path.read_text(encoding="utf-8")))


def read_trained(folder: Path) -> Run:
    """The run of a model's folder that fine-tuning wrote, for Softermax without retraining."""
    try:
        run = read_run(folder / "run.json")
    except (OSError, json.JSONDecodeError, TypeError):
        raise ValueError(
            f"{folder}: no run.json; it must be the folder `model` of a fine-tuning run"
        ) from None
    if run.arm == "softermax":
        raise ValueError(
            f"{folder}: was trained with Softermax; without retraining means an int8 or fp32 arm"
        )
    return run


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
