"""Mapped netlists: sub-units, and designs that cannot be measured."""

from __future__ import annotations

import json

import pytest
from small_designs import hand_made

from softermax.silicon import synthesis
from softermax.silicon.library import Library
from softermax.silicon.netlist import read
from softermax.silicon.synthesis import CLOCK_GATES, modules_of, synthesise
from softermax.silicon.timing import analyse


def test_every_cell_belongs_to_a_sub_unit_and_areas_add_up(library: Library, accumulate: str) -> None:
    netlist = synthesise(accumulate, library, 2.0)
    areas = netlist.area_by_unit()
    assert set(areas) == {"top", "multiply", CLOCK_GATES}
    assert sum(areas.values()) == pytest.approx(netlist.area)
    assert areas["multiply"] > 10 * areas[CLOCK_GATES] > 0
    assert sum(netlist.counts().values()) == netlist.cells
    assert all(name in library.cells for name in netlist.counts())


def test_lanes_are_one_sub_unit() -> None:
    text = "".join(
        f"{head}module \\{name}\nend\n"
        for head, name in (
            ("attribute \\top 1\n", "unit"),
            ("", "unit.exponential$3"),
            ("", "unit.exponential$3.lane_0"),
            ("", "unit.exponential$3.lane_11$27"),
            ("", "unit.exponential$3.lane_1.deeper"),
        )
    )
    top, units = modules_of(text)
    assert top == "unit"
    assert list(units.values()) == [
        "top",
        "exponential",
        "exponential.lane",
        "exponential.lane",
        "exponential.lane",
    ]


def test_a_netlist_is_mapped_once(
    nangate45: Library, accumulate: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = synthesise(accumulate, nangate45, 2.0)
    monkeypatch.setattr(synthesis.yosys, "run", lambda *a, **k: pytest.fail("mapped again"))
    assert synthesise(accumulate, nangate45, 2.0).pins == first.pins


def test_a_combinational_loop_is_named(nangate45: Library) -> None:
    ring = [("INV_X1", {"A": f"r{i}", "ZN": f"r{(i + 1) % 3}"}) for i in range(3)]
    netlist = hand_made(nangate45, [*ring, ("INV_X1", {"A": "a", "ZN": "y"})], "a", "y")
    with pytest.raises(ValueError, match=r"3 cells form a combinational loop, through nets r\d, r\d, r\d"):
        analyse(netlist, 1.0)


def test_an_unmapped_cell_is_refused(nangate45: Library) -> None:
    with pytest.raises(
        ValueError, match=r"cell u0 of type \$_AND_ is a cell of the logic that was not mapped"
    ):
        hand_made(nangate45, [("$_AND_", {"A": "a", "B": "b", "Y": "y"})], "a b", "y")
    with pytest.raises(ValueError, match="cell u0 of type SRAM is not a usable cell of library nangate45"):
        hand_made(nangate45, [("SRAM", {"A": "a"})], "a", "y")


def test_an_open_input_is_refused(nangate45: Library) -> None:
    with pytest.raises(ValueError, match="input A2 of cell u0"):
        hand_made(nangate45, [("NAND2_X1", {"A1": "a", "ZN": "y"})], "a", "y")


def test_a_clock_made_of_logic_is_refused(nangate45: Library) -> None:
    cells = [
        ("AND2_X1", {"A1": "clk", "A2": "en", "ZN": "gated"}),
        ("DFF_X1", {"D": "x", "CK": "gated", "Q": "y"}),
    ]
    with pytest.raises(ValueError, match="net gated clocks cells"):
        hand_made(nangate45, cells, "clk en x", "y")


def test_broken_rtlil_gives_yosys_own_words(nangate45: Library) -> None:
    with pytest.raises(ValueError, match=r"synthesis of broken failed: .*ERROR"):
        synthesise("attribute \\top 1\nmodule \\broken\n  nonsense\nend\n", nangate45, 1.0)
    with pytest.raises(ValueError, match="clock period -1"):
        synthesise("", nangate45, -1.0)
    with pytest.raises(KeyError):
        read(json.loads('{"modules": {}}'), "none", nangate45)
