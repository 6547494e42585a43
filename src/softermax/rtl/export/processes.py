"""What processes and cells of RTLIL read and write, and processes brought into another form."""

from __future__ import annotations

from collections.abc import Iterator

from softermax.rtl.export.rtlil import Assign, Bits, Cell, Constant, Module, Signal, Statement, Switch

Driver = Cell | Assign | list[Statement]
"""An operator, register or memory's port; a connection; a process."""
_OUTPUTS = frozenset(("Y", "Q", "DATA"))


def wires(signal: Signal) -> list[str]:
    """In their order, each once."""
    return list(dict.fromkeys(piece.wire for piece in signal if isinstance(piece, Bits)))


def target_of(process: list[Statement]) -> str:
    """The wire that a process assigns to: Amaranth makes one process per word."""
    (wire,) = set(_targets(process))
    return wire


def _targets(process: list[Statement]) -> Iterator[str]:
    for statement in process:
        if isinstance(statement, Assign):
            yield from wires(statement.target)
        else:
            for _, body in statement.cases:
                yield from _targets(body)


def uses(driver: Driver) -> Iterator[Bits]:
    """What it reads."""
    if isinstance(driver, Cell):
        signals = [signal for port, signal in driver.ports.items() if port not in _OUTPUTS]
    elif isinstance(driver, Assign):
        signals = [driver.value]
    else:
        signals = list(_read(driver))
    yield from (piece for signal in signals for piece in signal if isinstance(piece, Bits))


def _read(process: list[Statement]) -> Iterator[Signal]:
    for statement in process:
        if isinstance(statement, Assign):
            yield statement.value
        else:
            yield statement.on
            for _, body in statement.cases:
                yield from _read(body)


def overlaid(width: int, process: list[Statement]) -> Signal:
    """Assignments to parts of one word as a single word."""
    bits: list[Bits | Constant] = [Constant("x")] * width
    for statement in process:
        assert isinstance(statement, Assign)
        (target,) = statement.target
        assert isinstance(target, Bits)
        bits[target.low : target.high + 1] = list(_single(statement.value))
    return _joined(bits)


def _single(signal: Signal) -> Iterator[Bits | Constant]:
    """Its bits, the least significant first."""
    for piece in reversed(signal):
        if isinstance(piece, Constant):
            yield from (Constant(bit) for bit in reversed(piece.bits))
        else:
            yield from (Bits(piece.wire, bit, bit) for bit in range(piece.low, piece.high + 1))


def _joined(bits: list[Bits | Constant]) -> Signal:
    """Single bits, the least significant first, as pieces."""
    pieces: list[Bits | Constant] = []
    for bit in bits:
        before = pieces[-1] if pieces else None
        if isinstance(bit, Constant) and isinstance(before, Constant):
            pieces[-1] = Constant(bit.bits + before.bits)
        elif (
            isinstance(bit, Bits)
            and isinstance(before, Bits)
            and (before.wire, before.high + 1) == (bit.wire, bit.low)
        ):
            pieces[-1] = Bits(bit.wire, bit.high, before.low)
        else:
            pieces.append(bit)
    return tuple(reversed(pieces))


def instead(statement: Statement, wire: str, other: str) -> Statement:
    """The statement with another wire for the one that it assigns to."""
    if isinstance(statement, Assign):
        target = [
            Bits(other, piece.high, piece.low) if isinstance(piece, Bits) and piece.wire == wire else piece
            for piece in statement.target
        ]
        return Assign(tuple(target), statement.value)
    cases = [
        (patterns, [instead(inner, wire, other) for inner in body]) for patterns, body in statement.cases
    ]
    return Switch(statement.on, cases)


def conditions(statements: list[Statement]) -> tuple[object, ...] | None:
    """What the statements depend on, if they are plain assignments under one condition after the other."""
    found: list[object] = []
    for statement in statements:
        if isinstance(statement, Assign):
            found.append(None)
        elif any(not isinstance(inner, Assign) for _, body in statement.cases for inner in body):
            return None
        else:
            found.append((statement.on, tuple(patterns for patterns, _ in statement.cases)))
    return tuple(found)


def together(processes: list[list[Statement]]) -> list[Statement]:
    """Processes of the same conditions as one."""
    first, *others = processes
    if not others:
        return first
    merged: list[Statement] = []
    for statements in zip(*processes, strict=True):
        switches = [statement for statement in statements if isinstance(statement, Switch)]
        if not switches:
            merged += statements
            continue
        cases = [
            (patterns, [inner for switch in switches for inner in switch.cases[number][1]])
            for number, (patterns, _) in enumerate(switches[0].cases)
        ]
        merged.append(Switch(switches[0].on, cases))
    return merged


def share(module: Module) -> None:
    """Operators without a name that compute the same become one."""
    seen: dict[object, str] = {}
    same: dict[str, str] = {}
    for cell in module.cells:
        cell.ports = {port: _renamed(signal, same) for port, signal in cell.ports.items()}
        if "Y" in cell.ports and cell.kind[0] == "$":
            (output,) = wires(cell.ports["Y"])
            inputs = tuple((port, signal) for port, signal in cell.ports.items() if port != "Y")
            first = seen.setdefault((cell.kind, tuple(cell.parameters.items()), inputs), output)
            if first != output and output[0] == "$":
                same[output] = first
    if same:
        # An operator may stand before what it takes its words from.
        for cell in module.cells:
            inputs_only = {port: signal for port, signal in cell.ports.items() if port != "Y"}
            cell.ports |= {port: _renamed(signal, same) for port, signal in inputs_only.items()}
        module.processes = [[_with(statement, same) for statement in process] for process in module.processes]
        module.connections = [Assign(c.target, _renamed(c.value, same)) for c in module.connections]


def _renamed(signal: Signal, same: dict[str, str]) -> Signal:
    return tuple(
        Bits(same[piece.wire], piece.high, piece.low)
        if isinstance(piece, Bits) and piece.wire in same
        else piece
        for piece in signal
    )


def _with(statement: Statement, same: dict[str, str]) -> Statement:
    if isinstance(statement, Assign):
        return Assign(statement.target, _renamed(statement.value, same))
    cases = [(patterns, [_with(inner, same) for inner in body]) for patterns, body in statement.cases]
    return Switch(_renamed(statement.on, same), cases)
