"""Errors on recorded rows."""

from __future__ import annotations

import numpy as np
import pytest

from softermax.search.front import Figures, Found
from softermax.search.layers import Part, parts_of, search_parts
from softermax.search.objectives import RecordedRows, golden_error, layers_of, load_rows
from softermax.spec import get_spec


def test_errors_are_of_what_takes_part_only(rows) -> None:
    other = np.where(rows.mask, rows.scores, 31.0).astype(np.float32)
    disturbed = RecordedRows(rows.model, other, rows.mask, rows.layer, rows.head)
    spec = get_spec("paper+fold")
    assert golden_error(spec, disturbed) == golden_error(spec, rows)


def test_a_finer_spec_is_nearer_to_the_softmax(rows) -> None:
    fine = get_spec("paper+fold").replace(input="Q(8,4)", max="Q(9,4)", output="Q(1,12)", unnormed="Q(1,16)")
    wide = fine.replace(reciprocal="Q(1,12)", reciprocal_segments=32, powsum="Q(10,10)")
    assert golden_error(wide, rows).l1 < 0.3 * golden_error(get_spec("paper+fold"), rows).l1
    assert golden_error(get_spec("paper+fold"), rows).l1 < golden_error(get_spec("paper"), rows).l1
    assert golden_error(wide, rows).mass == pytest.approx(1.0, abs=0.02)


def test_rows_are_taken_evenly_and_by_layer(rows) -> None:
    assert len(rows.take(10)) == 10
    assert layers_of(rows.take(10)) == [0, 1]
    assert rows.take(1000) is rows
    assert set(rows.of_layer(1).layer) == {1}


def test_own_scores_come_from_a_file(rows, tmp_path) -> None:
    np.savez(tmp_path / "mine.npz", scores=rows.scores, mask=rows.mask)
    mine = load_rows(tmp_path / "mine.npz")
    assert mine.model == "mine"
    assert golden_error(get_spec("paper"), mine) == golden_error(get_spec("paper"), rows)
    np.savez(tmp_path / "bad.npz", scores=rows.scores[0])
    with pytest.raises(ValueError, match=r"bad.npz: not recorded scores .*must be \.npz"):
        load_rows(tmp_path / "bad.npz")


def test_a_wider_layer_gets_a_wider_word(rows) -> None:
    narrow, wide = parts_of(rows, by_head=False)
    assert narrow.integer_bits < wide.integer_bits


def test_each_part_gets_the_cheapest_that_is_within_the_limit(rows) -> None:
    def point(name: str, area: float, l1: float) -> Found:
        return Found(name, get_spec("paper"), Figures(area, 1.0, l1, 0.0, 1.0, area, 1.0))

    def find(part: Part) -> list[Found]:
        return [point("paper+fold", 9.0, 0.4), point("a", 1.0 + part.layer, 0.3), point("b", 0.5, 0.5)]

    parts = parts_of(rows, by_head=True)
    assert [part.name for part in parts] == ["layer-0-head-0", "layer-1-head-0"]
    picked = search_parts(parts, find, {}, None)
    assert [found.name for found in picked.values()] == ["a", "a"]
    assert {found.name for found in search_parts(parts, find, {}, 0.6).values()} == {"b"}
    with pytest.raises(ValueError, match="layer-0-head-0: no spec that was found is within the limits"):
        search_parts(parts, find, {}, 0.1)
