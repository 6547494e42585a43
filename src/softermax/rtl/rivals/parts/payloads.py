"""The payloads of the rivals' streams, lane by lane."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Shape, unsigned
from amaranth.lib import data

from softermax.rtl.sizes import MAX_LANES, check_count

INT8 = Shape(8, True)
"""The scores of most."""


def check_lanes(lanes: object) -> int:
    return check_count("lanes", lanes, MAX_LANES)


def slice_layout(score: Shape, lanes: int) -> data.StructLayout:
    """A slice of scores: which lanes take part, and where in its row it stands."""
    return data.StructLayout(
        {"x": data.ArrayLayout(score, lanes), "mask": unsigned(lanes), "first": 1, "last": 1}
    )


def scores_layout(score: Shape, lanes: int) -> data.StructLayout:
    """A slice of scores of a finished row."""
    return data.StructLayout({"x": data.ArrayLayout(score, lanes), "mask": unsigned(lanes), "last": 1})


def words_layout(word: Shape, lanes: int, beside: dict[str, Any] | None = None) -> data.StructLayout:
    """A slice of words that wait for their row's sum, and what belongs to the slice."""
    return data.StructLayout({"u": data.ArrayLayout(word, lanes), **(beside or {}), "last": 1})


def output_layout(word: Shape, lanes: int) -> data.StructLayout:
    """A slice of output words."""
    return data.StructLayout({"y": data.ArrayLayout(word, lanes), "last": 1})
