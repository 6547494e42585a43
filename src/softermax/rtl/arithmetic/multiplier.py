"""Numerators times a row's reciprocal: one recoding per row, half the adders in every lane.

A reciprocal with Fr fraction bits lies within [2^(Fr-1), 2^Fr]. It is written in digits -2 ... 2 of
weight 1, 4, 16, ... (Booth's) under a top digit that is then always 1 or 2. The digits are found once
per row; a lane adds up a row of bits for each digit: half as many as for single bits.
"""

from __future__ import annotations

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data

from softermax.rtl.arithmetic.carry_save import carry_save

_DIGIT = data.StructLayout({"one": 1, "two": 1, "negative": 1})


def digits_layout(fraction: int) -> data.StructLayout:
    """The digits of a reciprocal with so many fraction bits."""
    return data.StructLayout({"digits": data.ArrayLayout(_DIGIT, fraction // 2), "top_two": 1})


def recode(m: Module, reciprocal: Value, fraction: int) -> data.View:
    """A reciprocal in digits."""
    recoded = Signal(digits_layout(fraction), name="recoded")
    count = fraction // 2
    carry: Value = Const(0, 1)
    for i in range(count):
        low, high = reciprocal[2 * i], reciprocal[2 * i + 1]
        digit = recoded.digits[i]
        m.d.comb += [
            digit.one.eq(low ^ carry),
            digit.two.eq((high ^ low) & ~(low ^ carry)),
            digit.negative.eq(high & ~(low & carry)),
        ]
        carry = high
    m.d.comb += recoded.top_two.eq((reciprocal[2 * count :] + carry)[1])
    return recoded


def multiply(
    m: Module,
    numerator: Value,
    factor: data.View,
    fraction: int,
    name: str,
    half: int | None = None,
    largest: int | None = None,
) -> Signal:
    """The product with a recoded reciprocal, and ``2**half`` added to it if that is given: what is left of
    rounding half up is then to truncate. ``largest`` is the largest numerator, if not all of its bits.

    A negative row of bits is the row's complement, one unit short: the unit goes into the gap below
    the next row. Signs are not extended: the bits put above the rows instead add up to the signs
    and one carry beyond the product.
    """
    largest = (1 << len(numerator)) - 1 if largest is None else largest
    most = (largest << fraction) + (0 if half is None else 1 << half)
    product = Signal(max(len(numerator) + fraction, most.bit_length()), name=name)
    count = fraction // 2
    once, twice = Cat(numerator, Const(0, 1)), Cat(Const(0, 1), numerator)
    rows: list[Value] = []
    below: Value = Const(0, 0)
    for i in range(count):
        digit = factor.digits[i]
        size = Mux(digit.one, once, 0) | Mux(digit.two, twice, 0)
        sign = digit.negative
        above = Cat(~sign, Const(1, 1)) if i else Cat(sign, sign, ~sign)
        rows.append(Cat(below, size ^ sign.replicate(len(size)), above))
        below = Cat(Const(0, 2 * i), sign, Const(0, 1))
    rows.append(Cat(below, Mux(factor.top_two, twice, once)))
    # The lowest row last: it ends below the others, so that fewer columns wait for their sum.
    words = carry_save(m, rows[::-1], len(product), f"{name}_rows")
    if half is not None:
        added = 1 << half
        signs_carry = len(numerator) + 1 + 2 * count
        if count and signs_carry < len(product):
            added += 1 << signs_carry
        words = _add_above(m, words, added, half, len(product), f"{name}_half")
    m.d.comb += product.eq(sum(words))
    return product


def _add_above(
    m: Module, words: list[Value], constant: int, lowest: int, bits: int, name: str
) -> list[Value]:
    """Two words whose sum is that of at most two and a constant without bits below ``lowest``: only the
    columns from there on take part."""
    a, b = (word | Const(0, bits) for word in (*words, Const(0, bits))[:2])
    above = carry_save(m, [a[lowest:], b[lowest:], Const(constant >> lowest)], bits - lowest, name)
    return [Cat(word[:lowest], upper) for word, upper in zip((a, b), above, strict=True)]
