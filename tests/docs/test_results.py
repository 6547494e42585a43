"""Tables that pages take from docs/results: what is in them, what a missing result looks like."""

from __future__ import annotations

import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from .test_site import load


@pytest.fixture
def results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    module = load("results")
    monkeypatch.setattr(module, "RESULTS", tmp_path)
    return module


def save(module: ModuleType, name: str, rows: list[dict[str, Any]]) -> None:
    (module.RESULTS / f"{name}.json").write_text(json.dumps(rows))


def test_nothing_measured_is_said(results: ModuleType) -> None:
    for name in results.TABLES:
        assert results.table(name) == "*Not measured yet.*"
    with pytest.raises(ValueError, match="results: unit: must be one of units, processing element"):
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
    def row(variant: str, context: int, perplexity: float) -> dict[str, Any]:
        return {"model": "m", "context": context, "variant": variant, "perplexity": perplexity}

    save(results, "perplexity", [row("exact", 512, 40.0), row("x", 512, 42.0), row("x", 2048, 42.0)])
    (compared,) = results.perplexity()
    assert (compared["context"], compared["difference"]) == ("512", "+5.0 %")


def test_a_file_keeps_everything_but_its_tables(results: ModuleType) -> None:
    text = "before\n<!-- results: units -->\nold\n<!-- end -->\nafter\n"
    made = results.filled(text)
    assert made == "before\n<!-- results: units -->\n*Not measured yet.*\n<!-- end -->\nafter\n"
    assert results.filled(made) == made
