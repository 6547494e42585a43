"""Whole models to ONNX: 8-bit weights and activations as QuantizeLinear, Softermax as standard operators.

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
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from softermax.extras import need
from softermax.files import replacing
from softermax.models import quantization
from softermax.models.drop_in import enabled
from softermax.pytorch.onnx import exportable
from softermax.rivals import Rival
from softermax.spec import DeferredSpec

OPSET = 18
INPUTS = ("input_ids", "attention_mask", "token_type_ids")
TOLERANCE = 0.05
"""Of the largest output. Sums in another order differ by a float's last bit, which at the edge of an 8-bit step is a whole
step, 1/127 of the range, and moves more of them in the next layer; a wrong graph is off by the outputs themselves. Where
8 bits move a model's outputs by more than this, the two ways to compute them may differ by as much as that."""

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
    """Largest difference in units of the largest output, onnxruntime computing what the file says."""
    optimised_difference: float
    """The same with onnxruntime's 8-bit kernels, opened by `session`."""
    quantised_difference: float
    """How far 8 bits alone move PyTorch's outputs, in the same units; 0 for a model in floating point."""


def export_model(
    model: PreTrainedModel, path: str | os.PathLike[str], tolerance: float | None = None
) -> Exported:
    """Write a model that takes tokens to ONNX, for any batch and length, and compare it with the original.

    A file whose outputs differ by more than ``tolerance`` of the largest one is refused. Unless given, that is
    `TOLERANCE`, or what quantisation itself does to the model's outputs where that is more.
    """
    if tolerance is not None and not tolerance > 0:
        raise ValueError(f"tolerance = {tolerance}: must be greater than 0")
    onnx = need("onnx", "onnx")
    need("onnxruntime", "onnx")
    names = [name for name in INPUTS if name in inspect.signature(model.forward).parameters]
    if "input_ids" not in names or "attention_mask" not in names:
        raise ValueError(
            f"{type(model).__name__}: takes no input_ids and attention_mask; must be a model that does"
        )
    if isinstance(enabled(model), Rival):
        raise ValueError("rivals have no ONNX form; enable a spec")
    if isinstance(enabled(model), DeferredSpec):
        raise ValueError("deferred normalisation (A8) has no ONNX form; enable a spec without :deferred")
    was_training = model.training
    model.eval()
    try:
        with replacing(path) as partial, static_weights(model):
            _trace(model, names, partial)
            proto = onnx.load(partial)
            int8 = _store_8_bits(proto)
            onnx.checker.check_model(proto, full_check=True)
            onnx.save(proto, partial)
            exact = _difference(model, names, partial, optimised=False)
            quantised = _quantised_difference(model, names)
            permitted = max(TOLERANCE, quantised) if tolerance is None else tolerance
            if not exact <= permitted:
                raise ValueError(
                    f"{type(model).__name__} does not survive tracing: onnxruntime's outputs differ by "
                    f"{exact:.2g} of the largest one, must be at most {permitted:.2g} (quantisation itself moves them by "
                    f"{quantised:.2g}); tolerance= or --tolerance permits more"
                )
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


def _trace(model: PreTrainedModel, names: list[str], path: os.PathLike[str]) -> None:
    wrapped = _Outputs(model, names)
    inputs = _inputs(model, names, *_TRACED)
    with torch.no_grad(), exportable(), quantization.quiet():
        outputs = wrapped.named(*inputs)
        axes = {name: {0: "batch", 1: "tokens"} for name in names}
        for name, value in outputs.items():
            sized = {0: "batch"} | ({1: "tokens"} if value.dim() > 1 and value.shape[1] == _TRACED[1] else {})
            axes[name] = sized
        torch.onnx.export(
            wrapped, inputs, os.fspath(path), dynamo=False, opset_version=OPSET, input_names=names,
            output_names=list(outputs), dynamic_axes=axes,
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


def _store_8_bits(proto: Any) -> bool:
    """Weights that are quantised as the first thing become the 8-bit words themselves."""
    numpy_helper = need("onnx.numpy_helper", "onnx")
    graph = proto.graph
    weights = {tensor.name: tensor for tensor in graph.initializer}
    constants = {
        node.output[0]: numpy_helper.to_array(node.attribute[0].t)
        for node in graph.node
        if node.op_type == "Constant" and node.attribute[0].name == "value"
    }
    _plain_scalars(graph, constants, numpy_helper)
    users = Counter(name for node in graph.node for name in node.input)
    found = False
    for node in list(graph.node):
        if node.op_type != "QuantizeLinear" or node.input[0] not in weights:
            continue
        weight, scale, zero = weights[node.input[0]], constants[node.input[1]], constants[node.input[2]]
        values = numpy_helper.to_array(weight)
        if zero.any() or zero.dtype != np.int8 or (scale.size > 1 and scale.shape != values.shape[:1]):
            continue
        steps = np.rint(values / scale.reshape(-1, *[1] * (values.ndim - 1)))
        graph.initializer.append(
            numpy_helper.from_array(np.clip(steps, -128, 127).astype(np.int8), node.output[0])
        )
        graph.node.remove(node)
        users[weight.name] -= 1
        if not users[weight.name]:
            graph.initializer.remove(weight)
        found = True
    return found


def _plain_scalars(graph: Any, constants: dict[str, Any], numpy_helper: Any) -> None:
    """The scale of a layer with one output is a vector of one for modelopt; ONNX wants it without axes."""
    scales = {
        name
        for node in graph.node
        if node.op_type in ("QuantizeLinear", "DequantizeLinear")
        for name in node.input[1:]
        if name in constants and constants[name].size == 1
    }
    for node in graph.node:
        if node.op_type == "Constant" and node.output[0] in scales:
            constants[node.output[0]] = constants[node.output[0]].reshape(())
            node.attribute[0].t.CopyFrom(numpy_helper.from_array(constants[node.output[0]]))


def session(path: str | os.PathLike[str], optimised: bool = True) -> Any:
    """An exported model in onnxruntime, set up so that 8-bit products are exact on every processor.

    Left to itself, onnxruntime takes a faster kernel on x86 processors without VNNI, whose 16-bit sums of
    two products saturate: full 8-bit weights then give wrong outputs.
    """
    runtime = need("onnxruntime", "onnx")
    options = runtime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = torch.get_num_threads()
    options.add_session_config_entry("session.x64quantprecision", "1")
    if not optimised:
        options.graph_optimization_level = runtime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return runtime.InferenceSession(os.fspath(path), options, providers=["CPUExecutionProvider"])


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
