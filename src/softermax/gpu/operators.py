"""The Triton kernels as kernels of ``torch.ops.softermax.*``, for the devices that they are registered for.

Fake kernels, gradients and checks of what comes in are the operators' own (`softermax.pytorch`).
"""

from __future__ import annotations

import warnings

import torch
from torch import Tensor

from softermax.gpu import float_attention
from softermax.gpu.plan import refusal, require
from softermax.pytorch import operators
from softermax.pytorch.attention import check_operands
from softermax.pytorch.gradient import factor
from softermax.pytorch.inputs import check_lengths
from softermax.pytorch.registry import rows_spec_of, spec_of
from softermax.spec import AnySpec, SoftermaxSpec

_library: torch.library.Library | None = None


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
def takes_spec(spec: AnySpec) -> bool:
    """Whether the kernels compute rows with this spec."""
    return isinstance(spec, SoftermaxSpec) and refusal(spec) is None


def forward(x: Tensor, mask: Tensor | None, spec: str) -> Tensor:
    from softermax.gpu import launch

    known = _checked(x, mask, spec)
    return launch.forward(x, mask, known, None, None, x.new_empty(0, dtype=torch.int32))


def training(x: Tensor, mask: Tensor | None, spec: str) -> tuple[Tensor, ...]:
    from softermax.gpu import launch

    known = _checked(x, mask, spec)
    words, marks = operators.words_like(x, known), operators.marks_like(x)
    exponent = operators.exponent_like(x, known)
    y = launch.forward(x, mask, known, words, marks, exponent)
    return y, words, marks, exponent, operators.link_like(x)


def backward(grad: Tensor, words: Tensor, marks: Tensor, exponent: Tensor, spec: str) -> Tensor:
    from softermax.gpu import launch

    operators.check_grad(grad, words)
    known = rows_spec_of(spec)
    return launch.backward(grad, words, marks, exponent, known, factor(known))


def int8_rows(
    raw: Tensor, spec: str, mask: Tensor | None, lengths: Tensor | None, causal: bool
) -> tuple[Tensor, Tensor]:
    from softermax.gpu import launch

    operators.check_scores(raw, (torch.int8,), mask)
    operators.check_causal(causal, raw.shape)
    check_lengths(lengths)
    known = rows_spec_of(spec)
    require(known)
    if known.input.bits < 8 or known.output.bits > 8:
        raise ValueError(
            f"input is {known.input} and output {known.output}: int8 to uint8 takes input words of 8 bits or more and "
            "output words of 8 bits or fewer"
        )
    return launch.word_rows(raw, known, mask, lengths, causal)


def attend(
    q: Tensor, k: Tensor, v: Tensor, spec: str, scale: float, value_scale: float, mask: Tensor | None,
    lengths: Tensor | None, causal: bool,
) -> Tensor:  # fmt: skip
    from softermax.gpu import launch_attention

    check_operands(q, k, v, scale, value_scale, mask, lengths)
    known = spec_of(spec)
    require(known)
    launch_attention.require_attention(known, k.shape[2], q.shape[3])
    return launch_attention.int8_attention(q, k, v, known, scale, value_scale, mask, lengths, causal)


def _checked(x: Tensor, mask: Tensor | None, spec: str) -> SoftermaxSpec:
    operators.check_scores(x, tuple(operators.FLOATS), mask)
    known = rows_spec_of(spec)
    require(known)
    return known


def register_for(device: str, key: str) -> None:
    """Register the kernels for a type of device, by PyTorch's names for it and for its dispatch key."""
    global _library
    if _library is not None:
        return
    _library = torch.library.Library("softermax", "IMPL")
    for name, run in (
        ("forward", forward),
        ("training", training),
        ("backward", backward),
        ("int8_rows", int8_rows),
        ("attend", attend),
    ):
        with warnings.catch_warnings():
            warnings.filterwarnings(
                "ignore", "Warning only once for all operators"
            )  # the interpreter overrides
            _library.impl(name, run, key, allow_override=True)
    operators.DEVICES[device] = takes_spec
    float_attention.register_for(key)
