"""The fast model of area and energy, held to what was measured."""

from __future__ import annotations

import json
from importlib.resources import files

import numpy as np
import pytest

from softermax.search.silicon_model import SiliconModel
from softermax.spec import get_spec


@pytest.fixture(scope="module")
def model() -> SiliconModel:
    return SiliconModel.load()


def test_it_is_fitted_to_the_measured_file(model) -> None:
    made = json.loads(files("softermax.search").joinpath("measured.json").read_text(encoding="utf-8"))
    assert len(model.rows) == len(made["rows"]) >= 40
    assert made["command"].startswith("python -m softermax.search.measure")


def test_most_specs_that_it_has_not_seen_are_within_ten_per_cent(model) -> None:
    for error in model.held_out():
        assert error.specs == len(model.rows)
        assert error.median < 0.10, error


def test_a_wider_word_never_makes_a_unit_smaller(model) -> None:
    paper = get_spec("paper")
    for field, words in {
        "unnormed": ["Q(1,8)", "Q(1,12)", "Q(1,15)"],
        "powsum": ["Q(8,6)", "Q(12,6)", "Q(16,6)"],
        "reciprocal": ["Q(1,5)", "Q(1,8)", "Q(1,11)"],
    }.items():
        areas = [model.predict(paper.replace(**{field: word}), 384).area for word in words]
        assert np.all(np.diff(areas) > 0), field


def test_twice_the_lanes_are_about_twice_the_area(model) -> None:
    areas = [model.predict(get_spec("paper").replace(slice_width=width), 384).area for width in (16, 32)]
    assert 1.7 < areas[1] / areas[0] < 2.05


def test_what_waits_grows_with_the_row_and_deferred_keeps_none(model) -> None:
    short, long = (model.predict(get_spec("paper"), columns) for columns in (128, 2048))
    assert long.whole_area > short.whole_area > short.area == long.area
    deferred = model.predict(get_spec("paper:deferred"), 384)
    assert deferred.whole_area == deferred.area


def test_a_spec_without_hardware_is_refused(model) -> None:
    with pytest.raises(ValueError, match="slice_width = None"):
        model.predict(get_spec("whole-row"), 384)
