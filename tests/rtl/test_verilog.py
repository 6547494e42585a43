"""The Verilog of an export is the RTLIL that synthesis takes, module by module, and reads like the sources."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("amaranth")
pytest.importorskip("pyosys")

from amaranth.hdl import Module, Signal, signed
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from softermax.rtl import yosys
from softermax.rtl.axi_stream import AxiStream
from softermax.rtl.convert import to_rtlil
from softermax.rtl.export.equality import AS_LOGIC, COMPARE, opened
from softermax.rtl.export.module import Writer
from softermax.rtl.export.names import module_names, port_names
from softermax.rtl.export.rtlil import read
from softermax.rtl.export.verilog import to_readable_verilog
from softermax.rtl.skid_buffer import Registered
from softermax.rtl.units import create
from softermax.spec import PRESETS, DeferredSpec

_WORD = re.compile(r"(?<=\s)[\\$][^\s]+")


def called_alike(text: str) -> str:
    """RTLIL with the words' names of its Verilog."""
    modules = read(text)
    called, ports = module_names(modules), port_names(modules)
    lines, inner, within = [], {}, False
    for line in text.splitlines():
        words = line.split()
        if words[:1] == ["module"]:
            writer = Writer(modules[words[1][1:]], called, ports)
            # What has no name in the Verilog must not take one.
            names = {wire: f"$unnamed{wire}" for wire in writer.module.wires}
            names |= {old: f"\\{new}" for old, new in writer.expressions.names.items()}
            line = f"module \\{called[words[1][1:]]}"
        elif words[:1] == ["cell"]:
            within, inner = True, {}
            if words[1][0] == "\\":
                inner = {port: f"\\{name}" for port, name in ports[words[1][1:]].items()}
                line = f"  cell \\{called[words[1][1:]]} \\{writer.labels[words[2]]}"
        elif within and words[:1] == ["connect"]:
            signal = line.split(words[1], 1)[1]
            line = f"    connect {inner.get(words[1], words[1])}" + _renamed(signal, names)
        elif within and words[:1] == ["end"]:
            within = False
        elif within and "MEMID" in line:
            memory = names["\\" + words[2][3:-1]]
            line = f'    parameter \\MEMID "\\{memory}"'
        elif words[:1] not in (["attribute"], ["parameter"]):
            line = _renamed(line, names) if words else line
        if words[:2] != ["attribute", "\\init"]:
            lines.append(line)
    return "\n".join(lines) + "\n"


def _renamed(line: str, names: dict[str, str]) -> str:
    return _WORD.sub(lambda word: names.get(word[0], word[0]), line)


def prove_equal(component: wiring.Component, folder: Path, change: tuple[str, str] | None = None) -> None:
    """For every module, with registers, memories' words and instances as inputs and outputs."""
    text = to_rtlil(component, "unit")
    (folder / "gold.il").write_text(called_alike(text))
    verilog = to_readable_verilog(component, "unit")
    if change is not None:
        assert change[0] in verilog
        verilog = verilog.replace(*change, 1)
    (folder / "gate.v").write_text(verilog)
    modules = module_names(read(text)).values()
    prepare = ["hierarchy -top unit", *AS_LOGIC]
    prepare += [opened(module) for module in modules]
    script = ["read_rtlil gold.il", *prepare, "design -stash gold"]
    script += ["read_verilog gate.v", *prepare, "design -stash gate"]
    for module in modules:
        script += [
            "design -reset",
            f"design -copy-from gold -as gold {module}",
            f"design -copy-from gate -as gate {module}",
            *COMPARE,
            "equiv_status -assert",
        ]
    yosys.run(script, folder)


def small(preset: str, unit: str, lanes: int = 2) -> wiring.Component:
    spec = PRESETS[preset].replace(slice_width=lanes)
    if unit == "deferred":
        return create(DeferredSpec(spec), unit, columns=1)
    return create(spec, unit, **({"depth": 2} if unit == "top" else {}))


@pytest.mark.parametrize(
    ("preset", "unit"),
    [
        ("paper", "unnormed-softmax"),
        pytest.param("paper", "top", marks=pytest.mark.slow),
        pytest.param("lean", "top", marks=pytest.mark.slow),
        pytest.param("row-scaled", "normalization", marks=pytest.mark.slow),
        pytest.param("lean-row-scaled", "normalization", marks=pytest.mark.slow),
        pytest.param("paper", "deferred", marks=pytest.mark.slow),
    ],
)
def test_every_module_equals_the_rtlil_that_synthesis_takes(tmp_path: Path, preset: str, unit: str) -> None:
    prove_equal(small(preset, unit), tmp_path)


@pytest.mark.slow
def test_the_wrapped_top_equals_its_rtlil(tmp_path: Path) -> None:
    top: Any = small("row-scaled", "top")
    prove_equal(AxiStream(Registered(top)), tmp_path)


class Widths(wiring.Component):
    """Operators where Verilog's widths and signs differ from RTLIL's, unless they are written with care."""

    def __init__(self) -> None:
        super().__init__({"a": In(4), "b": In(4), "s": In(signed(4)), "t": In(signed(3)), "out": Out(64)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        a, b, s, t = self.a, self.b, self.s, self.t
        begin = Signal(9)
        m.d.comb += begin.eq((a + b)[:4] + (~a) + (s < t))
        with m.If(a == 3), m.Switch(b):
            with m.Case("1-0-"):
                m.d.sync += self.out[:9].eq(begin)
            with m.Case(2, 3):
                m.d.sync += self.out[9:20].eq((s >> 1) - (t << 2) + (a[:2] - b[:2]))
            with m.Default():
                m.d.sync += self.out[20:40].eq((s * t) ^ ((a + b) >> 1) ^ (-s))
        with m.Else():
            m.d.sync += self.out[40:].eq((~(a & b)) | (a << b[:2]) | (a.any() & b.all()))
        return m


def test_widths_and_signs_are_those_of_the_rtlil(tmp_path: Path) -> None:
    prove_equal(Widths(), tmp_path)


@pytest.mark.parametrize("change", [("{~a}", "~a"), ("$signed(s) < $signed(t)", "s < t")])
def test_the_proof_refutes_a_wrong_width_or_sign(tmp_path: Path, change: tuple[str, str]) -> None:
    with pytest.raises(yosys.YosysError, match="unproven"):
        prove_equal(Widths(), tmp_path, change)


@pytest.mark.parametrize(("preset", "unit"), [("paper", "top"), ("lean", "top"), ("paper", "deferred")])
def test_internals_are_readable(preset: str, unit: str) -> None:
    verilog = to_readable_verilog(small(preset, unit), "mine")
    code = re.sub(r"//.*", "", verilog)
    assert not re.search(r"\\|\b_\d+_\b|\w\$", code), "escaped, numbered or alias names"
    modules = re.findall(r"^module (\w+)", code, re.MULTILINE)
    assert len(modules) == len(set(modules))
    assert all(name == "mine" or name.startswith("mine__") for name in modules)
    assert "// Into stage 3." in verilog
    assert re.search(r"^// stage 3   ", verilog, re.MULTILINE)
    # Nothing begins with a value but by its reset.
    assert "initial" not in code
    assert not re.search(r"reg [^;]*=", code)


def test_a_name_that_is_a_keyword_is_refused() -> None:
    with pytest.raises(ValueError, match="name = 'logic': must not be a keyword of Verilog"):
        to_readable_verilog(Widths(), "logic")
