"""The space: every field of a spec is a dimension, and the spec's own validation decides what is a point."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from softermax.search.presets import presets_at
from softermax.search.space import Space
from softermax.spec import DeferredSpec, SoftermaxSpec, get_spec


@pytest.mark.parametrize(("kind", "made"), [("rows", SoftermaxSpec), ("deferred", DeferredSpec)])
def test_drawn_points_are_specs_and_every_field_varies(kind, made) -> None:
    space = Space.of(kind, [8, 16])
    rng = np.random.default_rng(0)
    specs = [space.draw(rng) for _ in range(300)]
    assert all(isinstance(spec, made) for spec in specs)
    for field in dataclasses.fields(made):
        assert len({str(getattr(spec, field.name)) for spec in specs}) > 1, field.name


UNUSED_BY_DEFERRED = {
    "powsum", "reciprocal", "output", "reciprocal_segments", "powsum_rounding", "output_rounding", "output_mode", "normalization",
    "product",
}  # fmt: skip
"""Fields of a deferred spec's scores that A8 does not use: `softermax.search.space` says so."""


def test_fields_of_a_deferred_specs_scores_vary_unless_they_are_not_used() -> None:
    """A field that a spec gets must become a dimension, or be named here."""
    space, rng = Space.of("deferred", [8, 16]), np.random.default_rng(0)
    drawn = [space.draw(rng) for _ in range(300)]
    scores = [spec.scores for spec in drawn if isinstance(spec, DeferredSpec)]
    fields = {field.name for field in dataclasses.fields(SoftermaxSpec)}
    assert fields >= UNUSED_BY_DEFERRED
    for name in fields - UNUSED_BY_DEFERRED:
        assert len({str(getattr(spec, name)) for spec in scores}) > 1, name


def test_every_dimension_says_what_it_is() -> None:
    for kind in ("rows", "deferred"):
        for row in Space.of(kind).described():
            assert row["what it is"], row


@pytest.mark.parametrize("kind", ["rows", "deferred"])
def test_a_spec_lies_where_it_came_from(kind) -> None:
    space = Space.of(kind)
    rng = np.random.default_rng(1)
    for _ in range(50):
        spec = space.draw(rng)
        point = space.point(spec)
        assert point is not None
        assert space.spec(point) == spec


def test_presets_are_in_the_space() -> None:
    space = Space.of()
    for name, spec in presets_at("rows", 16).items():
        point = space.point(spec)
        assert point is not None, name
        assert space.spec(point) == spec, name
    assert {"paper", "paper+fold", "lean", "lean-row-scaled+fold"} <= set(presets_at("rows", 16))
    assert "paper+fold:deferred" in presets_at("deferred", 16)


def test_what_validation_refuses_is_no_point() -> None:
    space = Space.of()
    paper = space.point(get_spec("paper"))
    assert paper is not None
    with pytest.raises(ValueError, match="powsum"):
        space.spec(paper | {"unnormed_fraction": 5, "powsum_fraction": 6})


def test_held_fields_have_one_value() -> None:
    space = Space.of("rows", [16], {"output": "Q(1,7)", "base": "fold", "unnormed_fraction": "20"})
    rng = np.random.default_rng(0)
    specs = [space.draw(rng) for _ in range(20)]
    assert {str(spec.output) for spec in specs} == {"Q(1,7)"}
    assert {spec.base for spec in specs} == {"fold"}
    assert {spec.unnormed.fraction for spec in specs} == {20}
    assert space.point(get_spec("paper")) is None


@pytest.mark.parametrize(
    ("fixed", "said"),
    [
        ({"colour": "red"}, "fixed field 'colour': must be one of input, powsum, output, input_integer"),
        ({"base": "e"}, "base = e: must be paper or fold"),
        ({"powsum_fraction": "many"}, "powsum_fraction = many: must be a number"),
        ({"weight": "Q(0,8)"}, "fixed field 'weight'"),
    ],
)
def test_a_field_that_cannot_be_held_is_named(fixed, said) -> None:
    with pytest.raises(ValueError, match=said):
        Space.of("rows", [16], fixed)


def test_a_space_without_any_spec_says_so() -> None:
    space = Space.of("rows", [16], {"unnormed_fraction": "5", "powsum_fraction": "9"})
    with pytest.raises(ValueError, match="hold fewer fields"):
        space.draw(np.random.default_rng(0))
