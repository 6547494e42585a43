"""One assumption changed at a time: what is measured, and what the ratios are made of."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from softermax.cli import main
from softermax.results import Envelope
from softermax.silicon import sensitivity, stimuli
from softermax.silicon.flip_flops import KeptLaneUnit, cost_in_flip_flops
from softermax.silicon.flow import GLITCHES, ZERO_DELAY, EnergyResult, Result, measure_unit
from softermax.silicon.library import Library
from softermax.silicon.memory import AS_PUBLISHED
from softermax.silicon.sensitivity import CASES, NONE, Task, tasks_of
from softermax.silicon.stimuli import gaussian
from softermax.silicon.table import Order
from softermax.silicon.units import NormalizationUnit, SpecUnit, TwoPassUnit, UnnormedUnit
from softermax.silicon.whole import BOTH, WHOLE, waiting_of_baseline, waiting_of_spec
from softermax.spec import PRESETS, SoftermaxSpec


def test_wires_change_energy_and_slack_and_another_clock_is_mapped_anew(nangate45: Library) -> None:
    order = Order(UnnormedUnit(SoftermaxSpec(slice_width=2)), "nangate45", None, None)
    found = {case.change: Task(order, case).run([gaussian(32, 16)]) for case in CASES}
    base, none, double = (found[change] for change in (NONE, "no wires", "wires doubled"))
    assert none.area_um2 == base.area_um2 == double.area_um2
    assert none.slack_ns > base.slack_ns > double.slack_ns
    for mode in (GLITCHES, ZERO_DELAY):
        assert none.pj("gaussian", mode) < base.pj("gaussian", mode) < double.pj("gaussian", mode)
    slower = found["clock period 1.5 times"]
    assert slower.clock_ns == pytest.approx(1.5 * base.clock_ns)
    assert slower.slack_ns > base.slack_ns


def made_up(task: Task) -> Result:
    """The baseline's energy falls with the clock's factor, ours grows with the wires'."""
    ours = isinstance(task.order.unit, SpecUnit)
    pj = 1.0 + task.case.wires if ours else 8.0 / task.case.clock
    energy = [EnergyResult("gaussian", mode, pj, {}, pj, 0.0, 0.0) for mode in (ZERO_DELAY, GLITCHES)]
    figures = {"library": task.order.library, "clock_ns": task.case.clock, "wire": "", "words_equal": 1}
    figures |= {"area_um2": 1e4 if ours else 4e4, "slack_ns": 0.1 if ours else -0.2, "energy": energy}
    return Result(**task.order.unit.described(), **figures, area_by_unit={}, cells={}, critical_path=[])


def test_the_command_prints_every_change_of_both_units(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def each(
        work: Any, items: Sequence[Task], workers: Any, progress: Any, name: Callable[[Task], str], ray: Any
    ) -> Any:
        return {item: made_up(item) for item in items}

    monkeypatch.setattr(sensitivity, "each", each)
    monkeypatch.setattr(stimuli, "both_kinds", lambda rows: ([gaussian(2)], ""))
    assert main(["silicon", "--sensitivity", "--json", "--quiet", "--out", str(tmp_path)]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert Envelope.load(tmp_path / "sensitivity.json").rows == rows
    page = (tmp_path / "sensitivity.md").read_text()
    assert "the energy ratio 0.250 and 0.125 to 0.375, without glitches 0.250." in page
    assert {r["preset"] for r in rows} == {"paper", "lean"}
    rows = [r for r in rows if r["preset"] == "lean"]
    by = {(r["unit"], r["baseline"], r["change"]): r for r in rows}
    assert len(by) == len(rows)
    # Every case against two passes, the first one against the other baselines.
    for unit in ("unnormed", "normalization", BOTH):
        assert len([r for r in rows if r["unit"] == unit]) == len(CASES) + 2
        assert by[unit, "online", NONE]["area_ratio"] == by[unit, "generic", NONE]["area_ratio"] == 0.25
        ratios = {case.change: by[unit, "two-pass", case.change]["energy_ratio"] for case in CASES}
        assert list(ratios.values()) == pytest.approx([0.25, 0.225, 0.375, 0.125, 0.375, 0.25, 0.25])
        assert by[unit, "two-pass", NONE]["slack_ns"] == 0.1
        assert by[unit, "two-pass", NONE]["baseline_slack_ns"] == -0.2
    whole = {r["change"]: r for r in rows if (r["unit"], r["baseline"]) == (WHOLE, "two-pass")}
    assert whole.keys() > {case.change for case in CASES}
    # Of the memories alone the ratio is larger than of the units: the more they cost, the larger that of the whole.
    low, high = (whole[f"memories' area {factor} times"]["area_ratio"] for factor in ("0.5", "2"))
    assert low < whole[NONE]["area_ratio"] < high
    # The figures that were used before CACTI's are a row, at their own voltage and at the cells'.
    published = {change for change in whole if change.startswith(AS_PUBLISHED)}
    assert published == {AS_PUBLISHED, f"{AS_PUBLISHED}, at the logic's 1.1 V"}
    assert len({whole[change]["energy_ratio"] for change in (NONE, *published)}) == 3
    anew = whole["FP16 makes its exponentials anew instead of keeping them"]
    # Three rows of scores take less room than two of scores and two of exponentials.
    assert anew["area_ratio"] > whole[NONE]["area_ratio"]
    assert whole["flip-flops instead of memories"]["area_ratio"] != whole[NONE]["area_ratio"]


def test_pairs_share_what_they_measure() -> None:
    pairs = tasks_of(baselines=["two-pass", "online"])
    # For each unit: ours, two presets, and two passes in every case, online in one.
    assert len({task for pair in pairs for task in pair}) == 2 * (3 * len(CASES) + 1)
    assert len(pairs) == 2 * 2 * (len(CASES) + 1)


def test_an_impossible_clock_is_refused_before_any_work(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["silicon", "--sensitivity", "--clock", "0.01"]) == 2
    assert "no design can meet it" in capsys.readouterr().err


def test_registers_after_our_outputs_cost_area_and_give_the_same_words(nangate45: Library) -> None:
    case = next(case for case in CASES if case.registered)
    spec = SoftermaxSpec(slice_width=2)
    for unit in (UnnormedUnit(spec), NormalizationUnit(spec)):
        order = Order(unit, "nangate45", None, None)
        plain, registered = (Task(order, some).run([gaussian(32, 16)]) for some in (CASES[0], case))
        flops = [sum(n for cell, n in one.cells.items() if "DFF" in cell) for one in (plain, registered)]
        assert flops[1] >= flops[0] + 2 * 8
        assert registered.area_um2 > plain.area_um2
        assert registered.words_equal == plain.words_equal > 0
        # Whoever looks for the spec's own unit among the results must not find this one.
        assert (plain.design, registered.design) == ("softermax", "softermax, outputs registered")


def test_two_passes_in_base_two_are_smaller_and_give_their_models_words(nangate45: Library) -> None:
    case = next(case for case in CASES if case.base_two)
    order = Order(TwoPassUnit(2), "nangate45", None, None)
    plain, changed = (Task(order, some).run([gaussian(32, 16)]) for some in (CASES[0], case))
    assert changed.area_um2 < plain.area_um2
    assert changed.words_equal == plain.words_equal > 0


def test_a_lane_of_flip_flops_keeps_two_rows_and_gives_the_words_back(nangate45: Library) -> None:
    spec = PRESETS["lean"].replace(slice_width=64)
    (kept,) = waiting_of_spec(spec)
    for waiting, own in ((kept, spec), (waiting_of_baseline("online", 64)[0], None)):
        lane = KeptLaneUnit(waiting, own)
        result = measure_unit(lane, nangate45, 1.5, [gaussian(8)], copies=4, rows=2)
        # Rows of 384 have six slices of 64.
        assert sum(n for cell, n in result.cells.items() if "DFF" in cell) == 2 * 6 * waiting.bits
        assert result.words_equal == 2 * 4 * 6  # both modes
        cost = cost_in_flip_flops(lane, result, "gaussian")
        assert cost.area_um2 == pytest.approx(result.area_um2 * (64 + waiting.beside / waiting.bits))
    with pytest.raises(ValueError, match="rows = 1: one goes out while the next comes in"):
        lane.job(gaussian(4), 4, 1)


def test_base_two_is_a_case_of_the_lean_units_alone() -> None:
    alone = tasks_of(baselines=["generic"])
    assert not any(theirs.case.base_two for _, theirs in alone)
    assert any(theirs.case.base_two for _, theirs in tasks_of(baselines=["two-pass"]))
