"""Which of the designs that were built nobody beats."""

from __future__ import annotations

from typing import Any

from softermax.report.document import Section
from softermax.report.sections import rivals
from softermax.report.sources import Sources
from softermax.rivals.pareto import beaten_by, front, wholes


def built(name: str, area: float, pj: float, l1: float, **other: Any) -> dict[str, Any]:
    silicon = {"unit": "whole", "width": 16, "library": "nangate45", "slack_ns": 0.1}
    return (
        {"name": name, "kind": "rival", "area_um2": area, "pj_per_element": pj, "l1_recorded": l1}
        | silicon
        | other
    )


ROWS = [
    built("near", 300.0, 3.0, 0.1),
    built("cheap", 100.0, 1.0, 0.4),
    built("worse", 200.0, 2.0, 0.5),
    built("same", 300.0, 4.0, 0.1),
    built("other width", 1.0, 1.0, 0.0, width=32),
    built("half of one", 1.0, 1.0, 0.0, unit="unnormed"),
    {"name": "not built", "kind": "rival", "l1_recorded": 0.0},
]


def test_whole_softmaxes_of_one_width_stand_by_their_area() -> None:
    assert [row["name"] for row in wholes(ROWS, 16, "nangate45")] == ["cheap", "worse", "near", "same"]
    assert wholes(ROWS, 16, "asap7") == []


def test_on_the_front_is_who_has_the_least_error_for_the_cost() -> None:
    found = wholes(ROWS, 16, "nangate45")
    assert front(found, "area_um2") == ["cheap", "near"]
    assert front(found[::-1], "pj_per_element") == ["cheap", "near"]


def test_beaten_is_who_is_worse_somewhere_and_better_nowhere() -> None:
    found = {row["name"]: row for row in wholes(ROWS, 16, "nangate45")}
    costs = ("area_um2", "pj_per_element")
    assert beaten_by(found["worse"], ROWS[:4], costs) == ["cheap"]
    assert beaten_by(found["same"], ROWS[:4], costs) == ["near"]
    assert beaten_by(found["near"], ROWS[:4], costs) == []


def test_the_report_says_what_is_not_measured() -> None:
    found: Section = rivals.section(Sources([], use_stored=False))
    assert "softermax rivals --out" in found.notes[0]
    assert not found.tables
