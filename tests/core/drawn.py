"""Specs and score rows drawn at random, over all that a spec allows."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from softermax import verify
from softermax.spec import AnySpec, DeferredSpec, SoftermaxSpec


def table_points(spec: AnySpec) -> int:
    """About how many points the oracle tries to make the spec's tables."""

    def used(argument: int, segments: int, fraction: int) -> int:
        s = segments.bit_length() - 1
        return min(argument, max(s, min(fraction + 2, 2 * s + 8)))

    scores = spec.scores if isinstance(spec, DeferredSpec) else spec
    return int(
        2 ** used(scores.input.fraction, scores.pow2_segments, scores.unnormed.fraction)
        + 2 ** used(spec.powsum.bits - 1, spec.reciprocal_segments, spec.reciprocal.fraction)
    )


def draw_spec(rng: np.random.Generator, most_points: int = 1 << 13, widest: int = 32) -> SoftermaxSpec:
    """A spec of `softermax.verify` whose tables the oracle can make."""
    while table_points(spec := verify.draw_spec(rng, widest)) > most_points:
        pass
    return spec


def draw_deferred(rng: np.random.Generator, most_points: int = 1 << 12) -> DeferredSpec:
    while table_points(spec := verify.draw_deferred(rng, eight_bit=bool(rng.random() < 0.4))) > most_points:
        pass
    return spec


def draw_rows(
    rng: np.random.Generator, spec: SoftermaxSpec, rows: int, columns: int
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Raw scores and a mask: uniform, bunched, extreme and rising rows; whole, padded and holed ones."""
    low, high = spec.input.low, spec.input.high
    uniform = rng.integers(low, high + 1, (rows, columns))
    spread = np.exp2(rng.uniform(0, spec.input.bits - 1, (rows, 1)))
    centre = rng.integers(low, high + 1, (rows, 1))
    bunched = np.clip(np.rint(centre + spread * rng.standard_normal((rows, columns))), low, high)
    extreme = np.where(rng.random((rows, columns)) < 0.5, low, high) + rng.integers(0, 2, (rows, 1)) * (
        rng.integers(-3, 4, (rows, columns))
    )
    kind = rng.integers(0, 10, (rows, 1))
    x = np.select([kind < 3, kind < 8, kind < 9], [uniform, bunched, extreme], np.sort(bunched, axis=1))
    x = np.clip(x, low, high).astype(np.int64)
    padded = np.arange(columns) < rng.integers(0, columns + 1, (rows, 1))
    holed = rng.random((rows, columns)) < rng.random((rows, 1))
    kind = rng.integers(0, 4, (rows, 1))
    mask = np.select([kind < 2, kind < 3], [np.ones((rows, columns), dtype=bool), padded], holed)
    return x, mask
