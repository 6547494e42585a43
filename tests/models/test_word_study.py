"""The study of the lean presets' words."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from softermax.cli import main
from softermax.models import word_study
from softermax.models.word_study import (
    CHANGES,
    NO_CHANGE,
    OFFSET,
    PAIRS,
    ScoreSet,
    changed,
    gaussian_set,
    measure_words,
)
from softermax.spec import PRESETS

FEW = {name: CHANGES[name] for name in (NO_CHANGE, "unnormed Q(1,6)", "product Q(1,7)", OFFSET)}


def one_head(scores: list[float]) -> ScoreSet:
    row = np.array([scores, scores[::-1]], np.float32)
    return ScoreSet("one head", row, np.ones(row.shape, np.bool_), np.zeros(2, np.int64))


def test_lean_is_as_good_as_the_papers_words_and_a_short_sum_is_not() -> None:
    rows = measure_words([gaussian_set(384, 2.0)], FEW)
    ratio = {(row["preset"], row["change"]): row["worst_ratio"] for row in rows}
    for lean, paper in PAIRS.items():
        assert ratio[paper, NO_CHANGE] == 1
        assert ratio[lean, NO_CHANGE] < 1.02
        assert ratio[lean, "unnormed Q(1,6)"] > ratio[lean, NO_CHANGE]


def test_what_a_preset_refuses_or_has_already_is_left_out() -> None:
    changes = {NO_CHANGE: {}, "short product": {"product": "Q(1,7)"}, "its own": {"product": "Q(1,8)"}}
    rows = measure_words([gaussian_set(16, 1.0)], changes)
    assert {row["preset"] for row in rows if row["change"] == "short product"} == {"lean"}
    assert not [row for row in rows if row["change"] == "its own"]


def test_powsum_by_its_fraction_keeps_the_presets_integer_bits() -> None:
    for name in PAIRS:
        powsum = changed(name, {"powsum": 4}).powsum
        assert (powsum.integer, powsum.fraction) == (PRESETS[name].powsum.integer, 4)


def test_an_offset_brings_scores_into_range_and_leaves_the_softmax() -> None:
    rows = one_head([60.0, 59.0, 57.5, 30.0])
    lowered = rows.shifted(20.0)
    assert lowered.scores.max() == 20
    np.testing.assert_allclose(lowered.exact, rows.exact, atol=1e-6)
    np.testing.assert_array_equal(rows.shifted(70.0).scores, rows.scores)
    found = {row["change"]: row["l1"] for row in measure_words([rows], FEW) if row["preset"] == "lean"}
    assert found[OFFSET]["one head"] < 0.1 < found[NO_CHANGE]["one head"]


def test_the_command_writes_the_study_and_names_models_that_are_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(word_study, "LENGTHS", (16,))
    monkeypatch.setattr(word_study, "CHANGES", FEW)
    missing = str(tmp_path / "none")
    assert main(["presets", "--study", "--models", missing, "--out", str(tmp_path)]) == 0
    assert f"no attention of {missing}" in capsys.readouterr().err
    made = json.loads((tmp_path / "lean.json").read_text())
    assert set(made["rows"][0]["l1"]) == {f"gaussian 16 x {deviation}" for deviation in (1, 2, 3)}
    assert missing in made["notes"]["missing"]
    assert "| lean | none |" in (tmp_path / "lean.md").read_text()
    assert main(["presets", "--out", str(tmp_path)]) == 2
    assert "--out: goes with --study" in capsys.readouterr().err
