"""What bodies are run on: rows of words, rows of float scores and operands of attention, chosen to be hard."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from softermax.fixedpoint import IntArray
from softermax.golden import BoolArray
from softermax.spec import AnySpec, DeferredSpec, SoftermaxSpec

FloatArray: TypeAlias = NDArray[np.floating[Any]]


@dataclass(frozen=True)
class Case:
    """Rows of raw words and the elements that take part."""

    name: str
    raw: IntArray
    mask: BoolArray


@dataclass(frozen=True)
class ScoreCase:
    """Rows of float scores and the elements that take part; the others hold anything."""

    name: str
    scores: FloatArray
    mask: BoolArray


@dataclass(frozen=True)
class AttentionCase:
    """Operands of int8 attention, as `softermax.golden.attention.attention` takes them."""

    name: str
    q: NDArray[np.int8]
    k: NDArray[np.int8]
    v: NDArray[np.int8]
    scale: float
    value_scale: float = 1.0
    mask: BoolArray | None = None
    causal: bool = False


def scores_of(spec: AnySpec) -> SoftermaxSpec:
    """The spec by which scores become words."""
    return spec.scores if isinstance(spec, DeferredSpec) else spec


def saturating_columns(spec: AnySpec) -> int:
    """Columns of a row that has more than PowSum can hold, unless that is very long."""
    return min(4 * (spec.powsum.high >> spec.powsum.fraction), 5000)


def longest_row(spec: AnySpec) -> int:
    """Columns of the longest of the `cases`."""
    width = scores_of(spec).slice_width or 16
    return max(384, 3 * width + 5, saturating_columns(spec))


def cases(spec: AnySpec, rows: int, seed: int = 0, pairs: float = 1.0) -> Iterator[Case]:
    """Exhaustive, adversarial and random rows for a spec.

    ``rows`` is the size of the random part, ``pairs`` the share of all pairs of scores, of which some are drawn.
    """
    scores = scores_of(spec)
    low, high = scores.input.low, scores.input.high
    rng = np.random.default_rng(seed)

    def whole(name: str, raw: IntArray) -> Case:
        return Case(name, raw, np.ones(raw.shape, dtype=np.bool_))

    if scores.input.bits <= 8:
        words = np.arange(low, high + 1, dtype=np.int64)
        both = np.stack(np.meshgrid(words, words, indexing="ij"), axis=-1).reshape(-1, 2)
        some = np.sort(rng.permutation(len(both))[: int(len(both) * pairs)])
        yield whole("all pairs", both) if pairs >= 1 else whole("pairs", both[some])
        yield whole("all single scores", words[:, None])
    width = scores.slice_width or 16
    for columns in (1, width - 1, width, width + 1, 3 * width + 5, 384):
        if columns < 1:
            continue
        ramp = np.clip(low + np.arange(columns, dtype=np.int64), low, high)
        extremes = np.where(np.arange(columns) % 2 == 0, low, high).astype(np.int64)
        equal = np.repeat(np.array([[low], [0], [1], [high]], dtype=np.int64), columns, axis=1)
        yield whole("rising, falling", np.stack([ramp, ramp[::-1], extremes, extremes[::-1]]))
        yield whole("equal", equal)
        late = np.full((1, columns), low, dtype=np.int64)
        late[0, -1] = high
        yield whole("late maximum", late)
        raw = rng.integers(low, high + 1, size=(16, columns), dtype=np.int64)
        mask = rng.random(raw.shape) < 0.5
        mask[0], mask[1, 1:], mask[2, : columns // 2] = False, False, False
        yield Case("masked", raw, mask)
    yield whole("PowSum saturates", np.full((2, saturating_columns(spec)), high, dtype=np.int64))
    spread = max(1, (high - low) // 16)
    for columns in (64, 128, 384):
        raw = np.clip(np.rint(rng.normal(0, spread, (rows, columns))), low, high).astype(np.int64)
        yield whole("random", raw)
        lengths = rng.integers(0, columns + 1, size=(rows, 1))
        yield Case("random, padded", raw, np.arange(columns) < lengths)


def score_cases(spec: AnySpec, rows: int, dtype: str, seed: int = 0) -> Iterator[ScoreCase]:
    """Float scores where A1 decides: ties and words with their neighbours, both ends of the word, subnormal and huge
    scores; and ``rows`` random rows."""
    scores = scores_of(spec)
    kind = np.dtype(dtype).type
    rng = np.random.default_rng(seed)
    low, high = scores.input.low, scores.input.high
    if scores.input.bits <= 8:
        ticks = np.arange(low - 2, high + 3)
    else:
        near = np.concatenate([tick + np.arange(-3, 4) for tick in (low, 0, high)])
        ticks = np.unique(np.append(near, rng.integers(low, high + 1, 60)))

    def full(name: str, x: FloatArray) -> ScoreCase:
        return ScoreCase(name, x, np.ones(x.shape, dtype=np.bool_))

    def beside(x: FloatArray) -> FloatArray:
        """Each value with two neighbours on either side."""
        down, up = np.nextafter(x, kind(-np.inf)), np.nextafter(x, kind(np.inf))
        return np.stack(
            [np.nextafter(down, kind(-np.inf)), down, x, up, np.nextafter(up, kind(np.inf))], axis=-1
        )

    words = (ticks / scores.input_scale).astype(kind)
    halves = ((ticks + 0.5) / scores.input_scale).astype(kind)
    decided = np.concatenate([beside(words), beside(halves)], axis=1)
    # Beside a word of about the same size, so that one raw unit shows in the result.
    partners = np.broadcast_to(words[:, None], decided.shape)
    yield full("ties, one per row", np.stack([decided.ravel(), partners.ravel()], axis=1))
    # Eight ticks to a row: where no score saturates, all take the vector path.
    together = decided[: len(ticks) // 8 * 8].reshape(-1, 8 * decided.shape[1])
    yield full("ties, side by side", together)
    tiny = np.finfo(kind).smallest_subnormal
    subnormal = np.array(
        [tiny, -tiny, 3 * tiny, -3 * tiny, np.finfo(kind).tiny, -np.finfo(kind).tiny, 0.0, -0.0], kind
    )
    huge = np.array([1, 0.25, 1e-3, -1e-3, -0.25, -1], kind) * np.finfo(kind).max
    limits = np.array([2.0 ** (scores.input.integer - 1), -(2.0 ** (scores.input.integer - 1)), 0.0], kind)
    yield full(
        "subnormal", np.stack([np.append(subnormal, limits[2]), np.append(subnormal, limits[2])[::-1]])
    )
    yield full("huge", np.stack([np.append(huge, limits), np.append(limits, huge)]))
    yield full("huge or subnormal, alone", np.concatenate([subnormal, huge, limits])[:, None])
    spread = 2.0 ** (scores.input.integer - 3)
    for columns in (40, 150) if rows else ():
        x = rng.normal(0, spread, (rows, columns)).astype(kind)
        mask = rng.random(x.shape) < 0.8
        mask[:1] = False
        yield full("random", x)
        yield full("random, wide", x * kind(6))
        hidden = rng.choice([np.nan, np.inf, -np.inf, float(np.finfo(kind).max)], x.shape).astype(kind)
        yield ScoreCase("masked", np.where(mask, x, hidden), mask)


def attention_cases(spec: AnySpec, seed: int = 0) -> Iterator[AttentionCase]:
    """Attention with every kind of mask, with scores on ties and beside them, saturated, rising and all alike."""
    rng = np.random.default_rng(seed)
    scale = scores_of(spec).input_scale

    def drawn(heads: int, length: int, size: int, most: int = 127) -> NDArray[np.int8]:
        return rng.integers(-most, most + 1, (2, heads, length, size)).astype(np.int8)

    q, k, v = drawn(4, 19, 24), drawn(2, 45, 24), drawn(2, 45, 24)
    spread = (
        2.0 ** (scores_of(spec).input.integer - 3) / 26_000
    )  # products of 24 such numbers spread by 26,000
    yield AttentionCase("random", q, k, v, spread, 0.01)
    yield AttentionCase("saturated", q, k, v, 100 * spread)
    yield AttentionCase("causal", q, k, v, spread, 0.5, causal=True)
    mask = rng.random((2, 1, 19, 45)) < 0.6
    mask[0, 0, 3] = False
    yield AttentionCase("masked", q, k, v, spread, 0.37, mask)
    small = drawn(3, 9, 4, 3), drawn(3, 70, 4, 3), drawn(3, 70, 4)
    for name, half in (
        ("ties", np.float32(0.5)),
        ("just below ties", np.nextafter(np.float32(0.5), np.float32(0))),
        ("just above ties", np.nextafter(np.float32(0.5), np.float32(1))),
    ):
        yield AttentionCase(name, *small, float(half) / scale)
    columns = 300
    flat = np.zeros((1, 1, 5, 8), np.int8)
    values = rng.integers(-128, 128, (1, 1, columns, 8)).astype(np.int8)
    yield AttentionCase("equal scores", flat, np.zeros_like(values), values, 0.01)
    rising = np.linspace(-127, 127, columns).astype(np.int8).reshape(1, 1, columns, 1).repeat(8, axis=3)
    over = np.array([1, 100, -100], np.int8).reshape(1, 1, 3, 1).repeat(8, axis=3)
    yield AttentionCase(
        "rising, falling", over, rising, values, 2.0 ** scores_of(spec).input.integer / 204_800
    )
