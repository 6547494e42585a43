"""Softermax of standard ONNX operators in few nodes, for the exporter that traces.

Words are indices here, and what is computed from them is looked up: Gather takes indices below zero from the table's end, so
a table covers differences of either sign as they are. Where rows have slices, nothing is unrolled over them:

- the running max of slices is a logarithm. 2^(B·m) of each slice, summed up to it, lies between 2^(B·max) and 2^B times as much;
- the running sum is exact in two floats of double precision, because truncating shifts compose: terms are added with the weight
  2^m, in two limbs, and divided once by that of the last max. A sum that saturates on its way is the least of those that begin
  with the largest sum at some slice (`words.running_sum`), so the sums from every slice on are taken. The least of them is below
  what the limbs hold exactly; one that is beyond, and so rounded, is not the least.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from softermax.extras import need
from softermax.spec import SoftermaxSpec

if not TYPE_CHECKING:
    need("torch", "torch")

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from softermax import golden
from softermax.pytorch import words
from softermax.pytorch.onnx_tables import distances_of, tables

STEP = 15
"""B: bits that the sum over slices may grow by. 64 maxima of it fit the exponent of a double."""
_MARGIN = 0.3
"""Bits by which a logarithm may be too small without a change."""
_EXACT = 53
"""Bits of the integers that a double holds."""
_MOST_SUMS = 1 << 16
"""Sums that are looked up as they are."""
_INT32, _INT64, _DOUBLE = 6, 7, 11  # ONNX's numbers of its types


@dataclass(frozen=True)
class _Numbers:
    """A spec's tables. Those that differences or raw words index have the negative ones at their end."""

    masked: int
    one: int
    """Raw steps of a unit."""
    distances: int
    to_first: NDArray[np.int32]
    """Without slices: of the largest raw word, the raw word that is the first distance below its max."""
    to_power: NDArray[np.float64]
    """With slices: of a slice's largest raw word, 2^(B·m)."""
    firsts: NDArray[np.int32]
    """With slices: of a max, the raw word that is the first distance below it."""
    unnormed: NDArray[Any]
    """Without slices by distance, with slices by difference to the max; in units of PowSum."""
    weights: NDArray[np.float64]
    shares: NDArray[np.float64]
    rest: NDArray[np.float64]
    """With slices, of a max: 2^m in two limbs, what divides each limb, and their sum."""
    offset: int | None
    drop: int
    """An index of a sum d is the least of d and d/2^drop + offset; of d alone where there is no offset."""
    last: int
    """The largest index."""
    states: NDArray[np.int32]
    """By index, where a sum's words begin in the table."""
    leading_ones: NDArray[np.float64]
    words: NDArray[np.float32]
    probabilities: NDArray[np.float32]


def takes(spec: SoftermaxSpec) -> bool:
    """Whether a spec has this form; others have the one of `softermax.pytorch.onnx`."""
    return _numbers(spec) is not None


@lru_cache(maxsize=64)
def _numbers(spec: SoftermaxSpec) -> _Numbers | None:
    distances = distances_of(spec)
    known = tables(spec) if distances else None
    levels = spec.max_high - spec.max_low + 1
    width = spec.slice_width
    if known is None or STEP * levels > 1000 or spec.input_rounding != "half-even" or spec.input.bits > 8:
        return None
    plan, one = words.plan(spec), 1 << spec.input.fraction
    unit = 2.0 ** (spec.powsum.fraction - spec.unnormed.fraction)
    largest_term = (width or 1) * max(plan.unnormed) * unit + 1
    half = levels // 2
    if width is not None and (
        width << spec.unnormed.bits > 1 << 24
        or unit > 1
        or largest_term > spec.powsum.high
        or spec.powsum.bits + half - 1 > _EXACT
    ):
        return None
    masked = plan.masked - one  # below a max that is one less than the least: that of no score at all
    raw = np.arange(spec.input.low, spec.input.high + 1)
    maximum = golden.int_max(raw, spec)
    if width is None:
        first = _by_sign(
            raw, maximum * one + distances[0], masked, spec.max_low * one + distances[0], np.int32
        )
        power = np.zeros(1)
        unnormed = np.array(plan.unnormed[-len(distances) :]) * unit
    else:
        first = np.zeros(1, dtype=np.int32)
        exponents = STEP * (maximum - spec.max_low) + _MARGIN
        power = _by_sign(raw, 2.0**exponents, masked, 2.0 ** (_MARGIN - 2 * STEP), np.float64)
        # Counted from the least max on.
        differences = np.arange(plan.first, one)
        entries = golden.power_of_two(differences, 0, spec) * unit
        lowest = masked - one * levels
        unnormed = _by_sign(differences + spec.max_low * one, entries, lowest, 0.0, np.float32)
    at = np.arange(levels)
    low, high = np.where(at < half, 2.0**at, 0.0), np.where(at < half, 0.0, 2.0 ** (at - half))
    shares = np.stack([2.0 ** -np.minimum(at, half), np.ones(levels)], axis=1)
    rest = 2.0 ** -np.maximum(at - half, 0)
    firsts = np.append(np.arange(levels) * one, 0) + spec.max_low * one + distances[0]
    firsts = firsts.astype(np.int32)
    offset, index, states = _sums(spec)
    exponent = (
        np.zeros(1) if spec.output_mode == "fixed" else np.array(known.leading_ones) - spec.powsum.fraction
    )
    factors = 2.0 ** -(spec.output.fraction + exponent)
    y = np.array(known.words).reshape(-1, len(distances))
    return _Numbers(
        masked, one, len(distances), first, power, firsts, unnormed,
        np.stack([np.append(low, 0.0), np.append(high, 0.0)], axis=1), np.append(shares, [[1.0, 1.0]], axis=0),
        np.append(rest, 1.0), offset, known.drop, int(index), (states * len(distances)).astype(np.int32),
        np.array(known.leading_ones, dtype=np.float64)[states], y.ravel().astype(np.float32),
        (y * factors[:, None]).ravel().astype(np.float32),
    )  # fmt: skip


def _by_sign(
    at: NDArray[Any], values: NDArray[Any], lowest: int, others: float, kind: type[Any]
) -> NDArray[Any]:
    """Values by index of either sign, down to ``lowest``; ``others`` where none is given."""
    size = 1 << int(max(-lowest, at.max() + 1, -at.min()) * 2 - 1).bit_length()
    found = np.full(size, others, dtype=kind)
    found[at % size] = values
    return found


def _sums(spec: SoftermaxSpec) -> tuple[int | None, int, NDArray[np.int64]]:
    """The offset of an index of sums, the largest index, and the state of each."""
    known = tables(spec)
    assert known is not None
    d = np.arange(1 << spec.powsum.bits)
    stored = np.array(known.states)
    if known.exact is None:
        return None, len(d) - 1, stored
    state = np.where(
        d < known.exact, stored[np.minimum(d, known.exact)], stored[known.exact + (d >> known.drop)]
    )
    if len(d) <= _MOST_SUMS:
        return None, len(d) - 1, state
    index = np.minimum(d, known.exact + (d >> known.drop))
    found = np.zeros(int(index.max()) + 1, dtype=np.int64)
    found[index] = state
    return known.exact, int(index.max()), found


def softermax(raw: Tensor, mask: Tensor | None, spec: SoftermaxSpec) -> tuple[Tensor, Tensor]:
    """Like `words.softermax`, in a trace, from floats that hold raw words to floats that hold words."""
    made: tuple[Tensor, Tensor] = _Lean.apply(raw, mask, spec, False)  # type: ignore[no-untyped-call]
    return made


def probabilities(x: Tensor, mask: Tensor | None, spec: SoftermaxSpec) -> Tensor:
    """Like `words.probabilities`, in a trace, of float32 scores; NaN where a score is NaN or infinite."""
    if mask is not None:
        x = torch.where(mask, x, torch.zeros((), dtype=x.dtype))
    made: Tensor = _Lean.apply(x, mask, spec, True)[0]  # type: ignore[no-untyped-call]
    return made + (x - x)


class _Lean(torch.autograd.Function):
    """Few nodes in a traced graph; in PyTorch, what they compute."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, mask: Tensor | None, spec: SoftermaxSpec, scores: bool
    ) -> tuple[Tensor, Tensor]:
        # From NumPy, of which the trace takes no notice.
        given, keep = x.detach().numpy(), None if mask is None else mask.numpy()
        raw = golden.quantize(given, spec) if scores else given.astype(np.int64)
        found = golden.softermax(raw, spec, keep, trace=True)
        assert found.trace is not None
        y = found.value if scores else found.words
        return torch.from_numpy(y.astype(np.float32)), torch.from_numpy(
            found.trace.leading_one.astype(np.float64)
        )

    @staticmethod
    def symbolic(g: Any, x: Any, mask: Any, spec: SoftermaxSpec, scores: bool) -> tuple[Any, Any]:
        found = _numbers(spec)
        assert found is not None
        made, leading_one = _Nodes(g, spec, found, x.type().dim()).emit(x, mask, scores)
        made.setType(x.type())
        return made, leading_one


class _Nodes:
    """The nodes of one Softermax, along the last of ``rank`` axes."""

    def __init__(self, g: Any, spec: SoftermaxSpec, numbers: _Numbers, rank: int) -> None:
        self.g, self.spec, self.n, self.rank = g, spec, numbers, rank

    def emit(self, x: Any, mask: Any, scores: bool) -> tuple[Any, Any]:
        n, op, constant = self.n, self.g.op, self._constant
        raw = op("Cast", self._quantized(x) if scores else x, to_i=_INT32)
        if mask is not None:
            raw = op("Where", mask, raw, constant(n.masked, np.int32))
        if self.spec.slice_width is None:
            at, d = self._whole(raw)
        else:
            first, d = self._sliced(raw)
            at = op("Max", op("Sub", raw, first), constant(0, np.int32))
        index = d
        if n.offset is not None:
            coarse = op("Add", op("Div", d, constant(1 << n.drop, np.int64)), constant(n.offset, np.int64))
            index = op("Min", d, coarse, constant(n.last, np.int64))
        elif self.spec.slice_width is None:
            index = op("Min", d, constant(n.last, np.int64))
        begin = op("Gather", constant(n.states), index)
        found = op("Gather", constant(n.probabilities if scores else n.words), op("Add", at, begin))
        ones = op("Gather", constant(n.leading_ones), index)
        return found, op("Squeeze", ones, constant([-1], np.int64))

    def _constant(self, value: Any, kind: Any = None) -> Any:
        return self.g.op("Constant", value_t=torch.from_numpy(np.array(value, dtype=kind)))

    def _quantized(self, x: Any) -> Any:
        """Rounded half to even and saturated, which is what QuantizeLinear does."""
        op, spec = self.g.op, self.spec
        bytes_ = spec.input.low == -128 and spec.input.high == 127
        if bytes_ and math.frexp(spec.input_scale)[0] == 0.5:
            # To divide by a power of two is to multiply by another.
            scale = self._constant(1 / spec.input_scale, np.float32)
            return op("QuantizeLinear", x, scale, self._constant(0, np.int8))
        scaled = op("Mul", x, self._constant(spec.input_scale, np.float32))
        if bytes_:
            return op("QuantizeLinear", scaled, self._constant(1.0, np.float32), self._constant(0, np.int8))
        limits = (self._constant(limit, np.float32) for limit in (spec.input.low, spec.input.high))
        return op("Clip", op("Round", scaled), *limits)

    def _rounded(self, sums: Any, kind: type[Any]) -> Any:
        """A4's rounding; what follows a truncation casts or floors anyway."""
        rounding = self.spec.powsum_rounding
        if rounding == "half-even":
            return self.g.op("Round", sums)
        return self.g.op("Add", sums, self._constant(0.5, kind)) if rounding == "half-up" else sums

    def _whole(self, raw: Any) -> tuple[Any, Any]:
        """Indices of distances below the row's max, and the sum."""
        n, op, constant = self.n, self.g.op, self._constant
        last = constant([-1], np.int64)
        first = op("Gather", constant(n.to_first), op("ReduceMax", raw, last, keepdims_i=1))
        at = op("Max", op("Sub", raw, first), constant(0, np.int32))
        u = op("Gather", constant(n.unnormed, np.float64), at)
        total = self._rounded(op("ReduceSum", u, last, keepdims_i=1), np.float64)
        return at, op("Cast", total, to_i=_INT64)

    def _sliced(self, raw: Any) -> tuple[Any, Any]:
        """The raw word that is the first distance below the row's max, and the sum."""
        n, op, constant = self.n, self.g.op, self._constant
        axis, last = constant(self.rank - 1, np.int64), constant([-1], np.int64)
        lanes = self._lanes(raw)
        powers = op("Gather", constant(n.to_power), op("ReduceMax", lanes, last, keepdims_i=0))
        grown = op("Log", op("CumSum", powers, axis))
        # From 0 on; -1 before the first score, where tables have their last entry.
        maximum = op("Cast", op("Mul", grown, constant(1 / (STEP * math.log(2.0)), np.float64)), to_i=_INT32)
        steps = op("Mul", maximum, constant(n.one, np.int32))
        u = op("Gather", constant(n.unnormed), op("Sub", lanes, op("Unsqueeze", steps, last)))
        sums = self._rounded(op("ReduceSum", u, last, keepdims_i=1), np.float32)
        terms = op("Cast", op("Floor", sums), to_i=_DOUBLE)
        weights = op("Gather", constant(n.weights), maximum)
        after = op("CumSum", op("Mul", terms, weights), axis, reverse_i=1, exclusive_i=1)
        begun = op("Add", after, op("Mul", weights, constant(float(self.spec.powsum.high), np.float64)))
        last_max = op("ReduceMax", maximum, last, keepdims_i=1)
        limbs = op("Floor", op("Mul", begun, op("Gather", constant(n.shares), last_max)))
        least = op("ReduceMin", op("ReduceSum", limbs, last, keepdims_i=0), last, keepdims_i=1)
        d = op("Cast", op("Mul", least, op("Gather", constant(n.rest), last_max)), to_i=_INT64)
        return op("Gather", constant(n.firsts), last_max), d

    def _lanes(self, raw: Any) -> Any:
        """Slices, the first of them before the row and without a score: from there on nothing has saturated."""
        op, constant = self.g.op, self._constant
        width = self.spec.slice_width
        missing = op("Mod", op("Neg", op("Shape", raw, start_i=-1)), constant([width], np.int64))
        before = [0] * (self.rank - 1) + [width] + [0] * (self.rank - 1)
        pads = op("Concat", constant(before, np.int64), missing, axis_i=0)
        padded = op("Pad", raw, pads, constant(self.n.masked, np.int32))
        return op("Reshape", padded, constant([0] * (self.rank - 1) + [-1, width], np.int64))
