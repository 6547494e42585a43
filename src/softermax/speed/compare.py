"""One classifier in every form it can run in: how accurate, how fast and how large each of them is on a user's rows.

Every form is first stored as a user would ship it, then measured as it is read from there. All see the same tokens. Times
are of one batch of rows of the median length, interleaved. Memory is what a new process grows by when it reads a form and
runs that batch.
"""

from __future__ import annotations

import copy
import ctypes
import gc
import importlib.util
import multiprocessing
import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from softermax.extras import need

if not TYPE_CHECKING:
    need("torch", "torch")
    need("transformers", "transformers")

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import AutoConfig, AutoModelForSequenceClassification, PreTrainedModel

from softermax.files import replacing
from softermax.finetune.data import Example, subset
from softermax.finetune.own_data import OwnData, read_labelled
from softermax.finetune.run import read_run, rows_of, task_of
from softermax.models import deployment, quantization
from softermax.models.drop_in import enable, enabled
from softermax.models.onnx import export_model, session
from softermax.progress import Progress, silent
from softermax.pytorch import onnx_operator
from softermax.spec import AnySpec
from softermax.speed.model import plain_session, quantise_dynamic
from softermax.speed.race import seconds_of

Kind = Literal["torch", "simulated", "deployed", "ours", "plain", "openvino"]
Batch = Mapping[str, Tensor]
Run = Callable[[Batch], NDArray[Any]]
"""Tokens to logits."""
BATCH = 16
"""Rows per batch while accuracy is measured, and while a model is calibrated."""
CALIBRATION_ROWS = 256
TOLERANCE = 0.2
"""Of an int8 export, in units of its largest output: only a wrong graph is refused, because accuracy is measured here."""
FP32 = "fp32"


@dataclass(frozen=True)
class Form:
    """A form of the model as it lies on the disk, or why it does not."""

    name: str
    runtime: str
    kind: Kind
    path: Path | None = None
    skipped: str | None = None


@dataclass(frozen=True)
class Compared:
    """What was measured of a form. A simulation has an accuracy only."""

    form: str
    runtime: str
    accuracy: float | None = None
    """In per cent."""
    milliseconds: float | None = None
    """Median of one batch."""
    speedup: float | None = None
    """Median of PyTorch's time in fp32 over its time, round by round."""
    disk_megabytes: float | None = None
    memory_megabytes: float | None = None
    skipped: str | None = None

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Rows:
    """Tokenised rows: batches of like lengths, their labels, one batch to time, batches to calibrate with."""

    batches: Sequence[Batch]
    labels: NDArray[np.int64]
    timed: Batch
    calibration: Sequence[Batch]

    @property
    def timed_shape(self) -> tuple[int, int]:
        rows, tokens = self.timed["input_ids"].shape
        return rows, tokens


def class_names(config: Any) -> tuple[str, ...]:
    """A classifier's classes as a label column has them: their names, or numbers where it has none."""
    if getattr(config, "num_labels", 0) < 2:
        raise ValueError("the model has no classes: must be a classifier, as `softermax finetune` makes one")
    names = [str(config.id2label[number]) for number in range(config.num_labels)]
    unnamed = all(name == f"LABEL_{number}" for number, name in enumerate(names))
    return tuple(str(number) for number in range(len(names))) if unnamed else tuple(names)


def load_classifier(path: str) -> PreTrainedModel:
    """A fine-tuned classifier, from a folder or the hub."""
    config = AutoConfig.from_pretrained(path)
    kind = (config.architectures or ["no architecture"])[0]
    if not kind.endswith("ForSequenceClassification"):
        raise ValueError(
            f"{path}: {kind} is not a classifier of texts; must be one, as `softermax finetune --arm fp32` makes it"
        )
    return (
        quantization.load(path)
        if Path(path).is_dir()
        else AutoModelForSequenceClassification.from_pretrained(path)
    )


def compared_rows(
    path: str, config: Any, data: OwnData | None, data_dir: str | None, limit: int
) -> tuple[list[Example], list[Example], str]:
    """Rows to score, rows to calibrate with, and where they come from.

    They are those that fine-tuning scored, and rows of train, where the model's folder says what it was trained on. Own
    data is scored whole, and its texts calibrate too, unless the model was trained on this very file.
    """
    classes = class_names(config)
    trained = Path(path) / "run.json"
    run = read_run(trained) if trained.is_file() else None
    if data is not None and not (run and run.data and _same(run.data.path, data.path)):
        rows: Any = subset(read_labelled(data, classes), "dev", limit)
        return rows, rows[:CALIBRATION_ROWS], Path(data.path).name
    if run is None:
        raise ValueError(f"{path}: has no run.json that says what it was trained on; give --data")
    dev: Any = rows_of(replace(run, dev_rows=min(limit, run.dev_rows or limit)), "dev", data_dir)
    train: Any = rows_of(replace(run, train_rows=CALIBRATION_ROWS), "train", data_dir)
    return dev, train, f"{task_of(run).title}, held out of training"


def _same(one: str, other: str) -> bool:
    return Path(one).resolve() == Path(other).resolve()


def tokenised(
    tokenizer: Any, rows: Sequence[Example], calibration: Sequence[Example], max_length: int, timed_rows: int
) -> Rows:
    """Rows in order of their lengths, so that little is padded."""
    encode = partial(tokenizer, truncation=True, max_length=max_length)
    lengths = [len(encode(*row.texts)["input_ids"]) for row in rows]
    order = [int(i) for i in np.argsort(lengths, kind="stable")]
    ordered = [rows[i] for i in order]

    def batches(some: Sequence[Example], size: int) -> list[Batch]:
        columns = range(len(some[0].texts))
        return [
            dict(encode(*([row.texts[c] for row in some[at : at + size]] for c in columns), padding=True, return_tensors="pt"))
            for at in range(0, len(some), size)
        ]  # fmt: skip

    middle = max(0, len(ordered) // 2 - timed_rows // 2)
    timed = (ordered[middle : middle + timed_rows] * timed_rows)[:timed_rows]
    return Rows(
        batches(ordered, BATCH),
        np.array([int(row.label) for row in ordered]),
        batches(timed, timed_rows)[0],
        batches(calibration, BATCH),
    )


def compare_forms(
    model: PreTrainedModel,
    rows: Rows,
    spec: AnySpec | str = deployment.SPEC,
    tuned: PreTrainedModel | None = None,
    rounds: int = 30,
    threads: int = 1,
    memory: bool = True,
    progress: Progress = silent,
) -> list[Compared]:
    """Every form of a classifier in floating point. ``tuned`` is its int8 model that was trained with Softermax, and
    stands for what calibration alone would give with ``spec``."""
    if quantization.is_quantized(model) or enabled(model) is not None:
        raise ValueError(
            "the model is quantised or has Softermax: give the one in floating point that it was made of, and this one as "
            "tuned"
        )
    if tuned is not None and (not quantization.is_quantized(tuned) or enabled(tuned) is None):
        raise ValueError("tuned: must be a quantised model with Softermax, as `softermax finetune` makes one")
    with tempfile.TemporaryDirectory() as folder:
        forms = _stored(model, rows, spec, tuned, Path(folder), threads, progress)
        there = [form for form in forms if form.path is not None]
        runs = {form: opened(form, threads) for form in there}
        accuracies = {}
        for number, (form, run) in enumerate(runs.items()):
            progress(number, len(there), f"{form.runtime} {form.name}: accuracy")
            accuracies[form] = _accuracy(run, rows)
        progress(len(there), len(there), "latency")
        timed = {
            f"{f.runtime} {f.name}": partial(run, rows.timed)
            for f, run in runs.items()
            if f.kind != "simulated"
        }
        seconds = seconds_of(timed, rounds, threads)
        used = _memory(there, rows.timed, threads) if memory else {}
        return [
            _compared(form, accuracies.get(form), seconds, used.get(f"{form.runtime} {form.name}"))
            for form in forms
        ]


def _compared(
    form: Form, accuracy: float | None, seconds: Mapping[str, NDArray[np.float64]], memory: float | None
) -> Compared:
    own = seconds.get(f"{form.runtime} {form.name}")
    if form.path is None or own is None:
        return Compared(form.name, form.runtime, accuracy, skipped=form.skipped)
    base = seconds[f"PyTorch {FP32}"]
    return Compared(
        form.name, form.runtime, accuracy, 1e3 * float(np.median(own)), float(np.median(base / own)),
        _size(form.path) / 1e6, memory,
    )  # fmt: skip


def _stored(
    model: PreTrainedModel, rows: Rows, spec: AnySpec | str, tuned: PreTrainedModel | None, folder: Path,
    threads: int, progress: Progress,
) -> list[Form]:  # fmt: skip
    """All forms, each in a place of its own in the folder."""
    total = 4
    progress(0, total, "fp32: stored and exported")
    model.eval()
    model.set_attn_implementation("sdpa")
    model.save_pretrained(folder / FP32)
    forms = [Form(FP32, "PyTorch", "torch", folder / FP32)]
    model.set_attn_implementation("eager")  # the form that other people's optimisers know
    export_model(model, folder / "fp32.onnx")
    quantise_dynamic(folder / "fp32.onnx", folder / "dynamic.onnx")

    progress(1, total, "int8: calibrated and exported")
    exact = quantization.quantize(copy.deepcopy(model), rows.calibration)
    quantization.save(exact, folder / "int8")
    forms.append(
        Form(
            "int8, simulated", "PyTorch", "simulated", folder / "int8", "accuracy only: it computes in floats"
        )
    )
    export_model(exact, folder / "int8.onnx", TOLERANCE)
    del exact

    progress(2, total, "Softermax: calibrated and deployed")
    if tuned is None:
        tuned = copy.deepcopy(model)
        enable(tuned, spec)
        quantization.quantize(tuned, rows.calibration)
    try:
        deployment.save(deployment.deploy(tuned), folder / "deployed")
        forms.append(Form("int8 Softermax", "PyTorch", "deployed", folder / "deployed"))
    except (ValueError, RuntimeError) as error:
        forms.append(Form("int8 Softermax", "PyTorch", "deployed", skipped=str(error)))
    forms += [
        Form(FP32, "onnxruntime", "plain", folder / "fp32.onnx"),
        Form("int8, its dynamic", "onnxruntime", "plain", folder / "dynamic.onnx"),
        Form("int8 exact softmax", "onnxruntime", "ours", folder / "int8.onnx"),
    ]

    progress(3, total, "Softermax: exported")
    if onnx_operator.library() is None:
        reason = "its operator is not built: install the package with a compiler"
        forms.append(Form("int8 Softermax", "onnxruntime", "ours", skipped=reason))
    else:
        export_model(tuned, folder / "softermax.onnx", TOLERANCE, operator="custom")
        forms.append(Form("int8 Softermax", "onnxruntime", "ours", folder / "softermax.onnx"))
    if importlib.util.find_spec("openvino") is None:
        forms.append(Form(FP32, "OpenVINO", "openvino", skipped="not installed: pip install openvino"))
    else:
        forms.append(Form(FP32, "OpenVINO", "openvino", folder / "fp32.onnx"))
    progress(total, total, "")
    return forms


def opened(form: Form, threads: int) -> Run:
    """A form as it is read from the disk."""
    path = form.path
    assert path is not None
    if form.kind == "ours":
        return _of_session(session(path))
    if form.kind == "plain":
        return _of_session(plain_session(path, threads))
    if form.kind == "openvino":
        return _of_openvino(path, threads)
    model: Any = deployment.load(path) if form.kind == "deployed" else quantization.load(path).eval()
    if form.kind == "torch":
        model.set_attn_implementation("sdpa")
    return partial(_torch_logits, model)


@torch.inference_mode()
def _torch_logits(model: Any, batch: Batch) -> NDArray[Any]:
    return model(**batch).logits.numpy()  # type: ignore[no-any-return]


def _of_session(runner: Any) -> Run:
    names = [value.name for value in runner.get_inputs()]
    return lambda batch: runner.run(None, _feeds(names, batch))[0]


def _feeds(names: Sequence[str], batch: Batch) -> dict[str, NDArray[Any]]:
    """What a graph takes. A tokenizer that makes no token_type_ids means zeros, as the model itself does."""
    zeros = torch.zeros_like(batch["input_ids"])
    return {
        name: (zeros if name == "token_type_ids" and name not in batch else batch[name]).numpy()
        for name in names
    }


def _of_openvino(path: Path, threads: int) -> Run:
    openvino: Any = importlib.import_module("openvino")
    compiled = openvino.Core().compile_model(str(path), "CPU", {"INFERENCE_NUM_THREADS": threads})
    names = [port.get_any_name() for port in compiled.inputs]
    return lambda batch: np.asarray(compiled(_feeds(names, batch))[compiled.output(0)])


def _accuracy(run: Run, rows: Rows) -> float:
    found = np.concatenate([run(batch).argmax(axis=1) for batch in rows.batches])
    return 100.0 * float((found == rows.labels).mean())


def _size(path: Path) -> int:
    """Of a file, or of the weights and the config in a folder."""
    return sum(one.stat().st_size for one in path.iterdir()) if path.is_dir() else path.stat().st_size


def _memory(forms: Sequence[Form], batch: Batch, threads: int) -> dict[str, float]:
    arrays = {name: value.numpy() for name, value in batch.items()}
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        return pool.submit(
            resident_growth, [f for f in forms if f.kind != "simulated"], arrays, threads
        ).result()


def resident_growth(
    forms: Sequence[Form], arrays: Mapping[str, NDArray[Any]], threads: int
) -> dict[str, float]:
    """Megabytes that this process grows by with each form. All of them stay, so that none takes what another gave back."""
    torch.set_num_threads(threads)
    batch = {name: torch.from_numpy(value) for name, value in arrays.items()}
    for name in {"onnxruntime", "openvino"} & {form.runtime.lower() for form in forms}:
        importlib.import_module(name)
    kept, found = [], {}
    for form in forms:
        before = _resident()
        kept.append(opened(form, threads))
        kept[-1](batch)
        found[f"{form.runtime} {form.name}"] = (_resident() - before) / 1e6
    return found


def _resident() -> int:
    gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def plot_compared(path: str | os.PathLike[str], found: Sequence[Compared], title: str) -> None:
    """Accuracy over latency, a point per form; its area is the size on the disk."""
    need("matplotlib", "cli")
    from matplotlib.figure import Figure

    figure: Any = Figure(figsize=(7.5, 4.5), layout="constrained")
    axes = figure.subplots()
    for number, one in enumerate(one for one in found if one.milliseconds is not None):
        axes.scatter(
            one.milliseconds, one.accuracy, s=20 + 3 * (one.disk_megabytes or 0), alpha=0.75,
            color=f"C{number}", marker="s" if one.runtime == "PyTorch" else "o", label=f"{one.runtime}: {one.form}",
        )  # fmt: skip
    axes.set(xlabel="ms per batch (median)", ylabel="accuracy, %", title=title)
    axes.set_xlim(left=0)
    axes.margins(0.15)
    axes.legend(fontsize="small", markerscale=0.5)
    with replacing(path) as partial_file:
        figure.savefig(partial_file, format=Path(path).suffix.removeprefix("."))
