"""One module of an export as Verilog."""

from __future__ import annotations

import re
import textwrap
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator

from softermax.rtl.export.expressions import OPERATORS, Expressions, constant
from softermax.rtl.export.names import Names, Ports
from softermax.rtl.export.processes import (
    Driver,
    conditions,
    instead,
    overlaid,
    share,
    target_of,
    together,
    uses,
    wires,
)
from softermax.rtl.export.rtlil import Assign, Bits, Cell, Constant, Module, Statement, Switch, width_of

_WIDTH = 110
_STAGE = re.compile(r"(?:into|enable)_(\d+)")
_OUTPUTS = {"$dff": "Q", "$memrd_v2": "DATA"}


def text_of(module: Module, called: dict[str, str], ports: Ports) -> str:
    """The module's text. ``called`` are the names of all modules, ``ports`` those of their ports."""
    return Writer(module, called, ports).text()


class Writer:
    """A module on its way to Verilog: which words have a name, and what it is."""

    def __init__(self, module: Module, called: dict[str, str], ports: Ports) -> None:
        share(module)
        self.module, self.called, self.ports = module, called, ports
        self.instances = [cell for cell in module.cells if cell.kind[0] == "\\"]
        self.outputs = {w.name for w in module.ports if w.direction == "output"}
        self.drivers = self._drivers()
        self.live = self._live()
        self.expressions = Expressions({name: wire.width for name, wire in module.wires.items()})
        self.merged: dict[str, Cell] = {}
        """Registers by the wires that carry their next words, where these have no name of their own."""
        self.regs: set[str] = set()
        self._choose()
        self._name()

    def _drivers(self) -> dict[str, list[Driver]]:
        """Of every wire what drives it, or its parts."""
        found: dict[str, list[Driver]] = defaultdict(list)
        for cell in self.module.cells:
            output = "Y" if cell.kind in OPERATORS else _OUTPUTS.get(cell.kind)
            if output is not None:
                for wire in wires(cell.ports[output]):
                    found[wire].append(cell)
            elif cell.kind[0] == "$" and not cell.kind.startswith("$mem"):
                raise NotImplementedError(f"{cell.kind}: a cell that the Verilog of an export does not have")
        for process in self.module.processes:
            found[target_of(process)].append(process)
        for connection in self.module.connections:
            for wire in wires(connection.target):
                found[wire].append(connection)
        return found

    def _live(self) -> set[str]:
        """Wires that something outside of the module, or a memory, depends on: all others are Amaranth's second names."""
        waiting = set(self.outputs)
        for cell in self._sinks():
            waiting |= {wire for signal in cell.ports.values() for wire in wires(signal)}
        seen: set[str] = set()
        while waiting:
            wire = waiting.pop()
            seen.add(wire)
            for driver in self.drivers.get(wire, []):
                waiting |= {use.wire for use in uses(driver)} - seen
        return seen

    def _alive(self, targets: Iterable[str]) -> bool:
        return any(wire in self.live for wire in targets)

    def _choose(self) -> None:
        """Which words get no wire: operators within expressions, next words of registers."""
        used = self._used()
        count = Counter(use.wire for use in used)
        for cell in self.module.cells:
            if cell.kind == "$dff" and len(cell.ports["D"]) == 1:
                (next_word,) = cell.ports["D"]
                if (
                    isinstance(next_word, Bits)
                    and next_word.wire[0] == "$"
                    and count[next_word.wire] == 1
                    and next_word.width == self.module.wires[next_word.wire].width
                    and isinstance(self.drivers[next_word.wire][0], list)
                ):
                    self.merged[next_word.wire] = cell
        operators = {
            wires(cell.ports["Y"])[0]: cell
            for cell in self.module.cells
            if cell.kind in OPERATORS and wires(cell.ports["Y"])[0] in self.live
        }
        self.expressions.consider(operators, used)

    def _used(self) -> list[Bits]:
        """Everything that is read, each time that it is."""
        found: list[Bits] = []
        seen: set[int] = set()
        for wire in self.module.wires:
            for driver in self.drivers.get(wire, []) if wire in self.live else []:
                if id(driver) not in seen:
                    seen.add(id(driver))
                    found += uses(driver)
        for cell in self._sinks():
            found += [piece for signal in cell.ports.values() for piece in signal if isinstance(piece, Bits)]
        return found

    def _sinks(self) -> list[Cell]:
        return [cell for cell in self.module.cells if cell.kind[0] == "\\" or cell.kind == "$memwr_v2"]

    def _name(self) -> None:
        """Ports first, then named words; one without a name is a term of what it goes into."""
        given = self.expressions.names
        given.update(self.ports[self.module.name])
        names = Names(given.values())
        for memory in self.module.memories:
            given[memory] = names.take(memory)
        shown = [wire for wire in self.module.wires if wire in self.live and wire not in given]
        for wire in shown:
            if wire[0] == "\\":
                given[wire] = names.take(wire)
        consumers = self._consumers()
        for wire in shown:
            if wire[0] == "$" and wire not in self.expressions.inlined and wire not in self.merged:
                given[wire] = names.take(f"{self._root(wire, consumers)}_term")
        self.labels = {cell.name: names.take(cell.name) for cell in self.instances}

    def _consumers(self) -> dict[str, str]:
        """Of every word one that it goes into, or the instance or memory."""
        found: dict[str, str] = {}
        for wire in self.live:
            for driver in self.drivers.get(wire, []):
                for use in uses(driver):
                    if use.wire != wire and (use.wire not in found or wire < found[use.wire]):
                        found[use.wire] = wire
        for cell in self._sinks():
            target = cell.name if cell.kind[0] == "\\" else "\\" + cell.parameters["MEMID"].strip("\\")
            for signal in cell.ports.values():
                for wire in wires(signal):
                    found.setdefault(wire, target)
        return found

    def _root(self, wire: str, consumers: dict[str, str]) -> str:
        while wire[0] == "$":
            following = consumers.get(wire)
            if following is None:
                return "word"
            wire = following
        return self.expressions.names.get(wire, wire)

    # -- text

    def text(self) -> str:
        combinational = list(self._combinational())
        clocked = list(self._clocked())
        instances = [self._instance(cell) for cell in self.instances]
        blocks = [*self._memories(), *self._initial()]
        body = [*combinational, *instances, *clocked]
        lines = [
            f"module {self.called[self.module.name]} (\n  " + ",\n  ".join(self._ports()) + "\n);",
            *self._declarations(),
            *blocks,
            *body,
            "endmodule\n",
        ]
        return "\n".join(lines)

    def _ports(self) -> Iterator[str]:
        for port in sorted(self.module.ports, key=lambda port: port.name not in ("\\clk", "\\rst")):
            kind = " reg" if port.name in self.regs else " wire"
            yield f"{port.direction}{kind} {_range(port.width)}{self.expressions.names[port.name]}"

    def _declarations(self) -> Iterator[str]:
        for name, wire in self.module.wires.items():
            shown = self.expressions.names.get(name)
            if shown is not None and not wire.direction:
                yield f"  {'reg' if name in self.regs else 'wire'} {_range(wire.width)}{shown};"

    def _memories(self) -> Iterator[str]:
        for name, (width, depth) in self.module.memories.items():
            yield f"  reg {_range(width)}{self.expressions.names[name]} [0:{depth - 1}];"

    def _initial(self) -> Iterator[str]:
        """Contents of memories that nothing writes to."""
        written = {cell.parameters["MEMID"] for cell in self.module.cells if cell.kind == "$memwr_v2"}
        for cell in self.module.cells:
            if cell.kind == "$meminit_v2" and cell.parameters["MEMID"] not in written:
                width = cell.number("WIDTH")
                bits = "".join(piece.bits for piece in cell.ports["DATA"] if isinstance(piece, Constant))
                words = [bits[at - width : at] for at in range(len(bits), 0, -width)]
                memory = self._memory(cell)
                lines = [f"    {memory}[{at}] = {constant(word)};" for at, word in enumerate(words)]
                yield "\n".join(["", "  initial begin", *lines, "  end"])

    def _memory(self, cell: Cell) -> str:
        return self.expressions.names["\\" + cell.parameters["MEMID"].strip("\\")]

    def _combinational(self) -> Iterator[str]:
        signal = self.expressions.signal
        yield ""
        for cell in self.module.cells:
            if cell.kind in OPERATORS:
                (wire, *_) = wires(cell.ports["Y"])
                if wire in self.live and wire not in self.expressions.inlined:
                    yield _wrapped(f"  assign {signal(cell.ports['Y'])} = {self.expressions.assigned(cell)};")
            elif cell.kind == "$memrd_v2" and cell.parameters["CLK_ENABLE"] == "0":
                yield f"  assign {signal(cell.ports['DATA'])} = {self._memory(cell)}[{signal(cell.ports['ADDR'])}];"
        for connection in self.module.connections:
            if self._alive(wires(connection.target)):
                yield _wrapped(
                    f"  assign {signal(connection.target)} = {self.expressions.value(connection.value)};"
                )
        for process in self.module.processes:
            target = target_of(process)
            if target not in self.live or target in self.merged:
                continue
            if all(isinstance(statement, Assign) for statement in process):
                whole = overlaid(self.module.wires[target].width, process)
                yield _wrapped(
                    f"  assign {self.expressions.names[target]} = {self.expressions.value(whole)};"
                )
            else:
                self.regs.add(target)
                lines = [line for statement in process for line in self._statement(statement, "=", 4)]
                yield "\n".join(["", "  always @* begin", *lines, "  end"])

    def _clocked(self) -> Iterator[str]:
        """Registers with the same enable in one block, in the order of the first of each."""
        groups: dict[tuple[object, ...], list[tuple[Cell, list[Statement]]]] = defaultdict(list)
        for cell in self.module.cells:
            if cell.kind == "$dff" and self._alive(wires(cell.ports["Q"])):
                self.regs.update(wires(cell.ports["Q"]))
                statements = self._next(cell)
                asked = conditions(statements)
                # Registers of one enable and at most a reset go together, any others stand alone.
                key = (cell.name,) if asked is None else (cell.ports["CLK"], asked)
                groups[key].append((cell, statements))
        for members in groups.values():
            clock = self.expressions.signal(members[0][0].ports["CLK"])
            statements = together([statements for _, statements in members])
            about = self._stage(statements)
            lines = [line for statement in statements for line in self._statement(statement, "<=", 4)]
            yield "\n".join(["", *about, f"  always @(posedge {clock}) begin", *lines, "  end"])
        for cell in self.module.cells:
            if cell.kind == "$memwr_v2":
                yield self._written(cell)
            elif cell.kind == "$memrd_v2" and cell.parameters["CLK_ENABLE"] == "1":
                yield self._read(cell)

    def _next(self, cell: Cell) -> list[Statement]:
        """What a register takes, said of the register itself; without the statement that it stays as it is."""
        (next_word, *others) = cell.ports["D"]
        if others or not isinstance(next_word, Bits) or next_word.wire not in self.merged:
            return [Assign(cell.ports["Q"], cell.ports["D"])]
        (process,) = self.drivers[next_word.wire]
        assert isinstance(process, list)
        (register,) = wires(cell.ports["Q"])
        statements = [instead(statement, next_word.wire, register) for statement in process]
        first = statements[0]
        if isinstance(first, Assign) and first.value == first.target == cell.ports["Q"]:
            return statements[1:]
        return statements

    def _stage(self, statements: list[Statement]) -> list[str]:
        for statement in statements:
            if isinstance(statement, Switch):
                stage = _STAGE.fullmatch(self.expressions.signal(statement.on))
                if stage is not None:
                    return [f"  // Into stage {stage[1]}."]
        return []

    def _statement(self, statement: Statement, becomes: str, indent: int) -> Iterator[str]:
        space = " " * indent
        if isinstance(statement, Assign):
            target, value = self.expressions.signal(statement.target), self.expressions.value(statement.value)
            yield _wrapped(f"{space}{target} {becomes} {value};")
            return
        cases = statement.cases
        if width_of(statement.on) == 1 and cases[0][0] in (("1",), ("0",)) and len(cases) <= 2:
            # A second case of one bit is all that is left.
            first, second = cases[0][1], cases[1][1] if len(cases) == 2 else []
            inverted = (cases[0][0] == ("0",)) != (not first)
            if not first:
                first, second = second, []
            asked = self.expressions
            condition = f"!{asked.signal(statement.on)}" if inverted else asked.value(statement.on)
            yield f"{space}if ({condition}) begin"
            for number, body in enumerate((first, second) if second else (first,)):
                if number:
                    yield f"{space}end else begin"
                for inner in body:
                    yield from self._statement(inner, becomes, indent + 2)
            yield f"{space}end"
            return
        loose = any("-" in pattern for patterns, _ in cases for pattern in patterns)
        yield f"{space}{'casez' if loose else 'case'} ({self.expressions.value(statement.on)})"
        for patterns, body in cases:
            label = ", ".join(constant(pattern) for pattern in patterns) or "default"
            if len(body) == 1 and isinstance(body[0], Assign):
                (line,) = self._statement(body[0], becomes, 0)
                yield f"{space}  {label}: {line}"
            else:
                yield f"{space}  {label}: begin"
                for inner in body:
                    yield from self._statement(inner, becomes, indent + 4)
                yield f"{space}  end"
        if all(patterns for patterns, _ in cases):
            yield f"{space}  default: ;"
        yield f"{space}endcase"

    def _written(self, cell: Cell) -> str:
        signal, (enable, *others) = self.expressions.signal, cell.ports["EN"]
        if any(other != enable for other in others):
            raise NotImplementedError("a memory of which parts of a word are written")
        word = f"{self._memory(cell)}[{signal(cell.ports['ADDR'])}] <= {signal(cell.ports['DATA'])};"
        return (
            f"\n  always @(posedge {signal(cell.ports['CLK'])}) begin\n    if ({signal((enable,))}) begin\n"
            f"{_wrapped('      ' + word)}\n    end\n  end"
        )

    def _read(self, cell: Cell) -> str:
        if "1" in cell.parameters["TRANSPARENCY_MASK"].split("'")[1]:
            raise NotImplementedError("a memory that is read while it is written")
        signal = self.expressions.signal
        self.regs.update(wires(cell.ports["DATA"]))
        word = f"{signal(cell.ports['DATA'])} <= {self._memory(cell)}[{signal(cell.ports['ADDR'])}];"
        return (
            f"\n  always @(posedge {signal(cell.ports['CLK'])}) begin\n    if ({signal(cell.ports['EN'])}) begin\n"
            f"      {word}\n    end\n  end"
        )

    def _instance(self, cell: Cell) -> str:
        inner = self.called[cell.kind[1:]]
        named = {port.lstrip("\\"): name for port, name in self.ports[cell.kind[1:]].items()}
        ports = [
            f"    .{named[port]}({self.expressions.signal(signal)})" for port, signal in cell.ports.items()
        ]
        return f"\n  {inner} {self.labels[cell.name]} (\n" + ",\n".join(ports) + "\n  );"


def _range(width: int) -> str:
    return f"[{width - 1}:0] " if width > 1 else ""


def _wrapped(line: str) -> str:
    """Broken where it is too long, after blanks."""
    if len(line) <= _WIDTH:
        return line
    indent = " " * (len(line) - len(line.lstrip()) + 4)
    return textwrap.fill(
        line,
        _WIDTH,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
        drop_whitespace=True,
    )
