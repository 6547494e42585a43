"""Requantisation: the same integers as the software's, also where rounding twice shows."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("amaranth")

from amaranth.sim import Simulator

from softermax.golden import attention as golden_attention
from softermax.rtl.pe.config import PEConfig
from softermax.rtl.pe.requantize import Requantize
from softermax.rtl.pe.requantize_half import RequantizeHalf, half_scores
from softermax.spec import SoftermaxSpec

SPEC = SoftermaxSpec(slice_width=4)
WHOLE = PEConfig(4, 4, 256, 512, 96, scale_bits=24)
"""Takes any single-precision scale."""


def simulated(lane: Requantize | RequantizeHalf, scores: np.ndarray, factors: np.ndarray) -> np.ndarray:
    got = []

    async def bench(ctx):
        registers = len(lane.enable)
        ctx.set(lane.enable, (1 << registers) - 1)
        for score, factor in zip(scores, factors, strict=True):
            scale = WHOLE.split(float(factor))
            ctx.set(lane.acc, int(score))
            ctx.set(lane.mantissa, scale.mantissa)
            ctx.set(lane.shift, scale.shift)
            await ctx.tick().repeat(registers)
            got.append(ctx.get(lane.x))

    simulator = Simulator(lane)
    simulator.add_clock(1e-9)
    simulator.add_testbench(bench)
    simulator.run()
    return np.array(got)


def near_halves(count: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Scores and factors whose product lies so near to a half that single precision cannot tell."""
    scores, factors = [], []
    while len(scores) < count:
        score = rng.integers(1, 1 << 23, 4096) | 1
        half = rng.integers(0, 128, 4096) + 0.5
        factor = np.float32(half / score)
        product = score * factor.astype(np.float64)
        close = (product != half) & (np.float32(score) * factor == half)
        scores += list(score[close] * rng.choice([-1, 1], int(close.sum())))
        factors += list(factor[close])
    return np.array(scores[:count]), np.array(factors[:count], dtype=np.float32)


def software(scores: np.ndarray, factors: np.ndarray) -> np.ndarray:
    words = [
        golden_attention.requantize(np.array([s]), float(f) / SPEC.input_scale, SPEC)[0]
        for s, f in zip(scores, factors, strict=True)
    ]
    return np.array(words)


def test_products_near_a_half_round_as_single_precision_does() -> None:
    scores, factors = near_halves(400, np.random.default_rng(0))
    exact = np.rint(scores * factors.astype(np.float64))
    expected = software(scores, factors)
    assert (np.clip(exact, -128, 127) != expected).any(), "rounding once would do: the vectors show nothing"
    np.testing.assert_array_equal(simulated(Requantize(WHOLE, SPEC), scores, factors), expected)


def test_random_products_and_the_ends_of_the_range() -> None:
    rng = np.random.default_rng(1)
    scores = np.concatenate([[-(1 << 23), (1 << 23) - 1, 0, 1, -1], rng.integers(-(1 << 23), 1 << 23, 400)])
    factors = np.float32(np.exp2(rng.uniform(-24, 1, len(scores))))
    np.testing.assert_array_equal(
        simulated(Requantize(WHOLE, SPEC), scores, factors), software(scores, factors)
    )


def test_half_precision_scores_are_rounded_once() -> None:
    rng = np.random.default_rng(2)
    scores = np.concatenate([[-(1 << 23), (1 << 23) - 1, 0, 1, -1], rng.integers(-(1 << 23), 1 << 23, 400)])
    factors = np.float32(np.exp2(rng.uniform(-38, 1, len(scores))))
    expected = np.array(
        [half_scores(np.array([s]), float(f))[0] for s, f in zip(scores, factors, strict=True)]
    )
    assert (expected & 0x7C00 == 0).any(), "no subnormal among them"
    np.testing.assert_array_equal(simulated(RequantizeHalf(WHOLE), scores, factors), expected)


def test_a_scale_with_more_bits_than_the_word_is_refused_and_the_nearest_named() -> None:
    narrow = PEConfig(4, 4, 256, 512, 96, scale_bits=4)
    with pytest.raises(ValueError, match=r"4 bits of this PE's scale; the nearest that fits is 0\.1015625"):
        narrow.split(0.1)
    assert narrow.split(narrow.nearest(0.1)).value == 0.1015625
    with pytest.raises(ValueError, match="factor 0: must be from"):
        narrow.nearest(0)


def test_another_rounding_than_half_even_is_refused() -> None:
    with pytest.raises(ValueError, match="input_rounding = half-up: the PE rounds half-even"):
        Requantize(WHOLE, SPEC.replace(input_rounding="half-up"))
