"""Operators of a module as Verilog expressions: one that is used once stands where it is used.

Verilog extends operands to the width of what stands around them, RTLIL does not. So an operator goes into another's
expression only if it is as wide as its operands, and where more width would change its value it stands in braces.
"""

from __future__ import annotations

from collections import defaultdict
from itertools import groupby

from softermax.rtl.export.rtlil import Bits, Cell, Constant, Signal, width_of

_BINARY = {
    "$and": "&", "$or": "|", "$xor": "^", "$add": "+", "$sub": "-", "$mul": "*", "$eq": "==", "$ne": "!=", "$lt": "<",
    "$le": "<=", "$gt": ">", "$ge": ">=", "$shl": "<<", "$shr": ">>", "$sshr": ">>>",
}  # fmt: skip
_UNARY = {"$not": "~", "$reduce_or": "|", "$reduce_and": "&", "$reduce_xor": "^", "$neg": "-"}
_COMPARE = frozenset(("$eq", "$ne", "$lt", "$le", "$gt", "$ge"))
_SHIFT = frozenset(("$shl", "$shr", "$sshr"))
_REDUCE = frozenset(("$reduce_or", "$reduce_and", "$reduce_xor"))
_GROWS = frozenset(("$not", "$add", "$sub", "$mul", "$shl", "$neg"))
"""With wider operands these have other upper bits."""
_CUT_ALIKE = frozenset(("$not", "$add", "$sub", "$mul", "$shl", "$neg", "$and", "$or", "$xor", "$mux"))
"""The lower bits of the result are those of the operator on lower bits."""
OPERATORS = frozenset((*_BINARY, *_UNARY, "$mux"))

_LONGEST = 90
"""Characters of an expression that stands within another."""


def constant(bits: str) -> str:
    if not bits:
        return "1'b0"
    if set(bits) <= {"0", "1"}:
        return f"{len(bits)}'h{int(bits, 2):x}" if len(bits) > 1 else f"1'b{bits}"
    return f"{len(bits)}'b{bits.replace('-', '?')}"


class Expressions:
    """Texts of a module's signals. ``inlined`` are the operators, by their outputs, that have no wire of their own."""

    def __init__(self, widths: dict[str, int]) -> None:
        self.widths = widths
        self.names: dict[str, str] = {}
        self.inlined: dict[str, Cell] = {}

    def consider(self, drivers: dict[str, Cell], uses: list[Bits]) -> None:
        """Choose the operators that go into other expressions."""
        used: dict[str, list[Bits]] = defaultdict(list)
        for use in uses:
            used[use.wire].append(use)
        for wire, cell in drivers.items():
            if wire[0] != "$":
                continue
            places = used[wire]
            if len(places) != 1 and not self._is_simple(cell):
                continue
            width = self.widths[wire]
            cut = all(use.low == 0 for use in places) and cell.kind in _CUT_ALIKE and len(places) == 1
            if not all(use.width == width for use in places) and not cut:
                continue
            if self._own_width(cell) > max(use.width for use in places) and not cut:
                continue
            if cut and not self._fits(cell, places[0].width):
                continue
            if not cut and self._own_width(cell) != width:
                continue
            self.inlined[wire] = cell
            if len(self._of(cell, width)) > _LONGEST:
                del self.inlined[wire]

    def _is_simple(self, cell: Cell) -> bool:
        """A single inverted bit may be written down wherever it is used."""
        (operand, *others) = cell.ports["A"]
        return cell.kind == "$not" and not others and isinstance(operand, Bits) and operand.wire[0] == "\\"

    def _fits(self, cell: Cell, width: int) -> bool:
        """Whether an operator of which only the lower bits are used is just as wide as these."""
        return self._own_width(cell) == width and not _signed(cell)

    @staticmethod
    def _own_width(cell: Cell) -> int:
        """As Verilog sees it where nothing stands around it."""
        if cell.kind in _COMPARE or cell.kind in _REDUCE:
            return 1
        if cell.kind in _SHIFT or cell.kind in _UNARY:
            return width_of(cell.ports["A"])
        return max(width_of(cell.ports["A"]), width_of(cell.ports["B"]))

    def signal(self, signal: Signal, around: int | None = None) -> str:
        """A word; ``around`` is the width of the expression that it is an operand of, if that can widen it."""
        around = width_of(signal) if around is None else around
        if not signal:
            return constant("")
        if len(signal) == 1:
            return self._piece(signal[0], around)
        parts = []
        for piece, equal in groupby(signal):
            text, count = self._piece(piece, piece.width), len(list(equal))
            parts.append(f"{{{count}{{{text}}}}}" if count > 1 else text)
        return parts[0] if len(parts) == 1 else "{" + ", ".join(parts) + "}"

    def _piece(self, piece: Bits | Constant, around: int) -> str:
        if isinstance(piece, Constant):
            return constant(piece.bits)
        cell = self.inlined.get(piece.wire)
        if cell is None:
            return self.bits(piece)
        if cell.kind in _GROWS and around != piece.width:
            return "{" + self._of(cell, piece.width) + "}"
        text = self._of(cell, around)
        if _signed(cell) and cell.kind not in _COMPARE:
            return f"$unsigned({text})"
        return text if cell.kind in _UNARY and " " not in text else f"({text})"

    def value(self, signal: Signal) -> str:
        """A word that stands alone: what is assigned, or asked for."""
        text = self.signal(signal)
        (piece, *others) = signal
        alone = not others and isinstance(piece, Bits) and piece.wire in self.inlined
        if alone and text.startswith(("(", "$unsigned(")):
            return text[text.index("(") + 1 : -1]
        return text

    def bits(self, piece: Bits) -> str:
        name = self.names.get(piece.wire, piece.wire)
        if piece.width == self.widths[piece.wire]:
            return name
        within = f"{piece.high}:{piece.low}" if piece.width > 1 else f"{piece.low}"
        return f"{name}[{within}]"

    def assigned(self, cell: Cell) -> str:
        """An operator as what is assigned to the wire of its output."""
        return self._of(cell, max(width_of(cell.ports["Y"]), self._own_width(cell)))

    def _of(self, cell: Cell, around: int) -> str:
        a = cell.ports["A"]
        if cell.kind == "$mux":
            condition = self.signal(cell.ports["S"])
            return f"{condition} ? {self.signal(cell.ports['B'], around)} : {self.signal(a, around)}"
        if cell.kind in _UNARY:
            if _signed(cell) and cell.kind not in _REDUCE:
                return _UNARY[cell.kind] + self._as_signed(a)
            operand = self.signal(a, None if cell.kind in _REDUCE else around)
            return _UNARY[cell.kind] + (f"({operand})" if operand[0] in "~|&^-" else operand)
        if cell.kind not in _BINARY:
            raise NotImplementedError(f"{cell.kind}: an operator that the Verilog of an export does not have")
        b = cell.ports["B"]
        operator = _BINARY[cell.kind]
        if cell.kind in _SHIFT:
            if _signed(cell):
                return f"{self._as_signed(a)} {operator} {self.signal(b)}"
            return f"{self.signal(a, around)} {operator.replace('>>>', '>>')} {self.signal(b)}"
        if _signed(cell):
            return f"{self._as_signed(a)} {operator} {self._as_signed(b)}"
        if cell.kind in _COMPARE:
            around = max(width_of(a), width_of(b))
        return f"{self.signal(a, around)} {operator} {self.signal(b, around)}"

    def _as_signed(self, signal: Signal) -> str:
        return f"$signed({self.value(signal)})"


def _signed(cell: Cell) -> bool:
    return cell.parameters.get("A_SIGNED") == "1"
