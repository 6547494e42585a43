"""The ladder in float64: each rung against its definition, and the rungs against each other."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays
from numpy.typing import NDArray

from softermax import reference

scores = arrays(
    np.float64, array_shapes(min_dims=1, max_dims=3, max_side=9), elements=st.floats(-60, 60, width=32)
)


def by_definition(x: NDArray[np.float64], base: float) -> NDArray[np.float64]:
    powers = np.power(np.longdouble(base), x.astype(np.longdouble))
    return np.asarray(powers / powers.sum(axis=-1, keepdims=True), dtype=np.float64)


def test_the_worked_example() -> None:
    _, trace = reference.softermax([2.0, 1.0, 3.0], trace=True)
    assert trace.sums.tolist() == [1.0, 1.5, 1.75]
    assert trace.maxima.tolist() == [2.0, 2.0, 3.0]
    assert trace.unnormed.tolist() == [1.0, 0.5, 1.0]


def test_softmax_is_scipys() -> None:
    special = pytest.importorskip("scipy.special")
    x = np.random.default_rng(0).normal(0, 10, (7, 5, 33))
    np.testing.assert_allclose(reference.softmax(x), special.softmax(x, axis=-1), rtol=1e-13)


@given(scores)
def test_softmax_is_its_definition(x: NDArray[np.float64]) -> None:
    np.testing.assert_allclose(reference.softmax(x), by_definition(x, float(np.e)), rtol=1e-12)


@given(scores)
def test_the_three_of_base_two_agree(x: NDArray[np.float64]) -> None:
    """Online and integer max change the order of the arithmetic, not the function."""
    expected = by_definition(x, 2.0)
    for rung in (reference.base_two, reference.base_two_online, reference.softermax):
        np.testing.assert_allclose(rung(x), expected, rtol=1e-12)


@given(scores)
def test_base_two_of_folded_scores_is_softmax(x: NDArray[np.float64]) -> None:
    np.testing.assert_allclose(reference.base_two(x * np.log2(np.e)), reference.softmax(x), rtol=1e-11)


@given(scores)
def test_traces(x: NDArray[np.float64]) -> None:
    running = np.maximum.accumulate(x, axis=-1)
    for rung, maxima in (
        (reference.softmax, np.broadcast_to(x.max(axis=-1, keepdims=True), x.shape)),
        (reference.base_two, np.broadcast_to(x.max(axis=-1, keepdims=True), x.shape)),
        (reference.base_two_online, running),
        (reference.softermax, np.ceil(running)),
    ):
        y, trace = rung(x, trace=True)
        np.testing.assert_array_equal(y, rung(x))
        np.testing.assert_array_equal(trace.maxima, maxima)
        power = np.exp if rung is reference.softmax else np.exp2
        np.testing.assert_array_equal(trace.unnormed, power(x - maxima))
        total = np.cumsum(power(x - maxima[..., -1:]), axis=-1)
        np.testing.assert_allclose(trace.sums[..., -1], total[..., -1], rtol=1e-12)


def test_integer_max_renormalises_by_powers_of_two() -> None:
    x = np.random.default_rng(1).normal(0, 5, (50, 40))
    _, trace = reference.softermax(x, trace=True)
    np.testing.assert_array_equal(trace.maxima, np.round(trace.maxima))


def test_the_ladder_lists_all_four() -> None:
    rungs = list(reference.LADDER.values())
    assert rungs == [
        reference.softmax,
        reference.base_two,
        reference.base_two_online,
        reference.softermax,
    ]


@pytest.mark.parametrize("rung", reference.LADDER.values(), ids=reference.LADDER)
def test_huge_scores_do_not_overflow(rung: Any) -> None:
    np.testing.assert_array_equal(rung([1e300, -1e300, 1e300]), [0.5, 0.0, 0.5])


@pytest.mark.parametrize("rung", reference.LADDER.values(), ids=reference.LADDER)
@pytest.mark.parametrize(
    ("x", "error", "message"),
    [
        ([1.0, float("nan")], ValueError, r"finite, got nan at \(1,\)"),
        ([[1.0], [float("-inf")]], ValueError, r"finite, got -inf at \(1, 0\)"),
        (1.0, ValueError, r"at least one score, got shape \(\)"),
        (np.zeros((3, 0)), ValueError, r"at least one score, got shape \(3, 0\)"),
        ([1j], TypeError, "real numbers, got dtype complex128"),
        (["a"], TypeError, "real numbers, got dtype <U1"),
        ([True], TypeError, "real numbers, got dtype bool"),
    ],
)
def test_bad_input(rung: Any, x: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        rung(x)
