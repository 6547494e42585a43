"""The flow and the table: small units for real, the table's rules on made-up figures."""

from __future__ import annotations

import json
import warnings
from pathlib import Path

import numpy as np
import pytest
from small_designs import pdk_root

from softermax.cli import main
from softermax.silicon import flow, power, stimuli, table, units
from softermax.silicon.equivalence import Disagreement, require_equal
from softermax.silicon.flow import GLITCHES, ZERO_DELAY, EnergyResult, Result
from softermax.silicon.library import Library
from softermax.silicon.simulation import Simulator
from softermax.silicon.stimuli import gaussian
from softermax.silicon.synthesis import synthesise
from softermax.silicon.table import Order, build, orders_of
from softermax.silicon.units import RESET_CYCLES, baseline_unit, softermax_unit

SCHEMA = [
    "unit", "width", "library", "preset", "baseline", "clock_ns", "slack_ns", "baseline_slack_ns", "area_um2",
    "area_ratio", "energy_pj_per_element", "energy_ratio", "energy_ratio_zero_delay",
]  # fmt: skip


def test_a_small_unit_from_rtl_to_energy(nangate45: Library) -> None:
    """Two lanes: the netlist equals the golden model in both modes, and all figures add up."""
    result = flow.measure(
        softermax_unit("unnormed", "paper", 2), nangate45, 2.0, [gaussian(8, 32)], copies=4, rows=2
    )
    assert result.meets
    assert sum(result.area_by_unit.values()) == pytest.approx(result.area_um2)
    assert {"int_max", "power_of_two", "reduction"} <= set(result.area_by_unit)
    for energy in result.energy:
        assert sum(energy.by_unit.values()) == pytest.approx(energy.pj_per_element)
        assert energy.internal + energy.switching + energy.leakage == pytest.approx(energy.pj_per_element)
    assert result.pj("gaussian", GLITCHES) > result.pj("gaussian", ZERO_DELAY) > 0
    assert result.words_equal == 2 * 4 * (2 * 16 + 2)  # both modes: slices and sums of every row


def test_a_second_measurement_is_read_from_the_cache(
    nangate45: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    def once() -> Result:
        unit = softermax_unit("unnormed", "paper", 2)
        return flow.measure(unit, nangate45, 2.0, [gaussian(8, 32)], copies=4, rows=2)

    first = once()
    monkeypatch.setattr(flow, "mapped", lambda *a: pytest.fail("measured again"))
    assert once() == first
    # Another preset with the same hardware shares the figures, not the name.
    shared = [softermax_unit("unnormed", preset, 2) for preset in ("row-scaled", "whole-row")]
    assert shared[0].rtlil() == shared[1].rtlil()
    monkeypatch.undo()
    both = [flow.measure(unit, nangate45, 2.0, [gaussian(8, 32)], copies=4, rows=2) for unit in shared]
    assert [r.preset for r in both] == ["row-scaled", "whole-row"]
    assert both[0].area_um2 == both[1].area_um2


@pytest.mark.parametrize("preset", ["paper", "paper+skip-zeros", "row-scaled"])
def test_a_netlist_that_disagrees_has_no_energy(nangate45: Library, preset: str) -> None:
    """One gate of the netlist is exchanged for another of the same pins."""
    unit = softermax_unit("normalization", preset, 1)
    netlist = synthesise(unit.rtlil(), nangate45, 2.0)
    job = unit.job(gaussian(64, 16), 64, 1)
    activity = Simulator(netlist).run(job.inputs)
    assert require_equal(job, activity, "unit") == 64 * 16
    # The busiest of its kind: a gate that only ever saturates would not be missed by these scores.
    gates = [i for i, kind in enumerate(netlist.types) if kind == "NAND2_X1"]
    busiest = max(gates, key=lambda i: int(activity.toggles[netlist.pins[i]["ZN"]].sum()))
    netlist.types[busiest] = "NOR2_X1"
    with pytest.raises(
        Disagreement,
        match=r"differ from the golden model|was not taken|made \d+ transfers|depend on the data",
    ):
        require_equal(job, Simulator(netlist).run(job.inputs), "unit")


@pytest.mark.parametrize("mode", [ZERO_DELAY, GLITCHES])
def test_energy_is_linear_in_rows_that_follow_each_other(nangate45: Library, mode: str) -> None:
    """The same row again and again: from the second on, each takes what the one before it took."""
    unit = softermax_unit("unnormed", "paper", 2)
    netlist, timing = flow.mapped(unit.rtlil(), nangate45, 2.0)
    simulator = Simulator(netlist, timing)
    row = gaussian(3, 32, seed=4).values
    energies = []
    for rows in (2, 3, 4, 8):
        scores = stimuli.Scores("repeated", np.repeat(row, rows, axis=0))
        job = unit.job(scores, 3, rows)
        activity = simulator.run(job.inputs, None if mode == ZERO_DELAY else 2.0, RESET_CYCLES)
        require_equal(job, activity, "unit")
        energies.append(power.measure(activity, timing).total)
    each = energies[1] - energies[0]
    assert each > 0
    assert energies[2] - energies[1] == pytest.approx(each, rel=1e-9)
    assert energies[3] - energies[0] == pytest.approx(6 * each, rel=1e-9)


def test_jobs_of_both_designs_are_the_same_scores() -> None:
    scores = gaussian(4, 32)
    ours = softermax_unit("unnormed", "paper", 16).job(scores, 4, 1)
    theirs = baseline_unit("unnormed", "two-pass", 16).job(scores, 4, 1)
    assert ours.elements == theirs.elements == 4 * 32
    first, second = (theirs.inputs[f"{p}_pass__valid"].sum() for p in ("first", "second"))
    assert first == second == ours.inputs["slices__valid"].sum() == 4 * 2
    assert theirs.cycles > ours.cycles > RESET_CYCLES
    assert stimuli.Scores("x", scores.values).take(2).values.shape == (2, 32)


def test_recorded_scores_come_from_another_process_and_may_be_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOFTERMAX_CACHE", str(tmp_path))
    monkeypatch.setattr(stimuli.sys, "executable", "/bin/false")
    scores, reason = stimuli.recorded()
    assert scores is None
    assert "cannot be recorded" in reason
    found, note = table.stimuli()
    assert [s.name for s in found] == ["gaussian"]
    assert note == reason


PARTS = "| nangate45 | 16 | unnormed | paper | 1 | 2 cells: top, lanes | top 10 | top 1, lanes 0.995 |"


def made_up(order: Order, slack: float = 0.1) -> Result:
    ours = order.design == "softermax"
    energy = [
        EnergyResult(
            s,
            mode,
            (1.0 if ours else 8.0) * (2 if mode == GLITCHES else 1),
            {"lanes": 0.995, "top": 1.0, "gates": 0.005},
            1.0,
            0.0,
            0.0,
        )
        for s in ("gaussian",)
        for mode in (ZERO_DELAY, GLITCHES)
    ]
    area = 10.0 if ours else 100.0
    return Result(order.unit, order.design, order.preset, order.width, order.library, 1.0, "none", area, {"top": area},
                  {"INV_X1": 1}, slack, ["0.1 INV_X1 top a rise", "0.2 INV_X1 lanes b fall"], 1, energy)  # fmt: skip


@pytest.fixture
def figures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table, "stimuli", lambda: ([gaussian(2)], "no model"))
    monkeypatch.setattr(table, "_run", lambda orders, *rest: {o: made_up(o) for o in orders})


@pytest.mark.usefixtures("figures")
def test_the_table_has_every_unit_preset_width_and_baseline(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert main(["silicon", "--width", "16", "32", "--json", "--quiet", "--plot", str(tmp_path)]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert all(list(row) == SCHEMA for row in rows)
    seen = {(r["unit"], r["width"], r["preset"], r["baseline"]) for r in rows}
    # Two widths, two baselines; three presets of the unnormed unit, four of normalization.
    assert len(seen) == len(rows) == 2 * 2 * (3 + 4)
    assert ("normalization", 32, "paper-32", "online") in seen
    assert ("normalization", 32, "paper-32+skip-zeros", "online") in seen
    assert ("unnormed", 16, "paper+skip-zeros", "online") not in seen
    assert all(
        (r["area_ratio"], r["energy_ratio"], r["energy_pj_per_element"]) == (0.1, 0.125, 2.0) for r in rows
    )
    assert sorted(p.name for p in tmp_path.iterdir()) == [
        "silicon-nangate45-16.png",
        "silicon-nangate45-32.png",
    ]
    assert main(["silicon", "--markdown", "--parts"]) == 0
    text = capsys.readouterr().out
    assert "| paper_area_ratio |" in text
    assert PARTS in text
    assert "Gaussian scores only: no model" in text


def test_a_design_that_misses_its_clock_is_reported(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(table, "stimuli", lambda: ([gaussian(2)], ""))
    miss = {"two-pass": -0.2}
    monkeypatch.setattr(
        table, "_run", lambda orders, *rest: {o: made_up(o, miss.get(o.design, 0.1)) for o in orders}
    )
    assert main(["silicon", "--baseline", "two-pass"]) == 0
    text = capsys.readouterr().out
    assert "unnormed paper against two-pass, 16 wide, nangate45: a design misses 1.0 ns" in text
    monkeypatch.setattr(table, "_run", lambda orders, *rest: {o: made_up(o, -0.5) for o in orders})
    with pytest.raises(ValueError, match=r"no design meets it in nangate45; the fastest needs 1\.500 ns"):
        build(orders_of())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--clock", "0.01"], "no design can meet it"),
        (["--clock", "-1"], "must be more than 0"),
        (["--preset", "paper-64"], "preset 'paper-64'"),
        (["--library", "sky130"], "must be one of nangate45, asap7"),
        (["--workers", "0"], "must be 1 or more"),
        (["--pe", "--width", "8"], "16 and 32 wide"),
    ],
)
def test_bad_input_is_refused(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["silicon", *arguments]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize("width", [16, 32])
def test_the_units_beat_the_baseline_as_claimed(library: Library, width: int) -> None:
    """The claim itself: both libraries, both widths, equal clock met by both, against two passes."""
    root = None if library.name == "nangate45" else pdk_root()
    preset = units.presets_of("unnormed", width)[0]
    orders = orders_of([library.name], [width], None, root, ["two-pass"], [preset, "row-scaled"])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        rows = {(r.unit, r.preset): r for r in build(orders, ["two-pass"]).rows}
    assert all(row.meets for row in rows.values())
    unnormed, normalization = rows["unnormed", preset], rows["normalization", preset]
    assert unnormed.area_ratio <= 0.20
    assert unnormed.energy_ratio <= 0.13
    assert normalization.area_ratio <= 0.65
    assert normalization.energy_ratio <= 0.39
    row_scaled = rows["normalization", "row-scaled"]
    assert row_scaled.area_um2 < normalization.area_um2
    assert row_scaled.energy_pj_per_element < normalization.energy_pj_per_element
    assert np.isfinite([row.energy_pj_per_element for row in rows.values()]).all()
