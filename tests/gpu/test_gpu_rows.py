"""Rows by the Triton kernels, interpreted: the golden model's bits, whatever the length, the mask, the type, the spec."""

from __future__ import annotations

import numpy as np
import pytest

from gpu import interpreted

pytest.importorskip("triton", reason="the kernels need .[gpu]")
pytest.importorskip("torch", reason="the kernels need .[torch]")

from softermax import PRESETS, SoftermaxSpec, get_spec, golden
from softermax.gpu.interpreter import call
from softermax.gpu.plan import refusal
from softermax.verify import draw_spec

ODD = SoftermaxSpec(
    slice_width=7, input_rounding="half-up", unnormed_rounding="half-up", output_rounding="half-even",
    powsum_rounding="half-even", max_rounding="truncate",
)  # fmt: skip
LINES = SoftermaxSpec(input="Q(6,4)", pow2_segments=4, input_rounding="truncate", output_rounding="truncate")
WIDE = SoftermaxSpec(slice_width=100, unnormed_rounding="half-even")
SPECS = {**PRESETS, "fold": get_spec("row-scaled+fold"), "odd": ODD, "lines": LINES, "wide": WIDE}


@pytest.fixture(params=SPECS)
def spec(request: pytest.FixtureRequest) -> SoftermaxSpec:
    return SPECS[request.param]


def drawn(rows: int, columns: int, spread: float = 8.0) -> tuple[np.ndarray, np.ndarray]:
    """Scores of which some saturate, and a mask with a row that has nothing."""
    rng = np.random.default_rng(columns)
    mask = rng.random((rows, columns)) < 0.8
    mask[0] = rows == 1
    return rng.normal(0, spread, (rows, columns)).astype(np.float32), mask


def same_bits(got: np.ndarray, want: np.ndarray) -> bool:
    return got.shape == want.shape and bool(
        (got.view(np.int32) == want.astype(np.float32).view(np.int32)).all()
    )


def in_type(scores: np.ndarray, kind: str) -> np.ndarray:
    """Scores as the type holds them, in float32."""
    import torch

    return torch.from_numpy(scores).to(getattr(torch, kind)).float().numpy()


@pytest.mark.parametrize("columns", [1, 100])
def test_rows_that_stay_in_registers(spec: SoftermaxSpec, columns: int) -> None:
    x, mask = drawn(3, columns)
    assert same_bits(call(interpreted.probabilities, spec, x, mask, "float32"), spec.compute(x, mask))


def test_rows_and_slices_that_are_swept(spec: SoftermaxSpec) -> None:
    """Blocks of 32 lanes: rows of many blocks, and slices wider than one."""
    x, mask = drawn(1, 110)
    got = call(interpreted.probabilities, spec, x, mask, "float32", (16, 32))
    assert same_bits(got, spec.compute(x, mask))


@pytest.mark.parametrize("kind", ["bfloat16", "float16"])
@pytest.mark.parametrize("name", ["paper", "row-scaled", "fold"])
def test_half_precision(name: str, kind: str) -> None:
    x, mask = drawn(3, 50)
    got = call(interpreted.probabilities, SPECS[name], x, mask, kind)
    assert same_bits(got, in_type(SPECS[name].compute(in_type(x, kind), mask).astype(np.float32), kind))


def test_ties_and_their_neighbours(spec: SoftermaxSpec) -> None:
    ticks = np.arange(-130, 131, 7)[:, None] + np.array([0.0, 0.5])
    ties = (ticks.ravel() / spec.input_scale).astype(np.float32)
    x = np.concatenate([np.nextafter(ties, np.float32(-99)), ties, np.nextafter(ties, np.float32(99))])[None]
    x = np.stack([x[0], x[0] / 64])
    got = call(interpreted.probabilities, spec, x, None, "float32")
    assert same_bits(got, spec.compute(x))


@pytest.mark.parametrize("small", [None, (16, 32)], ids=["resident", "swept"])
def test_sums_that_saturate_and_maxima_that_leap(small: tuple[int, int] | None) -> None:
    """Where the sum of shifted terms does not hold, slices are added in order."""
    narrow = SoftermaxSpec(powsum="Q(3,6)", slice_width=4)
    equal = np.zeros((1, 60), np.int32)
    leap = np.full((1, 60), -128, np.int32)
    leap[0, 30:34] = 10, 100, -128, 127
    rising = np.linspace(-128, 127, 60).astype(np.int32)[None]
    raw = np.concatenate([equal, leap, rising, rising[:, ::-1]])
    words, _ = call(interpreted.words, narrow, raw, None, small)
    assert np.array_equal(words, golden.softermax(raw, narrow).words)


def test_products_as_short_as_the_output_of_a_sum_of_one_half() -> None:
    """A10: the row's own shift is -1, and only with the score's is it 0."""
    spec = SoftermaxSpec(normalization="row-products", product="Q(1,7)")
    raw = np.array([[-2], [-1], [0], [1]], np.int32)
    words, _ = call(interpreted.words, spec, raw)
    assert np.array_equal(words, golden.softermax(raw, spec).words)


def test_drawn_specs_that_fit() -> None:
    rng = np.random.default_rng(3)
    found = 0
    while found < 8:
        spec = draw_spec(rng, widest=24)
        if refusal(spec) is not None:
            continue
        found += 1
        raw = rng.integers(spec.input.low, spec.input.high + 1, (3, 45)).astype(np.int32)
        mask = rng.random(raw.shape) < 0.8
        words, exponent = call(interpreted.words, spec, raw, mask, (64, 32) if found % 2 else None)
        want = golden.softermax(raw, spec, mask)
        assert np.array_equal(words, want.words), spec
        assert np.array_equal(exponent, want.exponent), spec


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(40))
def test_many_drawn_specs(seed: int) -> None:
    rng = np.random.default_rng(seed)
    while refusal(spec := draw_spec(rng, eight_bit=seed % 3 == 0, widest=32 if seed % 2 else 20)) is not None:
        pass
    for columns in (1, 64, 385):
        raw = rng.integers(spec.input.low, spec.input.high + 1, (4, columns)).astype(np.int32)
        mask = rng.random(raw.shape) < 0.8
        for small in (None, (64, 32)):
            words, _ = call(interpreted.words, spec, raw, mask, small)
            assert np.array_equal(words, golden.softermax(raw, spec, mask).words), (spec, columns, small)


@pytest.mark.slow
@pytest.mark.parametrize(
    "columns", [2, 3, 15, 17, 33, 127, 384, 1000, 1024, 1025, 2048, 4095, 4096, 4097, 9000]
)
def test_any_length_of_any_spec(spec: SoftermaxSpec, columns: int) -> None:
    x, mask = drawn(2, columns, 3.0)
    assert same_bits(call(interpreted.probabilities, spec, x, mask, "float32"), spec.compute(x, mask))


def test_a_row_of_4097() -> None:
    x, mask = drawn(1, 4097, 3.0)
    spec = PRESETS["paper-32"]
    assert same_bits(call(interpreted.probabilities, spec, x, mask, "float32"), spec.compute(x, mask))


@pytest.mark.parametrize("name", ["paper", "lean-row-scaled"])
def test_int8_to_uint8_with_mask_lengths_and_causality(name: str) -> None:
    rng = np.random.default_rng(1)
    raw = rng.integers(-128, 128, (2, 3, 5, 21), dtype=np.int8)
    mask = rng.random((2, 1, 1, 21)) < 0.8
    lengths = np.array([[[9]], [[30]]])
    words, exponent = call(interpreted.int8_words, PRESETS[name], raw, mask, lengths, True)
    column = np.arange(21)
    keep = mask & (column < lengths[..., None]) & (column <= np.arange(5)[:, None] + 16)
    want = golden.softermax(raw, PRESETS[name], keep)
    assert np.array_equal(words, want.words)
    assert np.array_equal(exponent, want.exponent)


def test_a_row_with_a_score_that_is_no_number_comes_out_as_nan() -> None:
    x, _ = drawn(3, 20)
    x[1, 5] = np.inf
    y = call(interpreted.probabilities, PRESETS["paper"], x, None, "float32")
    assert np.isnan(y[1]).all()
    assert np.isfinite(y[[0, 2]]).all()
    mask = np.ones(x.shape, dtype=np.bool_)
    mask[1, 5] = False
    assert np.isfinite(call(interpreted.probabilities, PRESETS["paper"], x, mask, "float32")).all()


@pytest.mark.parametrize(
    ("field", "spec"),
    [
        ("unnormed", SoftermaxSpec(unnormed="Q(1,25)")),
        ("input", SoftermaxSpec(input="Q(12,12)", max="Q(12,0)")),
        ("max", SoftermaxSpec(input="Q(6,12)", max="Q(20,0)")),
        ("product", SoftermaxSpec(normalization="row-products", product="Q(1,30)", unnormed="Q(1,28)")),
    ],
)
def test_a_spec_that_does_not_fit_32_bits_is_refused_by_name(field: str, spec: SoftermaxSpec) -> None:
    reason = refusal(spec)
    assert reason is not None
    assert reason.startswith(field)
    assert call(interpreted.refused, spec, "forward") == f"the GPU kernels do not take this spec: {reason}"
