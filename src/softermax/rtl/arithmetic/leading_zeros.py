"""How many zeros a word begins with."""

from __future__ import annotations

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value


def leading_zeros(m: Module, word: Value, name: str) -> Value:
    """Zeros before the first one; of a word without a one any number. Halves of halves: each knows whether it is empty."""
    levels = max(len(word) - 1, 1).bit_length()
    # Filled up at the end, where it changes no count.
    bits = [*reversed(list(word)), *[Const(0, 1)] * ((1 << levels) - len(word))]
    parts: list[tuple[Value, Value]] = [(~bit, Const(0, 0)) for bit in bits]
    for level in range(levels):
        above = []
        for at, ((empty, count), (other_empty, other)) in enumerate(
            zip(parts[::2], parts[1::2], strict=True)
        ):
            none = Signal(name=f"{name}_none_{level}_{at}")
            zeros = Signal(level + 1, name=f"{name}_zeros_{level}_{at}")
            m.d.comb += [none.eq(empty & other_empty), zeros.eq(Cat(Mux(empty, other, count)[:level], empty))]
            above.append((none, zeros))
        parts = above
    return parts[0][1]
