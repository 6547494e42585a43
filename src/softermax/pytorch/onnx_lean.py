"""Softermax of standard ONNX operators in few nodes, for the exporter that traces.

A look-up per score is dear in runtimes (onnxruntime's Gather takes some 50 times as long as a product), so scores are computed
with where words allow it, and look-ups are per row or slice:

- an unnormed word is 2^x of the score's own word, scaled by the max and rounded once. The power is the runtime's Exp, which only
  has to be near: a factor just above 1 (`_nudge`) keeps every product so far from where rounding turns that an Exp may be off by
  `_EXP_ERROR`. Where no factor does (`lean`), what is added and taken off again (Veltkamp's splitting, `_snap`) leaves the bits that
  the table of powers has;
- an output word is the unnormed word times a factor that its row's sum has, rounded by QuantizeLinear. The factor is chosen amid
  those that give the golden model's words, for every unnormed word, and is tried on all of them.

Where a spec's words are no such products (`lean`'s outputs), scores are indices: Gather takes those below zero from the table's
end, so a table covers differences of either sign as they are. Where rows have slices, nothing is unrolled over them:

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
from softermax.tables import pow2_table

STEP = 15
"""B: bits that the sum over slices may grow by. 64 maxima of it fit the exponent of a double."""
_MARGIN = 0.3
"""Bits by which a logarithm may be too small without a change."""
_EXACT = 53
"""Bits of the integers that a double holds."""
_MOST_SUMS = 1 << 16
"""Sums that are looked up as they are."""
_EXP_ERROR = 2.0**-18
"""By which a runtime's Exp may be off, its argument's rounding included: half of it where a score is `_LARGEST`."""
_LARGEST = 32
"""Score up to which powers are computed; beyond, their argument has too few bits."""
_INT32, _INT64, _FLOAT, _DOUBLE = 6, 7, 1, 11  # ONNX's numbers of its types


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
    scales: NDArray[np.float32] | None
    """What a power is multiplied by: without slices of the largest raw word, with slices of a max. None where unnormed words
    are looked up."""
    snap: float | None
    """What splits off a power's first bits; None where a factor among the scales is enough."""
    unit: float
    """Of an unnormed word, in units of PowSum."""
    factors: NDArray[np.float32] | None
    """By index, what makes an output word of an unnormed one; None where output words, or powers, are looked up."""
    steps: NDArray[np.float32] | None
    """By index, an output word's unit; None where all have the same."""


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
    shares = np.stack([2.0 ** -np.minimum(at, half), np.ones(levels)])
    rest = 2.0 ** -np.maximum(at - half, 0)
    firsts = np.append(np.arange(levels) * one, 0) + spec.max_low * one + distances[0]
    firsts = firsts.astype(np.int32)
    offset, index, states = _sums(spec)
    exponent = (
        np.zeros(1) if spec.output_mode == "fixed" else np.array(known.leading_ones) - spec.powsum.fraction
    )
    factors = 2.0 ** -(spec.output.fraction + exponent)
    y = np.array(known.words).reshape(-1, len(distances))
    nudge = _nudge(spec)
    snap = _snap(spec) if nudge is None else None
    powers = nudge is not None or snap is not None
    by_max = (nudge or 1.0) * 2.0 ** (spec.unnormed.fraction - np.arange(spec.max_low, spec.max_high + 1.0))
    scales: NDArray[np.float32]
    if width is None:
        scales = _by_sign(raw, by_max[maximum - spec.max_low], masked, float(by_max[0]), np.float32)
    else:
        scales = np.append(by_max, 0.0).astype(np.float32)
    return _Numbers(
        masked, one, len(distances), first, power, firsts, unnormed,
        np.stack([np.append(low, 0.0), np.append(high, 0.0)]), np.append(shares, [[1.0], [1.0]], axis=1),
        np.append(rest, 1.0), offset, known.drop, int(index), (states * len(distances)).astype(np.int32),
        np.array(known.leading_ones, dtype=np.float64)[states], y.ravel().astype(np.float32),
        (y * factors[:, None]).ravel().astype(np.float32), scales if powers else None, snap, unit,
        _factors(spec, y, states) if powers else None, None if factors.size == 1 else factors[states].astype(np.float32),
    )  # fmt: skip


def _nudge(spec: SoftermaxSpec) -> float | None:
    """What powers are multiplied by, so that rounding them once gives every unnormed word, though an Exp is off by `_EXP_ERROR`.

    None where no factor does it. A table's word is a power that was rounded before it was shifted, which may lie on the other side
    of where the shift rounds: a factor just above 1 brings them back, if all of them agree on one.
    """
    one = 1 << spec.input.fraction
    if -spec.input.low > _LARGEST * one:
        return None
    raw = np.arange(spec.input.low, spec.input.high + 1)
    largest = int((raw - golden.int_max(raw, spec) * one).max())
    differences = np.arange(-(spec.unnormed.fraction + 2) * one, largest + 1)
    u, exact = golden.power_of_two(differences, 0, spec), 2.0 ** (differences / one + spec.unnormed.fraction)
    below = 0.0 if spec.unnormed_rounding == "truncate" else 0.5
    low, high = ((u - below) / exact).max(), ((u - below + 1) / exact).min()
    found, error = (
        float(low + high) / 2,
        _EXP_ERROR + 2.0**-22,
    )  # and that of two products in single precision
    return found if low < found * (1 - error) and found * (1 + error) < high else None


def _snap(spec: SoftermaxSpec) -> float | None:
    """2^s + 1, to split off as many bits as the table of powers has, where these are the nearest to the powers themselves, and near
    enough that an Exp with an error of `_EXP_ERROR` is split to the same bits."""
    fraction = np.arange(1 << spec.input.fraction)
    bits = spec.unnormed.fraction
    exact = 2.0 ** (fraction / len(fraction) + bits)
    if np.abs(pow2_table(spec)(fraction) - exact).max() + exact.max() * _EXP_ERROR >= 0.5:
        return None
    return 2.0 ** (23 - bits) + 1 if 3 <= bits <= 21 and -spec.input.low <= _LARGEST * len(fraction) else None


def _factors(spec: SoftermaxSpec, y: NDArray[Any], states: NDArray[np.int64]) -> NDArray[np.float32] | None:
    """Of every index of a sum, a factor from unnormed to output words, which ``y`` has by state and distance."""
    if spec.normalization != "numerator" or spec.output.high > 255:
        return None
    u = np.array(words.plan(spec).unnormed[-y.shape[1] :], dtype=np.float64)
    some = u > 0
    least = ((y[:, some] - 0.5) / u[some]).max(1)
    below = np.where(y == spec.output.high, np.inf, y + 0.5)[:, some] / u[some]
    most = np.minimum(below.min(1), 2 * np.abs(least) + 1)
    found = ((least + most) / 2).astype(np.float32)
    made = np.rint(u.astype(np.float32) * found[:, None])
    return found[states] if (np.minimum(made, 255) == y).all() and spec.output.high == 255 else None


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
        # The least score there is: where powers are 0, no max needs to know of the mask.
        x = torch.where(mask, x, torch.tensor(spec.input.low / spec.input_scale, dtype=x.dtype))
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
        if mask is not None and not scores:
            x = op("Where", mask, x, constant(self.spec.input.low, np.float32))
        quantized, is_byte = self._quantized(x) if scores else (x, False)
        powers = None if n.scales is None else self._powers(quantized, is_byte, mask)
        at = u = None
        if self.spec.slice_width is None and n.factors is not None:
            u, d = self._whole_of_powers(quantized, powers)
        else:
            raw = op("Cast", quantized, to_i=_INT32)
            if mask is not None:
                raw = op("Where", mask, raw, constant(n.masked, np.int32))
            if self.spec.slice_width is None:
                at, d = self._whole(raw)
            else:
                at, u, d = self._sliced(raw, powers)
        index = d
        if n.offset is not None:
            coarse = op("Add", op("Div", d, constant(1 << n.drop, np.int64)), constant(n.offset, np.int64))
            index = op("Min", d, coarse, constant(n.last, np.int64))
        elif self.spec.slice_width is None:
            index = op("Min", d, constant(n.last, np.int64))
        ones = op("Gather", constant(n.leading_ones), index)
        return self._outputs(at, u, index, scores), op("Squeeze", ones, constant([-1], np.int64))

    def _outputs(self, at: Any, u: Any, index: Any, scores: bool) -> Any:
        n, op, constant = self.n, self.g.op, self._constant
        if u is None:
            begin = op("Gather", constant(n.states), index)
            return op("Gather", constant(n.probabilities if scores else n.words), op("Add", at, begin))
        product = op("Mul", u, op("Gather", constant(n.factors), index))
        found = op("QuantizeLinear", product, constant(1.0, np.float32), constant(0, np.uint8))
        step = 2.0**-self.spec.output.fraction if scores and n.steps is None else 1.0
        found = op("DequantizeLinear", found, constant(step, np.float32), constant(0, np.uint8))
        if scores and n.steps is not None:
            found = op("Mul", found, op("Gather", constant(n.steps), index))
        return found

    def _powers(self, quantized: Any, is_byte: bool, mask: Any) -> Any:
        """2^x of every score's own word, nearly; 0 where a score is masked."""
        n, op, constant = self.n, self.g.op, self._constant
        step = constant(math.log(2.0) / n.one, np.float32)
        if is_byte:
            powers = op("Exp", op("DequantizeLinear", quantized, step, constant(0, np.int8)))
        else:
            powers = op("Exp", op("Mul", quantized, step))
        if n.snap is not None:
            large = op("Mul", powers, constant(n.snap, np.float32))
            powers = op("Sub", large, op("Sub", large, powers))
        return powers if mask is None else op("Where", mask, powers, constant(0.0, np.float32))

    def _unnormed(self, powers: Any, scales: Any) -> Any:
        """Words of powers, by A3's rounding; only those that were split off may lie where two roundings to nearest differ."""
        op, rounding = self.g.op, self.spec.unnormed_rounding
        scaled = op("Mul", powers, scales)
        if rounding == "half-up" and self.n.snap is not None:
            scaled, rounding = op("Add", scaled, self._constant(0.5, np.float32)), "truncate"
        return op("Floor" if rounding == "truncate" else "Round", scaled)

    def _distances(self, raw: Any, first: Any) -> Any:
        return self.g.op("Max", self.g.op("Sub", raw, first), self._constant(0, np.int32))

    def _constant(self, value: Any, kind: Any = None) -> Any:
        return self.g.op("Constant", value_t=torch.from_numpy(np.array(value, dtype=kind)))

    def _quantized(self, x: Any) -> tuple[Any, bool]:
        """Rounded half to even and saturated, which is what QuantizeLinear does, and whether it is bytes."""
        op, spec = self.g.op, self.spec
        bytes_ = spec.input.low == -128 and spec.input.high == 127
        if bytes_ and math.frexp(spec.input_scale)[0] == 0.5:
            # To divide by a power of two is to multiply by another.
            scale = self._constant(1 / spec.input_scale, np.float32)
            return op("QuantizeLinear", x, scale, self._constant(0, np.int8)), True
        scaled = op("Mul", x, self._constant(spec.input_scale, np.float32))
        if bytes_:
            one = self._constant(1.0, np.float32)
            return op("QuantizeLinear", scaled, one, self._constant(0, np.int8)), True
        limits = (self._constant(limit, np.float32) for limit in (spec.input.low, spec.input.high))
        return op("Clip", op("Round", scaled), *limits), False

    def _rounded(self, sums: Any, kind: type[Any]) -> Any:
        """A4's rounding; what follows a truncation casts or floors anyway."""
        rounding = self.spec.powsum_rounding
        if rounding == "half-even":
            return self.g.op("Round", sums)
        return self.g.op("Add", sums, self._constant(0.5, kind)) if rounding == "half-up" else sums

    def _whole_of_powers(self, quantized: Any, powers: Any) -> tuple[Any, Any]:
        """Unnormed words and the sum."""
        n, op, constant = self.n, self.g.op, self._constant
        last = constant([-1], np.int64)
        largest = op("Cast", op("ReduceMax", quantized, last, keepdims_i=1), to_i=_INT32)
        u = self._unnormed(powers, op("Gather", constant(n.scales), largest))
        total = op("ReduceSum", op("Cast", u, to_i=_DOUBLE), last, keepdims_i=1)
        total = self._rounded(op("Mul", total, constant(n.unit, np.float64)), np.float64)
        return u, op("Cast", total, to_i=_INT64)

    def _whole(self, raw: Any) -> tuple[Any, Any]:
        """Distances below the row's max, and the sum."""
        n, op, constant = self.n, self.g.op, self._constant
        last = constant([-1], np.int64)
        first = op("Gather", constant(n.to_first), op("ReduceMax", raw, last, keepdims_i=1))
        at = self._distances(raw, first)
        total = op("ReduceSum", op("Gather", constant(n.unnormed, np.float64), at), last, keepdims_i=1)
        return at, op("Cast", self._rounded(total, np.float64), to_i=_INT64)

    def _sliced(self, raw: Any, powers: Any) -> tuple[Any, Any, Any]:
        """Distances below the row's last max, or unnormed words where these are enough, and the sum."""
        n, op, constant = self.n, self.g.op, self._constant
        axis, last = constant(self.rank - 1, np.int64), constant([-1], np.int64)
        pads = self._pads(raw)
        lanes = self._lanes(raw, pads, constant(n.masked, np.int32))
        grown = op("Gather", constant(n.to_power), op("ReduceMax", lanes, last, keepdims_i=0))
        grown = op("Log", op("CumSum", grown, axis))
        # From 0 on; -1 before the first score, where tables have their last entry.
        maximum = op("Cast", op("Mul", grown, constant(1 / (STEP * math.log(2.0)), np.float64)), to_i=_INT32)
        if powers is None:
            steps = op("Mul", maximum, constant(n.one, np.int32))
            u = op("Gather", constant(n.unnormed), op("Sub", lanes, op("Unsqueeze", steps, last)))
            sums = op("ReduceSum", u, last, keepdims_i=0)
        else:
            scales = op("Unsqueeze", op("Gather", constant(n.scales), maximum), last)
            u = self._unnormed(self._lanes(powers, pads, constant(0.0, np.float32)), scales)
            sums = op("Mul", op("ReduceSum", u, last, keepdims_i=0), constant(n.unit, np.float32))
        terms = op("Cast", op("Floor", self._rounded(sums, np.float32)), to_i=_DOUBLE)
        # Limbs are the first axis: runtimes are quick along the last.
        weights = op("Gather", constant(n.weights), maximum, axis_i=1)
        along = constant(self.rank, np.int64)
        after = op("CumSum", op("Mul", weights, terms), along, reverse_i=1, exclusive_i=1)
        begun = op("Add", after, op("Mul", weights, constant(float(self.spec.powsum.high), np.float64)))
        last_max = op("ReduceMax", maximum, last, keepdims_i=1)
        limbs = op("Floor", op("Mul", begun, op("Gather", constant(n.shares), last_max, axis_i=1)))
        least = op(
            "ReduceMin", op("ReduceSum", limbs, constant([0], np.int64), keepdims_i=0), last, keepdims_i=1
        )
        d = op("Cast", op("Mul", least, op("Gather", constant(n.rest), last_max)), to_i=_INT64)
        if powers is not None and n.factors is not None:
            return None, self._unnormed(powers, op("Gather", constant(n.scales), last_max)), d
        return self._distances(raw, op("Gather", constant(n.firsts), last_max)), None, d

    def _pads(self, raw: Any) -> Any:
        """A slice before the row and without a score, from which on nothing has saturated; at the end, what is missing."""
        op, constant, width = self.g.op, self._constant, self.spec.slice_width
        missing = op("Mod", op("Neg", op("Shape", raw, start_i=-1)), constant([width], np.int64))
        before = [0] * (self.rank - 1) + [width] + [0] * (self.rank - 1)
        return op("Concat", constant(before, np.int64), missing, axis_i=0)

    def _lanes(self, values: Any, pads: Any, padding: Any) -> Any:
        """Slices along a new last axis."""
        op, width = self.g.op, self.spec.slice_width
        shape = self._constant([0] * (self.rank - 1) + [-1, width], np.int64)
        return op("Reshape", op("Pad", values, pads, padding), shape)
