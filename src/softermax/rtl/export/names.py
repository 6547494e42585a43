"""Names of an export: what Amaranth calls a module, a wire or an instance, as a plain Verilog identifier."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TypeAlias

from softermax.rtl.export.rtlil import Bits, Module

KEYWORDS = frozenset(
    [
        "always",
        "and",
        "assign",
        "automatic",
        "begin",
        "buf",
        "bufif0",
        "bufif1",
        "case",
        "casex",
        "casez",
        "cell",
        "cmos",
        "config",
        "deassign",
        "default",
        "defparam",
        "design",
        "disable",
        "edge",
        "else",
        "end",
        "endcase",
        "endconfig",
        "endfunction",
        "endgenerate",
        "endmodule",
        "endprimitive",
        "endspecify",
        "endtable",
        "endtask",
        "event",
        "for",
        "force",
        "forever",
        "fork",
        "function",
        "generate",
        "genvar",
        "highz0",
        "highz1",
        "if",
        "ifnone",
        "incdir",
        "include",
        "initial",
        "inout",
        "input",
        "instance",
        "integer",
        "join",
        "large",
        "liblist",
        "library",
        "localparam",
        "macromodule",
        "medium",
        "module",
        "nand",
        "negedge",
        "nmos",
        "nor",
        "noshowcancelled",
        "not",
        "notif0",
        "notif1",
        "or",
        "output",
        "parameter",
        "pmos",
        "posedge",
        "primitive",
        "pull0",
        "pull1",
        "pulldown",
        "pullup",
        "pulsestyle_ondetect",
        "pulsestyle_onevent",
        "rcmos",
        "real",
        "realtime",
        "reg",
        "release",
        "repeat",
        "rnmos",
        "rpmos",
        "rtran",
        "rtranif0",
        "rtranif1",
        "scalared",
        "showcancelled",
        "signed",
        "small",
        "specify",
        "specparam",
        "strong0",
        "strong1",
        "supply0",
        "supply1",
        "table",
        "task",
        "time",
        "tran",
        "tranif0",
        "tranif1",
        "tri",
        "tri0",
        "tri1",
        "triand",
        "trior",
        "trireg",
        "unsigned",
        "use",
        "uwire",
        "vectored",
        "wait",
        "wand",
        "weak0",
        "weak1",
        "while",
        "wire",
        "wor",
        "xnor",
        "xor",
        "accept_on",
        "alias",
        "always_comb",
        "always_ff",
        "always_latch",
        "assert",
        "assume",
        "before",
        "bind",
        "bins",
        "binsof",
        "bit",
        "break",
        "byte",
        "chandle",
        "checker",
        "class",
        "clocking",
        "const",
        "constraint",
        "context",
        "continue",
        "cover",
        "covergroup",
        "coverpoint",
        "cross",
        "dist",
        "do",
        "endchecker",
        "endclass",
        "endclocking",
        "endgroup",
        "endinterface",
        "endpackage",
        "endprogram",
        "endproperty",
        "endsequence",
        "enum",
        "eventually",
        "expect",
        "export",
        "extends",
        "extern",
        "final",
        "first_match",
        "foreach",
        "forkjoin",
        "global",
        "iff",
        "ignore_bins",
        "illegal_bins",
        "implements",
        "implies",
        "import",
        "inside",
        "int",
        "interconnect",
        "interface",
        "intersect",
        "join_any",
        "join_none",
        "let",
        "local",
        "logic",
        "longint",
        "matches",
        "modport",
        "nettype",
        "new",
        "nexttime",
        "null",
        "package",
        "packed",
        "priority",
        "program",
        "property",
        "protected",
        "pure",
        "rand",
        "randc",
        "randcase",
        "randsequence",
        "ref",
        "reject_on",
        "restrict",
        "return",
        "s_always",
        "s_eventually",
        "s_nexttime",
        "s_until",
        "s_until_with",
        "sequence",
        "shortint",
        "shortreal",
        "soft",
        "solve",
        "static",
        "string",
        "strong",
        "struct",
        "super",
        "sync_accept_on",
        "sync_reject_on",
        "tagged",
        "this",
        "throughout",
        "timeprecision",
        "timeunit",
        "type",
        "typedef",
        "union",
        "unique",
        "unique0",
        "until",
        "until_with",
        "untyped",
        "var",
        "virtual",
        "void",
        "wait_order",
        "weak",
        "wildcard",
        "with",
        "within",
    ]
)
"""Of Verilog and SystemVerilog: what is exported goes into designs of either."""

_UNNAMED = re.compile(r"\\port\$\d+(\$\d+)?")
"""A port that Amaranth made for a word that has no name in its module."""


class Names:
    """Unique names within a module, or of a design's modules."""

    def __init__(self, taken: Iterable[str] = ()) -> None:
        self._taken = set(taken)

    def take(self, wish: str) -> str:
        """The wish as a plain identifier; a number after it where others had it before."""
        plain = re.sub(r"\$\d+", "", wish.lstrip("\\")).replace("$", "")
        plain = re.sub(r"\W", "_", plain) or "word"
        base = f"{plain}_" if plain in KEYWORDS or plain[0].isdigit() else plain
        name, count = base, 1
        while name in self._taken:
            count += 1
            name = f"{base}_{count}"
        self._taken.add(name)
        return name


def module_names(modules: dict[str, Module]) -> dict[str, str]:
    """Of every module; the top, which comes first, keeps its own."""
    names = Names()
    return {name: names.take(name.replace(".", "__")) for name in modules}


Ports: TypeAlias = dict[str, dict[str, str]]
"""By module and port the name of the port."""


def port_names(modules: dict[str, Module]) -> Ports:
    """Of all ports. One without a name is called as what it is connected to in the module around it."""
    wishes: dict[tuple[str, str], str] = {}
    found: Ports = {}
    for name, module in modules.items():
        names = Names()
        found[name] = {
            port.name: names.take(wishes.get((name, port.name), port.name)) for port in module.ports
        }
        for cell in module.cells:
            for port, signal in cell.ports.items():
                if cell.kind[0] == "\\" and _UNNAMED.fullmatch(f"\\{port}"):
                    outer = next((piece.wire for piece in signal if isinstance(piece, Bits)), port)
                    wishes[cell.kind[1:], f"\\{port}"] = found[name].get(outer, outer)
    return found
