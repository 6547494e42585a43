"""Multiplications and divisions by what is wired into a design, and tables."""

from __future__ import annotations

from collections.abc import Sequence

from amaranth.hdl import Array, Const, Module, Signal, Value

from softermax.rtl.arithmetic.columns import sum_of


def looked_up(m: Module, entries: Sequence[int], index: Value, name: str) -> Signal:
    """An entry of a table; beyond its end 0."""
    bits = max(int(entry) for entry in entries).bit_length()
    padded = [*entries, *([0] * ((1 << len(index)) - len(entries)))]
    entry = Signal(bits, name=name)
    m.d.comb += entry.eq(Array(Const(int(value), bits) for value in padded)[index])
    return entry


def multiplied(m: Module, value: Value, constant: int, name: str, most: int) -> Signal:
    """An unsigned value up to ``most`` times a positive constant: shifted copies, added up in columns."""
    bits = (most * constant).bit_length()
    copies = [(value, place) for place in range(constant.bit_length()) if constant >> place & 1]
    product = Signal(bits, name=name)
    m.d.comb += product.eq(sum_of(m, copies, 0, bits, name))
    return product


def divided(m: Module, value: Value, divisor: int, name: str, most: int) -> tuple[Value, Value]:
    """Quotient and rest of an unsigned value up to ``most`` by a constant: times the shortest reciprocal that is exact."""
    quotient, rest = (
        Signal(range(most // divisor + 1), name=f"{name}_quotient"),
        Signal(range(divisor), name=f"{name}_rest"),
    )
    if divisor & (divisor - 1) == 0:
        place = divisor.bit_length() - 1
        m.d.comb += [quotient.eq(value[place:]), rest.eq(value[:place])]
        return quotient, rest
    places, reciprocal = next(
        (places, reciprocal)
        for places in range(64)
        for reciprocal in (-(-(1 << places) // divisor),)
        if all(number * reciprocal >> places == number // divisor for number in range(most + 1))
    )
    product = multiplied(m, value, reciprocal, f"{name}_product", most)
    m.d.comb += [quotient.eq(product[places:]), rest.eq(value - quotient * divisor)]
    return quotient, rest
