"""What NumPy and PyTorch name alike, so that a design is written once and runs on both.

Functions take ``axis`` and ``keepdims`` in either library; integers are 64 bits wide, floats double unless said otherwise.
"""

from __future__ import annotations

import sys
from typing import Any, TypeAlias

import numpy as np

Array: TypeAlias = Any
"""A NumPy array or a PyTorch tensor."""


def namespace(x: Array) -> Any:
    """The library of an array. PyTorch is not imported: who has a tensor has it already."""
    return np if isinstance(x, np.ndarray) else sys.modules["torch"]


def cast(x: Array, dtype: str) -> Array:
    """``x`` in a type that both libraries name ``dtype``."""
    return x.astype(dtype) if isinstance(x, np.ndarray) else x.to(getattr(namespace(x), dtype))


def look_up(table: np.ndarray[Any, Any], index: Array) -> Array:
    xp = namespace(index)
    return table[index] if xp is np else xp.from_numpy(table).to(index.device)[index]


def largest(x: Array, keep: Array, lowest: int) -> Array:
    """The largest of each row's elements that take part; ``lowest`` where none does."""
    xp = namespace(x)
    return xp.amax(xp.where(keep, x, lowest), axis=-1, keepdims=True)


def row_sum(x: Array) -> Array:
    return namespace(x).sum(x, axis=-1, keepdims=True)


def leading_one(x: Array) -> Array:
    """The position of a positive integer's highest one; 0 for 0."""
    xp = namespace(x)
    place = xp.zeros_like(x)
    for step in (32, 16, 8, 4, 2, 1):
        high = cast((x >> (place + step)) > 0, "int64")
        place = place + step * high
    return place


def divided_half_even(a: Array, b: Array) -> Array:
    """a / b rounded to the nearest integer, ties to even; both are integers, b positive."""
    doubled = 2 * a + b
    quotient = doubled // (2 * b)
    tie = cast(doubled == quotient * 2 * b, "int64")
    return quotient - (tie & quotient & 1)


def slices(x: Array, width: int, fill: float) -> Array:
    """Rows as (..., slices, width), the last slice filled up."""
    xp = namespace(x)
    missing = -x.shape[-1] % width
    if missing:
        filler = xp.full_like(x[..., :1], fill)
        x = xp.concatenate([x, xp.broadcast_to(filler, (*x.shape[:-1], missing))], axis=-1)
    return x.reshape(*x.shape[:-1], -1, width)


def running_max(x: Array) -> Array:
    """The largest so far, along the last axis."""
    return np.maximum.accumulate(x, axis=-1) if isinstance(x, np.ndarray) else x.cummax(-1).values
