"""Every way in which exported Verilog is broken on purpose, to see whether its bench notices.

The list is made from the text: each operator, constant, inversion, choice, reset value and condition of each statement is
replaced in turn.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

_MODULE = re.compile(r"^module (\w+) \(.*?^\);", re.MULTILINE | re.DOTALL)
_ASSIGNED = re.compile(r"^ *(?:assign |[\w', ?]+: )?([\w\[\]:{}, ]+?) <?= (?P<value>[^;]+);", re.MULTILINE)
_CONDITION = re.compile(r"^ *(?:end else )?if \((?P<value>.+)\) begin$", re.MULTILINE)
_RESET = re.compile(r"if \((?:rst|~?aresetn)\) begin\n(?P<body>.*?)\n    end", re.DOTALL)

_OPERATORS = (
    ("and for or", re.compile(r"(?<=\s)\|(?=\s)"), "&"),
    ("or for and", re.compile(r"(?<=\s)&(?=\s)"), "|"),
    ("and for xor", re.compile(r"(?<=\s)\^(?=\s)"), "&"),
    ("minus for plus", re.compile(r"(?<=\s)\+(?=\s)"), "-"),
    ("plus for minus", re.compile(r"(?<=\s)-(?=\s)"), "+"),
    ("plus for times", re.compile(r"(?<=\s)\*(?=\s)"), "+"),
    ("unequal for equal", re.compile(r"(?<=\s)==(?=\s)"), "!="),
    ("equal for unequal", re.compile(r"(?<=\s)!=(?=\s)"), "=="),
    ("greater or equal for greater", re.compile(r"(?<=\s)>(?=\s)"), ">="),
    ("greater for greater or equal", re.compile(r"(?<=\s)>=(?=\s)"), ">"),
    ("less or equal for less", re.compile(r"(?<=\s)<(?=\s)"), "<="),
    ("left for right shift", re.compile(r"(?<=\s)>>(?=\s)"), "<<"),
    ("right for left shift", re.compile(r"(?<=\s)<<(?=\s)"), ">>"),
    ("shift without sign", re.compile(r"(?<=\s)>>>(?=\s)"), ">>"),
    ("not inverted", re.compile(r"~(?=[\w(&|{])"), ""),
    ("other choice", re.compile(r"(?<=\s)\?(?=\s)"), "!= 1'b1 ?"),
    ("all for any", re.compile(r"(?<![\w\]})] )(?<![\w\]})])\|(?=[\w({])"), "&"),
)
"""What is found in an expression, and what stands there instead."""
_CONSTANT = re.compile(r"(\d+)'([hb])([0-9a-f]+)")


@dataclass(frozen=True)
class Mutation:
    """One place of the Verilog, and what stands there instead."""

    number: int
    module: str
    line: int
    kind: str
    was: str
    """The statement's expression as it is."""
    is_: str
    """The expression that takes its place."""
    start: int
    end: int


def mutations(verilog: str) -> list[Mutation]:
    """All of them, numbered from 1 in the order of the text."""
    found: list[Mutation] = []
    for module, start, end in _modules(verilog):
        resets = [match.span("body") for match in _RESET.finditer(verilog, start, end)]
        places = [(match, _variants(match["value"])) for match in _ASSIGNED.finditer(verilog, start, end)]
        places += [(match, _conditions(match["value"])) for match in _CONDITION.finditer(verilog, start, end)]
        for match, variants in sorted(places, key=lambda place: place[0].start("value")):
            at = match.span("value")
            reset = any(low <= at[0] < high for low, high in resets)
            line = verilog.count("\n", 0, at[0]) + 1
            for kind, text in variants:
                found.append(
                    Mutation(
                        len(found) + 1,
                        module,
                        line,
                        "reset value" if reset else kind,
                        match["value"],
                        text,
                        *at,
                    )
                )
    return found


def broken(verilog: str, mutation: Mutation) -> str:
    """The text with one mutation."""
    return verilog[: mutation.start] + mutation.is_ + verilog[mutation.end :]


def _modules(verilog: str) -> Iterator[tuple[str, int, int]]:
    """Names of the modules, and where their bodies begin and end."""
    for match in _MODULE.finditer(verilog):
        yield match[1], match.end(), verilog.index("\nendmodule", match.end())


def _variants(expression: str) -> Iterator[tuple[str, str]]:
    for kind, operator, instead in _OPERATORS:
        for match in operator.finditer(expression):
            yield kind, expression[: match.start()] + instead + expression[match.end() :]
    for match in _CONSTANT.finditer(expression):
        base = 16 if match[2] == "h" else 2
        other = f"{match[1]}'{match[2]}{int(match[3], base) ^ 1:x}"
        yield "constant", expression[: match.start()] + other + expression[match.end() :]


def _conditions(condition: str) -> Iterator[tuple[str, str]]:
    yield "condition inverted", f"!({condition})"
    yield "always", "1'b1"
    yield "never", "1'b0"
    yield from _variants(condition)
