"""Rivals through the silicon flow: a small unit for real, and how whole softmaxes add up."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from softermax.cli import main, silicon
from softermax.results import Envelope, enveloped
from softermax.rtl.rivals.registry import built, get_hardware
from softermax.silicon import rivals
from softermax.silicon.flow import measure_unit
from softermax.silicon.library import Library
from softermax.silicon.memory import node_of
from softermax.silicon.rivals import RivalRow, RivalTable, RivalUnit, kept_beside, rival_orders
from softermax.silicon.stimuli import COLUMNS, gaussian
from softermax.silicon.table import WaitingRow
from softermax.silicon.whole import BOTH, cost_of_waiting, waiting_of_spec
from softermax.spec import PRESETS


def unit_of(name: str, unit: str, lanes: int) -> RivalUnit:
    hardware = get_hardware(name)
    design = hardware.model.calibrated(np.array([8.0]))
    return RivalUnit(hardware.fitted(design, lanes), lanes, unit)


def test_a_small_unit_from_rtl_to_energy(nangate45: Library) -> None:
    """The netlist has the words of the rival's model in both modes."""
    result = measure_unit(
        unit_of("ita", "normalization", 2), nangate45, 2.0, [gaussian(4, 32)], copies=2, rows=2
    )
    assert result.meets
    modes, rows, slices = 2, 4, 16
    assert result.words_equal == modes * rows * slices
    assert (result.unit, result.design, result.width) == ("normalization", "rival:ita", 2)


def test_orders_have_every_unit_at_every_width_and_ours_beside() -> None:
    orders = rival_orders(["all"], ["nangate45"], [16, 32], None, None, gaussian(12))
    for name, hardware in built().items():
        found = [
            (order.unit.name, order.unit.width)
            for order in orders
            if isinstance(order.unit, RivalUnit) and order.unit.rival.name == name
        ]
        assert found == [(unit, width) for width in (16, 32) for unit in hardware.units]
    assert [order.unit.shown for order in orders if order.unit.shown.startswith("paper")] == [
        "paper", "paper", "paper-32", "paper-32",
    ]  # fmt: skip


def test_an_unknown_rival_is_refused_before_any_work() -> None:
    with pytest.raises(ValueError, match="rival 'nobody': in RTL it must be one of"):
        rival_orders(["nobody"], ["nangate45"], [16], None, None, gaussian(12))


def table_of(*names: str, area: float = 100.0) -> RivalTable:
    rows = [RivalRow(name, "whole", 16, "nangate45", 1.5, 0.1, area, 1.0, 0.9) for name in names]
    waiting = [WaitingRow("nangate45", 16, name, "scores", 9.0, 50.0, 0.5) for name in names]
    return RivalTable(rows, waiting, "attention", "", 1000)


def stored(table: RivalTable) -> Envelope:
    return enveloped("softermax silicon --rivals all", table.to_json(), silicon._PACKAGES, table.notes())


def test_designs_that_were_not_measured_again_keep_their_rows_and_their_place() -> None:
    before = table_of("cmsis-nn", "ita", "lean+fold")
    together = kept_beside(table_of("ita", "split-exponential", area=70.0), stored(before))
    assert [(row.name, row.area_um2) for row in together.rows] == [
        ("cmsis-nn", 100.0), ("ita", 70.0), ("split-exponential", 70.0), ("lean+fold", 100.0),
    ]  # fmt: skip
    assert [row.design for row in together.waiting] == ["cmsis-nn", "ita", "split-exponential", "lean+fold"]


def test_memories_of_rows_that_stay_are_counted_as_today(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are modelled: what was measured, the units, stays as it was."""
    monkeypatch.setattr(rivals, "both_kinds", lambda rows: ([gaussian(12)], ""))
    before = table_of("ita")
    (whole,) = before.rows
    both = replace(whole, unit=BOTH)
    before = replace(before, rows=[both, replace(whole, area_um2=1e9, pj_per_element=1e9)])
    _, *kept = kept_beside(table_of("cmsis-nn"), stored(before)).rows
    (ours,) = waiting_of_spec(PRESETS["lean"])  # scores of nine bits, as ITA's
    cost = cost_of_waiting([ours], node_of("nangate45"), COLUMNS, 1.5)
    assert kept[0] == both
    assert kept[1].area_um2 == pytest.approx(both.area_um2 + cost.area_um2, abs=0.01)
    assert kept[1].pj_per_element == pytest.approx(both.pj_per_element + cost.pj, abs=1e-5)


def test_rows_of_other_scores_or_another_clock_cannot_stay() -> None:
    table = table_of("ita")
    with pytest.raises(ValueError, match="stored rows are of gaussian scores, these of attention"):
        kept_beside(table, stored(replace(table_of("cmsis-nn"), stimulus="gaussian")))
    slower = [replace(row, clock_ns=2.0) for row in table_of("cmsis-nn").rows]
    with pytest.raises(ValueError, match=r"a clock of 2\.0 ns, these 1\.5 ns"):
        kept_beside(table, stored(replace(table_of("cmsis-nn"), rows=slower)))
    with pytest.raises(ValueError, match="no stimulus, waiting, words_equal in their notes"):
        kept_beside(table, enveloped("softermax silicon", [asdict(row) for row in table.rows]))


def test_keep_measures_the_named_designs_alone_and_says_where_the_others_come_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: dict[str, Any] = {}

    def measured(names: Any, *rest: Any, **options: Any) -> RivalTable:
        asked.update(names=names, ours=options["ours"])
        return table_of(*names, area=70.0)

    monkeypatch.setattr(rivals, "measure_rivals", measured)
    path = stored(table_of("ita", "lean+fold")).save(tmp_path / "rivals-silicon.json")
    command = ["silicon", "--rivals", "cmsis-nn", "--keep", "--out", str(tmp_path), "--quiet", "--json"]
    assert main(command) == 0
    assert asked == {"names": ["cmsis-nn"], "ours": ()}
    made = Envelope.load(path)
    assert [row["name"] for row in made.rows] == ["cmsis-nn", "ita", "lean+fold"]
    (kept,) = made.notes["kept"]
    assert (kept["command"], kept["designs"]) == ("softermax silicon --rivals all", ["ita", "lean+fold"])
    page = (tmp_path / "rivals-silicon.md").read_text(encoding="utf-8")
    assert "ita, lean+fold: on" in page
    # Once more: what the first command has measured is told of it, the rest as before.
    assert main([*command[:2], "ita", *command[3:]]) == 0
    first, second = Envelope.load(path).notes["kept"]
    assert (first["designs"], second["designs"]) == (["lean+fold"], ["cmsis-nn"])
    capsys.readouterr()
    assert main(["silicon", "--rivals", "ita", "--keep"]) == 2
    assert "--keep: only --rivals with --out FOLDER" in capsys.readouterr().err
