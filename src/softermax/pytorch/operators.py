"""The operators of PyTorch, ``torch.ops.softermax.*``, with fake kernels, gradients, and the native core for CPUs.

Another device joins with kernels of its own under the same names (`softermax.gpu`) and `DEVICES`. A spec travels as text (`softermax.pytorch.registry`). Rows lie along the last axis.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from softermax.extras import need
from softermax.kernels.core import isa, native
from softermax.kernels.plan import native_spec, refusal
from softermax.kernels.rows import MAX_DIMS, path_number
from softermax.spec import AnySpec, SoftermaxSpec

if not TYPE_CHECKING:
    need("torch", "torch")

import torch
from torch import Tensor

from softermax.pytorch.gradient import factor, flowing, pulled, transformed
from softermax.pytorch.inputs import check_lengths, check_mask
from softermax.pytorch.registry import rows_spec_of, spec_text

FLOATS = {torch.float32: 0, torch.bfloat16: 1, torch.float16: 2}


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
def takes_spec(spec: AnySpec) -> bool:
    """Whether the native core is here and computes rows with this spec."""
    return isa() is not None and isinstance(spec, SoftermaxSpec) and refusal(spec) is None


DEVICES: dict[str, Callable[[AnySpec], bool]] = {"cpu": takes_spec}
"""The types of devices that the operators have kernels for, with whether these compute rows with a spec."""


def takes(x: Tensor, spec: AnySpec) -> bool:
    """Whether `softermax` here computes these scores; else PyTorch does."""
    kernels = DEVICES.get(x.device.type)
    return kernels is not None and x.dtype in FLOATS and x.layout == torch.strided and kernels(spec)


def softermax(x: Tensor, keep: Tensor | None, spec: SoftermaxSpec) -> Tensor:
    """Float scores to probabilities of the same type along the last axis, with the fused gradient.

    ``keep`` is boolean and expands to the shape of ``x``. Tangents do not pass: see `gradient.transformed`.
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
    """int8 input words to uint8 output words and the rows' exponents (A7; zero for a fixed output), in the native core.

    An element takes part where ``mask`` (boolean, broadcast) is True, its column is below the row's entry of
    ``lengths`` (broadcast to the leading axes), and, with ``causal``, it is not past its row: row i of
    the last two axes sees columns 0 to i + columns - rows.
    """
    return torch.ops.softermax.int8_rows(raw, spec_text(spec), mask, lengths, causal)  # type: ignore[no-any-return]


def quantize_int8(x: Tensor) -> tuple[Tensor, float]:
    """Symmetric int8 of a float tensor and its scale: x is about the words times the scale."""
    if not x.is_floating_point():
        raise TypeError(f"quantize_int8 takes floats, got {x.dtype}; int8_attention takes int8")
    x = x.detach().float().contiguous()
    largest = max(abs(float(end)) for end in torch.aminmax(x)) if x.numel() else 0.0
    if not math.isfinite(largest):
        raise ValueError("quantize_int8 takes finite numbers, found NaN or infinity")
    scale = largest / 127.0 or 1.0
    if isa() is None or x.device.type != "cpu":
        return (x * (1.0 / scale)).clamp(-127, 127).round().to(torch.int8), scale
    out = torch.empty(x.shape, dtype=torch.int8)
    threads = torch.get_num_threads()
    native.quantize(x.data_ptr(), x.numel(), 1.0 / scale, out.data_ptr(), path_number(None), threads)
    return out, scale


def check_scores(x: Tensor, dtypes: tuple[torch.dtype, ...], mask: Tensor | None) -> None:
    if x.dtype not in dtypes:
        raise TypeError(f"scores must be {' or '.join(str(d) for d in dtypes)}, got {x.dtype}")
    if x.dim() == 0:
        raise ValueError("scores need at least one dimension, got a scalar")
    check_mask(mask, x.shape, x.device)


def check_grad(grad: Tensor, words: Tensor) -> None:
    if grad.dtype not in FLOATS or grad.shape != words.shape:
        raise ValueError(
            f"grad must be a float tensor of shape {tuple(words.shape)}, got {grad.dtype} {tuple(grad.shape)}"
        )


def check_causal(causal: bool, shape: tuple[int, ...]) -> None:
    if causal and len(shape) < 2:
        raise ValueError(f"causal needs rows and columns, got shape {tuple(shape)}")


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


def exponent_like(x: Tensor, spec: SoftermaxSpec) -> Tensor:
    return x.new_empty(x.shape[:-1] if spec.output_mode == "row-scaled" else (0,), dtype=torch.int32)


def words_like(x: Tensor, spec: SoftermaxSpec) -> Tensor:
    """Output words that training keeps: a byte each, wherever they fit."""
    return x.new_empty(x.shape, dtype=torch.uint8 if spec.output.bits <= 8 else torch.int32)


def marks_like(x: Tensor) -> Tensor:
    """Per row one byte, whether any score saturated, and then a bit per score."""
    return x.new_empty((*x.shape[:-1], 1 + (x.shape[-1] + 7) // 8), dtype=torch.uint8)


def _rows_float(
    x: Tensor, mask: Tensor | None, text: str, words: Tensor | None, marks: Tensor | None, exponent: Tensor
) -> Tensor:
    check_scores(x, tuple(FLOATS), mask)
    core_spec = native_spec(rows_spec_of(text))
    y = torch.empty(x.shape, dtype=x.dtype)
    if x.numel() == 0:
        return y
    rows, keep, batch = _batch(x, mask)
    broken = native.rows_float(
        core_spec, *batch, 0, False, 0, FLOATS[x.dtype], rows.data_ptr(), y.data_ptr(),
        0 if words is None else words.data_ptr(), 0 if marks is None else marks.data_ptr(),
        exponent.data_ptr() if exponent.numel() else 0, path_number(None), torch.get_num_threads(),
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


def link_like(x: Tensor) -> Tensor:
    """Zeros that take no memory, and through which the gradient of a gradient reaches the scores.

    Backward needs the words alone, a byte each. Only its own derivative needs to know that the words
    depend on the scores, and these, or the probabilities, would take four bytes each to remember.
    """
    return x.new_zeros(()).expand(x.shape)


def _training(x: Tensor, mask: Tensor | None, spec: str) -> tuple[Tensor, ...]:
    known = rows_spec_of(spec)
    words, marks, exponent = words_like(x, known), marks_like(x), exponent_like(x, known)
    return _rows_float(x, mask, spec, words, marks, exponent), words, marks, exponent, link_like(x)


def _training_fake(x: Tensor, mask: Tensor | None, spec: str) -> tuple[Tensor, ...]:
    known = rows_spec_of(spec)
    words, marks, exponent = words_like(x, known), marks_like(x), exponent_like(x, known)
    return x.new_empty(x.shape), words, marks, exponent, link_like(x)


def _backward(grad: Tensor, words: Tensor, marks: Tensor, exponent: Tensor, spec: str) -> Tensor:
    known = rows_spec_of(spec)
    check_grad(grad, words)
    grad = grad.contiguous()
    dx = torch.empty(grad.shape, dtype=grad.dtype)
    if grad.numel():
        columns = grad.shape[-1]
        native.backward(
            native_spec(known), FLOATS[grad.dtype], grad.numel() // columns, columns, grad.data_ptr(),
            words.data_ptr(), marks.data_ptr(), exponent.data_ptr() if exponent.numel() else 0, factor(known),
            dx.data_ptr(), path_number(None), torch.get_num_threads(),
        )  # fmt: skip
    return dx


def _backward_fake(grad: Tensor, words: Tensor, marks: Tensor, exponent: Tensor, spec: str) -> Tensor:
    return grad.new_empty(grad.shape)


def _int8_rows(
    raw: Tensor, spec: str, mask: Tensor | None, lengths: Tensor | None, causal: bool
) -> tuple[Tensor, Tensor]:
    check_scores(raw, (torch.int8,), mask)
    check_lengths(lengths)
    core_spec = native_spec(rows_spec_of(spec))
    check_causal(causal, raw.shape)
    counts = None
    if lengths is not None:
        counts = lengths.clamp(max=raw.shape[-1]).to(torch.int32).expand(raw.shape[:-1]).contiguous()
    words = torch.empty(raw.shape, dtype=torch.uint8)
    exponent = torch.zeros(raw.shape[:-1], dtype=torch.int32)
    if raw.numel():
        rows, keep, batch = _batch(raw, mask)
        native.rows_int8(
            core_spec, *batch, 0 if counts is None else counts.data_ptr(), causal,
            raw.shape[-1] - raw.shape[-2] if causal else 0, rows.data_ptr(), words.data_ptr(),
            exponent.data_ptr(), path_number(None), torch.get_num_threads(),
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


def _gradient(ctx: Any, grad: Tensor | None, *others: Tensor | None) -> tuple[Tensor | None, None, None]:
    through_link = others[-1]
    if grad is None:
        return through_link, None, None
    words, marks, exponent, link = ctx.saved_tensors
    if torch.is_grad_enabled() or transformed(grad):
        # The gradient is to be differentiated, or is one of a batch: the core knows neither.
        spec = rows_spec_of(ctx.spec)
        y, saturated = _restored(words, marks, exponent, spec)
        dx = pulled(grad, flowing(y, saturated, link, spec), saturated, factor(spec)).to(grad.dtype)
    else:
        dx = torch.ops.softermax.backward(grad, words, marks, exponent, ctx.spec)
    return dx if through_link is None else dx + through_link, None, None


def _restored(words: Tensor, marks: Tensor, exponent: Tensor, spec: SoftermaxSpec) -> tuple[Tensor, Tensor]:
    """Probabilities, and where scores saturated, from what `training` keeps."""
    y = words.float() * spec.output.lsb
    if exponent.numel():
        y = y * torch.exp2(-exponent.float()).unsqueeze(-1)
    bits = (marks[..., 1:].unsqueeze(-1) >> torch.arange(8, dtype=torch.uint8, device=marks.device)) & 1
    return y, bits.flatten(-2)[..., : words.shape[-1]] == 1


def _refuse(ctx: Any, grad: Tensor) -> None:
    raise RuntimeError(
        "softermax::backward has no derivative of its own; that of a gradient is right through "
        "softermax.functional.softermax, and in code that is not compiled"
    )


_library = torch.library.Library("softermax", "DEF")
for _name, _schema, _run, _fake in (
    ("forward", "(Tensor x, Tensor? mask, str spec) -> Tensor", _forward, _forward_fake),
    (
        "training",
        "(Tensor x, Tensor? mask, str spec) -> (Tensor, Tensor, Tensor, Tensor, Tensor)",
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
torch.library.register_autograd("softermax::backward", _refuse, lib=_library)
