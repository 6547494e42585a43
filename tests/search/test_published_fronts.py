"""The searches that the site publishes, held to what it says of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from softermax.results import Envelope
from softermax.search.front import OBJECTIVES, dominates, found_of, ranks

RESULTS = Path(__file__).parents[2] / "docs" / "results"
SEARCHES = ("minilm-128", "minilm-384", "mpnet-384", "smollm2-2048")

pytestmark = pytest.mark.skipif(not RESULTS.is_dir(), reason="the site's results are not in this tree")


def rows_of(search: str) -> dict[str, dict]:
    return {row["name"]: row for row in Envelope.load(RESULTS / f"search-{search}.json").rows}


@pytest.mark.parametrize("search", SEARCHES)
def test_rows_are_points_and_the_front_is_what_none_dominates(search) -> None:
    rows = list(rows_of(search).values())
    assert [found_of(row).row() for row in rows] == [{k: row[k] for k in found_of(row).row()} for row in rows]
    rank = ranks([[row[name] for name in OBJECTIVES] for row in rows])
    assert [row["front"] for row in rows] == [r == 0 for r in rank]


@pytest.mark.parametrize("search", SEARCHES)
@pytest.mark.parametrize("preset", ["paper", "paper+fold"])
def test_the_front_has_a_spec_that_dominates_the_papers(search, preset) -> None:
    rows = rows_of(search)
    paper = [rows[preset][name] for name in OBJECTIVES]
    assert any(row["front"] and dominates([row[name] for name in OBJECTIVES], paper) for row in rows.values())


@pytest.mark.parametrize("preset", ["paper", "paper+fold"])
def test_it_does_so_on_measured_netlists_at_384(preset) -> None:
    """Within the clock, too."""
    rows = rows_of("minilm-384")
    names = ("measured_area", "measured_energy", "l1")
    paper = [rows[preset][name] for name in names]
    better = [
        row["name"]
        for row in rows.values()
        if row["trial"] is not None
        and row.get("measured_slack_ns", -1) >= 0
        and dominates([row[n] for n in names], paper)
    ]
    assert better


@pytest.mark.parametrize("search", SEARCHES)
def test_rivals_on_the_fronts_are_those_that_were_measured_last(search) -> None:
    measured: dict[str, dict[str, dict]] = {}
    for row in Envelope.load(RESULTS / "rivals-silicon.json").rows:
        if (row["width"], row["library"]) == (16, "nangate45"):
            measured.setdefault(row["name"], {})[row["unit"]] = row
    rivals = Envelope.load(RESULTS / f"search-{search}.json").notes["rivals"]
    assert rivals
    for rival in rivals:
        units = measured[rival["name"]]
        own = units.get("both units", units["whole"])
        assert rival["area"] == pytest.approx(own["area_um2"], rel=1e-5), rival["name"]
        assert rival["energy"] == pytest.approx(own["pj_per_element"], rel=1e-5), rival["name"]
