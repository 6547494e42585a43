"""Words times a factor that a row's lanes share: recoded once, half the adders in every lane.

A factor is written in digits -2 ... 2 of weight 1, 4, 16, ... (Booth's). Unlike the reciprocals of
`softermax.rtl.arithmetic.multiplier` it may be any word, of either sign, 0 among them.
"""

from __future__ import annotations

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data

from softermax.rtl.arithmetic.columns import addends

_DIGIT = data.StructLayout({"one": 1, "two": 1, "negative": 1})


def _signed(value: Value) -> Value:
    return value if value.shape().signed else Cat(value, Const(0, 1)).as_signed()


def recoded(m: Module, factor: Value, name: str) -> data.View:
    """A factor in digits."""
    word = _signed(factor)
    count = (len(word) + 1) // 2
    found = Signal(data.ArrayLayout(_DIGIT, count), name=name)
    padded = Cat(Const(0, 1), word, word[-1])
    for i in range(count):
        below, low, high = padded[2 * i], padded[2 * i + 1], padded[2 * i + 2]
        m.d.comb += [
            found[i].one.eq(low ^ below),
            found[i].two.eq((high ^ low) & ~(low ^ below)),
            found[i].negative.eq(high & ~(low & below)),
        ]
    return found


def partial_products(
    m: Module, value: Value, digits: data.View, bits: int, name: str, added: int = 0, rows: int | None = None
) -> list[Value]:
    """Words, before any carry runs, whose sum is a value times the factor plus ``added``, modulo ``2**bits``: two, or
    what so many rows of adders leave.

    A negative row of bits is the row's complement, one unit short. Signs are not extended: each row's sign is inverted, and what
    that is too much goes into the constant.
    """
    word = _signed(value)
    once, twice = Cat(word, word[-1]), Cat(Const(0, 1), word)
    terms: list[tuple[Value, int]] = []
    for i in range(digits.shape().length):
        digit = digits[i]
        size = Mux(digit.one, once, 0) | Mux(digit.two, twice, 0)
        row = Signal(len(word) + 1, name=f"{name}_row_{i}")
        m.d.comb += row.eq(size ^ digit.negative.replicate(len(row)))
        terms += [(Cat(row[:-1], ~row[-1]), 2 * i), (digit.negative, 2 * i)]
        added -= 1 << (len(word) + 2 * i)
    return addends(m, terms, added % (1 << bits), bits, name, rows)
