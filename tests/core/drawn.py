"""Specs and score rows drawn at random, over all that a `SoftermaxSpec` allows."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from softermax.spec import SoftermaxSpec


def table_points(spec: SoftermaxSpec) -> int:
    """About how many points the oracle tries to make the spec's tables."""

    def used(argument: int, segments: int, fraction: int) -> int:
        s = segments.bit_length() - 1
        return min(argument, max(s, min(fraction + 2, 2 * s + 8)))

    return int(
        2 ** used(spec.input.fraction, spec.pow2_segments, spec.unnormed.fraction)
        + 2 ** used(spec.powsum.bits - 1, spec.reciprocal_segments, spec.reciprocal.fraction)
    )


def draw_spec(rng: np.random.Generator, most_points: int = 1 << 13, widest: int = 32) -> SoftermaxSpec:
    """A valid spec with words of up to ``widest`` bits, of which some are as wide as that."""

    def word(least_integer: int, most_integer: int, least_fraction: int) -> tuple[int, int]:
        integer = int(rng.integers(least_integer, most_integer + 1))
        bits = widest if rng.random() < 0.2 else int(rng.integers(integer + least_fraction, widest + 1))
        return integer, bits - integer

    def choice(*of: str) -> str:
        return str(rng.choice(of))

    nearest = ("truncate", "half-up", "half-even")
    while True:
        score = word(2, 12, 0)
        maximum = score[0] + int(rng.integers(0, 3))
        try:
            spec = SoftermaxSpec(
                input=score,
                max=(maximum, int(rng.integers(0, 3))),
                unnormed=word(1, 3, 1),
                powsum=word(1, 20, 1),
                reciprocal=word(1, 2, 1),
                output=word(0, 2, 1),
                slice_width=None if rng.random() < 0.15 else int(rng.integers(1, 40)),
                pow2_segments=1 << int(rng.integers(0, 7)),
                reciprocal_segments=1 << int(rng.integers(0, 6)),
                input_rounding=choice(*nearest),
                max_rounding=choice("ceil", "ceil", "truncate"),
                unnormed_rounding=choice(*nearest),
                powsum_rounding=choice(*nearest),
                output_rounding=choice(*nearest),
                output_mode=choice("fixed", "fixed", "row-scaled"),
                base=choice("paper", "fold"),
            )
        except ValueError:
            continue
        if table_points(spec) <= most_points:
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
