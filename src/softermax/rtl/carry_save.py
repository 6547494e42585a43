"""Sums of many words without carry propagation.

Reduction and the multipliers add up many words of which only the total matters. The bits of equal
weight form a column; full and half adders turn three or two bits of a column into one there and a
carry in the next, until no column holds more than two. Each step goes down to the next height of
Dadda's sequence (2, 3, 4, 6, 9, 13, ...), which needs the fewest adders.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from amaranth.hdl import Cat, Const, Value, ValueLike

Columns = list[list[Value]]


def columns_of(words: Iterable[tuple[ValueLike, int]], bits: int) -> Columns:
    """The bits of unsigned words, each shifted left by its weight, below ``2**bits``."""
    columns: Columns = [[] for _ in range(bits)]
    for value, weight in words:
        for position, bit in enumerate(Value.cast(value)):
            if position + weight < bits:
                columns[position + weight].append(bit)
    return columns


def add_constant(columns: Columns, constant: int) -> None:
    for position, column in enumerate(columns):
        if constant >> position & 1:
            column.append(Const(1, 1))


def carry_save(columns: Sequence[Sequence[Value]]) -> tuple[Value, Value]:
    """Two words whose sum is that of the columns, modulo ``2**len(columns)``."""
    work = [list(column) for column in columns]
    for target in reversed(_heights(max((len(column) for column in work), default=0))):
        work = _step(work, target)
    first = [column[0] if column else Const(0, 1) for column in work]
    second = [column[1] if len(column) > 1 else Const(0, 1) for column in work]
    return Cat(*first), Cat(*second)


def _heights(most: int) -> list[int]:
    heights, height = [], 2
    while height < most:
        heights.append(height)
        height = height * 3 // 2
    return heights


def _step(columns: Columns, target: int) -> Columns:
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
                bits = [*bits[3:], a ^ b ^ c]
                carried.append(a & b | c & (a ^ b))
        done.append(bits)
        carries = carried
    return done
