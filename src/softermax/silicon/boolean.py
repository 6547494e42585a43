"""Boolean expressions of Liberty (``!A & B``, ``(A * !B) + C``, ``A'``) as truth tables."""

from __future__ import annotations

import re
from functools import lru_cache

_TOKEN = re.compile(r"[A-Za-z_][\w\[\]]*|[01]|[!'()&*|+^]")


@lru_cache(maxsize=65536)
def truth_table(expression: str, pins: tuple[str, ...]) -> int:
    """Bit ``s`` is the value in state ``s``; bit ``i`` of a state is the value of ``pins[i]``.

    >>> bin(truth_table("!A & B", ("A", "B")))
    '0b100'
    """
    size = 1 << len(pins)
    every = (1 << size) - 1
    columns = {pin: _column(i, size) for i, pin in enumerate(pins)}
    tokens = _TOKEN.findall(expression)
    if "".join(tokens) != re.sub(r"\s", "", expression):
        raise ValueError(f"not a Liberty expression: {expression!r}")
    position = 0

    def peek() -> str:
        return tokens[position] if position < len(tokens) else ""

    def either() -> int:
        nonlocal position
        value = both()
        while peek() in ("|", "+"):
            position += 1
            value |= both()
        return value

    def both() -> int:
        nonlocal position
        value = exclusive()
        while peek() and peek() not in ("|", "+", ")"):
            if peek() in ("&", "*"):
                position += 1
            value &= exclusive()
        return value

    def exclusive() -> int:
        nonlocal position
        value = negated()
        while peek() == "^":
            position += 1
            value ^= negated()
        return value

    def negated() -> int:
        nonlocal position
        token = peek()
        position += 1
        if token == "!":
            value = every ^ negated()
        elif token == "(":
            value = either()
            if peek() != ")":
                raise ValueError(f"unbalanced parentheses in {expression!r}")
            position += 1
        elif token in ("0", "1"):
            value = every * int(token)
        elif token in columns:
            value = columns[token]
        else:
            raise ValueError(f"{token or 'the end'!r} in {expression!r}: pins are {', '.join(pins)}")
        while peek() == "'":
            position += 1
            value ^= every
        return value

    value = either()
    if position != len(tokens):
        raise ValueError(f"unbalanced parentheses in {expression!r}")
    return value


def _column(index: int, size: int) -> int:
    return sum(1 << state for state in range(size) if state >> index & 1)


def substitute(expression: str, names: dict[str, str]) -> str:
    """The expression with each name replaced by an expression in parentheses."""
    return re.sub(
        r"[A-Za-z_][\w\[\]]*",
        lambda match: f"({names[match.group()]})" if match.group() in names else match.group(),
        expression,
    )
