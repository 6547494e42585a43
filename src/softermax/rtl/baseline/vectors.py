"""What the baselines' units are fed and what they must answer, from `model`: the fields of every stream, by name.

Scores are the bits of half-precision numbers, (rows, columns), as in `model`.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from softermax.fixedpoint import IntArray
from softermax.golden import BoolArray
from softermax.rtl.baseline import model
from softermax.rtl.vectors import Fields, Streams, answers, cut, places, slice_fields

UnnormedModel = Callable[[IntArray, BoolArray, int], tuple[IntArray, IntArray]]
"""Exponentials and sums of rows, as `model.unnormed` and `generic.model.unnormed`."""
DivideModel = Callable[[IntArray, IntArray], IntArray]


def two_pass_streams(
    lanes: int, x: IntArray, mask: BoolArray, unnormed: UnnormedModel = model.unnormed
) -> Streams:
    """`Unnormed`: slices of scores, twice; exponentials and the sum of each row out."""
    e, total = unnormed(x, mask, lanes)
    slices = slice_fields(lanes, x, mask)
    exponentials = {"u": cut(e, lanes), "last": slices["last"]}
    return {
        "first_pass": slices,
        "second_pass": slices,
        "unnormed": exponentials,
        "sums": {"powsum": total},
    }


def division_streams(
    lanes: int,
    x: IntArray,
    mask: BoolArray,
    unnormed: UnnormedModel = model.unnormed,
    divide: DivideModel = model.divide,
) -> Streams:
    """`Normalization`: exponentials and the sum of each row in, probabilities out."""
    e, total = unnormed(x, mask, lanes)
    u = cut(e, lanes)
    divisors = np.repeat(total, len(u) // len(total))
    last = places(len(total), len(u) // len(total))["last"]
    return {
        "unnormed": {"u": u, "last": last},
        "sums": {"powsum": total},
        "probabilities": {"y": divide(u, np.broadcast_to(divisors[:, None], u.shape)), "last": last},
    }


def online_streams(lanes: int, x: IntArray, mask: BoolArray, open_rows: int = 1) -> Streams:
    """`OnlineUnnormed`: slices of scores, once; exponentials, the running max and the sum of each row out."""
    row = model.online(x, mask, lanes)
    # The sums of a row as it grows are nobody's business but the unit's: only the last one leaves it.
    totals = np.repeat(row.total[:, None], row.largest.shape[1], axis=1)
    words = {"u": row.e, "max": row.largest}
    return {"slices": slice_fields(lanes, x, mask, open_rows)} | answers(words, totals, open_rows)


def factor_streams(lanes: int, x: IntArray, mask: BoolArray) -> Streams:
    """`OnlineNormalization`: the max of each slice, max and sum of each row, exponentials in; probabilities out."""
    row = model.online(x, mask, lanes)
    last = places(*row.largest.shape)["last"]
    return {
        "maxima": {"max": row.largest.reshape(-1), "last": last},
        "rows": {"max": row.largest[:, -1], "powsum": row.total},
        "unnormed": {"u": row.e.reshape(-1, lanes), "last": last},
        "probabilities": _words("y", model.online_softmax(x, mask, lanes), lanes),
    }


def _words(name: str, values: IntArray, lanes: int) -> Fields:
    words = cut(values, lanes)
    return {name: words, "last": places(len(values), len(words) // len(values))["last"]}
