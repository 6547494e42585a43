"""The integer model in NumPy: the judge of every other body.

It computes the words of ``docs/arithmetic.md`` for any `SoftermaxSpec` and any `DeferredSpec`, in 64-bit
integers, in the order in which the hardware sees them: slice after slice, then the normalisation of the row.
Everything else (PyTorch, kernels, RTL, netlists) is compared with it word by word.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from softermax.fixedpoint import IntArray, round_to_integer, saturate, shift_right
from softermax.spec import AnySpec, DeferredSpec, SoftermaxSpec
from softermax.tables import pow2_table, reciprocal_table

BoolArray = NDArray[np.bool_]

_BLOCK = 1 << 16
"""Elements worked on at a time, so that intermediate words stay in the cache."""


@dataclass(frozen=True)
class Trace:
    """Every intermediate word of a row, as raw integers (a max: as the integer it is).

    Leading axes are those of the input; then come slices and, where marked, a slice's lanes.
    """

    local_max: IntArray  # (..., slices)
    running_max: IntArray  # (..., slices)
    unnormed: IntArray  # (..., slices, lanes)
    slice_sum: IntArray  # (..., slices), exact, in unnormed's fraction
    slice_powsum: IntArray  # (..., slices), rounded to PowSum's fraction
    renorm_shift: IntArray  # (..., slices), running_max less the one before
    powsum: IntArray  # (..., slices), the running sum
    leading_one: IntArray  # (...)
    reciprocal: IntArray  # (...)
    numerator_shift: IntArray  # (..., slices), the row's max less the slice's
    numerator: IntArray  # (..., slices, lanes), with A10 the product that an element takes
    products: IntArray  # (..., 2^fraction bits of the input), A10's; (..., 0) with A5


@dataclass(frozen=True)
class Output:
    """Output words of rows and what they stand for."""

    words: IntArray
    """(..., columns), raw."""
    exponent: IntArray
    """(...), A7: the probability is ``words * 2**-(fraction + exponent)``; zero for fixed output."""
    spec: SoftermaxSpec
    trace: Trace | None = None

    @property
    def value(self) -> NDArray[np.float64]:
        """The probabilities."""
        scale = np.exp2(-(self.exponent + self.spec.output.fraction).astype(np.float64))
        return np.asarray(self.words * scale[..., None])


@dataclass(frozen=True)
class DeferredTrace:
    """Every intermediate word of a row with deferred normalisation (A8), as in `Trace`."""

    local_max: IntArray  # (..., slices)
    running_max: IntArray  # (..., slices)
    unnormed: IntArray  # (..., slices, lanes)
    weight: IntArray  # (..., slices, lanes)
    renorm_shift: IntArray  # (..., slices), running_max less the one before
    powsum: IntArray  # (..., slices), the running sum of weights


@dataclass(frozen=True)
class DeferredOutput:
    """Weights of rows (A8), and what each row is multiplied by in the end."""

    words: IntArray
    """(..., columns): the weights that enter P·V, raw, relative to the max of their slice."""
    shift: IntArray
    """(..., columns): by how much the max grew after an element's slice."""
    leading_one: IntArray
    """(...), the position of PowSum's leading one."""
    reciprocal: IntArray
    """(...), raw."""
    spec: DeferredSpec
    trace: DeferredTrace | None = None

    @property
    def value(self) -> NDArray[np.float64]:
        """What P·V effectively multiplies values by: weight, renormalisation and reciprocal in one."""
        # The weight's fraction is PowSum's, so the fractions cancel.
        exponent = self.shift + (self.leading_one + self.spec.reciprocal.fraction)[..., None]
        return np.asarray(self.words * self.reciprocal[..., None] * np.exp2(-exponent.astype(np.float64)))


def quantize(x: ArrayLike, spec: SoftermaxSpec, mask: ArrayLike | None = None) -> IntArray:
    """Float scores to raw input words (A1, with A9's factor): scaled, rounded, saturated.

    The product is taken in the scores' own precision, single for anything narrower, so that
    every body rounds the same number. Masked positions may hold anything; they become 0.
    """
    return saturate(_rounded(x, spec, mask), spec.input)


def saturates(x: ArrayLike, spec: SoftermaxSpec, mask: ArrayLike | None = None) -> BoolArray:
    """Where A1 clips float scores to the input word: no gradient passes there.

    >>> saturates(np.array([31.8, 31.875, -32.125]), SoftermaxSpec())
    array([False,  True, False])
    """
    word = _rounded(x, spec, mask)
    return np.asarray((word < spec.input.low) | (word > spec.input.high))


def _rounded(x: ArrayLike, spec: SoftermaxSpec, mask: ArrayLike | None) -> IntArray:
    """A1 up to the saturation."""
    values = np.asarray(x)
    if values.dtype.kind in "iu":
        values = values.astype(np.float64)
    if values.dtype.kind != "f":
        raise TypeError(f"scores must be real numbers, got dtype {values.dtype}")
    if values.dtype.itemsize < 4:
        values = values.astype(np.float32)
    if mask is not None:
        values = np.where(_as_mask(mask, values.shape), values, values.dtype.type(0))
    if not np.isfinite(values).all():
        at = tuple(int(i) for i in np.argwhere(~np.isfinite(values))[0])
        raise ValueError(
            f"scores must be finite where they are not masked, got {values[at]} at {at}; "
            "use mask= to leave an element out"
        )
    # Clipping first loses nothing and keeps the product of huge scores finite.
    limit = 2.0 ** (spec.input.integer + 1)
    scaled = np.clip(values, -limit, limit) * values.dtype.type(spec.input_scale)
    return round_to_integer(scaled, spec.input_rounding)


def softermax(
    raw: ArrayLike, spec: SoftermaxSpec, mask: ArrayLike | None = None, trace: bool = False
) -> Output:
    """Softermax of raw input words along the last axis.

    ``mask`` is boolean, True where an element takes part, and broadcasts against ``raw``.
    """
    x, keep, lead = _rows(raw, spec, mask)
    words, exponent, found = _in_blocks(_block, x, keep, spec, lead)
    return Output(words, exponent, spec, found if trace else None)


def deferred(
    raw: ArrayLike, spec: DeferredSpec, mask: ArrayLike | None = None, trace: bool = False
) -> DeferredOutput:
    """Deferred normalisation (A8) of raw input words along the last axis: weights, sum and reciprocal."""
    x, keep, lead = _rows(raw, spec.scores, mask)
    words, shift, leading_one, recip, found = _in_blocks(_deferred_block, x, keep, spec, lead)
    return DeferredOutput(words, shift, leading_one, recip, spec, found if trace else None)


def weights(unnormed: ArrayLike, spec: DeferredSpec) -> IntArray:
    """Unnormed words to the weights that enter P·V (A8): half up to their fraction, saturated."""
    drop = spec.scores.unnormed.fraction - spec.weight.fraction
    return saturate(shift_right(unnormed, drop, "half-up"), spec.weight)


def int_max(x: ArrayLike, spec: SoftermaxSpec) -> IntArray:
    """IntMax's first step (A2): a raw score up to an integer, saturated to the max's range."""
    integer = shift_right(x, spec.input.fraction, spec.max_rounding)
    return np.clip(integer, spec.max_low, spec.max_high)


def power_of_two(x: ArrayLike, running_max: ArrayLike, spec: SoftermaxSpec) -> IntArray:
    """Power of Two (A3): 2^(x - max) as an unnormed word."""
    fraction_bits = spec.input.fraction
    t = np.asarray(x, dtype=np.int64) - (np.asarray(running_max, dtype=np.int64) << fraction_bits)
    lpw = pow2_table(spec)(t & ((1 << fraction_bits) - 1))
    # Two bits beyond the word, nothing is left to round.
    k = np.minimum(-(t >> fraction_bits), spec.unnormed.bits + 1)
    return shift_right(lpw, k, spec.unnormed_rounding)


def reciprocal(powsum: ArrayLike, spec: AnySpec) -> tuple[IntArray, IntArray]:
    """Leading one's position and reciprocal of the mantissa (A5). A sum of 0 counts as 1 unit."""
    d = np.maximum(np.asarray(powsum, dtype=np.int64), 1)
    # frexp is exact: PowSum has at most 32 bits.
    leading_one = np.frexp(d.astype(np.float64))[1].astype(np.int64) - 1
    fraction_bits = spec.powsum.bits - 1
    fraction = (d << (fraction_bits - leading_one)) & ((1 << fraction_bits) - 1)
    return leading_one, reciprocal_table(spec)(fraction)


def row_products(recip: ArrayLike, spec: SoftermaxSpec) -> IntArray:
    """A row's products (A10), one per value of a score's fraction, along a new last axis."""
    powers = pow2_table(spec)(np.arange(1 << spec.input.fraction))
    product = powers * np.asarray(recip, dtype=np.int64)[..., None]
    drop = spec.unnormed.fraction + spec.reciprocal.fraction - spec.product.fraction
    return np.minimum(shift_right(product, drop, "half-up"), spec.product.high)


def normalize_scores(
    x: ArrayLike, last_max: ArrayLike, leading_one: ArrayLike, products: IntArray, spec: SoftermaxSpec
) -> tuple[IntArray, IntArray]:
    """Scores to output words by their row's products (A10): words, and the product that each took.

    Axes of ``products`` before its last broadcast against those of ``x``.
    """
    fraction_bits = spec.input.fraction
    t = np.asarray(x, dtype=np.int64) - (np.asarray(last_max, dtype=np.int64) << fraction_bits)
    lead = np.broadcast_shapes((*t.shape[:-1], 1), products.shape)[:-1]
    products = np.broadcast_to(products, (*lead, products.shape[-1]))
    picked = np.take_along_axis(products, t & ((1 << fraction_bits) - 1), axis=-1)
    shift: Any = -(t >> fraction_bits) + (spec.product.fraction - spec.output.fraction)
    if spec.output_mode == "fixed":
        shift = shift + np.asarray(leading_one, dtype=np.int64) - spec.powsum.fraction
    # Two bits beyond the word, nothing is left to round. Below zero only where an element is masked.
    shift = np.clip(shift, 0, spec.product.bits + 1)
    return np.minimum(shift_right(picked, shift, spec.output_rounding), spec.output.high), picked


def normalize(
    numerator: ArrayLike, leading_one: ArrayLike, recip: ArrayLike, spec: SoftermaxSpec
) -> IntArray:
    """Renormalised numerator times reciprocal to the output word (A5, A7)."""
    product = np.asarray(numerator, dtype=np.int64) * np.asarray(recip, dtype=np.int64)
    shift: Any = spec.unnormed.fraction + spec.reciprocal.fraction - spec.output.fraction
    if spec.output_mode == "fixed":
        shift = shift + np.asarray(leading_one, dtype=np.int64) - spec.powsum.fraction
    return np.minimum(shift_right(product, shift, spec.output_rounding), spec.output.high)


def _as_mask(mask: ArrayLike, shape: tuple[int, ...]) -> BoolArray:
    keep = np.asarray(mask)
    if keep.dtype != np.bool_:
        raise TypeError(f"mask must be boolean, True where an element takes part, got dtype {keep.dtype}")
    try:
        return np.broadcast_to(keep, shape)
    except ValueError:
        raise ValueError(f"mask of shape {keep.shape} does not broadcast to the scores' {shape}") from None


def _rows(
    raw: ArrayLike, spec: SoftermaxSpec, mask: ArrayLike | None
) -> tuple[IntArray, BoolArray, tuple[int, ...]]:
    """Checked words and mask, (rows, columns) each, and the input's leading axes."""
    x = np.asarray(raw)
    if x.dtype.kind not in "iu":
        raise TypeError(f"raw words must be integers, got dtype {x.dtype}; golden.quantize makes them")
    if x.ndim == 0:
        raise ValueError("raw words need at least one dimension, got a scalar")
    keep = _as_mask(mask, x.shape) if mask is not None else np.ones(x.shape, dtype=np.bool_)
    x = np.where(keep, x, 0)
    if x.size and (x.min() < spec.input.low or x.max() > spec.input.high):
        outside = int(x.min()) if x.min() < spec.input.low else int(x.max())
        raise ValueError(
            f"raw word {outside} does not fit the input word {spec.input}: "
            f"must be {spec.input.low} to {spec.input.high}"
        )
    lead, columns = x.shape[:-1], x.shape[-1]
    x = x.astype(np.int64, copy=False).reshape(math.prod(lead), columns)
    return x, keep.reshape(x.shape), lead


def _in_blocks(block: Any, x: IntArray, keep: BoolArray, spec: Any, lead: tuple[int, ...]) -> Any:
    """What ``block`` answers for a few rows at a time, joined: arrays, and at the end a trace of arrays."""
    rows = max(1, _BLOCK // max(x.shape[-1], 1))
    starts = range(0, max(len(x), 1), rows)
    answers = [block(x[start : start + rows], keep[start : start + rows], spec) for start in starts]

    def joined(parts: list[Any]) -> Any:
        if dataclasses.is_dataclass(parts[0]):
            names = [f.name for f in dataclasses.fields(parts[0])]
            kind: Any = type(parts[0])
            return kind(*(joined([getattr(part, name) for part in parts]) for name in names))
        whole = np.concatenate(parts) if len(parts) > 1 else parts[0]
        return np.asarray(whole.reshape(lead + whole.shape[1:]))

    return [joined(list(parts)) for parts in zip(*answers, strict=True)]


def _sliced(x: IntArray, keep: BoolArray, spec: SoftermaxSpec) -> tuple[IntArray, BoolArray]:
    """(rows, columns) as (rows, slices, lanes); what fills the last slice is masked."""
    rows, columns = x.shape
    slices = spec.slices(columns)
    width = spec.slice_width or columns
    padding = slices * width - columns
    if padding:
        x = np.pad(x, ((0, 0), (0, padding)))
        keep = np.pad(keep, ((0, 0), (0, padding)))
    return x.reshape(rows, slices, width), keep.reshape(rows, slices, width)


def _flat(lanes: IntArray, columns: int) -> IntArray:
    """(rows, slices, lanes) as (rows, columns), without what filled the last slice."""
    rows, slices, width = lanes.shape
    return lanes.reshape(rows, slices * width)[:, :columns]


def _unnormed(x: IntArray, keep: BoolArray, spec: SoftermaxSpec) -> tuple[IntArray, IntArray, IntArray]:
    """IntMax and Power of Two of sliced rows: local max, running max, unnormed words."""
    # Masked lanes hold the neutral element.
    local_max = np.where(keep, int_max(x, spec), spec.max_low).max(axis=2, initial=spec.max_low)
    running_max = np.maximum.accumulate(local_max, axis=1)
    return local_max, running_max, np.where(keep, power_of_two(x, running_max[:, :, None], spec), 0)


def _reduced(sums: IntArray, renorm_shift: IntArray, high: int) -> IntArray:
    """Reduction: the running sum after each slice. A row starts from an empty sum."""
    powsum = np.zeros_like(sums)
    d = np.zeros(len(sums), dtype=np.int64)
    for s in range(sums.shape[1]):
        d = np.minimum((d >> np.minimum(renorm_shift[:, s], 63)) + sums[:, s], high)
        powsum[:, s] = d
    return powsum


def _last(values: IntArray, start: int) -> IntArray:
    """A row's value after its last slice; ``start`` for a row without any."""
    return values[:, -1] if values.shape[1] else np.full(len(values), start, dtype=np.int64)


def _block(x: IntArray, keep: BoolArray, spec: SoftermaxSpec) -> tuple[IntArray, IntArray, Trace]:
    rows, columns = x.shape
    x, keep = _sliced(x, keep, spec)
    local_max, running_max, unnormed = _unnormed(x, keep, spec)

    # A row starts from the neutral max.
    slice_sum = unnormed.sum(axis=2)
    slice_powsum = shift_right(slice_sum, spec.unnormed.fraction - spec.powsum.fraction, spec.powsum_rounding)
    renorm_shift = np.diff(running_max, axis=1, prepend=spec.max_low)
    powsum = _reduced(slice_powsum, renorm_shift, spec.powsum.high)

    # Normalization.
    leading_one, recip = reciprocal(_last(powsum, 0), spec)
    numerator_shift = running_max[:, -1:] - running_max
    if spec.normalization == "row-products":
        products = row_products(recip, spec)
        y, numerator = normalize_scores(
            x, running_max[:, -1:, None], leading_one[:, None, None], products[:, None], spec
        )
        y = np.where(keep, y, 0)
    else:
        products = np.zeros((rows, 0), dtype=np.int64)
        numerator = unnormed >> np.minimum(numerator_shift, 63)[:, :, None]
        y = normalize(numerator, leading_one[:, None, None], recip[:, None, None], spec)
    exponent = (
        leading_one - spec.powsum.fraction
        if spec.output_mode == "row-scaled"
        else np.zeros(rows, dtype=np.int64)
    )
    trace = Trace(
        local_max, running_max, unnormed, slice_sum, slice_powsum, renorm_shift, powsum,
        leading_one, recip, numerator_shift, numerator, products,
    )  # fmt: skip
    return _flat(y, columns), exponent, trace


def _deferred_block(
    x: IntArray, keep: BoolArray, spec: DeferredSpec
) -> tuple[IntArray, IntArray, IntArray, IntArray, DeferredTrace]:
    columns = x.shape[1]
    x, keep = _sliced(x, keep, spec.scores)
    local_max, running_max, unnormed = _unnormed(x, keep, spec.scores)
    weight = weights(unnormed, spec)
    renorm_shift = np.diff(running_max, axis=1, prepend=spec.scores.max_low)
    powsum = _reduced(weight.sum(axis=2), renorm_shift, spec.powsum.high)
    leading_one, recip = reciprocal(_last(powsum, 0), spec)
    shift = np.broadcast_to((running_max[:, -1:] - running_max)[:, :, None], weight.shape)
    trace = DeferredTrace(local_max, running_max, unnormed, weight, renorm_shift, powsum)
    return (
        _flat(weight, columns),
        _flat(shift, columns),
        leading_one,
        recip,
        trace,
    )
