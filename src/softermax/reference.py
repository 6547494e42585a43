"""The paper's ladder in float64, four functions to lay beside Section III and its figure.

Each takes one row (the last axis of an array) and returns probabilities; with ``trace=True`` also
the values that the algorithm passes through. No rounding beyond float64's own: the difference
between two neighbours is the error of one idea of the paper.

>>> y, trace = softermax([2.0, 1.0, 3.0], trace=True)
>>> trace.sums.tolist()
[1.0, 1.5, 1.75]
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

FloatArray = NDArray[np.float64]


@dataclass(frozen=True)
class LadderTrace:
    """What a function of the ladder passes through, along the last axis."""

    maxima: FloatArray
    """The max each element was exponentiated with."""
    unnormed: FloatArray
    """Powers, relative to that max."""
    sums: FloatArray
    """The denominator after each element."""


Result = FloatArray | tuple[FloatArray, LadderTrace]


@overload
def softmax(x: ArrayLike, *, trace: Literal[False] = False) -> FloatArray: ...
@overload
def softmax(x: ArrayLike, *, trace: Literal[True]) -> tuple[FloatArray, LadderTrace]: ...
def softmax(x: ArrayLike, *, trace: bool = False) -> Result:
    """Numerically stable softmax in three passes: maximum, sum, division."""
    return _three_passes(x, np.exp, trace)


@overload
def base_two(x: ArrayLike, *, trace: Literal[False] = False) -> FloatArray: ...
@overload
def base_two(x: ArrayLike, *, trace: Literal[True]) -> tuple[FloatArray, LadderTrace]: ...
def base_two(x: ArrayLike, *, trace: bool = False) -> Result:
    """The same with base two instead of e."""
    return _three_passes(x, np.exp2, trace)


@overload
def base_two_online(x: ArrayLike, *, trace: Literal[False] = False) -> FloatArray: ...
@overload
def base_two_online(x: ArrayLike, *, trace: Literal[True]) -> tuple[FloatArray, LadderTrace]: ...
def base_two_online(x: ArrayLike, *, trace: bool = False) -> Result:
    """Base two with the max found on the way: the sum is renormalised when the max grows."""
    return _online(x, lambda v: v, trace)


@overload
def softermax(x: ArrayLike, *, trace: Literal[False] = False) -> FloatArray: ...
@overload
def softermax(x: ArrayLike, *, trace: Literal[True]) -> tuple[FloatArray, LadderTrace]: ...
def softermax(x: ArrayLike, *, trace: bool = False) -> Result:
    """Base two, online, with an integer max: every renormalisation is a shift."""
    return _online(x, np.ceil, trace)


LADDER: dict[str, Callable[[ArrayLike], FloatArray]] = {
    "softmax": softmax,
    "base two": base_two,
    "base two, online": base_two_online,
    "base two, online, integer max": softermax,
}


def _row(x: ArrayLike) -> FloatArray:
    row = np.asarray(x)
    if row.dtype.kind not in "fiu":
        raise TypeError(f"scores must be real numbers, got dtype {row.dtype}")
    row = row.astype(np.float64)
    if row.ndim == 0 or row.shape[-1] == 0:
        raise ValueError(f"a row needs at least one score, got shape {row.shape}")
    if not np.isfinite(row).all():
        at = tuple(int(i) for i in np.argwhere(~np.isfinite(row))[0])
        raise ValueError(f"scores must be finite, got {row[at]} at {at}")
    return row


def _three_passes(x: ArrayLike, power: Callable[[FloatArray], FloatArray], trace: bool) -> Result:
    x = _row(x)
    m = x.max(axis=-1, keepdims=True)
    unnormed = power(x - m)
    d = np.cumsum(unnormed, axis=-1)
    y = unnormed / d[..., -1:]
    return (y, LadderTrace(np.broadcast_to(m, x.shape), unnormed, d)) if trace else y


def _online(x: ArrayLike, integer: Callable[[FloatArray], FloatArray], trace: bool) -> Result:
    x = _row(x)
    m, unnormed, d = np.empty_like(x), np.empty_like(x), np.empty_like(x)
    running_max = np.full(x.shape[:-1], -np.inf)
    running_sum = np.zeros(x.shape[:-1])
    for j in range(x.shape[-1]):
        new_max = np.maximum(running_max, integer(x[..., j]))
        unnormed[..., j] = np.exp2(x[..., j] - new_max)
        running_sum = running_sum * np.exp2(running_max - new_max) + unnormed[..., j]
        running_max = new_max
        m[..., j], d[..., j] = running_max, running_sum
    y = unnormed * np.exp2(m - running_max[..., None]) / running_sum[..., None]
    return (y, LadderTrace(m, unnormed, d)) if trace else y
