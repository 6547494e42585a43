"""Sums of words of very different lengths, bit by bit.

The shifted copies of a constant multiplication and the partial products of a small multiplier fill
few columns evenly. Here bits of equal weight are gathered in columns and added by as few full and half
adders as it takes until two words are left, which one carry chain adds (Dadda's scheme).
"""

from __future__ import annotations

from collections.abc import Iterable

from amaranth.hdl import Cat, Const, Value

Columns = list[list[Value]]


def sum_of(words: Iterable[tuple[Value, int]], constant: int, bits: int) -> Value:
    """The sum of unsigned words, each shifted left by its weight, and a constant, modulo ``2**bits``."""
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
    for target in reversed(heights):
        columns = _lowered(columns, target)
    a, b = (Cat(*(column[i] if len(column) > i else Const(0, 1) for column in columns)) for i in range(2))
    return (a + b)[:bits]


def _lowered(columns: Columns, target: int) -> Columns:
    """No column higher than ``target``, the sum unchanged."""
    done: Columns = []
    carries: list[Value] = []
    for column in columns:
        bits, carried = column + carries, []
        while len(bits) > target:
            if len(bits) == target + 1:
                a, b = bits[:2]
                bits = [*bits[2:], a ^ b]
                carried.append(a & b)
            else:
                a, b, c = bits[:3]
                either = a ^ b
                bits = [*bits[3:], either ^ c]
                carried.append((a & b) | (c & either))
        done.append(bits)
        carries = carried
    return done
