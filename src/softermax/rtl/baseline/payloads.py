"""The payloads of the streams of the baseline's units, lane by lane as those of Softermax's."""

from __future__ import annotations

from amaranth.hdl import unsigned
from amaranth.lib import data

from softermax.rtl.payloads import row_id
from softermax.rtl.sizes import MAX_LANES, check_count

HALF = unsigned(16)


def check_lanes(lanes: object) -> int:
    return check_count("lanes", lanes, MAX_LANES)


def halves(lanes: int) -> data.ArrayLayout:
    return data.ArrayLayout(HALF, lanes)


def slice_layout(lanes: int, rows: int = 1) -> data.StructLayout:
    """A slice of scores: which lanes take part, and where in its row it stands."""
    return data.StructLayout(
        {"x": halves(lanes), "mask": unsigned(lanes), **row_id(rows), "first": 1, "last": 1}
    )


def unnormed_layout(lanes: int) -> data.StructLayout:
    """A slice of exponentials."""
    return data.StructLayout({"u": halves(lanes), "last": 1})


def online_layout(lanes: int, rows: int = 1) -> data.StructLayout:
    """A slice of exponentials and the running max that they refer to; in a row's last slice the row's max."""
    return data.StructLayout({"u": halves(lanes), "max": HALF, **row_id(rows), "last": 1})


def sum_layout(rows: int = 1) -> data.StructLayout:
    """The sum of a finished row."""
    return data.StructLayout({"powsum": HALF, **row_id(rows)})


def finished_row_layout() -> data.StructLayout:
    """What the online normalization must know of a row before its first slice."""
    return data.StructLayout({"max": HALF, "powsum": HALF})


def slice_max_layout() -> data.StructLayout:
    """The running max that a slice of exponentials refers to."""
    return data.StructLayout({"max": HALF, "last": 1})


def output_layout(lanes: int) -> data.StructLayout:
    """A slice of probabilities."""
    return data.StructLayout({"y": halves(lanes), "last": 1})
