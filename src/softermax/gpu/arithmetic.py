"""The arithmetic of ``docs/arithmetic.md`` in Triton: what every kernel is made of, in 32-bit integers.

Elements have the shape (rows, slices, lanes), slice words (rows, slices), row words (rows). ``p`` is a spec's
`plan.Numbers`, known when a kernel is compiled. PowSum and what is computed once per row have 64 bits. A lane that does
not take part holds `MASKED`, of which nothing remains below any max.
"""

from __future__ import annotations

import triton
import triton.language as tl

from softermax.gpu.floats import (
    MAGIC,
    MAGIC_BITS,
    UNIT,
    clipped_near,
    near_factor,
    near_of,
    near_outputs,
    near_powers,
    near_unnormed,
    near_weights,
    rounded_near,
    two_to,
    unit_word,
    word_of,
)

MASKED = tl.constexpr(-(1 << 29))
MOST = tl.constexpr(30)
"""Past the widest word that is shifted, `plan.PRODUCT_BITS`, with its rounding."""
FEW = tl.constexpr(4)
"""Slices of a block that are added one after another in any case."""


@triton.jit
def rounded(scaled, low: tl.constexpr, high: tl.constexpr, rounding: tl.constexpr):
    """A1: numbers clipped to integers ``low`` and ``high``, and rounded."""
    v = tl.minimum(tl.maximum(scaled, low), high)
    near = v + MAGIC
    word = near.to(tl.int32, bitcast=True) - MAGIC_BITS
    if rounding != "half-even":
        above = (near - MAGIC) > v
        word = word - above.to(tl.int32)
        if rounding == "half-up":
            whole = tl.where(above, near - MAGIC - 1.0, near - MAGIC)
            word = word + ((v - whole) >= 0.5).to(tl.int32)
    return word


@triton.jit
def input_words(scaled, past: tl.constexpr, p: tl.constexpr):
    """A1: numbers as input words, clipped ``past`` units beyond their range."""
    if p.near:
        words = rounded_near(scaled, p.low - past, p.high + past, p.input_rounding)
    else:
        words = rounded(scaled, p.low - past, p.high + past, p.input_rounding)
    return words


@triton.jit
def marked_words(scaled, p: tl.constexpr):
    """A1: numbers as input words, and how far beyond these they lie: 0 where they do not saturate."""
    if p.near and p.input_rounding == "half-even":
        beyond = scaled + MAGIC
        words = clipped_near(beyond, p.low, p.high)
        beyond = tl.abs(beyond - words)
    else:
        beyond = input_words(scaled, 1, p)
        words = within(beyond, p)
        beyond = (beyond != words).to(tl.float32)
    return words, beyond


@triton.jit
def saturated(words, p: tl.constexpr):
    """Which of the words, clipped one unit beyond their range, lie there."""
    zero: tl.constexpr = MAGIC if p.near else 0
    return (words < zero + p.low) | (words > zero + p.high)


@triton.jit
def within(words, p: tl.constexpr):
    """Words clipped to their range."""
    if p.near:
        words = tl.minimum(tl.maximum(words, MAGIC + p.low), MAGIC + p.high)
    else:
        words = tl.minimum(tl.maximum(words, p.low), p.high)
    return words


@triton.jit
def hidden(words, keep, p: tl.constexpr):
    """Words of which those not kept take no part."""
    return tl.where(keep, words, MAGIC + p.masked if p.near else MASKED)


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
    """A2: the local max of each slice, before that of a row begins at the least. Rounding keeps the order: the max is rounded,
    not each lane."""
    highest = tl.max(words, 2)
    if p.near:
        highest = word_of(highest)
    if p.max_ceil:
        highest = highest + ((1 << p.fraction) - 1)
    return tl.minimum(highest >> p.fraction, p.max_high)


@triton.jit
def running_max(local, before):
    """A2: the running max of each slice of a block, after the max ``before`` it."""
    count: tl.constexpr = local.shape[1]
    if count > FEW:
        local = tl.associative_scan(local, 1, _larger)
    elif count > 1:
        # A scan would move the slices between threads, which need not hold them side by side.
        order = tl.arange(0, count)[None, :]
        for s in tl.static_range(count - 1):
            here = tl.max(tl.where(order == s, local, -(1 << 30)), 1)
            local = tl.where(order > s, tl.maximum(local, here[:, None]), local)
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
    if p.near:
        power = near_powers(words, p)
    elif p.packed > 0:
        at = ((words & ((1 << p.fraction) - 1)) * 16).to(tl.uint64)
        power = ((tl.full([], p.packed, tl.uint64) >> at) & 0xFFFF).to(tl.int32)
    else:
        power = _line(words & ((1 << p.fraction) - 1), tables, p.pow2, tl.int32)
    return power


@triton.jit
def unnormed(power, words, maximum, p: tl.constexpr):
    """A3: 2^(x - m) as unnormed words; ``maximum`` broadcasts against the words."""
    if p.near:
        u = near_unnormed(power, maximum, p)
    else:
        u = shift_right(power, tl.minimum(maximum - (words >> p.fraction), MOST), p.unnormed_rounding)
    return u


@triton.jit
def slice_sums(parts, p: tl.constexpr):
    """A4: the exact sum of each slice."""
    if p.near:
        parts = unit_word(parts)
    if p.wide_sum:
        parts = parts.to(tl.int64)
    sums = tl.sum(parts, 2)
    if not p.narrow:
        sums = sums.to(tl.int64)
    return sums


@triton.jit
def no_sum(rows: tl.constexpr, p: tl.constexpr):
    """PowSum before the first slice."""
    return tl.zeros([rows], tl.int32 if p.narrow else tl.int64)


@triton.jit
def _added(d, term, grown, p: tl.constexpr):
    """A4: PowSum after one more slice."""
    d = (d >> tl.minimum(grown, 31 if p.narrow else 62)) + term
    if p.saturates:
        d = tl.minimum(d, p.powsum_high)
    return d


@triton.jit
def powsum(sums, running, d, before, real, lanes: tl.constexpr, p: tl.constexpr):
    """A4: PowSum after a block of slices, ``real`` of which there are, from their exact sums and running maxima and what was
    ``before``; ``lanes`` elements at most have been added with them.

    Truncating shifts compose, so as long as nothing saturates PowSum is the sum of all terms, each shifted by what the
    max grew by after it, truncated once. Where a sum might saturate, or a shift leaves the bits that are kept
    below, slices are added in order; so are a few, for that takes fewer instructions.
    """
    terms = shift_right(sums, tl.full([], p.sum_shift, sums.dtype), p.sum_rounding)
    if terms.dtype != d.dtype:
        terms = tl.minimum(terms, p.powsum_high).to(d.dtype)
    count: tl.constexpr = running.shape[1]
    last = tl.max(running, 1)
    if count <= FEW:
        order = tl.arange(0, count)[None, :]
        for s in tl.static_range(count):
            here = tl.max(tl.where(order == s, running, p.max_low), 1)
            d = _added(d, tl.sum(tl.where(order == s, terms, 0), 1), here - before, p)
            before = here
    else:
        shift = tl.where(terms > 0, last[:, None] - running, 0)
        first = tl.where(d > 0, last - before, 0)
        easy = tl.maximum(tl.max(shift, 1), first) <= p.below
        if p.safe_terms < lanes:
            easy = easy & (d + tl.sum(terms, 1) <= p.powsum_high)
        if tl.min(easy.to(tl.int32), 0) == 1:
            wide = tl.int32 if p.narrow_below else tl.int64
            exact = ((d.to(wide) << p.below) >> first) + tl.sum((terms.to(wide) << p.below) >> shift, 1)
            d = (exact >> p.below).to(d.dtype)
        else:
            order = tl.arange(0, count)[None, :]
            for s in range(tl.minimum(real, count)):
                here = tl.max(tl.where(order == s, running, p.max_low), 1)
                d = _added(d, tl.sum(tl.where(order == s, terms, 0), 1), here - before, p)
                before = here
    return d, last


@triton.jit
def reciprocal(d, tables, p: tl.constexpr):
    """A5: leading one's position and reciprocal of the mantissa, per row. A sum of 0 counts as 1 unit."""
    d = tl.maximum(d, 1)
    if p.narrow:
        # Below 2^24 a float's exponent and mantissa are what is looked for.
        bits = d.to(tl.float32).to(tl.int32, bitcast=True)
        leading_one = (bits >> 23) - 127
        fraction = (bits & 0x7FFFFF) >> (24 - p.powsum_bits)
    else:
        leading_one = tl.zeros_like(d).to(tl.int32)
        rest = d
        for i in tl.static_range(5):
            more = (rest >> (16 >> i)) > 0
            leading_one += tl.where(more, 16 >> i, 0)
            rest = tl.where(more, rest >> (16 >> i), rest)
        fraction = (d << (p.powsum_bits - 1 - leading_one)) & ((1 << (p.powsum_bits - 1)) - 1)
    return leading_one, _line(fraction, tables, p.recip, tl.int32 if p.recip_narrow else tl.int64)


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
    if p.near_products:
        f = words.to(tl.int32, bitcast=True) & ((1 << p.fraction) - 1)
        factor = _factor(0, recip, by + last, tables, p)
        if p.fraction == 2:
            odd = (f & 1) == 1
            low = tl.where(odd, _factor(1, recip, by + last, tables, p), factor)
            high = tl.where(
                odd, _factor(3, recip, by + last, tables, p), _factor(2, recip, by + last, tables, p)
            )
            factor = tl.where(f >= 2, high, low)
        else:
            for i in tl.static_range(1, 1 << p.fraction):
                factor = tl.where(f >= i, _factor(i, recip, by + last, tables, p), factor)
        word = tl.minimum(tl.fma(power, factor, MAGIC), MAGIC + p.output_high)
    elif p.row_products:
        if p.near:
            words = word_of(words)
        f = words & ((1 << p.fraction) - 1)
        picked = _product(0, recip, tables, p)[:, None, None]
        for i in tl.static_range(1, 1 << p.fraction):
            picked = tl.where(f >= i, _product(i, recip, tables, p)[:, None, None], picked)
        shift = (by + last)[:, None, None] - (words >> p.fraction)
        word = shift_right(picked, tl.minimum(tl.maximum(shift, 0), MOST), p.output_rounding)
        word = tl.minimum(word, p.output_high)
        if p.near:
            word = near_of(word)
    elif p.near:
        n = near_unnormed(power, last[:, None, None], p)
        word = near_outputs(n, recip, tl.minimum(tl.maximum(by, 0), MOST), p)
    else:
        n = numerators(power, words, running, last, p)
        by = tl.minimum(tl.maximum(by, 0), MOST)  # below 0 only where all is masked
        word = shift_right(n * recip.to(tl.int32)[:, None, None], by[:, None, None], p.output_rounding)
        word = tl.minimum(word, p.output_high)
    return word


@triton.jit
def values_of(outputs, lsb, spoiled, p: tl.constexpr):
    """Output words, (rows, slices, lanes), times a number per row, plus another, in single precision."""
    if p.near:
        y = tl.fma(outputs, lsb[:, None, None], (spoiled - MAGIC * lsb)[:, None, None])
    else:
        y = outputs.to(tl.float32) * lsb[:, None, None] + spoiled[:, None, None]
    return y


@triton.jit
def integers_of(outputs, p: tl.constexpr):
    """Output words as integers."""
    if p.near:
        outputs = word_of(outputs)
    return outputs


@triton.jit
def _product(f: tl.constexpr, recip, tables, p: tl.constexpr):
    """A10: a row's product for one fraction of a score."""
    if p.packed > 0:
        power = tl.zeros_like(recip).to(tl.int64) + ((p.packed >> (16 * f)) & 0xFFFF)
    else:
        power = _line(tl.zeros_like(recip).to(tl.int64) + f, tables, p.pow2, tl.int64)
    exact = shift_right(power * recip.to(tl.int64), tl.full([], p.product_shift, tl.int64), "half-up")
    return tl.minimum(exact, p.product_high).to(tl.int32)


@triton.jit
def _factor(f: tl.constexpr, recip, by, tables, p: tl.constexpr):
    return near_factor(_product(f, recip, tables, p), by, f, p)


@triton.jit
def weights(power, words, maximum, p: tl.constexpr):
    """A8: unnormed words as the weights that enter P·V."""
    if p.near:
        w = near_weights(power, maximum, p)
    else:
        by = tl.full([], p.weight_shift, tl.int32)
        w = tl.minimum(shift_right(unnormed(power, words, maximum, p), by, "half-up"), p.weight_high)
    return w


@triton.jit
def scaled_weights(weights, grown, p: tl.constexpr):
    """A8: weights, divided by 2^grown, in single precision."""
    if p.near:  # no max is 127 above another
        scale = two_to(-grown)
        w = tl.fma(weights, scale, -UNIT * scale)
    else:
        w = weights.to(tl.float32) * two_to(-tl.minimum(grown, 100))
    return w
