"""The golden model of the FP16 baseline against real arithmetic."""

from __future__ import annotations

import numpy as np
import pytest

from softermax.rtl.baseline import model

SMALLEST = 0x0400
"""The bits of 2^-14, the smallest number above zero."""
DOMAIN = np.arange(0x7C00 + 1)
"""Every half that is not negative, subnormal numbers and infinity with the others."""


@pytest.mark.parametrize("base_two", [False, True])
def test_every_exponential_is_within_one_unit_of_the_correctly_rounded_one(base_two: bool) -> None:
    distance = model.half(DOMAIN).astype(np.float64)
    power = np.exp2 if base_two else np.exp
    rounded = model.bits_of(power(-distance).astype(np.float16))
    result = model.exponential(DOMAIN, base_two)
    normal = rounded >= SMALLEST
    assert np.abs(result - rounded)[normal].max() == 1
    # The format has nothing between 2^-14 and zero.
    assert not result[~normal].any()
    assert result[0] == model.ONE


@pytest.mark.parametrize("base_two", [False, True])
def test_exponentials_never_increase_with_the_distance(base_two: bool) -> None:
    assert (np.diff(model.exponential(DOMAIN, base_two)) <= 0).all()


def _operands(rng: np.random.Generator, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Every pair of exponents, fractions at random and at their ends."""
    exponents = np.stack(np.meshgrid(np.arange(31), np.arange(31)), axis=-1).reshape(-1, 2)
    pairs = np.repeat(exponents, count // len(exponents) + 1, axis=0)
    fractions = rng.integers(0, 1024, pairs.shape)
    ends = rng.random(pairs.shape) < 0.2
    fractions = np.where(ends, rng.choice([0, 1, 511, 512, 513, 1022, 1023], pairs.shape), fractions)
    bits = (pairs << 10) + fractions
    return bits[:, 0], bits[:, 1]


def _round(value: np.ndarray) -> np.ndarray:
    """Of float64 values that are exact, or far from halfway where they are not."""
    with np.errstate(over="ignore"):
        return model.bits_of(value.astype(np.float16))


def test_sums_differences_and_quotients_are_correctly_rounded() -> None:
    rng = np.random.default_rng(0)
    a, b = _operands(rng, 1_000_000)
    high, low = np.maximum(a, b), np.minimum(a, b)
    x, y = model.half(high).astype(np.float64), model.half(low).astype(np.float64)
    assert (model.add(a, b) == _round(x + y)).all()
    assert (model.subtract(low, high) == _round(x - y)).all()
    # With a negative one the difference is a sum.
    assert (model.subtract(low | 0x8000, high) == _round(x + y)).all()
    assert (model.subtract(high | 0x8000, low | 0x8000) == _round(x - y)).all()

    normal = low >= SMALLEST
    quotient = y[normal] / x[normal]
    expected = np.where(quotient < 2.0**-14, 0, _round(quotient))
    assert (model.divide(low[normal], high[normal]) == expected).all()


def test_nothing_divided_by_nothing_is_nothing() -> None:
    assert model.divide(np.array([0]), np.array([0])).tolist() == [0]


def test_maximum_is_the_largest_of_those_that_take_part() -> None:
    rng = np.random.default_rng(0)
    bits = rng.integers(0, 0x10000, (2000, 24))
    bits = np.where((bits & 0x7C00) == 0x7C00, bits & 0xFBFF, bits)
    mask = rng.random(bits.shape) < 0.5
    mask[:, 0] = True
    values = np.where(mask, model.half(bits).astype(np.float64), -np.inf)
    assert (model.half(model.maximum(bits, mask)) == values.max(axis=1)).all()


def test_softmax_is_within_its_bound_of_the_exact_one() -> None:
    rng = np.random.default_rng(0)
    for columns in (1, 16, 100, 384, 2048):
        for spread in (0.5, 2.0, 8.0):
            x = rng.normal(0, spread, (50, columns)).astype(np.float16)
            every = np.ones(x.shape, dtype=np.bool_)
            words = model.softmax(model.bits_of(x), every, 16)
            online = model.online_softmax(model.bits_of(x), every, 16)
            p = model.half(words).astype(np.float64)
            p_online = model.half(online).astype(np.float64)
            e = np.exp(x.astype(np.float64) - x.max(axis=1, keepdims=True).astype(np.float64))
            exact = e / e.sum(axis=1, keepdims=True)
            # The score's difference is rounded to 2^-11 of itself, at most 10 where e^-d is above zero;
            # then a unit for e, half a unit for each addition and for the quotient. What is below 2^-14 is
            # gone, and so is its share of the sum.
            additions = 4 + columns / 32 + 1
            relative = (
                10 * 2**-11
                + 1.5 * 2**-10
                + additions * 2**-11
                + columns * 2**-14 / e.sum(axis=1, keepdims=True)
            )
            assert (np.abs(p - exact) <= relative * exact + 2**-14).all()
            # Each slice's renormalisation rounds a difference, an exponential and a product; so does the factor.
            renormed = 2 * relative + (columns / 16) * 2**-11
            assert (np.abs(p_online - exact) <= renormed * exact + 2**-13).all()
            if columns == 1:
                assert (p == 1).all()
