"""What the Triton kernels take of a spec: plain numbers, and tables in one row, made from the golden model's own."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from softermax.spec import AnySpec, DeferredSpec, SoftermaxSpec
from softermax.tables import PiecewiseTable, pow2_table, reciprocal_table

PRODUCT_BITS = 29
"""Bits of the widest word that is shifted and rounded in 32 bits: half a unit is added to it, and a shift past the word
is a shift by 30."""
INPUT_BITS = 22
"""Input words that adding 1.5 * 2^23 rounds in single precision."""
MAX_BITS = 28
"""Bits of the max in units of the input, so that a masked lane's score lies 2^28 below any."""

MAX_KEYS = 65536
"""Keys whose products with 8-bit weights surely fit accumulators of 32 bits."""
MAX_HEAD = 256

Checks = list[tuple[bool, str]]


class Line(NamedTuple):
    """A `PiecewiseTable` but for its entries, which lie in the row of tables: offsets ``at`` and ``slopes``."""

    drop: int
    rest_bits: int
    index_shift: int
    shift: int
    low: int
    high: int
    at: int
    slopes: int


class Numbers(NamedTuple):
    """What a kernel is compiled for. Kernels compare names and branch before there is any code."""

    fraction: int
    low: int
    high: int
    input_rounding: str
    max_low: int
    max_high: int
    max_ceil: bool
    packed: int
    """2^f for four fractions as 16 bits each, or 0: then ``pow2`` looks lines up."""
    pow2: Line
    unnormed_rounding: str
    wide_sum: bool
    """A slice's sum takes 64 bits."""
    sum_shift: int
    sum_rounding: str
    powsum_bits: int
    powsum_fraction: int
    powsum_high: int
    recip: Line
    recip_fraction: int
    deferred: bool
    weight_shift: int
    weight_high: int
    row_products: bool
    product_shift: int
    product_high: int
    output_shift: int
    """Without the leading one's position; ``fixed`` adds it, less PowSum's fraction."""
    fixed: bool
    output_rounding: str
    output_fraction: int
    output_high: int


@lru_cache(maxsize=256)
def refusal(spec: AnySpec) -> str | None:
    """Why the kernels do not take a spec, or None where they do.

    >>> refusal(SoftermaxSpec()), refusal(SoftermaxSpec(unnormed="Q(1,25)"))
    (None, 'unnormed Q(1,25) times reciprocal Q(1,7) has 33 bits; the kernels take up to 29')
    """
    if isinstance(spec, DeferredSpec):
        checks = _score_checks(spec.scores) + _reciprocal_checks(spec)
        widest = spec.weight.bits <= 8
        checks.append((widest, f"weight is {spec.weight}; the kernels take up to 8 bits"))
    else:
        checks = _score_checks(spec) + _reciprocal_checks(spec) + _output_checks(spec)
    return next((reason for holds, reason in checks if not holds), None)


def _score_checks(spec: SoftermaxSpec) -> Checks:
    table = pow2_table(spec)
    line = max(abs(m) << table.rest_bits for m in table.m_lut) + max(abs(c) for c in table.c_lut)
    max_bits = spec.max.integer + spec.input.fraction
    return [
        (
            spec.input.bits <= INPUT_BITS,
            f"input is {spec.input}; the kernels take up to {INPUT_BITS} bits",
        ),
        (
            max_bits <= MAX_BITS,
            f"max has {max_bits} bits in units of the input; the kernels take up to {MAX_BITS}",
        ),
        (
            spec.unnormed.fraction < PRODUCT_BITS,
            f"unnormed is {spec.unnormed}; the kernels take up to {PRODUCT_BITS - 1} fraction bits",
        ),
        (line < 1 << 31, f"pow2_segments = {spec.pow2_segments}: a line of 2^x exceeds 32 bits"),
    ]


def _reciprocal_checks(spec: AnySpec) -> Checks:
    # Lines of 1/x are computed once per row, in 64 bits: a slope has up to 33 bits, a rest up to 31.
    table = reciprocal_table(spec)
    line = max(abs(m) << table.rest_bits for m in table.m_lut) + max(abs(c) for c in table.c_lut)
    return [(line < 1 << 63, f"reciprocal is {spec.reciprocal}: a line of 1/x exceeds 64 bits")]


def _output_checks(spec: SoftermaxSpec) -> Checks:
    product = spec.unnormed.fraction + spec.reciprocal.fraction + 1
    if spec.normalization == "row-products":
        return [
            (
                product < 62,
                f"a row's product has {product} bits before it is rounded; the kernels take up to 61",
            ),
            (
                spec.product.bits <= PRODUCT_BITS,
                f"product is {spec.product}; the kernels take up to {PRODUCT_BITS} bits",
            ),
        ]
    return [
        (
            product <= PRODUCT_BITS,
            f"unnormed {spec.unnormed} times reciprocal {spec.reciprocal} has {product} bits; "
            f"the kernels take up to {PRODUCT_BITS}",
        )
    ]


def require(spec: AnySpec) -> None:
    reason = refusal(spec)
    if reason is not None:
        raise ValueError(f"the GPU kernels do not take this spec: {reason}")


def _line(table: PiecewiseTable, at: int) -> Line:
    spare = max(table.index_bits - table.used_bits, 0)
    drop = table.argument_bits - table.used_bits
    slopes = at + len(table.c_lut)
    return Line(drop, table.rest_bits, spare, table.shift, table.low, table.high, at, slopes)


@lru_cache(maxsize=256)
def numbers(spec: AnySpec) -> Numbers:
    """What kernels for a spec that they take are compiled for."""
    require(spec)
    deferred = spec if isinstance(spec, DeferredSpec) else None
    scores = spec.scores if isinstance(spec, DeferredSpec) else spec
    pow2 = pow2_table(scores)
    made_of = scores.unnormed.fraction + scores.reciprocal.fraction
    row_products = scores.normalization == "row-products" and not deferred
    lane_bits = (scores.unnormed.fraction + 1) if not deferred else spec.powsum.fraction + 1
    return Numbers(
        fraction=scores.input.fraction,
        low=scores.input.low,
        high=scores.input.high,
        input_rounding=scores.input_rounding,
        max_low=scores.max_low,
        max_high=scores.max_high,
        max_ceil=scores.max_rounding == "ceil",
        packed=_packed(pow2),
        pow2=_line(pow2, 0),
        unnormed_rounding=scores.unnormed_rounding,
        wide_sum=lane_bits + 13 > 31,
        sum_shift=0 if deferred else scores.unnormed.fraction - scores.powsum.fraction,
        sum_rounding="truncate" if deferred else scores.powsum_rounding,
        powsum_bits=spec.powsum.bits,
        powsum_fraction=spec.powsum.fraction,
        powsum_high=spec.powsum.high,
        recip=_line(reciprocal_table(spec), 2 * len(pow2.c_lut)),
        recip_fraction=spec.reciprocal.fraction,
        deferred=deferred is not None,
        weight_shift=scores.unnormed.fraction - deferred.weight.fraction if deferred else 0,
        weight_high=deferred.weight.high if deferred else 0,
        row_products=row_products,
        product_shift=made_of - scores.product.fraction if row_products else 0,
        product_high=scores.product.high,
        output_shift=(scores.product.fraction if row_products else made_of) - scores.output.fraction,
        fixed=scores.output_mode == "fixed",
        output_rounding=scores.output_rounding,
        output_fraction=scores.output.fraction,
        output_high=scores.output.high,
    )


def _packed(table: PiecewiseTable) -> int:
    """Four results of 16 bits in one word of 64: a shift takes one out, where a look-up would go to memory."""
    if table.argument_bits > 2 or table.fraction > 15:
        return 0
    entries = [int(v) for v in table(np.arange(1 << table.argument_bits))]
    return sum(entry << (16 * i) for i, entry in enumerate(entries))


@lru_cache(maxsize=256)
def tables(spec: AnySpec) -> NDArray[np.int64]:
    """Offsets and slopes of 2^x, then those of 1/x, in one row."""
    scores = spec.scores if isinstance(spec, DeferredSpec) else spec
    pow2, recip = pow2_table(scores), reciprocal_table(spec)
    return np.array([*pow2.c_lut, *pow2.m_lut, *recip.c_lut, *recip.m_lut], dtype=np.int64)


def slice_width(spec: AnySpec, columns: int) -> int:
    """Elements of a slice in a row of so many columns."""
    scores = spec.scores if isinstance(spec, DeferredSpec) else spec
    return max(1, min(scores.slice_width or columns, columns))


def input_scale(spec: AnySpec) -> float:
    """What a float score is multiplied by, rounded once to single precision (A1, A9)."""
    scores = spec.scores if isinstance(spec, DeferredSpec) else spec
    return float(np.float32(scores.input_scale))


def score_factor(spec: AnySpec, scale: float) -> float:
    """What an integer score of int8 attention is multiplied by to be an input word, rounded once."""
    scores = spec.scores if isinstance(spec, DeferredSpec) else spec
    return float(np.float32(scale * scores.input_scale))


def attention_refusal(spec: AnySpec, keys: int, size: int) -> str | None:
    """Why the kernels do not compute attention over so many keys with heads of this size, or None where they do."""
    if isinstance(spec, DeferredSpec):
        word, name = spec.weight, "weight"
    else:
        word, name = spec.output, "output"
    checks = [
        (word.bits <= 8, f"{name} is {word}; attention takes up to 8 bits"),
        (size <= MAX_HEAD, f"a head is {size} wide; the kernels take up to {MAX_HEAD}"),
        (keys <= MAX_KEYS, f"there are {keys} keys; the kernels take up to {MAX_KEYS}"),
    ]
    return next((reason for holds, reason in checks if not holds), None)


def gradient_refusal(spec: AnySpec) -> str | None:
    """Why the kernels do not compute the gradient of attention with this spec, or None where they do."""
    scores = spec.scores if isinstance(spec, DeferredSpec) else spec
    numerators = not isinstance(spec, DeferredSpec) and spec.normalization == "numerator"
    checks = [
        (
            not numerators or scores.unnormed_rounding == "truncate",
            f"unnormed_rounding is {scores.unnormed_rounding}; the gradient of attention takes numerators that truncate",
        ),
        (
            scores.max.integer <= 8,
            f"max is {scores.max}; the gradient of attention takes up to 8 integer bits",
        ),
        (
            spec.reciprocal.fraction < 31,
            f"reciprocal is {spec.reciprocal}; the gradient of attention takes up to 30 fraction bits",
        ),
    ]
    return next((reason for holds, reason in checks if not holds), None)


def state_shapes(
    query: tuple[int, ...], keys: int, spec: AnySpec, keeps: bool
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """What attention keeps for its gradient: per row three integers, and with A8 a byte per slice."""
    rows = tuple(query[:3]) if keeps else (0, 0, 0)
    slices = -(-keys // slice_width(spec, keys)) if isinstance(spec, DeferredSpec) and keeps else 0
    return (*rows, 3), (*rows, slices)
