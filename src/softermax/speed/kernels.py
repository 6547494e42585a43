"""The native rows against torch, onnxruntime and memcpy."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from softermax.extras import need
from softermax.spec import PRESETS, SoftermaxSpec

if not TYPE_CHECKING:
    need("torch", "torch")

import numpy as np
import torch
from numpy.typing import NDArray

from softermax.functional import softermax
from softermax.kernels.rows import PreparedRows
from softermax.speed.race import OURS, Contestants, Race

IN_CACHE = 1 << 16
"""Elements of a batch of rows: small enough for the second-level cache, in float and out again."""
IN_OPERATOR = 1 << 20
LARGE = 64 << 20
COLUMNS = (64, 128, 384, 512, 1024, 2048, 4096, 16384)

_PAGE = 4096
DISTANCES = (64, 576, 1088, 2112, 3136)
"""Bytes modulo a page that lie between a source and its copy. At 0 a processor takes a load for one that waits for
the store before it, and memcpy is up to ten times slower than it can be."""


def kernel_races(threads: int, large: bool) -> list[Race]:
    """int8 rows of every preset, and float rows."""
    races: list[Race] = []
    for columns in COLUMNS:
        rows = max(1, IN_CACHE // columns)
        for name, spec in PRESETS.items():
            make = partial(_int8_rows, rows, columns, spec, threads, quantized=name == "whole-row")
            races.append(Race("kernels", f"int8 {name}", columns, rows * columns, make))
        # Larger, because the operator makes its output anew, as torch.softmax does.
        rows = max(1, IN_OPERATOR // columns)
        races.append(
            Race("kernels", "float paper", columns, rows * columns, partial(_float_rows, rows, columns))
        )
    if large:
        for name in ("whole-row", "paper"):
            make = partial(_large_rows, PRESETS[name], threads)
            races.append(Race("kernels", f"int8 {name}, 64 Mi", 1024, LARGE, make, share=0.25))
    return races


def scores(rows: int, columns: int, seed: int = 0) -> NDArray[np.int8]:
    """Input words such as attention makes: Gaussian, a standard deviation of two."""
    drawn = np.random.default_rng(seed).normal(0, 8, (rows, columns))
    return np.clip(np.rint(drawn), -128, 127).astype(np.int8)


def _int8_rows(rows: int, columns: int, spec: SoftermaxSpec, threads: int, quantized: bool) -> Contestants:
    x = scores(rows, columns)
    f = torch.from_numpy(x.astype(np.float32) / 4)
    theirs = _softmaxes(f) | _onnxruntime(f.numpy(), threads) | {"memcpy": copying(x)}
    if quantized:
        theirs |= _quantized_softmax(x, threads)
    return {OURS: PreparedRows(x, spec, threads=threads), **theirs}


def _float_rows(rows: int, columns: int) -> Contestants:
    x = torch.from_numpy(scores(rows, columns)).float() / 4
    return {OURS: partial(softermax, x, spec=PRESETS["paper"]), "torch fp32": partial(torch.softmax, x, -1)}


def _large_rows(spec: SoftermaxSpec, threads: int) -> Contestants:
    columns = 1024
    x = np.tile(scores(1024, columns), (LARGE // columns // 1024, 1))
    f = torch.from_numpy(x).float() / 4
    return {OURS: PreparedRows(x, spec, threads=threads), **_softmaxes(f), "memcpy": copying(x)}


def _softmaxes(f: torch.Tensor) -> dict[str, Callable[[], Any]]:
    out = torch.empty_like(f)
    return {"torch fp32": lambda: torch.softmax(f, -1, out=out)}


def copying(x: NDArray[np.int8]) -> Callable[[], Any]:
    """A copy of ``x`` as fast as this machine does it: the best of several places to copy to."""

    def seconds(out: NDArray[np.int8]) -> float:
        best = float("inf")
        for _ in range(5):
            started = time.perf_counter()
            np.copyto(out, x)
            best = min(best, time.perf_counter() - started)
        return best

    out = min((placed_apart(x, distance) for distance in DISTANCES), key=seconds)
    return lambda: np.copyto(out, x)


def placed_apart(x: NDArray[np.int8], distance: int) -> NDArray[np.int8]:
    """Room for a copy of ``x``, that many bytes after it modulo a page."""
    room = np.empty(x.nbytes + _PAGE, dtype=np.int8)
    start = (x.ctypes.data + distance - room.ctypes.data) % _PAGE
    return room[start : start + x.nbytes].reshape(x.shape)


def _session(node: str, domain: str, element: int, threads: int, **attributes: Any) -> Any | None:
    """An onnxruntime session of one node, or None where it is not installed."""
    try:
        import onnxruntime
        from onnx import TensorProto, helper
    except ImportError:
        return None
    quantized = element != TensorProto.FLOAT
    scale = [
        helper.make_tensor("x_scale", TensorProto.FLOAT, [], [0.25]),
        helper.make_tensor("x_zero", element, [], [0]),
        helper.make_tensor("y_scale", TensorProto.FLOAT, [], [1 / 256]),
        helper.make_tensor("y_zero", element, [], [-128 if quantized else 0]),
    ]
    inputs = ["x", *(t.name for t in scale)] if quantized else ["x"]
    shape = ["rows", "columns"]
    graph = helper.make_graph(
        [helper.make_node(node, inputs, ["y"], domain=domain, **attributes)],
        "softmax",
        [helper.make_tensor_value_info("x", element, shape)],
        [helper.make_tensor_value_info("y", element, shape)],
        initializer=scale if quantized else [],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=9)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )


def _bound(session: Any, x: NDArray[Any]) -> Callable[[], Any]:
    """A run that reads and writes the same buffers each time, as torch does with ``out=``."""
    import onnxruntime

    out = onnxruntime.OrtValue.ortvalue_from_numpy(np.empty_like(x))
    binding = session.io_binding()
    binding.bind_ortvalue_input("x", onnxruntime.OrtValue.ortvalue_from_numpy(x))
    binding.bind_ortvalue_output("y", out)
    return lambda: session.run_with_iobinding(binding)


def _onnxruntime(x: NDArray[np.float32], threads: int) -> dict[str, Callable[[], Any]]:
    session = _session("Softmax", "", 1, threads, axis=-1)
    return {} if session is None else {"onnxruntime fp32": _bound(session, x)}


def _quantized_softmax(x: NDArray[np.int8], threads: int) -> dict[str, Callable[[], Any]]:
    session = _session("QLinearSoftmax", "com.microsoft", 3, threads, axis=-1, opset=13)
    return {} if session is None else {"onnxruntime QLinearSoftmax": _bound(session, x)}
