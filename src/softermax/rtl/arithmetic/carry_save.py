"""Sums of many words with one carry propagation.

Reduction and the multipliers add up many words of which only the total matters. A row of full adders
turns three words into two of the same total, sum bits and carry bits, without letting a carry run;
a tree of such rows turns any number of words into two.
"""

from __future__ import annotations

from collections.abc import Sequence

from amaranth.hdl import Module, Signal, Value, unsigned


def carry_save(
    m: Module, words: Sequence[Value], bits: int, name: str, levels: int | None = None
) -> list[Value]:
    """Words whose sum is that of unsigned ``words``, modulo ``2**bits``: two, or as many as are left
    after some levels of full adders.

    Bits of a word that are constant cost nothing: their adders shrink in synthesis. A word that arrives
    late goes into the last gate of its adders, sums being later than carries: less of them is set off twice.
    """
    level = 0
    while len(words) > 2 and level != levels:
        above: list[Value] = []
        for start in range(0, len(words) - 2, 3):
            a, b, c = words[start : start + 3]
            label = f"{name}_{level}_{start // 3}"
            propagate = Signal(unsigned(bits), name=f"{label}_propagate")
            total = Signal(unsigned(bits), name=f"{label}_sum")
            carry = Signal(unsigned(bits), name=f"{label}_carry")
            m.d.comb += [
                propagate.eq(a ^ b),
                total.eq(propagate ^ c),
                carry.eq(((a & b) | (c & propagate)) << 1),
            ]
            above += [carry, total]
        words = list(words[len(words) // 3 * 3 :]) + above
        level += 1
    return list(words)
