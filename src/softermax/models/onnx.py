"""Whole models to ONNX: 8-bit weights and activations as QuantizeLinear, Softermax as standard operators or its own.

modelopt's quantisers have an ONNX form (quantise, dequantise) with the exporter that traces; so that one
is used. What it writes is then run in onnxruntime beside the PyTorch model, on shapes other than the
traced one, and refused if the two differ: tracing bakes in what depends on a shape without a word.
"""

from __future__ import annotations

import contextlib
import inspect
import os
import warnings
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, get_args

import numpy as np
import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from softermax.extras import need
from softermax.files import replacing
from softermax.models import onnx_graph, quantization
from softermax.models.drop_in import enabled
from softermax.pytorch import onnx_operator
from softermax.pytorch.onnx import OperatorKind, exportable
from softermax.rivals import Rival
from softermax.spec import DeferredSpec

OPSET = 18
INPUTS = ("input_ids", "attention_mask", "token_type_ids")
TOLERANCE = 0.05
"""Of the largest output. Sums in another order differ by a float's last bit, which at the edge of an 8-bit step is a whole
step, 1/127 of the range, and moves more of them in the next layer; a wrong graph is off by the outputs themselves. Where
8 bits move a model's outputs by half of this or more, the two ways to compute them may differ by twice that: each lies so far
from the model in floating point, and not always on the same side."""

_TRACED = (2, 11)
_CHECKED = ((1, 5), (3, 24))


@dataclass(frozen=True)
class Exported:
    """What was written, and how far onnxruntime's outputs are from PyTorch's on other shapes."""

    file: str
    megabytes: float
    int8: bool
    nodes: int
    operators: dict[str, int]
    difference: float
    """Largest difference in units of the largest output, onnxruntime computing what was traced, one by one."""
    optimised_difference: float
    """The same of the file itself, opened by `session`: with onnxruntime's 8-bit kernels and 8-bit embeddings."""
    quantised_difference: float
    """How far 8 bits alone move PyTorch's outputs, in the same units; 0 for a model in floating point."""


def export_model(
    model: PreTrainedModel,
    path: str | os.PathLike[str],
    tolerance: float | None = None,
    operator: OperatorKind = "standard",
    int8_embeddings: bool = True,
) -> Exported:
    """Write a model that takes tokens to ONNX, for any batch and length, and compare it with the original.

    With ``operator="custom"`` Softermax, in an 8-bit model the whole attention, is one node that runs the native core:
    many times faster, in onnxruntime with the package's library only, which `session` registers. In an 8-bit model large
    embeddings are stored in 8 bits too, with a scale per row, unless ``int8_embeddings`` is off.

    A graph whose outputs differ by more than ``tolerance`` of the largest one is refused. Unless given, that is
    `TOLERANCE`, or twice what quantisation itself does to the model's outputs where that is more.
    """
    if tolerance is not None and not tolerance > 0:
        raise ValueError(f"tolerance = {tolerance}: must be greater than 0")
    if operator not in get_args(OperatorKind):
        raise ValueError(f"operator {operator!r}: must be one of {', '.join(get_args(OperatorKind))}")
    onnx = need("onnx", "onnx")
    need("onnxruntime", "onnx")
    if operator == "custom":
        onnx_operator.need_library()
    names = [name for name in INPUTS if name in inspect.signature(model.forward).parameters]
    if "input_ids" not in names or "attention_mask" not in names:
        raise ValueError(
            f"{type(model).__name__}: takes no input_ids and attention_mask; must be a model that does"
        )
    if isinstance(enabled(model), Rival):
        raise ValueError("rivals have no ONNX form; enable a spec")
    if isinstance(enabled(model), list):
        raise ValueError("specs of several layers have no ONNX form yet; enable one spec for all")
    if isinstance(enabled(model), DeferredSpec):
        raise ValueError("deferred normalisation (A8) has no ONNX form; enable a spec without :deferred")
    was_training = model.training
    model.eval()
    try:
        with replacing(path) as partial, static_weights(model):
            _trace(model, names, partial, operator)
            proto = onnx.load(partial)
            int8 = onnx_graph.store_8_bits(proto)
            onnx_graph.fuse_attention(proto)
            onnx.save(proto, partial)
            exact = _difference(model, names, partial, optimised=False)
            quantised = _quantised_difference(model, names)
            permitted = max(TOLERANCE, 2 * quantised) if tolerance is None else tolerance
            if not exact <= permitted:
                raise ValueError(
                    f"{type(model).__name__} does not survive tracing: onnxruntime's outputs differ by "
                    f"{exact:.2g} of the largest one, must be at most {permitted:.2g} (quantisation itself moves them by "
                    f"{quantised:.2g}); tolerance= or --tolerance permits more"
                )
            if int8 and int8_embeddings:
                onnx_graph.store_embeddings_in_8_bits(proto)
            onnx_graph.share_tables(proto)
            onnx.checker.check_model(proto, full_check=True)
            onnx.save(proto, partial)
            optimised = _difference(model, names, partial, optimised=True)
            size = partial.stat().st_size / 1e6
    finally:
        model.train(was_training)
    operators = Counter(
        f"{node.domain}::{node.op_type}" if node.domain else node.op_type for node in proto.graph.node
    )
    return Exported(
        os.fspath(path), size, int8, len(proto.graph.node), dict(operators.most_common()), exact, optimised,
        quantised,
    )  # fmt: skip


class _Outputs(nn.Module):
    """A model with tensors in and tensors out."""

    def __init__(self, model: PreTrainedModel, names: list[str]) -> None:
        super().__init__()
        self.model, self.names = model, names
        self.eval()  # the exporter puts back the mode it finds here, in the model too

    def named(self, *inputs: Tensor) -> dict[str, Tensor]:
        keywords: dict[str, Any] = dict(zip(self.names, inputs, strict=True))
        if "use_cache" in inspect.signature(self.model.forward).parameters:
            keywords["use_cache"] = False
        output = self.model(**keywords)
        return {name: value for name, value in output.items() if isinstance(value, Tensor)}

    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        return tuple(self.named(*inputs).values())


def _inputs(model: PreTrainedModel, names: list[str], batch: int, tokens: int) -> tuple[Tensor, ...]:
    """Random tokens, the first row padded from the middle on."""
    generator = torch.Generator().manual_seed(batch * 1000 + tokens)
    ids = torch.randint(0, model.config.vocab_size, (batch, tokens), generator=generator)
    mask = torch.ones_like(ids)
    mask[0, (tokens + 1) // 2 :] = 0
    made = {"input_ids": ids, "attention_mask": mask, "token_type_ids": torch.zeros_like(ids)}
    return tuple(made[name] for name in names)


def _trace(model: PreTrainedModel, names: list[str], path: os.PathLike[str], operator: OperatorKind) -> None:
    wrapped = _Outputs(model, names)
    inputs = _inputs(model, names, *_TRACED)
    with torch.no_grad(), exportable(operator), quantization.quiet():
        outputs = wrapped.named(*inputs)
        axes = {name: {0: "batch", 1: "tokens"} for name in names}
        for name, value in outputs.items():
            sized = {0: "batch"} | ({1: "tokens"} if value.dim() > 1 and value.shape[1] == _TRACED[1] else {})
            axes[name] = sized
        torch.onnx.export(
            wrapped, inputs, os.fspath(path), dynamo=False, opset_version=OPSET, input_names=names,
            output_names=list(outputs), dynamic_axes=axes,
            custom_opsets={onnx_operator.DOMAIN: onnx_operator.VERSION} if operator == "custom" else None,
        )  # fmt: skip


@contextlib.contextmanager
def static_weights(model: PreTrainedModel) -> Iterator[None]:
    """Within the block, weights have the scale that they have now: ONNX wants it as a constant."""
    changed: list[Any] = []
    try:
        if quantization.is_quantized(model):
            for module in model.modules():
                quantizer: Any = getattr(module, "weight_quantizer", None)
                if quantizer is None or not quantizer.is_enabled or not quantizer._dynamic:
                    continue
                weight = module._parameters["weight"]
                assert weight is not None
                quantizer._dynamic = False
                changed.append(quantizer)
                quantizer.amax = (
                    weight.detach().abs().flatten(1).amax(1).reshape(-1, *[1] * (weight.dim() - 1))
                )
        yield
    finally:
        for quantizer in changed:
            quantizer.reset_amax()
            quantizer._dynamic = True


def session(path: str | os.PathLike[str], optimised: bool = True) -> Any:
    """An exported model in onnxruntime, set up so that 8-bit products are exact on every processor.

    Left to itself, onnxruntime takes a faster kernel on x86 processors without VNNI, whose 16-bit sums of
    two products saturate: full 8-bit weights then give wrong outputs. Softermax's own operators are at hand where the
    package was installed with a compiler.
    """
    runtime = need("onnxruntime", "onnx")
    options = runtime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = torch.get_num_threads()
    options.add_session_config_entry("session.x64quantprecision", "1")
    if not optimised:
        options.graph_optimization_level = runtime.GraphOptimizationLevel.ORT_DISABLE_ALL
    library = onnx_operator.library()
    if library is not None:
        options.register_custom_ops_library(os.fspath(library))
    try:
        return runtime.InferenceSession(os.fspath(path), options, providers=["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime's own, of which each build has others
        if library is None and f"{onnx_operator.DOMAIN}:" in str(error):
            onnx_operator.need_library()
        raise


def _difference(model: PreTrainedModel, names: list[str], path: os.PathLike[str], optimised: bool) -> float:
    """The largest difference to PyTorch over other shapes than the traced one, in units of the largest output."""
    runner = session(path, optimised)
    taken = {value.name for value in runner.get_inputs()}
    apart = []
    for inputs in _checked_inputs(model, names):
        feeds = {name: value.numpy() for name, value in zip(names, inputs, strict=True) if name in taken}
        apart.append((runner.run(None, feeds), _computed(model, names, inputs)))
    return _relative(apart)


def _quantised_difference(model: PreTrainedModel, names: list[str]) -> float:
    """The same between PyTorch's own outputs with and without quantisers."""
    if not quantization.is_quantized(model):
        return 0.0
    inputs = _checked_inputs(model, names)
    quantised = [_computed(model, names, given) for given in inputs]
    with quantization.without_quantizers(model):
        return _relative(
            [(_computed(model, names, given), q) for given, q in zip(inputs, quantised, strict=True)]
        )


def _checked_inputs(model: PreTrainedModel, names: list[str]) -> list[tuple[Tensor, ...]]:
    return [_inputs(model, names, batch, tokens) for batch, tokens in _CHECKED]


def _computed(model: PreTrainedModel, names: list[str], inputs: tuple[Tensor, ...]) -> list[Any]:
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return [value.numpy() for value in _Outputs(model, names)(*inputs)]


def _relative(pairs: list[tuple[list[Any], list[Any]]]) -> float:
    """The largest difference of outputs and expected ones, in units of the largest expected one."""
    worst, largest = 0.0, 1e-6
    for outputs, expected in pairs:
        for got, want in zip(outputs, expected, strict=True):
            if got.shape != want.shape:
                return float("inf")
            worst = max(worst, float(np.abs(got - want).max()))
            largest = max(largest, float(np.abs(want).max()))
    return worst / largest
