"""Tables and figures that pages take from docs/results: what is in them, what a missing result looks like."""

from __future__ import annotations

import math
import re
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from softermax.results import Envelope

from .blocks import ROOT
from .test_site import load


@pytest.fixture
def results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    module = load("results")
    monkeypatch.setattr(module.figures, "RESULTS", tmp_path)
    return module


def save(module: ModuleType, name: str, rows: list[dict[str, Any]]) -> None:
    Envelope("softermax", "2026-11-16", {}, {}, rows).save(module.figures.RESULTS / f"{name}.json")


def test_nothing_measured_is_said(results: ModuleType) -> None:
    for name in results.TABLES:
        assert results.table(name) == "*Not measured yet.*"
    with pytest.raises(ValueError, match="results: unit: must be one of runtime, units"):
        results.table("unit")


def test_units_are_judged_by_the_papers_ratios(results: ModuleType) -> None:
    row = {
        "unit": "normalization",
        "width": 16,
        "library": "nangate45",
        "preset": "paper",
        "baseline": "two-pass",
    }
    save(results, "silicon", [row | {"area_ratio": 0.65, "energy_ratio": 0.9}, row | {"baseline": "online"}])
    area, energy = results.units()
    assert (area["paper"], area["here"], area["verdict"]) == ("0.65", "0.650", "reproduced")
    assert (energy["paper"], energy["here"], energy["verdict"]) == ("0.39", "0.900", "not reached")
    (summed,) = results.summary()
    assert (summed["here"], summed["paper"]) == ("0.65 / 0.90", "0.65 / 0.39")


def test_ratios_to_both_kinds_of_baseline_are_named(results: ModuleType) -> None:
    unit = {"unit": "unnormed", "width": 16, "library": "nangate45", "preset": "paper"}
    lean = unit | {"baseline": "two-pass", "area_ratio": 0.15, "energy_ratio": 0.12}
    generic = unit | {"baseline": "generic", "area_ratio": 0.09, "energy_ratio": 0.08}
    save(results, "silicon", [generic, lean])
    shown = {row[""]: row["here"] for row in results.summary()}
    assert [name.split(" over ")[1].split(",")[0] for name in shown] == [
        "lean FP16",
        "generic IEEE components",
    ]
    assert list(shown.values()) == ["0.15 / 0.12", "0.09 / 0.08"]


def test_leans_units_stand_beside_both_kinds_of_baseline(results: ModuleType) -> None:
    unit = {"unit": "unnormed", "width": 16, "library": "nangate45", "preset": "lean"}
    ratios = {"area_ratio": 0.097, "energy_ratio": 0.074}
    kinds = [unit | {"baseline": "two-pass"} | ratios, unit | {"baseline": "generic"} | ratios]
    save(results, "silicon", [*kinds, unit | {"baseline": "online"} | ratios])
    (row,) = results.lean_silicon()
    assert [name for name in row if " over " in name] == [
        "area over lean FP16", "energy over lean FP16",
        "area over generic IEEE components", "energy over generic IEEE components",
    ]  # fmt: skip


def test_the_processing_element_is_the_papers(results: ModuleType) -> None:
    row = {"width": 32, "sequence": 384, "library": "nangate45", "scheme": "fixed", "baseline": "two-pass"}
    ours = row | {"area_ratio": 0.7, "energy_ratio": 0.43}
    save(results, "pe", [ours, ours | {"sequence": 64}, ours | {"width": 16}, ours | {"baseline": "online"}])
    assert [one["verdict"] for one in results.processing_element()] == ["better", "reproduced"]


def test_accuracy_is_a_difference_with_its_interval(results: ModuleType) -> None:
    common = {"preset": "paper", "model": "minilm", "low": -0.25, "high": 1.0, "verdict": ""}
    rte = common | {"task": "rte", "seeds": [0, 1], "mean": 0.5}
    save(results, "accuracy-differences", [rte, common | {"task": "average", "seeds": [], "mean": 0.125}])
    row, average = results.accuracy()
    assert (row["task"], row["difference"], row["95 %"], row["paper, BERT-Base"], row["seeds"]) == (
        "RTE",
        "+0.50",
        "-0.25 to +1.00",
        "+1.81",
        2,
    )
    # The paper's mean is one of nine tasks: it stands beside no other.
    assert (average["task"], average["paper, BERT-Base"]) == ("average of 1 tasks", "")
    nine = [
        rte | {"task": task}
        for task in ("squad", "rte", "cola", "mrpc", "qnli", "qqp", "sst2", "stsb", "mnli")
    ]
    save(results, "accuracy-differences", [*nine, common | {"task": "average", "seeds": [], "mean": 0.125}])
    average = results.accuracy()[-1]
    assert (average["difference"], average["paper, BERT-Base"]) == ("+0.12", "+0.51")
    swap = {"task": "average", "model": "minilm", "seeds": None, "int8": 80.0, "row-scaled+fold": -0.75}
    save(results, "accuracy-swaps", [swap])
    assert results.swapped() == [
        {"task": "average", "model": "minilm", "int8": "80.00", "`row-scaled+fold`": "-0.75"}
    ]
    assert [found["here"] for found in results.summary()] == ["+0.12 (-0.25 to +1.00)", "-0.75"]


def test_perplexity_is_compared_at_its_own_context(results: ModuleType) -> None:
    def row(variant: str, context: int, *perplexities: float) -> dict[str, Any]:
        losses = [math.log(perplexity) for perplexity in perplexities]
        values = {"model": "m", "text": "t", "tokens": 4096, "context": context, "variant": variant}
        return values | {"perplexity": math.exp(sum(losses) / len(losses)), "losses": losses}

    save(
        results,
        "perplexity",
        [row("exact", 512, 20.0, 80.0), row("x", 512, 21.0, 84.0), row("x", 2048, 42.0)],
    )
    (compared,) = results.perplexity()
    assert (compared["context"], compared["windows"]) == ("512", "2")
    assert (compared["difference"], compared["95 %"]) == ("+5.0 %", "+5.0 % to +5.0 %")


def test_a_file_keeps_everything_but_its_tables(results: ModuleType) -> None:
    text = "before\n<!-- results: units -->\nold\n<!-- end -->\nafter\n"
    made = results.filled(text)
    assert made == "before\n<!-- results: units -->\n*Not measured yet.*\n<!-- end -->\nafter\n"
    assert results.filled(made) == made


def test_every_result_is_in_an_envelope() -> None:
    results = ROOT / "docs" / "results"
    stored = [path for path in results.rglob("*.json") if "accuracy" not in path.relative_to(results).parts]
    assert stored
    for path in stored:
        found = Envelope.load(path)
        program, script, *_ = found.command.split()
        assert program == "softermax" or (program == "python" and (ROOT / script).is_file()), path
        assert re.fullmatch(r"\d{4}-\d\d-\d\d", found.date), path
        assert found.versions, path
        assert found.machine, path
        assert found.rows, path


def test_results_of_no_command_are_made_by_their_script(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured = load("measured")
    monkeypatch.setattr(measured, "RESULTS", tmp_path)
    measured.main(["row-mass"])
    kept = ROOT / "docs" / "results" / "row-mass.json"
    assert Envelope.load(tmp_path / kept.name).rows == Envelope.load(kept).rows, f"{kept.name} is old"
    for name in measured.MEASURED:
        assert (
            Envelope.load(kept.with_name(f"{name}.json")).command == f"python docs/_build/measured.py {name}"
        )
    with pytest.raises(SystemExit, match="mass: must be one of row-mass, zeros"):
        measured.main(["mass"])


def marked(asked: str, shown: str = "?") -> str:
    return f"<!-- figure: {asked} -->{shown}<!-- /figure -->"


@pytest.fixture
def measured(results: ModuleType) -> ModuleType:
    rows = [
        {"unit": "a", "width": 16, "ratio": 0.125, "parts": {"MAC": 2.5}},
        {"unit": "a", "width": 32, "ratio": 0.25, "parts": {"MAC": 7.5}},
        {"unit": "b c", "width": 16, "ratio": -0.0312, "parts": {"MAC": 1.0}},
    ]
    save(results, "made", rows)
    return results


@pytest.mark.parametrize(
    ("asked", "shown"),
    [
        ("made.ratio unit=a width=16 .2f", "0.12"),
        ("made.ratio unit=a width=16..20 .3f", "0.125"),
        ('made.ratio unit="b c" negated .1%', "3.1 %"),
        ("made.ratio unit=a range .2f", "0.12 to 0.25"),
        ("made.ratio width=16|32 range .0%", "-3 to 25 %"),
        ("made@date", "2026-11-16"),
        ("made.parts.MAC unit=a mean g", "5"),
        ("made.unit width=16 count", "2"),
        ("paper.units.ratios.unnormed.area .2f", "0.25"),
        ("paper-accuracy.softermax model=BERT-Base task=rte g", "64.26"),
    ],
)
def test_a_figure_in_a_sentence_is_taken_from_its_result(
    measured: ModuleType, asked: str, shown: str
) -> None:
    text = f"It takes {marked(asked)} of it."
    assert measured.filled(text) == f"It takes {marked(asked, shown)} of it."
    assert measured.on_page_markdown(text) == f"It takes {shown} of it."


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        ("made.ratio unit=a .2f", "2 rows are like this; name one, or say range or mean"),
        ("made.ratio unit=x .2f", "no row of made.json is like this"),
        ("made.area unit=a .2f", "there is no 'area'; there are unit, width, ratio, parts"),
        ("made.ratio units=a .2f", "there is no 'units'"),
        ("nothing.ratio .2f", "no row of nothing.json is like this"),
    ],
)
def test_a_figure_that_is_not_one_is_refused(measured: ModuleType, asked: str, why: str) -> None:
    with pytest.raises(ValueError, match=re.escape(f"figure: {asked}: {why}")):
        measured.filled(marked(asked))


def test_tables_and_figures_do_not_swallow_what_is_between_them(measured: ModuleType) -> None:
    page = (
        f"<!-- results: units -->\n\n{marked('made.ratio unit=a width=32 .2f', '9')} stays.\n<!-- end -->\n"
    )
    assert measured.filled(page) == page.replace(">9<", ">0.25<")


def test_a_changed_result_changes_the_page(measured: ModuleType) -> None:
    text = marked("made.ratio unit=a width=16 .2f")
    before = measured.filled(text)
    save(measured, "made", [{"unit": "a", "width": 16, "ratio": 0.75}])
    assert measured.filled(before) == before.replace("0.12", "0.75")


def test_rivals_are_listed_once_with_silicon_where_it_was_measured(results: ModuleType) -> None:
    needs = {"row_max": True, "second_pass": False, "divider": True, "retraining": False, "table": 32}
    row = {
        "kind": "rival",
        "takes": "int8",
        "gives": "u8, p = y / 256",
        "needs": needs,
        "confidence": "paper",
    }
    row |= {f"mass_{length}": 0.5 for length in (384, 2048, 8192)} | {"l1_128": 0.3, "kl_recorded": 0.2}
    built = {
        "unit": "whole",
        "library": "nangate45",
        "area_um2": 9.6,
        "pj_per_element": 0.5,
        "slack_ns": 0.1,
    }
    rows = [
        row | {"name": "paper+fold", "kind": "ours", "l1_recorded": 0.4},
        row | {"name": "a", "l1_recorded": 0.25, "width": 16} | built,
        row | {"name": "a", "l1_recorded": 0.25, "width": 32} | built,
        row | {"name": "a:row-scaled", "l1_recorded": 0.1, "gives": "u8 and an exponent per row"},
        row | {"name": "a:deferred", "l1_recorded": 0.09, "gives": "u8 unnormed, divided after P·V"},
    ]
    save(results, "rivals", rows)
    assert [one["design"] for one in results.rivals()] == ["`paper+fold`", "`a`"]
    assert results.rivals()[1]["needs"] == "max, divider, 32 table entries"
    assert [(one["lanes"], one["area, um2"]) for one in results.rivals_in_silicon()] == [
        (16, "10"),
        (32, "10"),
    ]
    (options,) = results.rivals_with_options()
    assert (options["L1, recorded"], options["row-scaled"], options["deferred"]) == (
        "0.250",
        "0.100",
        "0.090",
    )
    # A rival that is nearer to the softmax than ours is named in the README.
    assert [one["here"] for one in results.summary()] == ["0.400, 0.250", "0.400, 0.250"]
    # One that is also cheaper, with ours built beside it: by how much, and that ours is beaten.
    save(results, "rivals", [*rows, rows[0] | built | {"width": 16, "area_um2": 12.4, "pj_per_element": 0.7}])
    assert [one["here"] for one in results.summary()][2:] == ["12, 10", "0.70, 0.50", "`a`"]


def test_rivals_in_models_are_differences_to_the_exact_softmax(results: ModuleType) -> None:
    (results.figures.RESULTS / "rivals" / "stsb").mkdir(parents=True)
    save(
        results,
        "rivals/stsb/evaluate",
        [{"attention": "exact softmax (fp32)"}, {"attention": "rival:a", "difference": -0.5}],
    )
    text = {"model": "m", "text": "t", "tokens": 2, "context": 2}
    losses = [
        text | {"variant": "exact", "perplexity": 10.0},
        text | {"variant": "rival:a", "perplexity": 12.0},
    ]
    save(results, "rivals/perplexity", losses)
    assert results.rivals_in_models() == [
        {"attention": "`rival:a`", "STS-B, points": "-0.50", "perplexity at 2, %": "+20.00"}
    ]
    # Nobody is better than ours as long as ours is not there; then the README names who is, and not int8 scores alone.
    assert results.summary() == []
    ours = text | {"variant": "paper+fold", "perplexity": 13.0}
    scores = text | {"variant": "rival:int8-scores", "perplexity": 10.0}
    save(results, "rivals/perplexity", [*losses, ours, scores])
    (named,) = (row for row in results.summary() if "perplexity" in row[""])
    assert named[""].endswith("at 2: `paper+fold`, and better, `a`")
    assert named["here"] == "+30.00, +20.00"


def test_a_design_that_learned_stands_beside_the_model_that_it_was_put_into(results: ModuleType) -> None:
    (results.figures.RESULTS / "rivals" / "stsb").mkdir(parents=True)
    swapped = [
        {"attention": "exact softmax (fp32)", "pearson_spearman": 85.0},
        {"attention": "rival:ita", "pearson_spearman": 84.0},
        {"attention": "rival:consmax", "pearson_spearman": 60.0},
    ]
    save(results, "rivals/stsb/evaluate", swapped)
    assert [row["points"] for row in results.rivals_learned()] == ["+0.00", "-25.00"]
    save(results, "rivals/stsb/learned-consmax", [{"epochs": 2.0, "scores": {"pearson_spearman": 84.5}}])
    last = results.rivals_learned()[-1]
    assert last["attention"].endswith("int8, epochs: 2")
    assert last["points"] == "-0.50"
