"""Softermax in ONNX: the operator as standard operators, bit-exact in onnxruntime.

`words.py` reads a float's exponent from its bits and keeps a running maximum, neither of which ONNX has.
Here the same words come from products with powers of two, table look-ups and sums of exact floats,
which every runtime computes alike. `exportable` puts this form in the operator's place while a model
is exported.
"""

from __future__ import annotations

import contextlib
import io
import warnings
from collections.abc import Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from softermax.extras import need
from softermax.spec import SoftermaxSpec

if not TYPE_CHECKING:
    need("torch", "torch")

import torch
from torch import Tensor, nn

from softermax import functional
from softermax.pytorch import words
from softermax.pytorch.words import Lookup

if TYPE_CHECKING:
    from softermax.fixedpoint import IntArray
    from softermax.golden import BoolArray
    from softermax.verify import Body

_WIDEST_PRODUCT = 52
"""Bits that a product may have in float64, with one to spare for its half."""


def check_exportable(spec: SoftermaxSpec) -> None:
    """Say why ONNX cannot have the words of a spec; every preset is fine."""
    product = spec.unnormed.bits + spec.reciprocal.bits
    if product > _WIDEST_PRODUCT:
        raise ValueError(
            f"unnormed {spec.unnormed} times reciprocal {spec.reciprocal} has {product} bits: "
            f"in ONNX it must be at most {_WIDEST_PRODUCT}, which a float64 holds"
        )
    if not words.plan(spec).closed_form:
        raise ValueError(
            f"max {spec.max} and powsum {spec.powsum}: in ONNX they must have at most 8 integer bits of max "
            "and 30 bits of powsum"
        )


def softermax(raw: Tensor, mask: Tensor | None, spec: SoftermaxSpec) -> tuple[Tensor, Tensor]:
    """Like `words.softermax`, from floats that hold raw words to floats that hold words."""
    check_exportable(spec)
    kind = torch.float32 if words.plan(spec).narrow else torch.float64
    lanes = _sliced(raw.to(kind), mask, spec)
    maximum = _running_max(lanes, spec)
    unnormed = _power_of_two(lanes, maximum.unsqueeze(-1), spec)
    leading_one, recip = _reciprocal(_powsum(unnormed, maximum, spec), spec)
    y = _normalize(_numerator(lanes, unnormed, maximum, spec), leading_one, recip, spec)
    return y.reshape(*raw.shape[:-1], -1)[..., : raw.shape[-1]], leading_one


def probabilities(x: Tensor, keep: Tensor | None, spec: SoftermaxSpec) -> Tensor:
    """The operator's forward pass along the last axis; NaN where a score is NaN or infinite."""
    y, leading_one = softermax(words.quantize(x, spec), keep, spec)
    if spec.output_mode == "fixed":
        y = y * spec.output.lsb
    else:
        y = y * _power(spec.powsum.fraction - spec.output.fraction - leading_one, y.dtype).unsqueeze(-1)
    return (y + (x - x)).to(x.dtype)


@contextlib.contextmanager
def exportable() -> Iterator[None]:
    """Within the block, `softermax.functional.softermax` and what uses it can be exported to ONNX."""
    original = functional._probabilities
    functional._probabilities = probabilities
    try:
        yield
    finally:
        functional._probabilities = original


def _sliced(raw: Tensor, mask: Tensor | None, spec: SoftermaxSpec) -> Tensor:
    masked = words.plan(spec).masked
    if mask is not None:
        raw = torch.where(mask, raw, float(masked))
    if spec.slice_width is None:
        return raw.unsqueeze(-2)
    # Always padded, by at least one lane, so that the graph holds for any number of columns.
    padding = spec.slice_width - raw.shape[-1] % spec.slice_width
    raw = nn.functional.pad(raw, (0, padding), value=float(masked))
    return raw.reshape(*raw.shape[:-1], -1, spec.slice_width)


def _running_max(lanes: Tensor, spec: SoftermaxSpec) -> Tensor:
    """A2, as floats. Each slice takes the largest of the slices up to it: ONNX has no running max."""
    integer = lanes * spec.input.lsb
    integer = integer.ceil() if spec.max_rounding == "ceil" else integer.floor()
    local_max = integer.amax(-1).clamp(spec.max_low, spec.max_high)
    if spec.slice_width is None:
        return local_max
    # Counted in the graph, for any number of slices: an arange would be a constant of the exported one.
    at = (local_max * 0 + 1).cumsum(-1)
    later = at.unsqueeze(-2) > at.unsqueeze(-1)
    return torch.where(later, float(spec.max_low), local_max.unsqueeze(-2)).amax(-1)


def _power_of_two(lanes: Tensor, maximum: Tensor, spec: SoftermaxSpec) -> Tensor:
    p = words.plan(spec)
    one = 1 << spec.input.fraction
    t = lanes - maximum * one
    if p.narrow:
        return _entry(p.unnormed, t - (p.first - 1), t.dtype)
    whole = (t * spec.input.lsb).floor()
    lpw = _lookup(p.pow2, t - whole * one)
    shifted = lpw * _power(whole.clamp(-(spec.unnormed.bits + 1), 0), t.dtype)
    return words.round_by(shifted, spec.unnormed_rounding)


def _powsum(unnormed: Tensor, maximum: Tensor, spec: SoftermaxSpec) -> Tensor:
    """A4, in the closed form that `words.powsum` explains."""
    top = spec.powsum.high
    exact = unnormed.double().sum(-1) * 2.0 ** (spec.powsum.fraction - spec.unnormed.fraction)
    terms = words.round_by(exact, spec.powsum_rounding).clamp(max=top)
    if spec.slice_width is None:
        return terms.squeeze(-1)
    weight = _power(maximum - maximum[..., -1:], torch.float64)
    limbs = max(1, (1 << spec.max.integer) // words.LIMB)
    parts = words.split_limbs(terms * weight, limbs)
    total = _carried([part.sum(-1) for part in parts])
    after = [part.sum(-1, keepdim=True) - part.cumsum(-1) for part in parts]
    restarted = [a + b for a, b in zip(after, words.split_limbs(top * weight, limbs), strict=True)]
    return torch.minimum(total, _carried(restarted).amin(-1))


def _carried(parts: list[Tensor]) -> Tensor:
    whole = parts[-1]
    for part in reversed(parts[:-1]):
        whole = part + (whole * 2.0**-words.LIMB).floor()
    return whole


def _reciprocal(d: Tensor, spec: SoftermaxSpec) -> tuple[Tensor, Tensor]:
    """A5, as floats: the leading one's position is the number of powers of two that fit, less one."""
    d = d.clamp(min=1)
    powers = torch.tensor([2.0**k for k in range(1, spec.powsum.bits)], dtype=d.dtype)
    leading_one = (d.unsqueeze(-1) >= powers).to(d.dtype).sum(-1)
    mantissa = d * _power(spec.powsum.bits - 1 - leading_one, d.dtype)
    return leading_one, _lookup(words.plan(spec).reciprocal, mantissa - 2.0 ** (spec.powsum.bits - 1))


def _numerator(lanes: Tensor, unnormed: Tensor, maximum: Tensor, spec: SoftermaxSpec) -> Tensor:
    if spec.slice_width is None:
        return unnormed
    if spec.unnormed_rounding == "truncate":
        return _power_of_two(lanes, maximum[..., -1:, None], spec)
    return (unnormed * _power((maximum - maximum[..., -1:]).unsqueeze(-1), unnormed.dtype)).floor()


def _normalize(numerator: Tensor, leading_one: Tensor, recip: Tensor, spec: SoftermaxSpec) -> Tensor:
    shift = spec.unnormed.fraction + spec.reciprocal.fraction - spec.output.fraction
    factor = recip * 2.0**-shift
    if spec.output_mode == "fixed":
        factor = factor * _power(spec.powsum.fraction - leading_one, recip.dtype)
    product = numerator * factor.to(numerator.dtype)[..., None, None]
    return words.round_by(product, spec.output_rounding).clamp(max=spec.output.high)


_EXPONENT = 320
"""Exponents of the table of powers: more than the differences of two maxima of 8 bits."""


def _power(exponent: Tensor, kind: torch.dtype) -> Tensor:
    """2^exponent for floats that hold integers, exact, which a runtime's own power need not be.

    Single precision has 0 where the power is too small for it: what is multiplied with it is then 0, too.
    """
    return _entry(_POWERS, exponent + _EXPONENT, kind)


_POWERS = tuple(2.0**e for e in range(-_EXPONENT, 64))


def _entry(values: tuple[float, ...], index: Tensor, kind: torch.dtype) -> Tensor:
    """``values[index]``; an index outside, which only NaN brings about, takes the first or last."""
    at = index.to(torch.int64).clamp(0, len(values) - 1)
    return nn.functional.embedding(at, torch.tensor(values, dtype=kind).unsqueeze(-1)).squeeze(-1)


def _lookup(table: Lookup, fraction: Tensor) -> Tensor:
    """A `PiecewiseTable` in floats that hold integers."""
    used = (fraction * 2.0**-table.drop).floor()
    whole = (used * 2.0**-table.rest_bits).floor()
    index = whole * 2.0**table.index_shift
    line = _entry(tuple(map(float, table.c_lut)), index, fraction.dtype)
    if table.rest_bits:
        slope = _entry(tuple(map(float, table.m_lut)), index, fraction.dtype)
        rest = used - whole * 2.0**table.rest_bits
        line = ((slope * rest + line) * 2.0**-table.shift).floor()
    return line.clamp(table.low, table.high)


class _Words(nn.Module):
    def __init__(self, spec: SoftermaxSpec) -> None:
        super().__init__()
        self.spec = spec

    def forward(self, raw: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        y, leading_one = softermax(raw, mask, self.spec)
        return y, leading_one - self.spec.powsum.fraction


@lru_cache(maxsize=16)
def _session(spec: SoftermaxSpec) -> Any:
    """A spec's graph from words to words, loaded in onnxruntime."""
    runtime = need("onnxruntime", "onnx")
    raw = torch.zeros(3, 20, dtype=torch.float32 if words.plan(spec).narrow else torch.float64)
    sizes = {0: "rows", 1: "columns"}
    file: Any = io.BytesIO()  # which the exporter takes, and its types do not mention
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        # By tracing, which takes a second where torch.export takes ten; tests compare both.
        torch.onnx.export(
            _Words(spec).eval(), (raw, torch.ones(3, 20, dtype=torch.bool)), file, dynamo=False,
            opset_version=18, input_names=["raw", "mask"], output_names=["words", "exponent"],
            dynamic_axes={"raw": sizes, "mask": sizes, "words": sizes, "exponent": {0: "rows"}},
        )  # fmt: skip
    options = runtime.SessionOptions()
    options.intra_op_num_threads = 1
    return runtime.InferenceSession(file.getvalue(), options, providers=["CPUExecutionProvider"])


def bodies() -> list[Body]:
    """For `softermax verify`: the exported operator in onnxruntime, from words to words."""
    from softermax.verify import Body

    need("onnx", "onnx")
    need("onnxruntime", "onnx")

    def run(spec: SoftermaxSpec, raw: IntArray, mask: BoolArray) -> tuple[IntArray, IntArray | None]:
        kind = "float32" if words.plan(spec).narrow else "float64"
        y, exponent = _session(spec).run(None, {"raw": raw.astype(kind), "mask": mask})
        return y.astype("int64"), exponent.astype("int64") if spec.output_mode == "row-scaled" else None

    def supports(spec: SoftermaxSpec) -> bool:
        try:
            check_exportable(spec)
        except ValueError:
            return False
        return True

    return [Body("onnxruntime", run, supports, share=0.1)]
