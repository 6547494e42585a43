"""Whole models with Softermax, in the three forms in which people run them, against what they would run otherwise.

*Deployed* (`softermax.deploy`): int8, against Hugging Face in single precision and onnxruntime after its own dynamic
quantisation, what a user would pick: plainly exported, and with its transformer optimiser before that. *Enabled*
(`enable`): single precision with Softermax, against PyTorch's SDPA. *Exported* (`softermax export --operator custom`): int8
in onnxruntime, against the same export with the exact softmax, and with standard operators.

Outputs are compared with the original's in single precision on real text: MiniLM's sentences, pooled over their tokens.
BERT-Base has random weights here, so only its speed means something: its outputs are no sentences' meaning, and nearness to
them says nothing of a trained model.

With several threads each contestant runs in a process of its own, from what is stored of it: in one process, one runtime's
threads are in the way of another's even where all of them sleep between turns.
"""

from __future__ import annotations

import copy
import itertools
import logging
import tempfile
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from softermax.extras import need

if not TYPE_CHECKING:
    need("torch", "torch")
    need("transformers", "transformers")

import torch
from torch import Tensor
from transformers import AutoModel, BertConfig, BertModel

from softermax.models import quantization
from softermax.models.deployment import SPEC, deploy, load, save
from softermax.models.drop_in import enable, use_softmax
from softermax.models.onnx import export_model, session
from softermax.models.pretrained import load_network, movie_reviews
from softermax.progress import Progress, silent
from softermax.speed.race import OURS, Apart, Contestants, Race, Ratio, chosen, run_races

SHAPES = ((1, 128), (1, 384), (8, 128), (8, 384))
"""Batch and tokens."""
SHORT = (1, 26)
"""One review, as `softermax compare` times it."""
MODELS = ("MiniLM", "BERT-Base")
DEPLOYED, ENABLED, EXPORTED = "deployed", "enabled", "exported"
FP32, DYNAMIC, FUSED = "Hugging Face fp32", "onnxruntime int8", "onnxruntime int8, fused"
SDPA, EXACT, STANDARD = "SDPA fp32", "the export with exact softmax", "the export with standard operators"
TOLERANCE = 0.2
"""Of an export, in units of its largest output: its cosine is measured here, so that only a wrong graph is refused."""
SENTENCES = 64
VOCABULARY = 20000
"""Tokens are drawn from 1000 up to it."""
_FLOAT = 1  # ONNX's number of its type
_SHARE = {384: 0.5, 1024: 0.4, 3072: 0.2}
"""Of the rounds, by tokens in all; all of them for fewer."""


@dataclass(frozen=True)
class ModelRatio:
    """One contestant's time over ours, and how near to single precision we and they are."""

    ratio: Ratio
    cosine: float | None
    their_cosine: float | None

    def to_dict(self) -> dict[str, Any]:
        return self.ratio.to_dict() | {"cosine": self.cosine, "their_cosine": self.their_cosine}


Run = Callable[[Tensor, Tensor], Tensor]
"""Tokens and their mask to hidden states."""


@dataclass
class Runners:
    """A model in all its forms, and their cosines to single precision where there is text to compare on."""

    name: str
    runs: Mapping[str, Run | Apart]
    cosines: Mapping[str, float] = field(default_factory=dict)


def model_forms(with_onnxruntime: bool = True) -> list[tuple[str, str]]:
    """Models and forms; a forced path leaves out what runs in onnxruntime, which cannot be forced."""
    forms = [(name, form) for form in (DEPLOYED, ENABLED) for name in MODELS]
    return [*forms, *([("MiniLM", EXPORTED)] if with_onnxruntime else [])]


def time_models(
    rounds: int,
    threads: int,
    with_onnxruntime: bool = True,
    progress: Progress = silent,
    cases: Sequence[str] = (),
) -> list[ModelRatio]:
    """Every model, form and shape, or those whose case has one of some texts in it; ours first, then the others in turn,
    round by round."""
    planned = [(n, f, chosen(_races(n, f), cases)) for n, f in model_forms(with_onnxruntime)]
    total = sum(len(races) for _, _, races in planned)
    if not total:
        raise ValueError(f"--case {' '.join(cases)}: no case has it in its name")
    found: list[ModelRatio] = []
    done = 0
    for name, form, races in planned:
        if not races:
            continue
        with ExitStack() as stack:
            progress(done, total, f"{name}, {form}: made ready")
            made = runners(name, form, threads, with_onnxruntime, stack)
            running = [replace(race, make=partial(race.make, made)) for race in races]
            step = partial(_further, progress, done, total)
            with torch.inference_mode():
                ratios = run_races(running, rounds, threads, step)
        done += len(races)
        found += [ModelRatio(r, made.cosines.get(OURS), made.cosines.get(r.versus)) for r in ratios]
    return found


def _races(name: str, form: str) -> list[Race]:
    """Contestants are to be made of the runners, which come later."""
    suffix = "" if form == DEPLOYED else f", {form}"
    shapes = (SHORT, *SHAPES) if form == EXPORTED else SHAPES
    return [
        Race("model", f"{name} {batch}x{tokens}{suffix}", tokens, batch * tokens,
             partial(_contestants, batch, tokens), _SHARE.get(batch * tokens, 1.0))
        for batch, tokens in shapes
    ]  # fmt: skip


def _further(progress: Progress, before: int, total: int, done: int, of: int, note: str = "") -> None:
    progress(before + done, total, note)


def _contestants(batch: int, tokens: int, made: Runners) -> Contestants:
    return {
        name: run.called_with(batch, tokens)
        if isinstance(run, Apart)
        else partial(run, *_inputs(batch, tokens))
        for name, run in made.runs.items()
    }


@lru_cache
def _inputs(batch: int, tokens: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(batch * tokens)
    ids = torch.randint(1000, VOCABULARY, (batch, tokens), generator=generator)
    return ids, torch.ones_like(ids)


@dataclass(frozen=True)
class Stored:
    """A contestant on the disk: how it is opened, and from where."""

    kind: str
    path: Path

    def open(self, threads: int) -> Run:
        if self.kind == "int8":
            return _hidden(load(self.path))
        if self.kind in ("fp32", "enabled"):
            model = AutoModel.from_pretrained(self.path).eval()
            return _hidden(enable(model, SPEC) if self.kind == "enabled" else model)
        return _run(session(self.path) if self.kind == "exported" else plain_session(self.path, threads))

    def open_apart(self, threads: int) -> Callable[[int, int], None]:
        """In a new process: calls by batch and tokens."""
        torch.set_num_threads(threads)
        run = self.open(threads)

        def call(batch: int, tokens: int) -> None:
            with torch.inference_mode():
                run(*_inputs(batch, tokens))

        return call


def runners(name: str, form: str, threads: int, with_onnxruntime: bool, stack: ExitStack) -> Runners:
    """A model in one form beside its contestants, stored in a folder until the stack is left."""
    sentences: dict[str, Tensor] | None = None
    calibration: list[dict[str, Tensor]] | None = None
    if name == "MiniLM":
        tokenizer, model = load_network("minilm", AutoModel)
        texts = [text for text, _ in itertools.islice(movie_reviews("rotten_tomatoes"), SENTENCES)]
        sentences = dict(tokenizer(texts, padding=True, return_tensors="pt"))
    else:
        torch.manual_seed(0)
        model = BertModel(BertConfig()).eval()
        calibration = [{"input_ids": torch.randint(1000, VOCABULARY, (4, 64))}]
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
    model.save_pretrained(folder / "fp32")
    if form == ENABLED:
        stored = {OURS: Stored("enabled", folder / "fp32"), SDPA: Stored("fp32", folder / "fp32")}
    elif form == EXPORTED:
        assert sentences is not None
        stored = exported(model, sentences, folder)
    else:
        save(deploy(model, calibration=calibration), folder / "int8")
        stored = {OURS: Stored("int8", folder / "int8"), FP32: Stored("fp32", folder / "fp32")}
        if with_onnxruntime:
            stored |= quantised_by_onnxruntime(model, folder)
    near: dict[str, float] = {}
    runs: dict[str, Run | Apart] = {}
    if sentences is not None or threads == 1:
        opened = {name: one.open(threads) for name, one in stored.items()}
        near = {} if sentences is None else cosines(opened, _hidden(model), sentences)
        runs |= opened
    if threads > 1:
        runs = {name: Apart(one.open_apart, threads) for name, one in stored.items()}
        for run in runs.values():
            assert isinstance(run, Apart)
            stack.callback(run.process.shutdown)
    return Runners(name, runs, near)


def exported(model: Any, sentences: Mapping[str, Tensor], folder: Path) -> dict[str, Stored]:
    """The model in 8 bits for onnxruntime: our compiled operator, the exact softmax, Softermax of standard operators."""
    made: dict[str, Stored] = {}
    for name, operator in ((OURS, "custom"), (EXACT, "standard"), (STANDARD, "standard")):
        copied = copy.deepcopy(model)
        use_softmax(copied) if name == EXACT else enable(copied, SPEC)
        quantization.quantize(copied, [sentences])
        path = folder / f"{len(made)}.onnx"
        export_model(copied, path, TOLERANCE, operator)  # type: ignore[arg-type]
        made[name] = Stored("exported", path)
    return made


def _hidden(model: Any) -> Run:
    return lambda ids, mask: model(input_ids=ids, attention_mask=mask).last_hidden_state


def cosines(runs: Mapping[str, Run], exact: Run, sentences: Mapping[str, Tensor]) -> dict[str, float]:
    """How near the pooled sentences are to those in single precision, on average."""
    ids, mask = sentences["input_ids"], sentences["attention_mask"]
    weight = mask[..., None].float()
    with torch.inference_mode():
        pooled = {name: (run(ids, mask) * weight).sum(1) / weight.sum(1) for name, run in runs.items()}
        want = (exact(ids, mask) * weight).sum(1) / weight.sum(1)
    return {name: float(torch.cosine_similarity(one, want).mean()) for name, one in pooled.items()}


class _Hidden(torch.nn.Module):
    """Tensors in, hidden states out: what is exported."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model
        self.eval()  # the exporter puts back the mode it finds here, in the model too

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        return self.model(input_ids=ids, attention_mask=mask).last_hidden_state  # type: ignore[no-any-return]


def quantised_by_onnxruntime(model: Any, folder: Path) -> dict[str, Stored]:
    """The model after onnxruntime's dynamic quantisation, plain and fused."""
    need("onnxruntime", "onnx")
    optimizer: Any = need("onnxruntime.transformers.optimizer", "onnx")
    names = ["ids", "mask", "hidden"]
    ids = torch.ones(2, 11, dtype=torch.long)
    before = model.config._attn_implementation
    model.set_attn_implementation("eager")  # the form that its optimiser knows
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            _Hidden(model), (ids, ids), str(folder / "plain.onnx"), dynamo=False, opset_version=17,
            input_names=names[:2], output_names=names[2:],
            dynamic_axes={name: {0: "batch", 1: "tokens"} for name in names},
        )  # fmt: skip
    model.set_attn_implementation(before)
    fused = optimizer.optimize_model(
        str(folder / "plain.onnx"), model_type="bert", num_heads=model.config.num_attention_heads,
        hidden_size=model.config.hidden_size,
    )  # fmt: skip
    fused.save_model_to_file(str(folder / "fused.onnx"))
    made = {}
    for name, file in ((DYNAMIC, "plain"), (FUSED, "fused")):
        small = folder / f"{file}-int8.onnx"
        quantise_dynamic(folder / f"{file}.onnx", small)
        made[name] = Stored("onnxruntime", small)
    return made


def quantise_dynamic(path: Path, small: Path) -> None:
    """A file after onnxruntime's dynamic quantisation, as a user would call it."""
    quantization: Any = need("onnxruntime.quantization", "onnx")
    logging.disable(logging.WARNING)  # its advice to preprocess changes nothing here
    try:
        quantization.quantize_dynamic(
            str(path), str(small), weight_type=quantization.QuantType.QInt8,
            extra_options={"DefaultTensorType": _FLOAT},
        )  # fmt: skip
    finally:
        logging.disable(logging.NOTSET)


def plain_session(path: Path, threads: int) -> Any:
    """A file in onnxruntime as it is out of the box."""
    runtime: Any = need("onnxruntime", "onnx")
    options = runtime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = threads
    return runtime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def _run(session: Any) -> Run:
    """A session that takes tokens, their mask and, maybe, their types."""
    names = [value.name for value in session.get_inputs()]

    def run(ids: Tensor, mask: Tensor) -> Tensor:
        given = (ids.numpy(), mask.numpy(), torch.zeros_like(ids).numpy())
        return torch.from_numpy(session.run(None, dict(zip(names, given, strict=False)))[0])

    return run
