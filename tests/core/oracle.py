"""A second Softermax, written from docs/arithmetic.md alone, in APyTypes: the judge of the golden model.

It takes nothing from the package but the field values of a spec. Where the golden model
shifts integers, this one works on *values*: a shift is a product with a power of two, a rounding is
a cast to a narrower APyFixed format, and the tables are found by trying every point. Deferred
normalisation and attention, which only add up and shift, are loops over Python's own integers.

APyFixed words are two's complement, so an unsigned Q(i,f) has one integer bit more here.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any

import mpmath
import numpy as np
from apytypes import APyFixedArray, OverflowMode, QuantizationMode
from numpy.typing import NDArray

from softermax.spec import AnySpec, DeferredSpec, SoftermaxSpec

Ints = NDArray[np.int64]

MODE = {
    "truncate": QuantizationMode.TO_NEG,
    "half-up": QuantizationMode.TIES_POS,
    "half-even": QuantizationMode.TIES_EVEN,
    "ceil": QuantizationMode.TO_POS,
}


def fixed(raw: Any, integer: int, fraction: int) -> APyFixedArray:
    return APyFixedArray(np.ascontiguousarray(raw, dtype=np.int64), int_bits=integer, frac_bits=fraction)


def raw_of(a: APyFixedArray) -> Ints:
    """Raw integers of an array of at most 64 bits, sign included."""
    spare = 64 - a.bits
    return (a.to_bits(numpy=True).astype(np.uint64) << np.uint64(spare)).view(np.int64) >> spare


def rounded(a: APyFixedArray, integer: int, fraction: int, how: str) -> APyFixedArray:
    """``a`` in a format of ``integer`` bits (sign included) and ``fraction`` bits, saturated."""
    return a.cast(int_bits=integer, frac_bits=fraction, quantization=MODE[how], overflow=OverflowMode.SAT)


def exactly(a: APyFixedArray, integer: int, fraction: int) -> APyFixedArray:
    """``a`` in another format that must hold every value."""
    narrow = a.cast(int_bits=integer, frac_bits=fraction)
    assert np.all(narrow == a), f"a value does not fit {integer}.{fraction} bits"
    return narrow


def halved(a: APyFixedArray, times: Ints) -> APyFixedArray:
    """``a * 2^-times`` for unsigned ``a``, to be rounded by the caller.

    A word of W bits (the sign is one of ``a.bits``) is below half a unit after W + 1 halvings, hence
    0 under every rounding: more than that need not be told apart.
    """
    most = a.bits
    return a * fixed(np.int64(1) << (most - np.minimum(times, most)), 2, most)


@dataclass(frozen=True)
class OracleTable:
    """Every result of a linear piece-wise table, by the used bits of its argument."""

    argument_bits: int
    used_bits: int
    m_lut: tuple[int, ...]
    c_lut: tuple[int, ...]
    results: Ints

    def __call__(self, z: Ints) -> Ints:
        return self.results[z >> (self.argument_bits - self.used_bits)]


def _pow2(x: Fraction) -> Fraction:
    """2^x to 160 bits."""
    with mpmath.workprec(200):
        scaled = mpmath.power(2, mpmath.mpf(x.numerator) / x.denominator + 160)
        return Fraction(int(mpmath.floor(scaled)), 1 << 160) if x else Fraction(1)


def _reciprocal(x: Fraction) -> Fraction:
    return 1 / (1 + x)


def _half_up(x: Fraction) -> int:
    return (x + Fraction(1, 2)).__floor__()


def _half_away(x: Fraction) -> int:
    return _half_up(x) if x >= 0 else -_half_up(-x)


@lru_cache(maxsize=256)
def table(function: str, argument_bits: int, segments: int, fraction: int) -> OracleTable:
    """The section "The tables" of the document, step by step, trying every point of every segment."""
    f = _pow2 if function == "pow2" else _reciprocal
    low = 2**fraction if function == "pow2" else 2 ** (fraction - 1)
    high = 2 ** (fraction + 1) - 1 if function == "pow2" else 2**fraction
    s = segments.bit_length() - 1
    used = min(argument_bits, max(s, min(fraction + 2, 2 * s + 8)))
    rest_bits = max(used - s, 0)
    if rest_bits == 0:
        c = tuple(_half_up(f(Fraction(i, segments)) * 2**fraction) for i in range(segments))
        index = np.arange(2**used) << (s - used)
        # The range of step 4 holds here too: 2^(15/16) in Q(1,1) would round to 2, which has no word.
        results = np.clip(np.array(c, dtype=np.int64)[index], low, high)
        return OracleTable(argument_bits, used, (0,) * segments, c, results)
    m_bits = max(min(fraction + 2 - s, s + 7), fraction - used, 1)
    points = 2**rest_bits
    m_lut, c_lut, results = [], [], []
    for i in range(segments):
        values = [f(Fraction(i, segments) + Fraction(j, 2**used)) for j in range(points)]
        chord = (values[-1] - values[0]) / Fraction(points - 1, 2**used)
        m = _half_away(chord * 2**m_bits)
        residuals = [v - Fraction(m * j, 2 ** (m_bits + used)) for j, v in enumerate(values)]
        offset = (min(residuals) + max(residuals)) / 2
        c = _half_up((offset + Fraction(1, 2 ** (fraction + 1))) * 2 ** (m_bits + used))
        rest = fixed(np.arange(points), 1, used)
        slope = fixed([m], 3, m_bits)
        line = slope * rest + fixed([c], 3, m_bits + used)
        m_lut.append(m)
        c_lut.append(c)
        results.append(np.clip(raw_of(rounded(line, 3, fraction, "truncate")), low, high))
    return OracleTable(argument_bits, used, tuple(m_lut), tuple(c_lut), np.concatenate(results))


def pow2_table(spec: SoftermaxSpec) -> OracleTable:
    return table("pow2", spec.input.fraction, spec.pow2_segments, spec.unnormed.fraction)


def reciprocal_table(spec: AnySpec) -> OracleTable:
    return table("reciprocal", spec.powsum.bits - 1, spec.reciprocal_segments, spec.reciprocal.fraction)


def input_words(scores: NDArray[Any], spec: SoftermaxSpec) -> Ints:
    """A1 and A9. The product is one of floats; from there on every bit of it is kept to the rounding."""
    own, precision = (np.float64, 53) if scores.dtype == np.float64 else (np.float32, 24)
    with mpmath.workprec(200):
        factor = 2**spec.input.fraction * (1 / mpmath.log(2) if spec.base == "fold" else mpmath.mpf(1))
    with mpmath.workprec(precision):
        once = own(float(+factor))
    product = scores.astype(own) * once
    exact = APyFixedArray.from_array(product.astype(np.float64), int_bits=1025, frac_bits=1074)
    return raw_of(rounded(exact, spec.input.integer + spec.input.fraction, 0, spec.input_rounding))


def int_max(x: Ints, spec: SoftermaxSpec) -> Ints:
    """A2: every score's integer."""
    scores = fixed(x, spec.input.integer, spec.input.fraction)
    return raw_of(rounded(scores, spec.max.integer, 0, spec.max_rounding))


def power_of_two(x: Ints, m: Ints, spec: SoftermaxSpec) -> Ints:
    """A3: 2^(x - m) for scores ``x`` and integers ``m`` that broadcast against them."""
    difference = fixed(x, spec.input.integer, spec.input.fraction) - fixed(m, spec.max.integer, 0)
    whole = difference.cast(frac_bits=0, int_bits=difference.int_bits, quantization=MODE["truncate"])
    part = exactly(difference - whole, 1, max(spec.input.fraction, 1))
    part_raw = raw_of(part) >> (1 if spec.input.fraction == 0 else 0)
    halvings = -raw_of(whole)
    assert halvings.min(initial=0) >= 0
    power = fixed(pow2_table(spec)(part_raw), 2, spec.unnormed.fraction)
    shifted = halved(power, halvings)
    return raw_of(rounded(shifted, spec.unnormed.integer + 1, spec.unnormed.fraction, spec.unnormed_rounding))


def reciprocal(d: Ints, spec: AnySpec) -> tuple[Ints, Ints]:
    """A5: position of the leading one, and the reciprocal of the mantissa."""
    bits = spec.powsum.bits
    word = fixed(d, bits + 1, 0)
    e = np.maximum(bits - word.leading_zeros.astype(np.int64), 0)
    # d · 2^-e in [1, 2); a d of zero has no mantissa, and its fraction is 0.
    mantissa = exactly(word * fixed(np.int64(1) << (bits - e), 2, bits), 2, bits - 1)
    z = np.where(d > 0, raw_of(mantissa) - (1 << (bits - 1)), 0)
    return e, reciprocal_table(spec)(z)


@dataclass(frozen=True)
class Oracle:
    """Every word of a run, under the names of the golden model's trace. Rows are (rows, columns)."""

    local_max: Ints
    running_max: Ints
    unnormed: Ints
    slice_sum: Ints
    slice_powsum: Ints
    renorm_shift: Ints
    powsum: Ints
    leading_one: Ints
    reciprocal: Ints
    numerator_shift: Ints
    numerator: Ints
    products: Ints
    words: Ints
    exponent: Ints


def softermax(x: Ints, mask: NDArray[np.bool_], spec: SoftermaxSpec) -> Oracle:
    """A2 to A7 and A10 for raw scores (rows, columns)."""
    rows, columns = x.shape
    width = columns if spec.slice_width is None else spec.slice_width
    slices = -(-columns // width)
    fill = ((0, 0), (0, slices * width - columns))
    takes_part = np.pad(mask, fill).reshape(rows, slices, width)
    lanes = np.pad(np.where(mask, x, 0), fill).reshape(takes_part.shape)

    lowest = -(2 ** (spec.max.integer - 1))
    ceilings = np.where(takes_part, int_max(lanes, spec), lowest)
    local = raw_of(fixed(ceilings, spec.max.integer, 0).max(axis=2))
    running = np.empty_like(local)
    before = np.full(rows, lowest, dtype=np.int64)
    for s in range(slices):
        running[:, s] = before = np.where(local[:, s] > before, local[:, s], before)

    u = np.zeros_like(lanes)
    m = np.broadcast_to(running[:, :, None], lanes.shape)
    u[takes_part] = power_of_two(lanes[takes_part], m[takes_part], spec)
    ui, uf = spec.unnormed.integer + 1, spec.unnormed.fraction
    di, df = spec.powsum.integer + 1, spec.powsum.fraction
    total = fixed(u, ui, uf).sum(axis=2)
    part = rounded(total, total.int_bits + 1, df, spec.powsum_rounding)

    d = np.empty_like(local)
    shifts = np.diff(running, axis=1, prepend=lowest)
    before_d = fixed(np.zeros(rows), di, df)
    for s in range(slices):
        renormed = rounded(halved(before_d, shifts[:, s]), di, df, "truncate")
        before_d = rounded(renormed + part[:, s], di, df, "truncate")
        d[:, s] = raw_of(before_d)

    e, r = reciprocal(d[:, -1], spec)
    behind = running[:, -1:] - running
    ratio = fixed(r[:, None, None], spec.reciprocal.integer + 1, spec.reciprocal.fraction)
    if spec.normalization == "row-products":
        fractions = np.arange(1 << spec.input.fraction)
        powers = fixed(pow2_table(spec)(fractions), ui, uf).reshape((1, 1, len(fractions)))
        pi, pf = spec.product.integer + 1, spec.product.fraction
        products = raw_of(rounded(powers * ratio, pi, pf, "half-up"))[:, 0]
        # x = m_last - k + f / 2^Fx with a whole k >= 0
        last = running[:, -1:, None]
        k = last - np.floor_divide(lanes, 1 << spec.input.fraction)
        f = lanes - (last - k << spec.input.fraction)
        n_raw = products[np.arange(rows)[:, None, None], f]
        exponent = e[:, None, None] - df if spec.output_mode == "fixed" else 0
        product = halved(fixed(n_raw, pi, pf), np.where(takes_part, k + exponent, 0))
    else:
        products = np.zeros((rows, 0), dtype=np.int64)
        n = rounded(
            halved(fixed(u, ui, uf), np.broadcast_to(behind[:, :, None], u.shape)), ui, uf, "truncate"
        )
        n_raw = raw_of(n)
        product = n * ratio
        if spec.output_mode == "fixed":
            # 2^-(e - Fd): e lies in 0 ... bits - 1
            scale = fixed(np.int64(1) << (spec.powsum.bits - e), df + 2, spec.powsum.integer)
            product = product * scale.reshape((rows, 1, 1))
    y = rounded(product, spec.output.integer + 1, spec.output.fraction, spec.output_rounding)
    y_raw = np.where(takes_part, raw_of(y), 0)
    return Oracle(
        local_max=local,
        running_max=running,
        unnormed=u,
        slice_sum=raw_of(total),
        slice_powsum=raw_of(part),
        renorm_shift=shifts,
        powsum=d,
        leading_one=e,
        reciprocal=r,
        numerator_shift=behind,
        numerator=n_raw,
        products=products,
        words=y_raw.reshape(rows, slices * width)[:, :columns],
        exponent=e - df,
    )


def whole(value: Fraction, how: str) -> int:
    """A rational number rounded to an integer."""
    if how == "half-even":
        return round(value)
    return _half_up(value) if how == "half-up" else value.__floor__()


@dataclass(frozen=True)
class OracleDeferred:
    """A8's words of one row, under the names of the golden model's trace and output."""

    running_max: list[int]
    weight: list[int]
    renorm_shift: list[int]
    powsum: list[int]
    shift: list[int]
    leading_one: int
    reciprocal: int


def deferred(x: list[int], keep: list[bool], spec: DeferredSpec) -> OracleDeferred:
    """A8 for one row of raw scores, element by element."""
    scores = spec.scores
    width = scores.slice_width or len(x)
    drop = scores.unnormed.fraction - spec.weight.fraction
    maximum = -(2 ** (scores.max.integer - 1))
    d = 0
    weight, maxima, shifts, sums = [], [], [], []
    for start in range(0, len(x), width):
        taken = [i for i in range(start, min(start + width, len(x))) if keep[i]]
        before = maximum
        if taken:
            maximum = max(maximum, int(int_max(np.array([x[i] for i in taken]), scores).max()))
        w = [0] * (min(start + width, len(x)) - start)
        for i in taken:
            u = int(power_of_two(np.array([x[i]]), np.array([maximum]), scores)[0])
            w[i - start] = min(whole(Fraction(u, 2**drop), "half-up"), 2**spec.weight.bits - 1)
        d = min(d // 2 ** (maximum - before) + sum(w), 2**spec.powsum.bits - 1)
        weight += w
        maxima.append(maximum)
        shifts.append(maximum - before)
        sums.append(d)
    e, r = reciprocal(np.array([d]), spec)
    grown = [maximum - maxima[i // width] for i in range(len(x))]
    return OracleDeferred(maxima, weight, shifts, sums, grown, int(e[0]), int(r[0]))


def accumulated(row: OracleDeferred, values: list[int], width: int) -> int:
    """A8's accumulator of one output element: shifted half up wherever the max grows."""
    a = 0
    for s, grown in enumerate(row.renorm_shift):
        lanes = range(s * width, min((s + 1) * width, len(values)))
        a = whole(Fraction(a, 2**grown), "half-up") + sum(row.weight[i] * values[i] for i in lanes)
    return a


def score_words(q: list[int], keys: list[list[int]], scale: float, spec: SoftermaxSpec) -> list[int]:
    """Exact integer products of a query with keys, to input words by one product in single precision."""
    factor = np.float32(
        scale * 2.0**spec.input.fraction * (float(1 / mpmath.log(2)) if spec.base == "fold" else 1.0)
    )
    words = []
    for key in keys:
        product = np.float32(sum(a * b for a, b in zip(q, key, strict=True))) * factor
        word = whole(Fraction(float(product)), spec.input_rounding)
        words.append(min(max(word, -(2 ** (spec.input.bits - 1))), 2 ** (spec.input.bits - 1) - 1))
    return words
