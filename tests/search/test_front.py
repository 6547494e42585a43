"""The front, and one of it within a budget."""

from __future__ import annotations

import numpy as np
import pytest

from softermax.search.front import (
    Figures,
    Found,
    dominates,
    found_of,
    pick,
    ranks,
    read_budget,
    spread,
    with_front,
    write_specs,
)
from softermax.spec import get_spec, load_spec


def point(name: str, area: float, energy: float, l1: float) -> Found:
    return Found(name, get_spec("paper"), Figures(area, energy, l1, 0.1, 1.0, area, energy))


SMALL, MIDDLE, EXACT, WORSE = (
    point("small", 1, 1, 3),
    point("middle", 2, 2, 2),
    point("exact", 3, 3, 1),
    point("worse", 3, 2, 2),
)


def test_ranks_count_who_dominates_whom() -> None:
    rng = np.random.default_rng(0)
    values = rng.integers(0, 5, (60, 3)).tolist()
    found = ranks(values)
    for mine, rank in zip(values, found, strict=True):
        above = [other for other, r in zip(values, found, strict=True) if dominates(other, mine)]
        best = [r for other, r in zip(values, found, strict=True) if dominates(other, mine)]
        assert rank == (max(best) + 1 if above else 0)


def test_the_front_is_what_none_dominates() -> None:
    found = with_front([WORSE, EXACT, SMALL, MIDDLE])
    assert [p.name for p in found if p.on_front] == ["small", "middle", "exact"]
    assert [p.name for p in spread(found, 2)] == ["exact", "small"]


def test_area_is_compared_per_lane() -> None:
    wide = Found("wide", get_spec("paper-32"), Figures(2, 1, 3, 0, 1, 2, 1))
    assert wide.values == point("narrow", 1, 1, 3).values


def test_a_budget_picks_the_most_accurate_and_a_loss_the_cheapest() -> None:
    found = with_front([WORSE, EXACT, SMALL, MIDDLE])
    assert pick(found, {"area": 2.5}, None) == found[1]
    picked = pick(found, {}, 2.0)
    assert picked is not None
    assert picked.name == "middle"
    assert pick(found, {"area": 1.5}, 2.0) is None


def test_a_row_is_a_point_again() -> None:
    assert found_of(MIDDLE.row()) == MIDDLE


def test_each_point_is_a_spec_file(tmp_path) -> None:
    written = write_specs([SMALL], tmp_path)
    assert load_spec(written["small"]) == SMALL.spec


@pytest.mark.parametrize("text", ["area", "area=", "colour=3", "area=3;energy=2"])
def test_a_budget_that_cannot_be_read_is_refused(text) -> None:
    with pytest.raises(ValueError, match="--budget"):
        read_budget(text)
    assert read_budget("area=3000, energy=0.5") == {"area": 3000.0, "energy": 0.5}
