"""The fast model of area and energy, held to what was measured."""

from __future__ import annotations

import numpy as np
import pytest

from softermax.search.fit import fit, nonnegative
from softermax.search.logic import VARIABLE, bits_of, decisions, rounded_shift, shifter
from softermax.search.residual import fitted
from softermax.search.silicon_model import CLOSE, FITTED, HELD_OUT, QUANTITIES, SEEN, SiliconModel, packaged
from softermax.spec import get_spec, spec_from_dict


@pytest.fixture(scope="module")
def model() -> SiliconModel:
    return SiliconModel.load()


@pytest.fixture(scope="module")
def rows() -> list:
    return packaged("measured.json")["rows"]


def test_specs_that_are_held_out_are_not_fitted_to(rows) -> None:
    sets = {name: [row for row in rows if row["set"] == name] for name in (FITTED, HELD_OUT, SEEN)}
    assert sum(map(len, sets.values())) == len(rows)
    assert packaged("fitted.json")["specs"] == len(sets[FITTED]) >= 200
    specs = {name: {str(row["spec"]) for row in found} for name, found in sets.items()}
    assert len(specs[HELD_OUT]) >= 20
    assert not specs[FITTED] & (specs[HELD_OUT] | specs[SEEN])


def test_the_packaged_fit_is_that_of_the_packaged_measurements(model, rows) -> None:
    """The counted terms are fitted in no time: they change with every row, and with every term."""
    few = fit([row for row in rows if row["set"] == FITTED][:40])
    whole = packaged("fitted.json")["parts"]
    assert set(few) <= set(whole)
    for name, part in few.items():
        assert set(part.costs) == set(whole[name]["costs"]), f"{name}: run python -m softermax.search.fit"


def test_specs_that_it_has_not_seen_are_within_ten_per_cent(model) -> None:
    found = {(error.quantity, error.kind): error for error in model.held_out()}
    stored = {(e["quantity"], e["kind"]): e for e in packaged("fitted.json")["errors"]["held out"]}
    for quantity in QUANTITIES:
        error = found[quantity, "all"]
        assert error.median < 0.05, error
        assert error.largest < CLOSE, error
        again = stored[quantity, "all"]
        assert (error.specs, error.close) == (again["specs"], again["close"]), (
            "run python -m softermax.search.fit"
        )
        assert error.median == pytest.approx(again["median"], rel=1e-3)


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
    assert 1.7 < areas[1] / areas[0] < 2.1


def test_what_waits_grows_with_the_row_and_deferred_keeps_none(model) -> None:
    short, long = (model.predict(get_spec("paper"), columns) for columns in (128, 2048))
    assert long.whole_area > short.whole_area > short.area == long.area
    deferred = model.predict(get_spec("paper:deferred"), 384)
    assert deferred.whole_area == deferred.area


def test_a_spec_without_hardware_is_refused(model) -> None:
    with pytest.raises(ValueError, match="slice_width = None"):
        model.predict(get_spec("whole-row"), 384)


def test_shifters_cost_nothing_where_bits_are_known() -> None:
    assert shifter((VARIABLE,) * 4, 0, 1).muxes == 3  # the top one is left with a gate
    assert shifter((VARIABLE,) * 4, 0, 1).ands == 1
    assert shifter((0, 0, 0, 0), 0, 3).size == 0
    assert shifter((0, 0, 0, 1), 0, 1).size == 0  # a bit that is one becomes the shift itself
    assert bits_of([0b100, 0b110], 3) == (0, VARIABLE, 1)
    even, up = (rounded_shift((VARIABLE,) * 8, 3, way) for way in ("half-even", "half-up"))
    assert even.shift.size > up.shift.size
    assert (even.collected, up.collected) == (7, 0)


def test_tables_count_each_function_once() -> None:
    assert decisions([0, 0, 0, 0], 1) == 0
    assert decisions([0, 1, 0, 1], 1) == 0  # a wire
    assert decisions([0, 0, 0, 1], 1) == 0.5
    assert decisions([0, 0b11, 0b11, 0], 2) == decisions([0, 1, 1, 0], 1)  # the same bit twice
    assert decisions([1, 0, 0, 1], 1) == decisions([0, 1, 1, 0], 1)  # and its complement


def test_the_residual_learns_what_is_left_and_knows_nothing_far_away() -> None:
    rng = np.random.default_rng(0)
    at = rng.uniform(-2, 2, (60, 2))
    left = fitted(at, 0.2 * np.sin(at[:, 0]), np.ones(60))
    inside = rng.uniform(-1.5, 1.5, (20, 2))
    assert np.abs([left(x) for x in inside] - 0.2 * np.sin(inside[:, 0])).max() < 0.05
    assert abs(left([40.0, 40.0])) < 1e-6


def test_costs_are_never_negative() -> None:
    matrix = np.array([[1.0, 1.0], [1.0, 2.0], [1.0, 3.0]])
    assert nonnegative(matrix, np.array([3.0, 2.0, 1.0])).min() >= 0
    assert nonnegative(matrix, np.array([1.0, 2.0, 3.0])) == pytest.approx([0.0, 1.0])


def test_every_measured_spec_is_of_the_space(rows) -> None:
    for row in rows[::20]:
        assert spec_from_dict(row["spec"]).to_dict() == row["spec"]
