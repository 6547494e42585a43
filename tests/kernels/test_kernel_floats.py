"""Float scores on every path: A1's rounding, saturation and marks are golden's, to the last bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from softermax import PRESETS, DeferredSpec, golden, kernels
from softermax.golden.attention import attention
from softermax.kernels import softermax_float
from softermax.kernels.attention import int8_attention
from softermax.kernels.plan import attention_refusal
from softermax.spec import SPECS, AnySpec, SoftermaxSpec
from softermax.verify import attention_cases, score_cases

PAPER = PRESETS["paper"]
rounding = pytest.mark.parametrize("rounding", ["truncate", "half-up", "half-even"])
base = pytest.mark.parametrize("base", ["paper", "fold"])


def test_a_hair_below_a_tie_does_not_round_up(path: str) -> None:
    """Adding one half in single precision makes it 1, and the words 70 and 59."""
    spec = PAPER.replace(input_rounding="half-up")
    below, tie = np.nextafter(np.float32(0.125), np.float32(0)), np.float32(0.125)
    got = softermax_float(np.array([[below, 0], [tie, 0], [-tie, 0]], np.float32), spec)
    assert got.words.tolist() == [[64, 64], [70, 59], [64, 64]]


@base
@rounding
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_scores_at_and_beside_ties_and_limits(dtype: str, rounding: Any, base: Any, path: str) -> None:
    """Also subnormal and huge scores, and NaN and infinities where they are masked."""
    for preset in ("paper", "row-scaled"):
        spec = PRESETS[preset].replace(input_rounding=rounding, base=base)
        for case in score_cases(spec, rows=3, dtype=dtype):
            got = softermax_float(case.scores, spec, case.mask)
            want = spec.run(case.scores, case.mask)
            np.testing.assert_array_equal(got.words, want.words, case.name)
            np.testing.assert_array_equal(got.probabilities, want.value.astype(dtype), case.name)
            saturated = golden.saturates(case.scores, spec, case.mask)
            np.testing.assert_array_equal(got.saturated, saturated, case.name)
            if preset == "row-scaled":
                live = case.mask.any(axis=1)
                np.testing.assert_array_equal(got.exponent[live], want.exponent[live], case.name)


@pytest.mark.parametrize(
    ("rounding", "marked"),
    [("truncate", [0, 0, 1, 0, 1]), ("half-up", [0, 1, 1, 0, 0]), ("half-even", [0, 1, 1, 0, 0])],
)
def test_marks_at_the_ends_of_the_word(rounding: Any, marked: list[int], path: str) -> None:
    """31.875 is the tie above the largest word, 31.75; below the smallest, -32, only truncation leaves it at once."""
    scores = np.array(
        [31.75, 31.875, 32.0, -32.0, np.nextafter(np.float32(-32), np.float32(-33))], np.float32
    )
    got = softermax_float(scores, PAPER.replace(input_rounding=rounding))
    assert got.saturated.astype(int).tolist() == marked


@base
@rounding
@pytest.mark.parametrize("mode", ["paper", "row-scaled", "deferred"])
def test_attention_requantises_at_and_beside_ties(mode: str, rounding: Any, base: Any, path: str) -> None:
    scores = PRESETS["paper" if mode == "deferred" else mode].replace(input_rounding=rounding, base=base)
    spec: AnySpec = DeferredSpec(scores) if mode == "deferred" else scores
    for case in attention_cases(spec):
        got = int8_attention(
            case.q, case.k, case.v, spec, case.scale, case.value_scale, case.mask, causal=case.causal
        )
        want = attention(case.q, case.k, case.v, spec, case.scale, case.value_scale, case.mask, case.causal)
        np.testing.assert_array_equal(got, want.value, case.name)


def test_deferred_attention_ignores_the_scores_own_normalisation(path: str, rng: np.random.Generator) -> None:
    """A8 uses neither their PowSum nor their reciprocal nor their output: no word of these is a reason to refuse."""
    wide = PAPER.replace(
        output="Q(1,12)", reciprocal="Q(1,20)", powsum="Q(20,6)", output_rounding="half-even"
    )
    spec = DeferredSpec(wide)
    assert kernels.supports(spec)
    assert not kernels.supports(wide)
    q, k, v = (rng.integers(-128, 128, (1, 1, 40, 16)).astype(np.int8) for _ in range(3))
    want = attention(q, k, v, spec, 0.001).value
    np.testing.assert_array_equal(int8_attention(q, k, v, spec, 0.001), want)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"weight": "Q(1,8)"}, r"weight is Q\(1,8\); the core takes up to 8 bits"),
        ({"reciprocal": "Q(1,16)"}, r"reciprocal is Q\(1,16\); the core takes up to 15 fraction bits"),
        ({"scores": PAPER.replace(slice_width=6)}, "slice_width = 6; the core takes multiples of 4"),
        ({"scores": PAPER.replace(input="Q(6,3)")}, r"input is Q\(6,3\); the core takes Q\(6,2\)"),
    ],
)
def test_deferred_specs_that_the_core_refuses(change: dict[str, Any], reason: str) -> None:
    spec = DeferredSpec().replace(**change)
    assert not kernels.supports(spec)
    q = np.zeros((1, 1, 2, 4), np.int8)
    with pytest.raises(ValueError, match=f"does not compute this attention: {reason}"):
        int8_attention(q, q, q, spec, 0.1)


@pytest.mark.parametrize(
    ("keys", "size", "scale", "reason"),
    [
        (10, 257, 1.0, "a head is 257 wide; the core takes up to 256"),
        (65537, 64, 1.0, "there are 65537 keys; the core takes up to 65536"),
        (10, 64, 65.0, "scale = 65.0 makes an integer score more than 256 raw units"),
    ],
)
def test_attention_that_the_core_refuses(keys: int, size: int, scale: float, reason: str) -> None:
    assert attention_refusal(PAPER, keys, size, scale) == reason
    assert attention_refusal(PAPER, 10, 64, 1.0) is None


def test_rows_take_no_deferred_spec() -> None:
    message = "rows are normalised element by element: spec must be a SoftermaxSpec, got DeferredSpec"
    for run, x in ((kernels.softermax_int8, np.int8), (softermax_float, np.float32)):
        with pytest.raises(TypeError, match=message):
            run(np.zeros((2, 3), x), SPECS["paper:deferred"])  # type: ignore[operator]


@pytest.mark.parametrize(
    ("scores", "error", "message"),
    [
        (np.zeros((2, 3)), TypeError, "one of float32, float16, got float64"),
        (np.float32(1.0), ValueError, "0 dimensions; must be 1 to 9"),
        (np.array([[0, 1], [np.nan, 2]], np.float32), ValueError, "NaN or infinity in row 1"),
        (np.array([[np.inf, 1]], np.float16), ValueError, "NaN or infinity in row 0"),
    ],
)
def test_bad_scores_are_named(scores: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        softermax_float(scores, PAPER)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"q": np.zeros((1, 2, 4, 8))}, TypeError, "q must be int8 .* got float64 of 4"),
        ({"v": np.zeros((1, 1, 5, 8), np.int8)}, ValueError, r"v \(1, 1, 5, 8\) do not fit"),
        ({"mask": np.ones((3, 4), bool)}, ValueError, r"\(3, 4\) does not broadcast"),
        ({"lengths": np.array([1, 2])}, ValueError, r"shape \(1,\), one per batch entry, got \(2,\)"),
    ],
)
def test_bad_operands_are_named(arguments: dict[str, Any], error: type[Exception], message: str) -> None:
    zeros = np.zeros((1, 1, 4, 8), np.int8)
    good: dict[str, Any] = {"q": zeros, "k": zeros, "v": zeros, "spec": PAPER, "scale": 0.1}
    with pytest.raises(error, match=message):
        int8_attention(**(good | arguments))


def test_empty_rows_and_operands(path: str) -> None:
    for shape in ((0,), (3, 0), (0, 4)):
        assert softermax_float(np.zeros(shape, np.float32), PAPER).probabilities.shape == shape
    q = np.zeros((1, 2, 0, 8), np.int8)
    k = np.zeros((1, 1, 4, 8), np.int8)
    assert int8_attention(q, k, k, PAPER, 0.1).shape == (1, 2, 0, 8)
    assert not int8_attention(k, k[:, :, :0], k[:, :, :0], PAPER, 0.1).any()


def test_float_rows_equal_golden_for_every_spec(
    spec: SoftermaxSpec, path: str, rng: np.random.Generator
) -> None:
    x = rng.normal(0, 6, (4, 100)).astype(np.float32)
    mask = rng.random((1, 100)) < 0.7
    np.testing.assert_array_equal(
        softermax_float(x, spec, mask).probabilities, spec.compute(x, mask).astype(np.float32)
    )
