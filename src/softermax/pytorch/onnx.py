"""Softermax in ONNX: standard operators, bit-exact in onnxruntime, or the compiled one of `onnx_operator`.

The words are those of `words.py`, with other primitives: ONNX has neither shifts nor a float's bits nor a
running maximum, but products with powers of two, table look-ups and sums of exact floats, which every
runtime computes alike. They take over while PyTorch exports to ONNX, and within `exportable`.
"""

from __future__ import annotations

import contextlib
import io
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal

from softermax.extras import need
from softermax.spec import AnySpec, SoftermaxSpec

if not TYPE_CHECKING:
    need("torch", "torch")

import numpy as np
import torch
from torch import Tensor, nn

from softermax import golden
from softermax.pytorch import onnx_operator, words

if TYPE_CHECKING:
    from softermax.fixedpoint import IntArray
    from softermax.golden import BoolArray
    from softermax.verify import Body

_WIDEST_PRODUCT = 52
"""Bits that a product may have in float64, with one to spare for its half."""
_EXPONENT = 320
"""Exponents of the table of powers: more than the differences of two maxima of 8 bits."""
_POWERS = tuple(2.0**e for e in range(-_EXPONENT, 64))


class OnnxPrimitives(words.Primitives):
    """Floats that hold integers, for whatever PyTorch has integers for."""

    wide = torch.float64
    row = torch.float64
    compares = False

    def any_length(self) -> bool:
        return True

    def power(self, exponent: Tensor, kind: torch.dtype) -> Tensor:
        """2^exponent, exact, which a runtime's own power need not be.

        Single precision has 0 where the power is too small for it: what is multiplied with it is then 0, too.
        """
        return self.entry(_POWERS, exponent + _EXPONENT, kind)

    def entry(self, values: tuple[int, ...] | tuple[float, ...], index: Tensor, kind: torch.dtype) -> Tensor:
        """``values[index]``; an index outside, which only NaN brings about, takes the first or last."""
        at = index.to(torch.int64).clamp(0, len(values) - 1)
        return nn.functional.embedding(at, torch.tensor(values, dtype=kind).unsqueeze(-1)).squeeze(-1)

    def running_max(self, values: Tensor) -> Tensor:
        """Each slice takes the largest of the slices up to it."""
        # Counted in the graph, for any number of slices: an arange would be a constant of the exported one.
        at = (values * 0 + 1).cumsum(-1)
        later = at.unsqueeze(-2) > at.unsqueeze(-1)
        return torch.where(later, -torch.inf, values.unsqueeze(-2)).amax(-1)

    def leading_one(self, d: Tensor, bits: int) -> Tensor:
        """The number of powers of two that fit, less one."""
        powers = torch.tensor([2.0**k for k in range(1, bits)], dtype=d.dtype)
        return (d.unsqueeze(-1) >= powers).to(d.dtype).sum(-1)

    def finished(
        self, lanes: Tensor, unnormed: Tensor, maximum: Tensor, powsum: Tensor, spec: SoftermaxSpec
    ) -> tuple[Tensor, Tensor]:
        """Lanes look their word up, by their distance under the max and what their row's sum makes of it.

        Runtimes make a pass through memory of each operation, and a row has more lanes than distances. Where sums make
        few differences, all words there are lie in one table; else a row's are computed once.
        """
        distances = _distances(spec)
        if not distances:
            return super().finished(lanes, unnormed, maximum, powsum, spec)
        last = maximum[..., -1]
        flat = lanes if spec.slice_width is None else lanes.reshape(*lanes.shape[:-2], 1, -1)
        first = last * (1 << spec.input.fraction) + distances[0]
        at = (flat - first.to(lanes.dtype)[..., None, None]).clamp(0, len(distances) - 1)
        known = tables(spec)
        if known is None:
            leading_one, recip = words.reciprocal(powsum, spec, self)
            table = _row_words(distances, leading_one, recip, lanes.dtype, spec, self)
            return table.gather(-1, at.to(torch.int64)), leading_one
        index = powsum
        if known.exact is not None:
            coarse = (powsum * 2.0**-known.drop).floor() + known.exact
            index = torch.where(powsum < known.exact, powsum, coarse)
        state = self.entry(known.states, index, torch.float32)
        first_word = (state * len(distances)).to(lanes.dtype)[..., None, None]
        return self.entry(known.words, at + first_word, lanes.dtype), self.entry(
            known.leading_ones, state, powsum.dtype
        )


@dataclass(frozen=True)
class _Tables:
    """What a row's sum decides: its state, and by states the output words of all distances and the leading one."""

    states: tuple[int, ...]
    """Of every sum; where ``exact`` is a number, of the sums below it, then of the others without their last bits."""
    exact: int | None
    drop: int
    words: tuple[float, ...]
    leading_ones: tuple[int, ...]


_MOST_SUM_BITS, _MOST_STATES = 24, 1 << 16
_MOST_WORDS = 1 << 18


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
def tables(spec: SoftermaxSpec) -> _Tables | None:
    return _tables(spec)


@lru_cache(maxsize=64)
def _tables(spec: SoftermaxSpec) -> _Tables | None:
    """By the golden model. None where they would be large: sums of many bits, or reciprocals of many values."""
    bits, distances = spec.powsum.bits, _distances(spec)
    if bits > _MOST_SUM_BITS:
        return None
    leading_one, recip = golden.reciprocal(np.arange(1 << bits), spec)
    pairs, states = np.unique(leading_one * (1 << 32) + recip, return_inverse=True)
    split = _split(states, bits)
    if split is None or len(pairs) * len(distances) > _MOST_WORDS:
        return None
    exact, drop = split
    found = states if exact is None else np.concatenate([states[:exact], states[:: 1 << drop]])
    leading_one, recip = pairs >> 32, pairs & 0xFFFFFFFF
    if spec.normalization == "row-products":
        products = golden.row_products(recip, spec)[:, None]
        steps = np.broadcast_to(np.array(distances), (len(pairs), 1, len(distances)))
        y, _ = golden.normalize_scores(steps, 0, leading_one[:, None, None], products, spec)
    else:
        numerators = np.array(words.plan(spec).unnormed[-len(distances) :]).astype(np.int64)
        y = golden.normalize(numerators, leading_one[:, None], recip[:, None], spec)
    return _Tables(
        tuple(found.tolist()),
        exact,
        drop,
        tuple(y.ravel().astype(float).tolist()),
        tuple(leading_one.tolist()),
    )


def _split(states: IntArray, bits: int) -> tuple[int | None, int] | None:
    """From which sum on how many of its last bits make no difference, so that a table of `_MOST_STATES` is enough."""
    for low in range((bits + 1) // 2, bits):
        drop = bits - low
        blocks = states.reshape(-1, 1 << drop)[(1 << low) >> drop :]
        if (blocks == blocks[:, :1]).all():
            return 1 << low, drop
    return (None, 0) if 1 << bits <= _MOST_STATES else None


def _row_words(
    distances: tuple[int, ...],
    leading_one: Tensor,
    recip: Tensor,
    kind: torch.dtype,
    spec: SoftermaxSpec,
    primitives: words.Primitives,
) -> Tensor:
    """A row's output word for every distance, (rows, 1, distances)."""
    if spec.normalization == "row-products":
        steps = torch.tensor(distances, dtype=kind).unsqueeze(0)
        return words.normalize_scores(steps, leading_one * 0, leading_one, recip, spec, primitives)
    entries = words.plan(spec).unnormed[-len(distances) :]
    numerators = torch.tensor(entries, dtype=kind).unsqueeze(0)
    return words.normalize(numerators, leading_one, recip, spec, primitives)


@lru_cache(maxsize=64)
def _distances(spec: SoftermaxSpec) -> tuple[int, ...]:
    """Raw differences x - m from the highest that leaves no output word, whatever the row, to the largest there is.

    None where a lane's word depends on more than that, or on too wide a word to be counted through.
    """
    p = words.plan(spec)
    if not p.narrow:
        return ()
    one = 1 << spec.input.fraction
    if spec.normalization == "row-products":
        # Shifts of more than the product's bits and one leave nothing; a sum's leading one is at 0 or above.
        by = spec.product.fraction - spec.output.fraction
        if spec.output_mode == "fixed":
            by -= spec.powsum.fraction
        lowest = (min(by, 0) - spec.product.bits - 2) * one
    elif spec.slice_width is None or spec.unnormed_rounding == "truncate":
        zeros = next(i for i, word in enumerate(p.unnormed) if word)
        lowest = p.first - 1 + zeros - 1
    else:
        return ()
    return tuple(range(lowest, one))


PRIMITIVES = OnnxPrimitives()

OperatorKind = Literal["standard", "custom"]
"""``standard``: what every runtime has. ``custom``: one node per Softermax, which needs the compiled library."""
_asked: OperatorKind | None = None


def exporting() -> bool:
    """Whether the operator is being exported to ONNX."""
    return asked_to_export() or torch.onnx.is_in_onnx_export()


def asked_to_export() -> bool:
    """Whether this is within `exportable`. Without the look at PyTorch's exporters, which takes as long as a small row."""
    return _asked is not None


@contextlib.contextmanager
def exportable(operator: OperatorKind = "standard") -> Iterator[None]:
    """Within the block, what ``torch.export`` makes of Softermax is fit for ONNX.

    ``torch.onnx.export`` of a model needs no such block, that of a program that ``torch.export`` made does. The
    ``custom`` operator is for the exporter that traces (``dynamo=False``) and float32 scores; the others write
    standard operators all the same.
    """
    global _asked
    before, _asked = _asked, operator
    try:
        yield
    finally:
        _asked = before


def refusal(spec: AnySpec) -> str | None:
    """Why ONNX cannot have the words of a spec, or None where it can; it has those of every preset."""
    if not isinstance(spec, SoftermaxSpec):
        return "deferred normalisation (A8) has no ONNX form"
    product = spec.unnormed.bits + spec.reciprocal.bits
    if product > _WIDEST_PRODUCT:
        return (
            f"unnormed {spec.unnormed} times reciprocal {spec.reciprocal} has {product} bits: "
            f"in ONNX it must be at most {_WIDEST_PRODUCT}, which a float64 holds"
        )
    if not words.has_closed_form(spec):
        return (
            f"max {spec.max} and powsum {spec.powsum}: in ONNX they must have at most 8 integer bits of max "
            "and 30 bits of powsum"
        )
    return None


def _exported(spec: AnySpec) -> SoftermaxSpec:
    reason = refusal(spec)
    if reason is not None:
        raise ValueError(reason)
    assert isinstance(spec, SoftermaxSpec)
    return spec


def softermax(raw: Tensor, mask: Tensor | None, spec: SoftermaxSpec) -> tuple[Tensor, Tensor]:
    """Like `words.softermax`, from floats that hold raw words to floats that hold words."""
    return words.softermax(raw, mask, _exported(spec), PRIMITIVES)


def probabilities(x: Tensor, keep: Tensor | None, spec: AnySpec) -> Tensor:
    """Like `words.probabilities`, whatever is masked; NaN where another score is NaN or infinite."""
    if _asked == "custom" and x.dtype == torch.float32:
        return onnx_operator.probabilities(x, keep, spec)
    if keep is not None:
        x = torch.where(keep, x, torch.zeros((), dtype=x.dtype, device=x.device))
    return words.probabilities(x, keep, _exported(spec), PRIMITIVES)


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
    raw = torch.zeros(3, 20, dtype=_carrier(spec))
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


def _carrier(spec: SoftermaxSpec) -> torch.dtype:
    return torch.float32 if words.plan(spec).narrow else torch.float64


def bodies() -> list[Body]:
    """For `softermax verify`: the exported operator in onnxruntime, from words to words."""
    from softermax.verify import Body

    need("onnx", "onnx")
    need("onnxruntime", "onnx")

    def run(spec: SoftermaxSpec, raw: IntArray, mask: BoolArray) -> tuple[IntArray, IntArray | None]:
        feeds = {"raw": torch.from_numpy(raw).to(_carrier(spec)).numpy(), "mask": mask}
        y, exponent = _session(spec).run(None, feeds)
        return y.astype("int64"), exponent.astype("int64") if spec.output_mode == "row-scaled" else None

    return [Body("onnxruntime", run, lambda spec: refusal(spec) is None, share=0.1)]
