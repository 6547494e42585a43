"""Softermax in ONNX: standard operators, bit-exact in onnxruntime, or the compiled one of `onnx_operator`.

The exporter that traces gets the few nodes of `onnx_lean`, where a spec has that form. Else, and from ``torch.export``:

The words are those of `words.py`, with other primitives: ONNX has neither shifts nor a float's bits nor a
running maximum, but products with powers of two, table look-ups and sums of exact floats, which every
runtime computes alike. They take over while PyTorch exports to ONNX, and within `exportable`.
"""

from __future__ import annotations

import contextlib
import io
import warnings
from collections import Counter
from collections.abc import Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal

from softermax.extras import need
from softermax.spec import AnySpec, SoftermaxSpec

if not TYPE_CHECKING:
    need("torch", "torch")

import torch
from torch import Tensor, nn

from softermax.pytorch import onnx_lean, onnx_operator, words
from softermax.pytorch.onnx_tables import distances_of, tables

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
        distances = distances_of(spec)
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
    if _traced() and onnx_lean.takes(_exported(spec)):
        return onnx_lean.softermax(raw, mask, spec)
    return words.softermax(raw, mask, _exported(spec), PRIMITIVES)


def probabilities(x: Tensor, keep: Tensor | None, spec: AnySpec) -> Tensor:
    """Like `words.probabilities`, whatever is masked; NaN where another score is NaN or infinite."""
    if _asked == "custom" and x.dtype == torch.float32:
        return onnx_operator.probabilities(x, keep, spec)
    if x.dtype == torch.float32 and _traced() and onnx_lean.takes(_exported(spec)):
        return onnx_lean.probabilities(x, keep, _exported(spec))
    if keep is not None:
        x = torch.where(keep, x, torch.zeros((), dtype=x.dtype, device=x.device))
    return words.probabilities(x, keep, _exported(spec), PRIMITIVES)


def _traced() -> bool:
    """Whether the exporter at work traces, and so takes nodes as they are given."""
    return bool(torch._C._is_tracing())


class _Words(nn.Module):
    def __init__(self, spec: SoftermaxSpec) -> None:
        super().__init__()
        self.spec = spec

    def forward(self, raw: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        y, leading_one = softermax(raw, mask, self.spec)
        return y, leading_one - self.spec.powsum.fraction


class _Scores(nn.Module):
    def __init__(self, spec: SoftermaxSpec) -> None:
        super().__init__()
        self.spec = spec

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        return probabilities(x, mask, self.spec)


def _graph_of(module: nn.Module, kind: torch.dtype, given: str, outputs: dict[str, dict[int, str]]) -> bytes:
    """A file of one Softermax with a mask, for any number of rows and columns."""
    sizes = {0: "rows", 1: "columns"}
    file: Any = io.BytesIO()  # which the exporter takes, and its types do not mention
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        # By tracing, which takes a second where torch.export takes ten; tests compare both.
        torch.onnx.export(
            module.eval(), (torch.zeros(3, 20, dtype=kind), torch.ones(3, 20, dtype=torch.bool)), file, dynamo=False,
            opset_version=18, input_names=[given, "mask"], output_names=list(outputs),
            dynamic_axes={given: sizes, "mask": sizes, **outputs},
        )  # fmt: skip
    found: bytes = file.getvalue()
    return found


def operator_nodes(spec: SoftermaxSpec) -> Counter[str]:
    """The standard operators that Softermax is exported as, from float32 scores and a mask to probabilities.

    Constants are no operators; the two that carry a NaN through, and the two that mask, count.
    """
    onnx = need("onnx", "onnx")
    file = _graph_of(_Scores(spec), torch.float32, "x", {"y": {0: "rows", 1: "columns"}})
    nodes = onnx.load_from_string(file).graph.node
    return Counter(node.op_type for node in nodes if node.op_type != "Constant")


@lru_cache(maxsize=16)
def _session(spec: SoftermaxSpec) -> Any:
    """A spec's graph from words to words, loaded in onnxruntime."""
    runtime = need("onnxruntime", "onnx")
    outputs = {"words": {0: "rows", 1: "columns"}, "exponent": {0: "rows"}}
    file = _graph_of(_Words(spec), _carrier(spec), "raw", outputs)
    options = runtime.SessionOptions()
    options.intra_op_num_threads = 1
    return runtime.InferenceSession(file, options, providers=["CPUExecutionProvider"])


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
