"""Whole models with Softermax, in the three forms in which people run them, against what they would run otherwise.

*Deployed* (`softermax.deploy`): int8, against Hugging Face in single precision and onnxruntime after its own dynamic
quantisation, what a user would pick: plainly exported, and with its transformer optimiser before that. *Enabled*
(`enable`): single precision with Softermax, against PyTorch's SDPA. *Exported* (`softermax export --operator custom`): int8
in onnxruntime, against the same export with the exact softmax, and with standard operators.

Outputs are compared with the original's in single precision on real text: MiniLM's sentences, pooled over their tokens.
BERT-Base has random weights here, so only its speed means something: its outputs are no sentences' meaning, and nearness to
them says nothing of a trained model.
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
from functools import partial
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
from softermax.models.deployment import SPEC, deploy
from softermax.models.drop_in import enable, use_softmax
from softermax.models.onnx import export_model, session
from softermax.models.pretrained import load_network, movie_reviews
from softermax.progress import Progress, silent
from softermax.speed.race import OURS, Contestants, Race, Ratio, chosen, run_races

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
    runs: Mapping[str, Run]
    cosines: Mapping[str, float] = field(default_factory=dict)
    vocabulary: int = 20000


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
    generator = torch.Generator().manual_seed(batch * tokens)
    ids = torch.randint(1000, made.vocabulary, (batch, tokens), generator=generator)
    mask = torch.ones_like(ids)
    return {name: partial(run, ids, mask) for name, run in made.runs.items()}


def runners(name: str, form: str, threads: int, with_onnxruntime: bool, stack: ExitStack) -> Runners:
    """A model in one form beside its contestants. What onnxruntime reads lies in a folder until the stack is left."""
    sentences: dict[str, Tensor] | None = None
    calibration: list[dict[str, Tensor]] | None = None
    if name == "MiniLM":
        tokenizer, model = load_network("minilm", AutoModel)
        texts = [text for text, _ in itertools.islice(movie_reviews("rotten_tomatoes"), SENTENCES)]
        sentences = dict(tokenizer(texts, padding=True, return_tensors="pt"))
    else:
        torch.manual_seed(0)
        model = BertModel(BertConfig()).eval()
        calibration = [{"input_ids": torch.randint(1000, 20000, (4, 64))}]
    runs: dict[str, Run] = {}
    if form == ENABLED:
        runs |= {OURS: _hidden(enable(copy.deepcopy(model), SPEC)), SDPA: _hidden(model)}
    elif form == EXPORTED:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        assert sentences is not None
        runs |= exported_runs(model, sentences, folder)
    else:
        runs |= {OURS: _hidden(deploy(model, calibration=calibration)), FP32: _hidden(model)}
        if with_onnxruntime:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            runs |= onnxruntime_runs(model, folder, threads)
    return Runners(name, runs, {} if sentences is None else cosines(runs, _hidden(model), sentences))


def exported_runs(model: Any, sentences: Mapping[str, Tensor], folder: Path) -> dict[str, Run]:
    """The model in 8 bits in onnxruntime: our compiled operator, the exact softmax, Softermax of standard operators."""
    made: dict[str, Run] = {}
    for name, operator in ((OURS, "custom"), (EXACT, "standard"), (STANDARD, "standard")):
        copied = copy.deepcopy(model)
        use_softmax(copied) if name == EXACT else enable(copied, SPEC)
        quantization.quantize(copied, [sentences])
        path = folder / f"{len(made)}.onnx"
        export_model(copied, path, TOLERANCE, operator)  # type: ignore[arg-type]
        made[name] = _run(session(path))
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


def onnxruntime_runs(model: Any, folder: Path, threads: int) -> dict[str, Run]:
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
        made[name] = _session(small, threads)
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


def _session(path: Path, threads: int) -> Run:
    return _run(plain_session(path, threads))


def _run(session: Any) -> Run:
    """A session that takes tokens, their mask and, maybe, their types."""
    names = [value.name for value in session.get_inputs()]

    def run(ids: Tensor, mask: Tensor) -> Tensor:
        given = (ids.numpy(), mask.numpy(), torch.zeros_like(ids).numpy())
        return torch.from_numpy(session.run(None, dict(zip(names, given, strict=False)))[0])

    return run
