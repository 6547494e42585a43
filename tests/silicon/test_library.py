"""Cell libraries: what is read from Liberty files, units, the cache, and files that are missing or broken."""

from __future__ import annotations

import json
import lzma
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
from small_designs import random_bits

from softermax.silicon import liberty, pdk
from softermax.silicon.boolean import truth_table
from softermax.silicon.library import Library
from softermax.silicon.power import energy_of
from softermax.silicon.simulation import Simulator
from softermax.silicon.synthesis import synthesise
from softermax.silicon.timing import analyse

TINY = """
library (tiny) {
  time_unit : "1ps"; voltage_unit : "1V"; leakage_power_unit : "1uW"; nom_voltage : 0.5;
  capacitive_load_unit (1, pf);
  lu_table_template (d) { variable_1 : total_output_net_capacitance; variable_2 : input_net_transition;
    index_1 ("1, 2"); index_2 ("10, 20, 30"); }
  power_lut_template (p) { variable_1 : input_transition_time; index_1 ("10, 20"); }
  cell (INV) { area : 2
    leakage_power () { when : "A"; value : 3; }
    cell_leakage_power : 1;
    pin (A) { direction : input; capacitance : 0.25; internal_power () { rise_power (p) { values ("1, 2"); } } }
    pin (Y) { direction : output; function : "A'";
      timing () { related_pin : "A"; timing_sense : negative_unate;
        cell_rise (d) { values ("1, 2, 3", "4, 5, 6"); } } } }
  cell (FF) { area : 4; cell_leakage_power : 1; ff (IQ, IQN) { clocked_on : "CK"; next_state : "D"; }
    pin (CK) { direction : input; clock : true; capacitance : 1; internal_power () { power (p) { values ("1, 2"); } } }
    pin (D) { direction : input; capacitance : 1; }
    pin (Q) { direction : output; function : "IQ"; } }
}
"""


def describe(folder: Path, text: str, **fields: object) -> str:
    (folder / "tiny.lib").write_text(text)
    path = folder / "tiny.json"
    path.write_text(json.dumps({"name": "tiny", "flop": "FF", "liberty": ["tiny.lib"], **fields}))
    return str(path)


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    if "nangate45" not in request.fixturenames and "asap7" not in request.fixturenames:
        monkeypatch.setenv("SOFTERMAX_CACHE", str(tmp_path / "cache"))


def test_units_axes_and_tables_of_a_described_library(tmp_path: Path) -> None:
    library = pdk.load(describe(tmp_path, TINY))
    inverter = library.cells["INV"]
    assert inverter.area == 2.0
    assert inverter.capacitance["A"] == pytest.approx((250.0, 250.0))
    assert inverter.functions["Y"] == 0b01
    assert inverter.leakage == pytest.approx((1000.0, 3000.0))  # uW in nW; state 1 has A high
    # Axes come in any order; here first the slew in ns, then the load in fF.
    delay = library.tables.at(np.array([inverter.timing[0].rise]), np.array([0.015]), np.array([1500.0]))
    assert delay[0] == pytest.approx((1 + 2 + 4 + 5) / 4 * 1e-3)
    # An energy is a capacitance times a voltage squared: 1 pF V^2 = 1000 fJ.
    energy = library.tables.at(np.array([inverter.power[0].rise]), np.array([0.01]), np.array([0.0]))
    assert energy[0] == pytest.approx(1000.0)
    assert library.cells["FF"].state_pins == ("D", "CK", "IQ")


def test_a_library_is_parsed_once_and_the_cache_holds_all_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = describe(tmp_path, TINY)
    first = pdk.load(path)
    monkeypatch.setattr(liberty, "parse", lambda *a: pytest.fail("parsed again"))
    second = pdk.load(path)
    assert first.cells == second.cells
    assert np.array_equal(first.tables.values, second.tables.values)
    assert first.wire == second.wire


def test_compressed_files_are_read(tmp_path: Path) -> None:
    path = Path(describe(tmp_path, TINY))
    (tmp_path / "tiny.lib.xz").write_bytes(lzma.compress(TINY.encode()))
    path.write_text(json.dumps({"name": "tiny", "flop": "FF", "liberty": ["tiny.lib.xz"]}))
    assert pdk.load(str(path)).cells["INV"].area == 2.0


def test_nangate45_has_what_the_flow_needs(nangate45: Library) -> None:
    assert nangate45.voltage == 1.1
    assert nangate45.cells["NAND2_X1"].area == 0.798
    assert nangate45.cells["CLKGATE_X1"].kind == "clock-gate"
    assert nangate45.wire.name == "5K_hvratio_1_1"
    assert nangate45.wire(np.array([1.0]))[0] == pytest.approx(1.746 * 0.1774)


def test_asap7_counts_a_charge_once_and_survives_its_quirks(asap7: Library) -> None:
    inverter = asap7.cells["INVx1_ASAP7_75t_R"]  # its area has no semicolon
    assert inverter.area == 0.04374
    assert len(inverter.power) == 1  # of the two supplies' tables the ground's repeats the charge
    assert asap7.cells["XOR2x2_ASAP7_75t_R"].capacitance


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (TINY.replace("internal_power", "no_power"), "no internal_power tables"),
        (TINY[:900], "ends in the middle|not closed"),
        ("<html>not found</html>", "not a Liberty file"),
        (TINY.replace("nom_voltage : 0.5;", ""), "nom_voltage"),
        (TINY.replace('time_unit : "1ps";', ""), "time_unit"),
        (TINY.replace("(FF)", "(OTHER)"), "flop FF is not among its usable cells"),
    ],
)
def test_a_broken_library_is_refused_with_the_reason(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        pdk.load(describe(tmp_path, text))


def test_missing_libraries_say_how_to_get_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SOFTERMAX_PDK_ROOT", raising=False)
    with pytest.raises(FileNotFoundError, match="--pdk-root"):
        pdk.load("asap7")
    with pytest.raises(FileNotFoundError, match="no ASAP7 file"):
        pdk.load("asap7", tmp_path)
    with pytest.raises(ValueError, match="must be one of nangate45, asap7"):
        pdk.load("sky130")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(FileNotFoundError, match=r"pip install .*\[hardware\]"):
        pdk.load("nangate45")


@pytest.mark.slow
def test_a_described_library_goes_through_the_whole_flow(
    nangate45: Library, accumulate: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """NanGate's file under another name, described by hand: the same netlist, timing and energy."""
    monkeypatch.setenv("SOFTERMAX_CACHE", str(tmp_path / "cache"))
    (tmp_path / "cells.lib.xz").write_bytes(lzma.compress(pdk.nangate_file().read_bytes(), preset=0))
    fields = asdict(nangate45.description) | {"name": "mine", "liberty": ["cells.lib.xz"]}
    (tmp_path / "mine.json").write_text(json.dumps(fields))
    mine = pdk.load(str(tmp_path / "mine.json"))
    figures = []
    for library in (nangate45, mine):
        netlist = synthesise(accumulate, library, 2.0)
        timing = analyse(netlist, 2.0)
        activity = Simulator(netlist, timing).run(random_bits(30, 8, a=5, b=5, enable=1), 2.0, 2)
        figures.append((netlist.area, timing.slack_ns, energy_of(activity, timing).total))
    assert figures[0] == pytest.approx(figures[1], rel=1e-12)
    assert mine.name == "mine"


def test_a_description_with_a_wrong_field_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="flops: no such field"):
        pdk.load(describe(tmp_path, TINY, flops="FF"))


@pytest.mark.parametrize(
    ("expression", "python"),
    [
        ("!A & B | C", "not a and b or c"),
        ("(A * !B) + C", "a and not b or c"),
        ("A' B", "not a and b"),
        ("A ^ B & C", "(a != b) and c"),
        ("!(A + B) ^ C", "(not (a or b)) != c"),
        ("1", "True"),
    ],
)
def test_truth_tables_follow_libertys_precedence(expression: str, python: str) -> None:
    table = truth_table(expression, ("A", "B", "C"))
    for state in range(8):
        a, b, c = (bool(state >> i & 1) for i in range(3))
        assert bool(table >> state & 1) == eval(python, {"a": a, "b": b, "c": c})


@pytest.mark.parametrize("expression", ["A &", "(A", "A)", "A & Z", "A # B"])
def test_a_broken_expression_is_refused(expression: str) -> None:
    with pytest.raises(ValueError, match=r"expression|parentheses|pins are|Liberty"):
        truth_table(expression, ("A", "B"))
