"""Verdicts follow from the figures by their stated rules."""

from __future__ import annotations

import pytest

from softermax.report import verdict


@pytest.mark.parametrize(
    ("paper", "ours", "word"),
    [
        (0.90, 0.90, "reproduced"), (0.90, 0.99, "reproduced"), (0.90, 0.81, "reproduced"),
        (0.90, 0.80, "better"), (0.90, 1.00, "not reached"), (0.10, 0.1229, "not reached"),
        (0.25, 0.15, "better"), (0.43, None, "not measured"),
    ],
)  # fmt: skip
def test_ratios_within_a_tenth_are_reproduced(paper: float, ours: float | None, word: str) -> None:
    assert verdict.ratio("area", paper, ours).verdict == word


@pytest.mark.parametrize("ours", [0.0, -1.0, float("nan"), float("inf")])
def test_what_is_no_ratio_is_refused(ours: float) -> None:
    with pytest.raises(ValueError, match=r"area: .* is no ratio"):
        verdict.ratio("area", 0.5, ours)


def test_equality() -> None:
    assert verdict.equal("sums", [1, 1.5], [1.0, 1.5]).verdict == "reproduced"
    assert verdict.equal("sums", [1, 1.5], [1.0, 1.25]).verdict == "not reached"
    assert verdict.equal("sums", [1, 1.5], None).verdict == "not measured"


def test_one_differing_word_is_one_too_many_and_no_words_prove_nothing() -> None:
    assert verdict.exact("RTL", 1000, 0).verdict == "reproduced"
    assert verdict.exact("RTL", 1000, 1).verdict == "not reached"
    assert verdict.exact("RTL", 0, 0).verdict == "not measured"


@pytest.mark.parametrize(
    ("interval", "word"),
    [
        ((0.1, 0.9), "better"), ((-0.4, 0.9), "reproduced"), ((-0.5, -0.1), "reproduced"),
        ((-2.0, 1.0), "undecided"), ((-2.0, -0.6), "not reached"), ((-2.0, -0.4), "undecided"), (None, "undecided"),
    ],
)  # fmt: skip
def test_drops_are_judged_by_their_interval(interval: tuple[float, float] | None, word: str) -> None:
    assert verdict.drop("RTE", 1.8, 0.0, interval, worst=0.5).verdict == word


def test_a_drop_that_was_not_measured() -> None:
    assert verdict.drop("RTE", 1.8, None, None, worst=0.5).verdict == "not measured"


def test_growth_and_slope() -> None:
    assert verdict.growth("share", [0.1, 0.05, 0.2]).verdict == "reproduced"
    assert verdict.growth("share", [0.2, 0.1]).verdict == "not reached"
    assert verdict.growth("share", [0.2]).verdict == "not measured"
    assert verdict.slope("energy", [1, 2, 4], [2, 5, 11]).verdict == "reproduced"
    assert verdict.slope("energy", [1, 4, 6], [2, 4.5, 11]).verdict == "not reached"
    assert verdict.slope("energy", [3, 4], [2, 5]).verdict == "not reached"
    assert verdict.slope("energy", [], []).verdict == "not measured"


def test_every_rule_is_told() -> None:
    used = {"ratio", "equal", "exact", "drop", "growth", "slope"}
    assert used == set(verdict.RULES)
