"""Softermax in onnxruntime as an operator of its own: the native core, in a library that a session registers.

What the core takes of a spec stands in the node's attributes, so a file needs the library and nothing else.
"""

from __future__ import annotations

import json
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from softermax.extras import need
from softermax.kernels.core import native
from softermax.kernels.plan import native_arguments, refusal, score_factor
from softermax.kernels.rows import softermax_float
from softermax.spec import AnySpec, SoftermaxSpec

if not TYPE_CHECKING:
    need("torch", "torch")

import torch
from torch import Tensor

if TYPE_CHECKING:
    from softermax.golden import BoolArray
    from softermax.verify import Body, FloatArray

DOMAIN = "softermax"
VERSION = 1
ROWS = "Softermax"
"""Float scores and, optionally, a boolean mask to probabilities."""
ATTENTION = "SoftermaxAttention"
"""int8 Q, K, V and, optionally, a boolean mask to attention's output."""

_TYPES = {int: "i", float: "f", str: "s"}


def library() -> Path | None:
    """The compiled operators, or None where the package was installed without a compiler."""
    if native is None:
        return None
    path = Path(native.__file__).parent / "_onnxruntime.so"
    return path if path.is_file() else None


def need_library() -> Path:
    found = library()
    if found is None:
        raise ValueError(
            "Softermax's operator for onnxruntime is missing: no working C++ compiler when the package was installed; "
            "reinstall with one, or export with standard operators"
        )
    return found


def attributes(spec: AnySpec) -> dict[str, Any]:
    """A node's attributes: the spec itself, to be read, and what the core takes of it."""
    reason = (
        "deferred normalisation (A8) has no ONNX form"
        if not isinstance(spec, SoftermaxSpec)
        else refusal(spec)
    )
    if reason is not None:
        raise ValueError(
            f"onnxruntime's operator does not take this spec: {reason}; export with standard operators"
        )
    assert isinstance(spec, SoftermaxSpec)
    numbers = {
        name: int(value) if isinstance(value, bool) else value
        for name, value in native_arguments(spec).items()
    }
    return {"spec": json.dumps(spec.to_dict())} | numbers


def attention_attributes(
    spec: AnySpec, scale: float, value_scale: float, heads_last: bool, out_heads_last: bool = False
) -> dict[str, Any]:
    """Those of `ATTENTION`: ``scale`` makes an integer score a score, ``value_scale`` an int8 value a value.

    With ``heads_last`` Q, K and V are (batch, length, heads, size), else (batch, heads, length, size); with
    ``out_heads_last`` the output is.
    """
    return attributes(spec) | {
        "requantize": score_factor(spec, scale),
        "value_scale": value_scale,
        "heads_last": int(heads_last) + 2 * int(out_heads_last),
    }


class _Rows(torch.autograd.Function):
    """One node in a traced graph; in PyTorch, what it computes."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, keep: Tensor | None, spec: SoftermaxSpec) -> Tensor:
        # From NumPy, of which the trace takes no notice.
        mask = None if keep is None else keep.numpy()
        return torch.from_numpy(softermax_float(x.detach().numpy(), spec, mask).probabilities)

    @staticmethod
    def symbolic(g: Any, x: Any, keep: Any, spec: SoftermaxSpec) -> Any:
        named = {f"{name}_{_type(value)}": value for name, value in attributes(spec).items()}
        inputs = [x] if keep is None else [x, keep]
        made = g.op(f"{DOMAIN}::{ROWS}", *inputs, **named)
        made.setType(x.type())
        return made


def _type(value: Any) -> str:
    return _TYPES[type(value[0] if isinstance(value, list) else value)]


def probabilities(x: Tensor, keep: Tensor | None, spec: AnySpec) -> Tensor:
    """Softermax along the last axis, as one node of the traced graph."""
    attributes(spec)
    if keep is not None and keep.shape[-1] != x.shape[-1]:
        keep = keep.expand(*keep.shape[:-1], x.shape[-1])  # the operator broadcasts over the other axes
    made: Tensor = _Rows.apply(x, keep, spec)  # type: ignore[no-untyped-call]
    return made


def node_session(
    operator: str, inputs: dict[str, type[np.generic]], rank: int, described: dict[str, Any]
) -> Any:
    """One node alone in onnxruntime: inputs by name, all of ``rank``, and the node's attributes."""
    onnx, runtime = need("onnx", "onnx"), need("onnxruntime", "onnx")
    helper = onnx.helper
    node = helper.make_node(operator, list(inputs), ["out"], domain=DOMAIN, **described)
    given = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(np.dtype(kind)), [None] * rank)
        for name, kind in inputs.items()
    ]
    out = helper.make_tensor_value_info("out", onnx.TensorProto.FLOAT, [None] * rank)
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid(DOMAIN, VERSION)]
    graph = helper.make_graph([node], operator, given, [out])
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    options = runtime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    options.register_custom_ops_library(str(need_library()))
    return runtime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


@lru_cache(maxsize=16)
def rows_session(spec: SoftermaxSpec) -> Any:
    """A spec's rows in onnxruntime: ``scores`` and ``mask`` of two dimensions in."""
    return node_session(ROWS, {"scores": np.float32, "mask": np.bool_}, 2, attributes(spec))


def bodies() -> list[Body]:
    """For `softermax verify`: the compiled operator in onnxruntime, from scores to probabilities."""
    from softermax.verify import Body

    need("onnx", "onnx")
    need("onnxruntime", "onnx")
    if library() is None:
        raise ImportError("the native core is not installed; reinstall with a C++17 compiler to get it")

    def run_scores(spec: SoftermaxSpec, scores: FloatArray, mask: BoolArray) -> FloatArray:
        made: FloatArray = rows_session(spec).run(None, {"scores": scores, "mask": mask})[0]
        return made

    def takes(spec: AnySpec) -> bool:
        return isinstance(spec, SoftermaxSpec) and refusal(spec) is None

    return [Body("onnxruntime operator", None, takes, run_scores=run_scores, floats=("float32",), share=0.1)]
