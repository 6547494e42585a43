"""Sums of words of very different lengths, bit by bit.

The shifted copies of a constant multiplication and the partial products of a small multiplier fill
few columns evenly. Here bits of equal weight are gathered in columns and added by as few full and half
adders as it takes until two words are left, which one carry chain adds (Dadda's scheme).
"""

from __future__ import annotations

from collections.abc import Iterable

from amaranth.hdl import Cat, Const, Module, Signal, Value

Columns = list[list[Value]]


def sum_of(m: Module, words: Iterable[tuple[Value, int]], constant: int, bits: int, name: str) -> Value:
    """The sum of unsigned words, each shifted left by its weight, and a constant, modulo ``2**bits``."""
    a, b = addends(m, words, constant, bits, name)
    return (a + b)[:bits]


def addends(
    m: Module,
    words: Iterable[tuple[Value, int]],
    constant: int,
    bits: int,
    name: str,
    rows: int | None = None,
) -> list[Value]:
    """Words of that sum, before any carry runs: two, or what so many rows of adders leave."""
    columns: Columns = [[] for _ in range(bits)]
    for word, weight in words:
        for position, bit in enumerate(word):
            if position + weight < bits:
                columns[position + weight].append(bit)
    for position, column in enumerate(columns):
        if constant >> position & 1:
            column.append(Const(1, 1))
    heights, height = [], 2
    while height < max(len(column) for column in columns):
        heights.append(height)
        height = height * 3 // 2
    for target in heights[::-1][:rows]:
        columns = _lowered(m, columns, target, f"{name}_{target}")
    count = max(2, *(len(column) for column in columns))
    return [Cat(*(column[i] if len(column) > i else Const(0, 1) for column in columns)) for i in range(count)]


def _lowered(m: Module, columns: Columns, target: int, name: str) -> Columns:
    """No column higher than ``target``, the sum unchanged."""
    done: Columns = []
    carries: list[Value] = []
    for place, column in enumerate(columns):
        bits = column + carries
        carried: list[Value] = []
        while len(bits) > target:
            # Signals, because an expression that is used twice would be built twice.
            label = f"{name}_{place}_{len(carried)}"
            total, carry = Signal(name=f"{label}_sum"), Signal(name=f"{label}_carry")
            a, b = bits[:2]
            if len(bits) == target + 1:
                m.d.comb += [total.eq(a ^ b), carry.eq(a & b)]
                bits = [*bits[2:], total]
            else:
                either = Signal(name=f"{label}_either")
                m.d.comb += [
                    either.eq(a ^ b),
                    total.eq(either ^ bits[2]),
                    carry.eq((a & b) | (bits[2] & either)),
                ]
                bits = [*bits[3:], total]
            carried.append(carry)
        done.append(bits)
        carries = carried
    return done
