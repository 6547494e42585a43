"""Mutations that change a module and yet nothing that leaves the top: what its words and its flow can be shows it.

Each of these proofs takes the mutated text itself, and says None where it does not hold or does not apply.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from softermax import golden
from softermax.fixedpoint import IntArray, shift_right
from softermax.rtl import yosys
from softermax.rtl.convert import provenance
from softermax.rtl.export.bench import hex_file, hex_name, test_bench
from softermax.rtl.export.equality import equal_modules
from softermax.rtl.export.mutations import Mutation, broken
from softermax.rtl.export.pins import PLAIN, plain
from softermax.rtl.packing import pack
from softermax.rtl.payloads import finished_row_layout, numerator_layout, output_layout
from softermax.rtl.sizes import check_buildable
from softermax.rtl.vectors import Streams
from softermax.spec import AnySpec, SoftermaxSpec
from softermax.tables import pow2_table

Simulate = Callable[[str, Path, str], bool]
"""Whether a design passes the bench that lies in a folder, under the name of its module."""

_IDENTIFIER = re.compile(r"(?<![\w'.$])[A-Za-z_]\w*")
_ASSIGN = re.compile(r"^  assign (\w+) = ([^;]+);", re.MULTILINE)
_BLOCK = re.compile(r"^  always @(\(posedge clk\)|\*) begin\n(.*?)^  end$", re.MULTILINE | re.DOTALL)
_SET = re.compile(r"(\w+)(?:\[[^]]*\])? <?= ([^;]+);")
_LOADED = re.compile(
    r"^  always @\(posedge clk\) begin\n    if \([^\n]+\) begin\n((?:      \w+ <= [^;]+;\n)+)    end\n  end$",
    re.MULTILINE,
)
_INSTANCE = re.compile(r"^  \w+ \w+ \(\n(.*?)^  \);", re.MULTILINE | re.DOTALL)
_PIN = re.compile(r"\.(\w+)\(([^)]*)\)")


def explained(
    verilog: str, mutation: Mutation, spec: AnySpec, rows: int, name: str, simulate: Simulate
) -> str | None:
    """How it is shown that a mutation changes nothing outside of the unit whose module is called ``name``, made of a spec with
    its lanes as slice width, for so many rows at a time."""
    found = _through_a_register(verilog, mutation)
    if found is None and f"module {name}__slice_buffer (" in verilog and isinstance(spec, SoftermaxSpec):
        found = (
            _in_every_row(mutation, spec)
            or _with_every_word(verilog, mutation, spec, rows, name, simulate)
            or _where_sums_are_valid(verilog, mutation, name)
        )
    return found


def _through_a_register(verilog: str, mutation: Mutation) -> str | None:
    """The register that takes the mutated word in, as a wire: the module is the same then.

    What such a register holds is what it was loaded with some time, and where nothing of that reaches another register or an
    output, it may have been anything: the proof for all of it at once is one for every time it was loaded at.
    """
    text = _module(verilog, mutation.module)
    for block in _LOADED.finditer(text):
        for register, _ in _SET.findall(block[1]):
            if _apart(text, register):
                gold, gate = (
                    _as_wire(design, mutation.module, register)
                    for design in (verilog, broken(verilog, mutation))
                )
                if equal_modules(gold, gate, mutation.module):
                    return (
                        f"proved equal by Yosys with the register {register} as a wire, "
                        "for what it is loaded with goes nowhere else"
                    )
    return None


def _module(verilog: str, module: str) -> str:
    start = verilog.index(f"module {module} (")
    return verilog[start : verilog.index("\nendmodule", start)]


def _as_wire(verilog: str, module: str, register: str) -> str:
    text = _module(verilog, module)
    value = re.search(rf"^      {register} <= ([^;]+);\n", text, re.MULTILINE)
    assert value is not None
    changed = text.replace(value[0], "")
    changed = re.sub(rf"^  reg ((?:\[[^]]*\] )?{register};)", r"  wire \1", changed, flags=re.MULTILINE)
    return verilog.replace(text, f"{changed}\n  assign {register} = {value[1]};")


def _apart(text: str, register: str) -> bool:
    """Whether what a register is loaded with reaches nothing but it. It is loaded by one statement, and never reset."""
    if text.count(f" {register} <= ") != 1 or f"reg {register}" not in re.sub(r"\[[^]]*\] ", "", text):
        return False
    made: dict[str, set[str]] = {}
    """Of each wire, the names that it is made of."""
    leaving: set[str] = set(re.findall(r"output (?:wire |reg )(?:\[[^]]*\] )?(\w+)", text))
    loaded: set[str] = set()
    for target, value in _ASSIGN.findall(text):
        made.setdefault(target, set()).update(_IDENTIFIER.findall(value))
    for kind, body in _BLOCK.findall(text):
        conditions = set(_IDENTIFIER.findall(re.sub(r"<?= [^;]+;", "", body)))
        for target, value in _SET.findall(body):
            names = set(_IDENTIFIER.findall(value))
            if kind == "*":
                made.setdefault(target, set()).update(names | conditions)
            elif target == register:
                loaded = names
            else:
                leaving |= names | conditions
        if kind != "*":
            leaving |= conditions - {target for target, _ in _SET.findall(body)}
    for pins in _INSTANCE.findall(text):
        for _, joined in _PIN.findall(pins):
            leaving |= set(_IDENTIFIER.findall(joined))

    def sources(names: set[str]) -> set[str]:
        seen: set[str] = set()
        waiting = list(names)
        while waiting:
            one = waiting.pop()
            if one not in seen:
                seen.add(one)
                waiting += made.get(one, ())
        return {one for one in seen if one not in made}

    return not sources(loaded) & (sources(leaving) - {"clk", "rst"})


def unnormed_words(spec: SoftermaxSpec) -> IntArray:
    """Every unnormed word that there is, shifted on to any max of its row."""
    powers = pow2_table(spec)(np.arange(1 << spec.input.fraction))
    return np.unique(powers[:, None] >> np.arange(spec.unnormed.bits + 1))


def _in_every_row(mutation: Mutation, spec: SoftermaxSpec) -> str | None:
    """An entry of Power of Two's table whose last bits are in no sum and in no output: tried with every word of the other lane
    and with every PowSum."""
    constants = [re.fullmatch(r"\d+'h([0-9a-f]+)", text.strip()) for text in (mutation.was, mutation.is_)]
    plain = spec.unnormed_rounding == "truncate" and spec.normalization == "numerator"
    if (
        not mutation.module.endswith("__power_of_two")
        or spec.slice_width != 2
        or not plain
        or None in constants
    ):
        return None
    was, is_ = (int(match[1], 16) for match in constants if match)
    if was not in pow2_table(spec)(np.arange(1 << spec.input.fraction)):
        return None
    others = unnormed_words(spec)
    drop = spec.unnormed.fraction - spec.powsum.fraction
    leading_one, reciprocal = golden.reciprocal(np.arange(1, spec.powsum.high + 1), spec)
    for shift in range(spec.unnormed.bits + 1):
        words = was >> shift, is_ >> shift
        sums = [shift_right(word + others, drop, spec.powsum_rounding) for word in words]
        outputs = [golden.normalize(word, leading_one, reciprocal, spec) for word in words]
        if (sums[0] != sums[1]).any() or (outputs[0] != outputs[1]).any():
            return None
    return "equal for every word of the other lane and every PowSum, by trying them all"


def _with_every_word(
    verilog: str, mutation: Mutation, spec: SoftermaxSpec, rows: int, name: str, simulate: Simulate
) -> str | None:
    """Logic of Normalization between its last registers: simulated with every numerator and every reciprocal that can come
    with it, in every lane."""
    target = re.search(r"assign (\w+) = $", verilog[: mutation.start])
    if (
        mutation.module != f"{name}__normalization"
        or spec.normalization != "numerator"
        or target is None
        or not target[1].startswith(("product_", "probabilities__payload"))
    ):
        return None
    lanes = check_buildable(spec)
    ports = [
        plain("finished", True, finished_row_layout(spec, rows)),
        plain("slices", True, numerator_layout(spec, lanes)),
        plain("probabilities", False, output_layout(spec, lanes, rows)),
    ]
    fields = every_numerator(spec, lanes, rows)
    with tempfile.TemporaryDirectory(prefix="softermax-") as temporary:
        folder = Path(temporary)
        made = {port.name: pack(port.layout, fields[port.name]) for port in ports}
        header = provenance(f"{mutation.module}: every word", {})
        bench = test_bench(ports, PLAIN, mutation.module, made, header)
        (folder / f"{mutation.module}_tb.sv").write_text(bench, encoding="utf-8")
        for port in ports:
            text = hex_file(int(port.layout.size), made[port.name])
            (folder / hex_name(mutation.module, port.name)).write_text(text, encoding="utf-8")
        parts = "\n".join(
            f"{text}\nendmodule\n"
            for text in (
                _module(broken(verilog, mutation), module)
                for module in re.findall(rf"^module ({mutation.module}\w*) \(", verilog, re.MULTILINE)
            )
        )
        if simulate(parts, folder, mutation.module):
            return f"equal for every numerator and every reciprocal that can come with it: {len(made['slices'])} slices"
    return None


def every_numerator(spec: SoftermaxSpec, lanes: int, rows: int) -> Streams:
    """Streams of `Normalization` with every pair of a numerator and a reciprocal that a row can have, in every lane.

    A row's largest element alone adds a half to its PowSum, and an element adds its own word to it, without the fraction that
    a PowSum does not have. Of the PowSums with one reciprocal and one leading one the largest stands for all.
    """
    words = unnormed_words(spec)
    drop = spec.unnormed.fraction - spec.powsum.fraction
    sums = np.arange(1 << (spec.powsum.fraction - 1), spec.powsum.high + 1)
    leading_one, reciprocal = golden.reciprocal(sums, spec)
    alike = (leading_one << spec.powsum.bits) | reciprocal
    chosen = len(sums) - 1 - np.unique(alike[::-1], return_index=True)[1]
    parts = []
    for number, at in enumerate(chosen):
        can_come = words[words >> drop <= sums[at]]
        u = np.stack([np.roll(can_come, lane) for lane in range(lanes)], axis=1)
        last = np.arange(len(u)) == len(u) - 1
        y = golden.normalize(u, leading_one[at], reciprocal[at], spec)
        exponent = np.full(len(u), leading_one[at] - spec.powsum.fraction)
        parts.append((u, last, y, np.full(len(u), number % rows), exponent))
    u, last, y, row, exponent = (np.concatenate(part) for part in zip(*parts, strict=True))
    none = np.zeros(len(chosen), dtype=np.int64)
    return {
        "finished": {"max": none, "powsum": sums[chosen], "row": np.arange(len(chosen)) % rows},
        "slices": {"u": u, "max": np.zeros(len(u), dtype=np.int64), "last": last.astype(np.int64)},
        "probabilities": {"y": y, "last": last.astype(np.int64), "row": row, "exponent": exponent},
    }


def _where_sums_are_valid(verilog: str, mutation: Mutation, name: str) -> str | None:
    """Whether the slice buffer takes a PowSum, where there is one.

    Two facts about the top's flow decide it, and Yosys proves them by induction from any reset: a PowSum comes after the note of
    its row's end, and the rows that Normalization has not heard of are among those that are still to be read.
    """
    target = re.search(r"assign (\w+) = $", verilog[: mutation.start])
    buffer, source = f"{name}__slice_buffer", f"{name}__unnormed_softmax"
    if mutation.module != buffer or target is None or target[1] != "sums__ready":
        return None
    pins = dict(_pins_of_fifos(_module(verilog, buffer)))
    if len(re.findall(r"\bsums__ready\b", _module(verilog, buffer))) != 3 or "due" not in pins:
        return None
    # Whoever gives sums looks at ready only while it gives one.
    used = _module(verilog, source)
    ports, body = used.split(");", 1)
    looked = f"{ports});{re.sub(r'sums__ready', '(sums__ready & sums__valid)', body)}"
    if not equal_modules(verilog, verilog.replace(used, looked), source):
        return None
    rdy = {
        pins["notes"]["r_rdy"]: "notes_rdy",
        pins["rows_out"]["w_rdy"]: "rows_rdy",
        pins["due"]["w_rdy"]: "due_rdy",
    }

    def as_seen(text: str) -> str:
        return _IDENTIFIER.sub(lambda match: rdy.get(match[0], match[0]), text)

    try:
        _prove_flow(verilog, name, as_seen(mutation.was), as_seen(mutation.is_))
    except yosys.YosysError:
        return None
    return (
        "equal wherever there is a PowSum: proved by Yosys, by induction over the top's flow, that its note is there and that "
        "room for what is due is room for rows"
    )


def _pins_of_fifos(text: str) -> Iterator[tuple[str, dict[str, str]]]:
    for instance, pins in re.findall(r"^  \w+ (\w+) \(\n(.*?)^  \);", text, re.MULTILINE | re.DOTALL):
        yield instance, dict(_PIN.findall(pins))


_SEEN = {
    "due": "slice_buffer.due.level",
    "rows": "slice_buffer.rows_out.level",
    "notes": "slice_buffer.notes.level",
    "reading": "slice_buffer.reading",
    "leaving": "slice_buffer.slices__valid",
    "last": "slice_buffer.last",
    "sum_": "normalization.sum_valid",
    "row": "normalization.row_valid",
    "valid_4": "unnormed_softmax.valid_4",
    "last_4": "unnormed_softmax.last_4",
    "valid_5": "unnormed_softmax.valid_5",
    "last_5": "unnormed_softmax.last_5",
    "sums": "unnormed_softmax.sums__valid",
}
"""Registers of the top, by what the monitor calls them."""
_MONITOR = """module monitor (input clk, input rst, input [{top}:0] free, output ok, output same);
  {wires}
  {name} dut (.clk(clk), .rst(rst), {free}, {pins});
  wire notes_rdy = notes != 0;
  wire rows_rdy = rows != 4;
  wire due_rdy = due != 4;
  wire [3:0] heard = {{3'b0, sum_}} + {{3'b0, row}};
  wire [3:0] begun = {{3'b0, reading}} + {{3'b0, leaving & last}};
  // What is due and what Normalization has not heard of differ by what is on its way; notes are of ends that are summed up.
  assign ok = due <= 4 && rows <= 4 && notes <= 4 && heard >= begun && due + begun == rows + heard
    && notes == {{3'b0, valid_4 & last_4}} + {{3'b0, valid_5 & last_5}} + {{3'b0, sums}};
  assign same = !ok || !sums || ({was}) == ({is_});
endmodule
"""


def _prove_flow(verilog: str, name: str, was: str, is_: str) -> None:
    """Raise `YosysError` unless the monitor's ``ok`` holds for good after a reset, and with it ``same``."""
    inputs = re.findall(r"input wire (?:\[(\d+):0\] )?(\w+)", _module(verilog, name).partition(");")[0])
    free, at = [], 0
    for high, port in inputs:
        if port not in ("clk", "rst"):
            bits = int(high or 0) + 1
            free.append(f".{port}(free[{at + bits - 1}:{at}])")
            at += bits
    levels = ("due", "rows", "notes")
    monitor = _MONITOR.format(
        name=name,
        top=at - 1,
        wires="wire [2:0] "
        + ", ".join(levels)
        + "; wire "
        + ", ".join(w for w in _SEEN if w not in levels)
        + ";",
        free=", ".join(free),
        pins=", ".join(f".\\{path} ({seen})" for seen, path in _SEEN.items()),
        was=was,
        is_=is_,
    )
    with tempfile.TemporaryDirectory(prefix="softermax-") as temporary:
        folder = Path(temporary)
        (folder / "design.v").write_text(verilog, encoding="utf-8")
        (folder / "monitor.v").write_text(monitor, encoding="utf-8")
        yosys.run(
            [
                "read_verilog design.v",
                f"hierarchy -top {name}",
                "proc",
                "flatten",
                *(f"expose {name}/w:{path}" for path in _SEEN.values()),
                # What a memory gives may be anything.
                "memory -nomap",
                "delete t:$mem*",
                "read_verilog monitor.v",
                "hierarchy -top monitor",
                "proc",
                "flatten",
                "opt_clean",
                "sat -verify -seq 2 -set-at 1 rst 1 -prove ok 1 -prove-skip 1",
                "sat -verify -seq 2 -set-at 1 ok 1 -prove ok 1 -prove-skip 1",
                "sat -verify -seq 1 -prove same 1",
            ],
            folder,
        )
