"""The demo: the ladder on a row of real attention."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from softermax import get_spec
from softermax.cli import main
from softermax.reproduce import ladder


def test_the_example_is_a_row_with_a_renormalisation() -> None:
    example = ladder.load_example()
    assert len(example.tokens) == len(example.scores)
    assert example.query in example.tokens
    trace = ladder.paper_trace(example.scores)
    assert trace.numerator_shift[0] > 0


def test_each_step_is_compared_with_what_it_approximates() -> None:
    steps = {step.name: step for step in ladder.ladder(ladder.load_example().scores)}
    assert steps["base two"].max_error > 0.1
    assert steps["base two, online"].max_error < 1e-12
    assert steps["base two, online, integer max"].max_error < 1e-12
    assert steps["log2(e) folded"].max_error < 1e-12
    paper = steps["Softermax (paper)"]
    assert np.array_equal(paper.y, get_spec("paper").compute(ladder.load_example().scores))
    assert 0 < paper.max_error < 2 * get_spec("paper").output.lsb


def test_demo_prints_the_worked_example_and_draws(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib", reason="the picture needs .[cli]")
    picture = tmp_path / "new" / "ladder.svg"
    assert main(["demo", "--out", str(picture)]) == 0
    printed = capsys.readouterr().out
    assert "d = 1, 1.5, 1.75" in printed
    assert "PowSum" in printed
    assert picture.read_text().lstrip().startswith("<?xml")
    assert [path.name for path in picture.parent.iterdir()] == ["ladder.svg"]


def test_demo_takes_scores_and_prints_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "--scores", "2,1,3", "--json", "--out", str(tmp_path / "a.png")]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["scores"] == [2.0, 1.0, 3.0]
    assert printed["trace"][0]["PowSum d"] == 1.75


@pytest.mark.parametrize(
    ("arguments", "message"), [(["--scores", "2,one"], "2,one"), (["--out", "ladder.exe"], "ladder.exe")]
)
def test_bad_arguments_are_named(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["demo", *arguments]) == 2
    assert message in capsys.readouterr().err
