"""The arithmetic of ``docs/arithmetic.md`` in Triton: what every kernel is made of, in 32-bit integers.

Elements have the shape (rows, slices, lanes), slice words (rows, slices), row words (rows). ``p`` is a spec's
`plan.Numbers`, known when a kernel is compiled. PowSum and what is computed once per row have 64 bits. A lane that does
not take part holds `MASKED`, of which nothing remains below any max.
"""

from __future__ import annotations

import triton
import triton.language as tl

MASKED = tl.constexpr(-(1 << 29))
MOST = tl.constexpr(30)
"""Past the widest word that is shifted, `plan.PRODUCT_BITS`, with its rounding."""
_MAGIC = tl.constexpr(12582912.0)
"""1.5 * 2^23: a number below 2^22 added to it is rounded to an integer, half to even, which the sum's low bits hold."""
_MAGIC_BITS = tl.constexpr(0x4B400000)
_BELOW = tl.constexpr(30)
"""Bits below PowSum's fraction that a block's slices are summed with."""


@triton.jit
def rounded(scaled, low: tl.constexpr, high: tl.constexpr, rounding: tl.constexpr):
    """A1: numbers clipped to integers ``low`` and ``high``, and rounded."""
    v = tl.minimum(tl.maximum(scaled, low), high)
    near = v + _MAGIC
    word = near.to(tl.int32, bitcast=True) - _MAGIC_BITS
    if rounding != "half-even":
        above = (near - _MAGIC) > v
        word = word - above.to(tl.int32)
        if rounding == "half-up":
            whole = tl.where(above, near - _MAGIC - 1.0, near - _MAGIC)
            word = word + ((v - whole) >= 0.5).to(tl.int32)
    return word


@triton.jit
def shift_right(v, by, rounding: tl.constexpr):
    """Words >= 0 divided by 2^by, ``by`` from 0 to 30 (62 in 64 bits), and rounded."""
    kept = v >> by
    if rounding == "half-up":
        one = tl.full([], 1, v.dtype)
        kept = (v + ((one << by) >> 1)) >> by
    if rounding == "half-even":
        one = tl.full([], 1, v.dtype)
        half = (one << by) >> 1
        rest = v - (kept << by)
        up = (rest > half) | ((rest == half) & ((kept & 1) == 1))
        kept = kept + (up & (by > 0)).to(v.dtype)
    return kept


@triton.jit
def _larger(a, b):
    return tl.maximum(a, b)


@triton.jit
def int_max(words, p: tl.constexpr):
    """A2: the local max of each slice. Rounding keeps the order: the max is rounded, not each lane."""
    highest = tl.max(words, 2)
    if p.max_ceil:
        highest = highest + ((1 << p.fraction) - 1)
    return tl.minimum(tl.maximum(highest >> p.fraction, p.max_low), p.max_high)


@triton.jit
def running_max(local, before):
    """A2: the running max of each slice of a block, after the max ``before`` it."""
    if local.shape[1] > 1:
        local = tl.associative_scan(local, 1, _larger)
    return tl.maximum(local, before[:, None])


@triton.jit
def _line(z, tables, line: tl.constexpr, kind: tl.constexpr):
    """A table's result for raw fractions ``z``, looked up as a line."""
    used = z >> line.drop
    index = (used >> line.rest_bits) << line.index_shift
    value = tl.load(tables + line.at + index).to(kind)
    if line.rest_bits > 0:
        rest = used & ((1 << line.rest_bits) - 1)
        value = (tl.load(tables + line.slopes + index).to(kind) * rest + value) >> line.shift
    return tl.minimum(tl.maximum(value, line.low), line.high)


@triton.jit
def powers(words, tables, p: tl.constexpr):
    """A3: 2^f for each score's fraction. A max is an integer: the fraction is that of x - m, whatever the max."""
    if p.packed > 0:
        at = ((words & ((1 << p.fraction) - 1)) * 16).to(tl.uint64)
        power = ((tl.full([], p.packed, tl.uint64) >> at) & 0xFFFF).to(tl.int32)
    else:
        power = _line(words & ((1 << p.fraction) - 1), tables, p.pow2, tl.int32)
    return power


@triton.jit
def unnormed(power, words, maximum, p: tl.constexpr):
    """A3: 2^(x - m) as unnormed words; ``maximum`` broadcasts against the words."""
    return shift_right(power, tl.minimum(maximum - (words >> p.fraction), MOST), p.unnormed_rounding)


@triton.jit
def slice_sums(parts, p: tl.constexpr):
    """A4: the exact sum of each slice."""
    if p.wide_sum:
        parts = parts.to(tl.int64)
    return tl.sum(parts, 2).to(tl.int64)


@triton.jit
def powsum(sums, running, d, before, p: tl.constexpr):
    """A4: PowSum after a block of slices, from the exact sums and running maxima of these and what was ``before``.

    Truncating shifts compose, so as long as nothing saturates PowSum is the sum of all terms, each shifted by what the
    max grew by after it, truncated once. Where a sum might saturate, or a shift leaves the bits that are kept
    below, slices are added in order.
    """
    terms = shift_right(sums, tl.full([], p.sum_shift, tl.int64), p.sum_rounding)
    last = tl.max(running, 1)
    if running.shape[1] == 1:
        d = tl.minimum((d >> tl.minimum(last - before, 62)) + tl.sum(terms, 1), p.powsum_high)
    else:
        shift = tl.where(terms > 0, last[:, None] - running, 0)
        first = tl.where(d > 0, last - before, 0)
        all_terms = d + tl.sum(terms, 1)
        easy = (tl.max(shift, 1) <= _BELOW) & (first <= _BELOW) & (all_terms <= p.powsum_high)
        if tl.min(easy.to(tl.int32), 0) == 1:
            exact = ((d << _BELOW) >> first) + tl.sum((terms << _BELOW) >> shift, 1)
            d = exact >> _BELOW
        else:
            order = tl.arange(0, running.shape[1])[None, :]
            for s in range(running.shape[1]):
                here = tl.max(tl.where(order == s, running, p.max_low), 1)
                term = tl.sum(tl.where(order == s, terms, 0), 1)
                d = tl.minimum((d >> tl.minimum(here - before, 62)) + term, p.powsum_high)
                before = here
    return d, last


@triton.jit
def reciprocal(d, tables, p: tl.constexpr):
    """A5: leading one's position and reciprocal of the mantissa, per row. A sum of 0 counts as 1 unit."""
    d = tl.maximum(d, 1)
    leading_one = tl.zeros_like(d).to(tl.int32)
    rest = d
    for i in tl.static_range(5):
        more = (rest >> (16 >> i)) > 0
        leading_one += tl.where(more, 16 >> i, 0)
        rest = tl.where(more, rest >> (16 >> i), rest)
    fraction = (d << (p.powsum_bits - 1 - leading_one)) & ((1 << (p.powsum_bits - 1)) - 1)
    return leading_one, _line(fraction, tables, p.recip, tl.int64)


@triton.jit
def numerators(power, words, running, last, p: tl.constexpr):
    """A5: unnormed words, renormalised to the row's last max."""
    if p.unnormed_rounding == "truncate":
        # Truncating shifts compose, so the slicing leaves no trace.
        numerator = unnormed(power, words, last[:, None, None], p)
    else:
        grown = tl.minimum(last[:, None] - running, MOST)
        numerator = unnormed(power, words, running[:, :, None], p) >> grown[:, :, None]
    return numerator


@triton.jit
def output_shift(leading_one, p: tl.constexpr):
    """What a row's numerators, or products of scores at its max, are shifted by to be output words."""
    by = tl.zeros_like(leading_one) + p.output_shift
    if p.fixed:
        by = by + (leading_one - p.powsum_fraction)
    return by


@triton.jit
def outputs(power, words, running, last, leading_one, recip, tables, p: tl.constexpr):
    """A5, A7, A10: output words of scores, from their row's last max, leading one and reciprocal."""
    by = output_shift(leading_one, p)
    if p.row_products:
        f = words & ((1 << p.fraction) - 1)
        picked = _product(0, recip, tables, p)[:, None, None]
        for i in tl.static_range(1, 1 << p.fraction):
            picked = tl.where(f >= i, _product(i, recip, tables, p)[:, None, None], picked)
        shift = (by + last)[:, None, None] - (words >> p.fraction)
        word = shift_right(picked, tl.minimum(tl.maximum(shift, 0), MOST), p.output_rounding)
    else:
        n = numerators(power, words, running, last, p)
        by = tl.minimum(tl.maximum(by, 0), MOST)  # below 0 only where all is masked
        word = shift_right(n * recip.to(tl.int32)[:, None, None], by[:, None, None], p.output_rounding)
    return tl.minimum(word, p.output_high)


@triton.jit
def _product(f: tl.constexpr, recip, tables, p: tl.constexpr):
    """A10: a row's product for one fraction of a score."""
    if p.packed > 0:
        power = tl.zeros_like(recip) + ((p.packed >> (16 * f)) & 0xFFFF)
    else:
        power = _line(tl.zeros_like(recip) + f, tables, p.pow2, tl.int64)
    exact = shift_right(power * recip, tl.full([], p.product_shift, tl.int64), "half-up")
    return tl.minimum(exact, p.product_high).to(tl.int32)


@triton.jit
def weights(unnormed, p: tl.constexpr):
    """A8: unnormed words as the weights that enter P·V."""
    by = tl.full([], p.weight_shift, tl.int32)
    return tl.minimum(shift_right(unnormed, by, "half-up"), p.weight_high)


@triton.jit
def two_to(exponent):
    """2^exponent in single precision, for small integers: the bits of a float."""
    return ((exponent + 127) << 23).to(tl.float32, bitcast=True)
