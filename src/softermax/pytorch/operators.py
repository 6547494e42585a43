"""The native core as PyTorch operators: ``torch.ops.softermax.*``, with fake kernels and gradients.

A spec travels as text, because that is what an operator's schema can hold; `spec_text` makes it and
keeps the core's own object beside it. Rows lie along the last axis.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from softermax.extras import need
from softermax.kernels.core import ISAS, isa, native
from softermax.kernels.plan import native_spec, refusal
from softermax.spec import LOG2E, SoftermaxSpec

if not TYPE_CHECKING:
    need("torch", "torch")

import torch
from torch import Tensor

FLOATS = {torch.float32: 0, torch.bfloat16: 1, torch.float16: 2}
MAX_DIMS = 8

_specs: dict[str, tuple[SoftermaxSpec, Any]] = {}


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
def spec_text(spec: SoftermaxSpec) -> str:
    """The text by which the operators know a spec; the same for equal specs."""
    return _spec_text(spec)


@lru_cache(maxsize=256)
def _spec_text(spec: SoftermaxSpec) -> str:
    text = " ".join(str(value) for value in spec.to_dict().values())
    _specs[text] = spec, native_spec(spec)
    return text


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
def takes_spec(spec: SoftermaxSpec) -> bool:
    """Whether the native core is here and computes this spec."""
    return isa() is not None and refusal(spec) is None


def takes(x: Tensor, spec: SoftermaxSpec) -> bool:
    """Whether `softermax` here computes these scores; else PyTorch does."""
    return (
        x.device.type == "cpu"
        and x.dtype in FLOATS
        and x.layout == torch.strided
        and not torch.onnx.is_in_onnx_export()
        and takes_spec(spec)
    )


def softermax(x: Tensor, keep: Tensor | None, spec: SoftermaxSpec) -> Tensor:
    """Float scores to probabilities of the same type along the last axis, differentiable.

    ``keep`` is boolean and expands to the shape of ``x``.
    """
    text = spec_text(spec)
    if torch.is_grad_enabled() and x.requires_grad:
        y: Tensor = torch.ops.softermax.training(x, keep, text)[0]
        return y
    return torch.ops.softermax.forward(x, keep, text)  # type: ignore[no-any-return]


def softermax_int8(
    raw: Tensor,
    spec: SoftermaxSpec,
    mask: Tensor | None = None,
    lengths: Tensor | None = None,
    causal: bool = False,
) -> tuple[Tensor, Tensor]:
    """int8 input words to uint8 output words and the rows' exponents (A7; zero for a fixed output).

    An element takes part where ``mask`` (boolean, broadcast) is True, its column is below the row's entry of
    ``lengths`` (broadcast to the leading axes), and, with ``causal``, it is not past its row: row i of
    the last two axes sees columns 0 to i + columns - rows.
    """
    return torch.ops.softermax.int8_rows(raw, spec_text(spec), mask, lengths, causal)  # type: ignore[no-any-return]


def quantize_int8(x: Tensor) -> tuple[Tensor, float]:
    """Symmetric int8 of a float32 tensor and its scale: x is about the words times the scale."""
    if x.dtype != torch.float32 or x.device.type != "cpu":
        raise TypeError(f"quantize_int8 takes float32 on the CPU, got {x.dtype} on {x.device.type}")
    x = x.detach().contiguous()
    out = torch.empty(x.shape, dtype=torch.int8)
    number, threads = _path(), torch.get_num_threads()
    largest = native.largest(x.data_ptr(), x.numel(), number, threads)
    if not math.isfinite(largest):
        raise ValueError("quantize_int8 takes finite numbers, found an infinity")
    scale = largest / 127.0 or 1.0
    native.quantize(x.data_ptr(), x.numel(), 1.0 / scale, out.data_ptr(), number, threads)
    return out, scale


def _path() -> int:
    chosen = isa()
    if chosen is None:
        raise RuntimeError("the native core is not available: `softermax info` says why")
    return ISAS[chosen]


def _spec(text: str) -> tuple[SoftermaxSpec, Any]:
    if text not in _specs:
        raise ValueError(f"unknown spec text {text!r}: kernels.ops.spec_text(spec) makes it")
    return _specs[text]


def _check(x: Tensor, dtypes: Any, mask: Tensor | None) -> None:
    if x.dtype not in dtypes:
        allowed = ", ".join(str(d) for d in dtypes)
        raise TypeError(f"scores must be {allowed}, got {x.dtype}")
    if x.dim() == 0:
        raise ValueError("scores need at least one dimension, got a scalar")
    if mask is not None:
        if mask.dtype != torch.bool:
            raise TypeError(f"mask must be boolean, True where an element takes part, got {mask.dtype}")
        if mask.device != x.device:
            raise ValueError(f"mask is on {mask.device}, scores on {x.device}: both must be on the CPU")
        sizes = zip(reversed(mask.shape), reversed(x.shape), strict=False)
        if mask.dim() > x.dim() or any(m not in (1, n) for m, n in sizes):
            raise ValueError(
                f"mask of shape {tuple(mask.shape)} does not broadcast to the scores' {tuple(x.shape)}"
            )


def _dense_rows(x: Tensor) -> Tensor:
    """With dense columns and no more leading dimensions than the core counts."""
    if x.dim() - 1 > MAX_DIMS:
        x = x.reshape(-1, *x.shape[-2:])
    return x if x.stride(-1) == 1 or x.shape[-1] == 1 else x.contiguous()


def _batch(x: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor | None, list[Any]]:
    """Scores and mask as the core takes them, and its arguments up to the mask."""
    shape = x.shape
    x = _dense_rows(x)
    keep = None if mask is None else _dense_rows(mask.expand(shape))
    lead = list(x.shape[:-1])
    keep_stride = [0] * len(lead) if keep is None else list(keep.stride()[:-1])
    pointer = 0 if keep is None else keep.data_ptr()
    return x, keep, [lead, list(x.stride()[:-1]), keep_stride, x.shape[-1], pointer]


def _exponent_like(x: Tensor, spec: SoftermaxSpec) -> Tensor:
    return x.new_empty(x.shape[:-1] if spec.output_mode == "row-scaled" else (0,), dtype=torch.int32)


def _marks_like(x: Tensor) -> Tensor:
    """Per row one byte, whether any score saturated, and then a bit a score."""
    return x.new_empty((*x.shape[:-1], 1 + (x.shape[-1] + 7) // 8), dtype=torch.uint8)


def _rows_float(
    x: Tensor, mask: Tensor | None, text: str, words: Tensor | None, marks: Tensor | None, exponent: Tensor
) -> Tensor:
    _check(x, FLOATS, mask)
    _, core_spec = _spec(text)
    y = torch.empty(x.shape, dtype=x.dtype)
    if x.numel() == 0:
        return y
    rows, keep, batch = _batch(x, mask)
    broken = native.rows_float(
        core_spec, *batch, 0, False, 0, FLOATS[x.dtype], rows.data_ptr(), y.data_ptr(),
        0 if words is None else words.data_ptr(), 0 if marks is None else marks.data_ptr(),
        exponent.data_ptr() if exponent.numel() else 0, _path(), torch.get_num_threads(),
    )  # fmt: skip
    del keep
    if broken >= 0:
        raise ValueError(
            "scores must be finite where they are not masked, found NaN or infinity "
            f"in row {broken}; use mask= to leave an element out"
        )
    return y


def _forward(x: Tensor, mask: Tensor | None, spec: str) -> Tensor:
    return _rows_float(x, mask, spec, None, None, x.new_empty(0, dtype=torch.int32))


def _forward_fake(x: Tensor, mask: Tensor | None, spec: str) -> Tensor:
    return x.new_empty(x.shape)


def _training(x: Tensor, mask: Tensor | None, spec: str) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    words = torch.empty(x.shape, dtype=torch.uint8)
    marks, exponent = _marks_like(x), _exponent_like(x, _spec(spec)[0])
    return _rows_float(x, mask, spec, words, marks, exponent), words, marks, exponent


def _training_fake(x: Tensor, mask: Tensor | None, spec: str) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    words = x.new_empty(x.shape, dtype=torch.uint8)
    return x.new_empty(x.shape), words, _marks_like(x), _exponent_like(x, _spec(spec)[0])


def _backward(grad: Tensor, words: Tensor, marks: Tensor, exponent: Tensor, spec: str) -> Tensor:
    known, core_spec = _spec(spec)
    if grad.dtype not in FLOATS or grad.shape != words.shape:
        raise ValueError(
            f"grad must be a float tensor of shape {tuple(words.shape)}, got {grad.dtype} {tuple(grad.shape)}"
        )
    grad = grad.contiguous()
    dx = torch.empty(grad.shape, dtype=grad.dtype)
    if grad.numel():
        columns = grad.shape[-1]
        factor = math.log(2.0) * (LOG2E if known.base == "fold" else 1.0)
        native.backward(
            core_spec, FLOATS[grad.dtype], grad.numel() // columns, columns, grad.data_ptr(),
            words.data_ptr(), marks.data_ptr(), exponent.data_ptr() if exponent.numel() else 0, factor,
            dx.data_ptr(), _path(), torch.get_num_threads(),
        )  # fmt: skip
    return dx


def _backward_fake(grad: Tensor, words: Tensor, marks: Tensor, exponent: Tensor, spec: str) -> Tensor:
    return grad.new_empty(grad.shape)


def _int8_rows(
    raw: Tensor, spec: str, mask: Tensor | None, lengths: Tensor | None, causal: bool
) -> tuple[Tensor, Tensor]:
    _check(raw, (torch.int8,), mask)
    _, core_spec = _spec(spec)
    if causal and raw.dim() < 2:
        raise ValueError(f"causal needs rows and columns, got shape {tuple(raw.shape)}")
    counts = None
    if lengths is not None:
        if lengths.is_floating_point() or lengths.dtype == torch.bool:
            raise TypeError(f"lengths must be integers, got {lengths.dtype}")
        if lengths.numel() and int(lengths.min()) < 0:
            raise ValueError(f"lengths must be 0 or more, got {int(lengths.min())}")
        counts = lengths.clamp(max=raw.shape[-1]).to(torch.int32).expand(raw.shape[:-1]).contiguous()
    words = torch.empty(raw.shape, dtype=torch.uint8)
    exponent = torch.zeros(raw.shape[:-1], dtype=torch.int32)
    if raw.numel():
        rows, keep, batch = _batch(raw, mask)
        native.rows_int8(
            core_spec, *batch, 0 if counts is None else counts.data_ptr(), causal,
            raw.shape[-1] - raw.shape[-2] if causal else 0, rows.data_ptr(), words.data_ptr(),
            exponent.data_ptr(), _path(), torch.get_num_threads(),
        )  # fmt: skip
        del keep
    return words, exponent


def _int8_rows_fake(
    raw: Tensor, spec: str, mask: Tensor | None, lengths: Tensor | None, causal: bool
) -> tuple[Tensor, Tensor]:
    return raw.new_empty(raw.shape, dtype=torch.uint8), raw.new_empty(raw.shape[:-1], dtype=torch.int32)


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    ctx.save_for_backward(*output[1:])
    ctx.spec = inputs[2]
    # Else every backward pass fills zero gradients for the words, the marks and the exponents.
    ctx.set_materialize_grads(False)


def _gradient(ctx: Any, grad: Tensor | None, *_: Any) -> tuple[Tensor | None, None, None]:
    if grad is None:
        return None, None, None
    return torch.ops.softermax.backward(grad, *ctx.saved_tensors, ctx.spec), None, None


_library = torch.library.Library("softermax", "DEF")
for _name, _schema, _run, _fake in (
    ("forward", "(Tensor x, Tensor? mask, str spec) -> Tensor", _forward, _forward_fake),
    (
        "training",
        "(Tensor x, Tensor? mask, str spec) -> (Tensor, Tensor, Tensor, Tensor)",
        _training,
        _training_fake,
    ),
    (
        "backward",
        "(Tensor grad, Tensor words, Tensor marks, Tensor exponent, str spec) -> Tensor",
        _backward,
        _backward_fake,
    ),
    (
        "int8_rows",
        "(Tensor raw, str spec, Tensor? mask, Tensor? lengths, bool causal) -> (Tensor, Tensor)",
        _int8_rows,
        _int8_rows_fake,
    ),
):
    _library.define(_name + _schema)
    _library.impl(_name, _run, "CPU")
    torch.library.register_fake(f"softermax::{_name}", _fake, lib=_library)
torch.library.register_autograd("softermax::training", _gradient, setup_context=_save, lib=_library)
