"""The same words in single precision, for specs whose words fit it: `plan.nudge` is the proof.

A GPU adds and multiplies floats beside its integer pipe, which rounding, shifting and looking up would fill. A word w is held
as a float that has it in its low bits: w + 1.5 * 2^23 (`MAGIC`) for scores and outputs, w + 2^23 (`UNIT`) for words that are
never negative. Adding one of them rounds to an integer, a product with a power of two is exact. So

- 2^x of a score's whole word is one instruction, approximate to 2^-22. Times 1 + a, for every fraction f the result lies
  between the table's word L_f and L_f + 1, or L_f + 1/2: it is L_f + c, and no shift of it, truncating or half up, can
  tell c from 0. `plan.nudge` finds the a, with room for an error of 2^-20;
- half a unit below 2^23 makes the addition truncate, for L_f + c divided by 2^k is no integer;
- a product of less than 2^23, and half a unit of it, are exact, and no multiple of a half: the addition rounds half up.
"""

from __future__ import annotations

import triton
import triton.language as tl

MAGIC = tl.constexpr(12582912.0)
"""1.5 * 2^23: a number below 2^22 added to it is rounded to an integer, half to even, which the sum's low bits hold."""
MAGIC_BITS = tl.constexpr(0x4B400000)
UNIT = tl.constexpr(8388608.0)
UNIT_BITS = tl.constexpr(0x4B000000)


@triton.jit
def two_to(exponent):
    """2^exponent in single precision, for small integers: the bits of a float."""
    return ((exponent + 127) << 23).to(tl.float32, bitcast=True)


@triton.jit
def clipped_near(near, low: tl.constexpr, high: tl.constexpr):
    """Rounding keeps the order, so a score that was rounded may be clipped after it."""
    return tl.minimum(tl.maximum(near, MAGIC + low), MAGIC + high)


@triton.jit
def rounded_near(scaled, low: tl.constexpr, high: tl.constexpr, rounding: tl.constexpr):
    """A1: numbers clipped to integers ``low`` and ``high``, and rounded, as `MAGIC` more."""
    if rounding == "half-even":
        near = clipped_near(scaled + MAGIC, low, high)
    else:
        v = tl.minimum(tl.maximum(scaled, low), high)
        near = v + MAGIC
        near = tl.where(near - MAGIC > v, near - 1.0, near)
        if rounding == "half-up":
            near = tl.where(v - (near - MAGIC) >= 0.5, near + 1.0, near)
    return near


@triton.jit
def word_of(near):
    """The integer that is `MAGIC` less."""
    return near.to(tl.int32, bitcast=True) - MAGIC_BITS


@triton.jit
def near_of(word):
    return (word + MAGIC_BITS).to(tl.float32, bitcast=True)


@triton.jit
def unit_word(u):
    """The integer that is `UNIT` less."""
    return u.to(tl.int32, bitcast=True) - UNIT_BITS


@triton.jit
def near_powers(near, p: tl.constexpr):
    """A3: 2^x of each score, to 2^-22 of it."""
    lsb: tl.constexpr = 1.0 / (1 << p.fraction)
    return tl.exp2(tl.fma(near, lsb, -MAGIC * lsb))


@triton.jit
def near_unnormed(power, maximum, p: tl.constexpr):
    """A3: unnormed words, as `UNIT` more."""
    scale = (((p.unnormed_fraction - maximum) << 23) + p.nudge).to(tl.float32, bitcast=True)
    if p.unnormed_rounding == "truncate":
        u = tl.maximum(tl.fma(power, scale, UNIT - 0.5), UNIT)
    else:
        u = tl.fma(power, scale, UNIT)
        if p.splits:
            one: tl.constexpr = UNIT + (1 << p.unnormed_fraction)
            u = tl.where(u > one, tl.fma(power, scale, UNIT - 0.5), u)
    return u


@triton.jit
def near_weights(power, maximum, p: tl.constexpr):
    """A8: weights, as `UNIT` more. Truncated words rounded half up are the power itself rounded half up."""
    if p.unnormed_rounding == "truncate" and p.weight_shift > 0:
        scale = ((p.unnormed_fraction - p.weight_shift - maximum) << 23) + p.nudge
        w = tl.fma(power, scale.to(tl.float32, bitcast=True), UNIT)
    else:
        w = near_unnormed(power, maximum, p)
        if p.weight_shift > 0:
            lsb: tl.constexpr = 1.0 / (1 << p.weight_shift)
            w = tl.fma(w - UNIT, lsb, lsb / 2) + UNIT
    return tl.minimum(w, UNIT + p.weight_high)


@triton.jit
def near_outputs(numerator, recip, by, p: tl.constexpr):
    """A5, A7: output words as `MAGIC` more, from numerators, as `UNIT` more, and their row's reciprocal and shift."""
    down = two_to(-by)
    half = tl.zeros_like(down)
    if p.output_rounding == "half-up":
        half = down * 0.5
    elif p.output_rounding == "truncate":
        half = down * 0.5 - 0.5
    factor = recip.to(tl.float32) * down
    exact = tl.fma(numerator - UNIT, factor[:, None, None], half[:, None, None])
    word = exact + MAGIC
    if p.clips:
        word = tl.minimum(word, MAGIC + p.output_high)
    return word


@triton.jit
def near_factor(product, by, f: tl.constexpr, p: tl.constexpr):
    """A10: what 2^x of a score of fraction ``f`` is multiplied by: its row's product, and a quarter of its unit, divided by 2^f and
    by what the row shifts. `MAGIC` added, that rounds to the output word, half up."""
    scale = (product.to(tl.float32) + 0.25) * two_to(-by)
    return (scale * (2.0 ** (-f / (1 << p.fraction))))[:, None, None]
