"""What the Triton kernels take of a spec: plain numbers, and tables in one row, made from the golden model's own."""

from __future__ import annotations

import struct
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

LANE_BITS = 14
"""Bits of the most lanes that a slice has in one block, `launch.RESIDENT`."""
POWER_ERROR = 2.0**-20
"""What 2^x and its scaling may be wrong by, relatively: four times the 2^-22, two units in the last place, that NVIDIA states for
CUDA's exp2f, which is the instruction ``ex2.approx.f32`` (llvm/llvm-project#120519 shows that; the figure is from memory); two
roundings to 2^-24 come on top."""
MASKED_BELOW = 40
"""A masked lane's score lies so many powers of two below the least max."""

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
    near: bool
    """Words are computed in single precision (`floats`), with ``nudge`` the bits of 1 + a."""
    nudge: int
    splits: bool
    """There, unnormed words from 1 on are truncated, for half a unit more would not be theirs."""
    near_products: bool
    """And so are output words made of row products."""
    masked: int
    """There the word of a lane that takes no part: nothing of it remains below any max, whatever is computed."""
    unnormed_fraction: int
    unnormed_rounding: str
    wide_sum: bool
    """A slice's sum takes 64 bits."""
    narrow: bool
    """PowSum takes 32 bits, and is exact in single precision."""
    sum_shift: int
    sum_rounding: str
    powsum_bits: int
    powsum_fraction: int
    powsum_high: int
    below: int
    """Bits below PowSum's fraction that a block's slices are summed with, in 32 bits if ``narrow_below``."""
    narrow_below: bool
    saturates: bool
    """Whether PowSum may. With A8 it cannot, where it holds the most keys' largest weights."""
    safe_terms: int
    """Elements whose sum surely does not saturate."""
    recip: Line
    recip_narrow: bool
    """Its lines take 32 bits."""
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
    clips: bool
    """Whether an output word may exceed the highest (`_may_clip`)."""


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


def _widest(table: PiecewiseTable) -> int:
    """The largest number that a line comes to on its way."""
    return max(abs(m) << table.rest_bits for m in table.m_lut) + max(abs(c) for c in table.c_lut)


def _score_checks(spec: SoftermaxSpec) -> Checks:
    table = pow2_table(spec)
    line = _widest(table)
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
    return [
        (
            _widest(reciprocal_table(spec)) < 1 << 63,
            f"reciprocal is {spec.reciprocal}: a line of 1/x exceeds 64 bits",
        )
    ]


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
    recip = reciprocal_table(spec)
    near = nudge(spec)
    wide_sum = lane_bits + LANE_BITS > 31
    sum_shift = 0 if deferred else scores.unnormed.fraction - scores.powsum.fraction
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
        near=near is not None,
        nudge=_bits(1.0 + near) if near is not None else 0,
        splits=near is not None and _nudge(scores, False) is None,
        near_products=near is not None and row_products and _near_products(scores),
        masked=(scores.max_low - MASKED_BELOW) << scores.input.fraction,
        unnormed_fraction=scores.unnormed.fraction,
        unnormed_rounding=scores.unnormed_rounding,
        wide_sum=wide_sum,
        narrow=spec.powsum.bits <= 24 and not wide_sum,
        sum_shift=sum_shift,
        sum_rounding="truncate" if deferred else scores.powsum_rounding,
        powsum_bits=spec.powsum.bits,
        powsum_fraction=spec.powsum.fraction,
        powsum_high=spec.powsum.high,
        below=30 if spec.powsum.bits > 19 or wide_sum else 31 - spec.powsum.bits,
        narrow_below=spec.powsum.bits <= 19 and not wide_sum,
        saturates=deferred is None or MAX_KEYS * deferred.weight.high > deferred.powsum.high,
        safe_terms=0 if deferred else (spec.powsum.high << sum_shift) // (pow2.high + (1 << sum_shift)),
        recip=_line(recip, 2 * len(pow2.c_lut)),
        recip_narrow=_widest(recip) < 1 << 31,
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
        clips=deferred is not None or row_products or _may_clip(scores),
    )


def _may_clip(spec: SoftermaxSpec) -> bool:
    """Whether a numerator times its row's reciprocal may exceed the output word.

    A row's sum is at least its numerator n, and one half, the power of the score that made the max; in PowSum's unit, and less
    one for what is rounded off. For every numerator the sums of two octaves from there on are tried: beyond, words are
    smaller.
    """
    down = spec.unnormed.fraction - spec.powsum.fraction
    if spec.output_mode != "fixed" or spec.powsum.bits > 24 or spec.powsum.fraction > 10:
        return True
    half = 1 << (spec.unnormed.fraction - 1)
    table, recip = pow2_table(spec), reciprocal_table(spec)
    powers = np.unique(table(np.arange(1 << min(table.argument_bits, 8))))
    by = spec.unnormed.fraction + spec.reciprocal.fraction - spec.output.fraction - spec.powsum.fraction
    for n in {int(power) >> k for power in powers for k in range(spec.unnormed.fraction + 2)}:
        least = min(max((max(n, half) >> down) - 1, 1), spec.powsum.high)
        d = np.arange(least, min(4 * least + 4, spec.powsum.high + 1))
        e = np.floor(np.log2(d)).astype(np.int64)
        z = (d << (spec.powsum.bits - 1 - e)) & ((1 << (spec.powsum.bits - 1)) - 1)
        if ((n * recip(z)) * 2.0 ** -(by + e) + 0.5 >= spec.output.high + 1).any():
            return True
    return False


@lru_cache(maxsize=256)
def nudge(spec: AnySpec) -> float | None:
    """The a with which words in single precision are the spec's (`floats`), or None where integers must be taken.

    2^x is known to `POWER_ERROR`. For each fraction f, 2^f (1 + a) has to be the table's word L_f and a part of a unit, less than
    one; where words are rounded half up, less than half of one for those that are not shifted. That is 1 itself, and what
    lies above it, where the max has saturated: if need be, these are truncated instead.

    >>> round(nudge(SoftermaxSpec()) * 2**17, 1), nudge(SoftermaxSpec(unnormed_rounding="half-even"))
    (1.3, None)
    """
    scores = spec.scores if isinstance(spec, DeferredSpec) else spec
    numerators = not isinstance(spec, DeferredSpec) and scores.normalization == "numerator"
    rounds = scores.unnormed_rounding
    product = scores.unnormed.fraction + scores.reciprocal.fraction + 1
    shift = scores.unnormed.fraction + scores.reciprocal.fraction - scores.output.fraction
    fits = (
        rounds == "truncate" or (rounds == "half-up" and not numerators),
        not numerators or (product <= 23 and shift >= 2 and scores.output.bits <= 22),
        scores.max.integer <= 7,
        scores.input.fraction <= 12,
    )
    if not all(fits):
        return None
    found = _nudge(scores, False)
    return found if found is not None else _nudge(scores, True)


def _nudge(spec: SoftermaxSpec, splits: bool) -> float | None:
    """The a, if words from 1 on are truncated, or if they are not."""
    table = pow2_table(spec)
    f = np.arange(1 << table.argument_bits)
    words = table(f).astype(np.float64)
    room = np.ones(len(f))
    if spec.unnormed_rounding == "half-up":
        room[:] = 1.0 if splits else 0.5
        room[0] = 0.5
    real = np.exp2(f * 2.0**-table.argument_bits + table.fraction)
    least = (words / real * (1 + POWER_ERROR) - 1).max()
    most = ((words + room) / real * (1 - POWER_ERROR) - 1).min()
    return float(np.float32((least + most) / 2)) if least < most else None


def _near_products(spec: SoftermaxSpec) -> bool:
    """Whether output words made of row products are the spec's in single precision: a quarter of the unit of a product of 17 bits
    is more than 2^x may be wrong by, whatever its table."""
    return (
        spec.output_rounding == "half-up"
        and spec.product.bits <= 17
        and spec.output.bits <= 22
        and spec.max.integer <= 7
    )


def _bits(value: float) -> int:
    """A number's bits in single precision."""
    return int(struct.unpack("<i", struct.pack("<f", value))[0])


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


def most_warps(amd: bool) -> int:
    """Of a program. AMD's have 64 threads, and with four of them a thread has all registers there are."""
    return 4 if amd else 16


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
