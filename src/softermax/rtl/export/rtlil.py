"""RTLIL as Amaranth writes it, read into modules: what the Verilog of an export is made of.

Amaranth's RTLIL has one statement per line: wires, memories, cells, processes of assignments and switches, connections.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TypeAlias

_TOKEN = re.compile(r"\{|\}|\[\d+(?::\d+)?\]|\d+'[01x-]*|[\\$]\S+")


@dataclass(frozen=True)
class Bits:
    """Bits ``high`` to ``low`` of a wire."""

    wire: str
    high: int
    low: int

    @property
    def width(self) -> int:
        return self.high - self.low + 1


@dataclass(frozen=True)
class Constant:
    """Its bits, the most significant first."""

    bits: str

    @property
    def width(self) -> int:
        return len(self.bits)


Signal: TypeAlias = tuple[Bits | Constant, ...]
"""Pieces of a word, the most significant first."""


def width_of(signal: Signal) -> int:
    return sum(piece.width for piece in signal)


@dataclass
class Wire:
    """A wire or a port."""

    name: str
    width: int
    direction: str = ""
    """``input``, ``output`` or nothing."""


@dataclass
class Cell:
    """An operator, a register, a memory's port or an instance of another module."""

    kind: str
    name: str
    parameters: dict[str, str] = field(default_factory=dict)
    ports: dict[str, Signal] = field(default_factory=dict)

    def number(self, parameter: str) -> int:
        return int(self.parameters[parameter])


@dataclass
class Assign:
    target: Signal
    value: Signal


@dataclass
class Switch:
    """The first of its cases whose pattern the signal matches; one without patterns matches always."""

    on: Signal
    cases: list[tuple[tuple[str, ...], list[Statement]]] = field(default_factory=list)


Statement: TypeAlias = Assign | Switch
"""A later one has precedence."""


@dataclass
class Module:
    """One module, its parts in their order."""

    name: str
    wires: dict[str, Wire] = field(default_factory=dict)
    memories: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Width and number of words."""
    cells: list[Cell] = field(default_factory=list)
    processes: list[list[Statement]] = field(default_factory=list)
    connections: list[Assign] = field(default_factory=list)

    @property
    def ports(self) -> list[Wire]:
        return [wire for wire in self.wires.values() if wire.direction]


def read(text: str) -> dict[str, Module]:
    """The modules of a design by name, in their order."""
    lines = iter([line.split() for line in text.splitlines() if line.strip()])
    modules = {}
    for words in lines:
        if words[0] == "module":
            module = _module(words[1][1:], lines)
            modules[module.name] = module
    return modules


def _module(name: str, lines: Iterator[list[str]]) -> Module:
    module = Module(name)
    for words in lines:
        match words[0]:
            case "end":
                return module
            case "wire":
                direction = next((word for word in words if word in ("input", "output")), "")
                module.wires[words[-1]] = Wire(words[-1], int(words[2]), direction)
            case "memory":
                module.memories[words[-1]] = (int(words[2]), int(words[4]))
            case "cell":
                module.cells.append(_cell(Cell(words[1], words[2]), lines, module))
            case "process":
                module.processes.append(_statements(lines, module)[0])
            case "connect":
                module.connections.append(Assign(*_signals(words[1:], module)))
    raise ValueError(f"module {name}: the text ends before the module does")


def _cell(cell: Cell, lines: Iterator[list[str]], module: Module) -> Cell:
    for words in lines:
        if words[0] == "end":
            break
        if words[0] == "parameter":
            cell.parameters[words[1][1:]] = words[2].strip('"')
        else:
            cell.ports[words[1][1:]] = _signals(words[2:], module)[0]
    return cell


def _statements(lines: Iterator[list[str]], module: Module) -> tuple[list[Statement], list[str]]:
    """Up to the line that ends them, and that line."""
    found: list[Statement] = []
    for words in lines:
        if words[0] == "assign":
            found.append(Assign(*_signals(words[1:], module)))
        elif words[0] == "switch":
            switch = Switch(_signals(words[1:], module)[0])
            ending = next(lines)
            while ending[0] == "case":
                patterns = tuple(pattern.strip(",").split("'")[1] for pattern in ending[1:])
                body, ending = _statements(lines, module)
                switch.cases.append((patterns, body))
            found.append(switch)
        elif words[0] != "attribute":
            return found, words
    raise ValueError(f"module {module.name}: the text ends in a process")


def _signals(words: list[str], module: Module) -> list[Signal]:
    """The signals that stand one after the other in a line."""
    signals: list[list[Bits | Constant]] = []
    within = False
    for token in _TOKEN.findall(" ".join(words)):
        if token in "{}":
            within = token == "{"
            if within:
                signals.append([])
        elif token[0] == "[":
            high, _, low = token[1:-1].partition(":")
            wire = signals[-1].pop()
            assert isinstance(wire, Bits)
            signals[-1].append(Bits(wire.wire, int(high), int(low or high)))
        else:
            if not within:
                signals.append([])
            if token[0] in "\\$":
                signals[-1].append(Bits(token, module.wires[token].width - 1, 0))
            else:
                signals[-1].append(Constant(token.split("'")[1]))
    return [tuple(signal) for signal in signals]
