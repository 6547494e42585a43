"""What a row's sum and a score's distance below the max make of a word, counted through by the golden model, for ONNX's look-ups."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from softermax.extras import need
from softermax.spec import SoftermaxSpec

if not TYPE_CHECKING:
    need("torch", "torch")

import numpy as np
import torch

from softermax import golden
from softermax.pytorch import words

if TYPE_CHECKING:
    from softermax.fixedpoint import IntArray


@dataclass(frozen=True)
class Tables:
    """What a row's sum decides: its state, and by states the output words of all distances and the leading one."""

    states: tuple[int, ...]
    """Of every sum; where ``exact`` is a number, of the sums below it, then of the others without their last bits."""
    exact: int | None
    drop: int
    words: tuple[float, ...]
    leading_ones: tuple[int, ...]


_MOST_SUM_BITS, _MOST_STATES = 24, 1 << 16
_MOST_WORDS = 1 << 18


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
def tables(spec: SoftermaxSpec) -> Tables | None:
    return _made(spec)


@lru_cache(maxsize=64)
def _made(spec: SoftermaxSpec) -> Tables | None:
    """By the golden model. None where they would be large: sums of many bits, or reciprocals of many values."""
    bits, distances = spec.powsum.bits, distances_of(spec)
    if bits > _MOST_SUM_BITS:
        return None
    leading_one, recip = golden.reciprocal(np.arange(1 << bits), spec)
    pairs, states = np.unique(leading_one * (1 << 32) + recip, return_inverse=True)
    split = _split(states, bits)
    if split is None or len(pairs) * len(distances) > _MOST_WORDS:
        return None
    exact, drop = split
    found = states if exact is None else np.concatenate([states[:exact], states[:: 1 << drop]])
    leading_one, recip = pairs >> 32, pairs & 0xFFFFFFFF
    if spec.normalization == "row-products":
        products = golden.row_products(recip, spec)[:, None]
        steps = np.broadcast_to(np.array(distances), (len(pairs), 1, len(distances)))
        y, _ = golden.normalize_scores(steps, 0, leading_one[:, None, None], products, spec)
    else:
        numerators = np.array(words.plan(spec).unnormed[-len(distances) :]).astype(np.int64)
        y = golden.normalize(numerators, leading_one[:, None], recip[:, None], spec)
    return Tables(
        tuple(found.tolist()),
        exact,
        drop,
        tuple(y.ravel().astype(float).tolist()),
        tuple(leading_one.tolist()),
    )


def _split(states: IntArray, bits: int) -> tuple[int | None, int] | None:
    """From which sum on how many of its last bits make no difference, so that a table of `_MOST_STATES` is enough."""
    for low in range((bits + 1) // 2, bits):
        drop = bits - low
        blocks = states.reshape(-1, 1 << drop)[(1 << low) >> drop :]
        if (blocks == blocks[:, :1]).all():
            return 1 << low, drop
    return (None, 0) if 1 << bits <= _MOST_STATES else None


@lru_cache(maxsize=64)
def distances_of(spec: SoftermaxSpec) -> tuple[int, ...]:
    """Raw differences x - m from the highest that leaves no output word, whatever the row, to the largest there is.

    None where a lane's word depends on more than that, or on too wide a word to be counted through.
    """
    p = words.plan(spec)
    if not p.narrow:
        return ()
    one = 1 << spec.input.fraction
    if spec.normalization == "row-products":
        # Shifts of more than the product's bits and one leave nothing; a sum's leading one is at 0 or above.
        by = spec.product.fraction - spec.output.fraction
        if spec.output_mode == "fixed":
            by -= spec.powsum.fraction
        lowest = (min(by, 0) - spec.product.bits - 2) * one
    elif spec.slice_width is None or spec.unnormed_rounding == "truncate":
        zeros = next(i for i, word in enumerate(p.unnormed) if word)
        lowest = p.first - 1 + zeros - 1
    else:
        return ()
    return tuple(range(lowest, one))
