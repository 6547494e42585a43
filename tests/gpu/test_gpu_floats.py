"""Words in single precision are the spec's: what `softermax.gpu.floats` rests on, tried word by word."""

from __future__ import annotations

import numpy as np
import pytest

from gpu import interpreted

pytest.importorskip("triton", reason="the kernels need .[gpu]")
pytest.importorskip("torch", reason="the kernels need .[torch]")

from softermax import DeferredSpec, SoftermaxSpec, golden
from softermax.gpu.interpreter import call
from softermax.gpu.plan import _may_clip, nudge, numbers, refusal
from softermax.spec import PRESETS, SPECS
from softermax.tables import pow2_table
from softermax.verify import draw_spec


def test_every_preset_has_words_in_single_precision() -> None:
    assert all(numbers(spec).near for spec in SPECS.values())
    assert {name for name, spec in SPECS.items() if numbers(spec).splits} == {"lean", "lean:deferred"}
    assert nudge(SoftermaxSpec(unnormed="Q(1,18)")) is None


@pytest.mark.parametrize("name", PRESETS)
@pytest.mark.parametrize("error", [-(2.0**-21), 0.0, 2.0**-21])
def test_a_power_that_is_not_exact_gives_exact_words(name: str, error: float) -> None:
    """Twice what ex2.approx may be wrong by, either way, for each fraction and shift; rounded as the kernels round."""
    spec = PRESETS[name]
    table, half_up = pow2_table(spec), spec.unnormed_rounding == "half-up"
    one = np.int32(numbers(spec).nudge).view(np.float32)
    for k in range(spec.unnormed.fraction + 3):
        f = np.arange(1 << table.argument_bits)
        power = (np.exp2(f / len(f) - k) * (1 + error)).astype(np.float32)
        scaled = power.astype(np.float64) * (float(one) * 2.0**spec.unnormed.fraction)
        down = np.maximum((scaled + (2.0**23 - 0.5)).astype(np.float32) - np.float32(2.0**23), 0)
        near = (scaled + 2.0**23).astype(np.float32) - np.float32(2.0**23)
        splits = numbers(spec).splits & (near > 1 << spec.unnormed.fraction)
        got = np.where(splits, down, near) if half_up else down
        half = (1 << k >> 1) if half_up else 0
        assert np.array_equal(got, (table(f) + half) >> k), k


def draw_single(rng: np.random.Generator) -> SoftermaxSpec:
    """A spec whose words fit, with every other choice at random."""
    while True:
        spec = draw_spec(rng, widest=24)
        bits = int(rng.integers(4, 15))
        rounding = "truncate" if spec.normalization == "numerator" else spec.unnormed_rounding
        try:
            spec = spec.replace(
                input=f"Q({rng.integers(3, 7)},{rng.integers(0, 4)})", max="Q(6,0)", unnormed=f"Q(1,{bits})",
                powsum=f"Q({rng.integers(2, 12)},{rng.integers(1, bits + 1)})", reciprocal=f"Q(1,{rng.integers(3, 8)})",
                output=f"Q(1,{rng.integers(1, 8)})", pow2_segments=16, unnormed_rounding=rounding,
            )  # fmt: skip
        except ValueError:
            continue
        if refusal(spec) is None and nudge(spec) is not None:
            return spec


def compare(
    spec: SoftermaxSpec, rng: np.random.Generator, columns: int, small: tuple[int, int] | None
) -> None:
    raw = rng.integers(spec.input.low, spec.input.high + 1, (3, columns)).astype(np.int32)
    raw[1] = np.clip(rng.normal(0, 1 << spec.input.fraction, columns), spec.input.low, spec.input.high)
    mask = rng.random(raw.shape) < 0.8
    words, exponent = call(interpreted.words, spec, raw, mask, small)
    want = golden.softermax(raw, spec, mask)
    assert np.array_equal(words, want.words), spec
    assert np.array_equal(exponent, want.exponent), spec


def test_drawn_specs_that_fit_single_precision() -> None:
    rng = np.random.default_rng(0)
    for i in range(8):
        compare(draw_single(rng), rng, 45, (64, 32) if i % 2 else None)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(40))
def test_many_drawn_specs_that_fit_single_precision(seed: int) -> None:
    rng = np.random.default_rng(seed + 100)
    spec = draw_single(rng)
    for columns in (1, 96, 385):
        for small in (None, (64, 32)):
            compare(spec, rng, columns, small)


def test_a_row_in_two_blocks() -> None:
    """384 columns are 16 slices and 8: no lane is left over."""
    from softermax.gpu.launch import row_tile

    tile = row_tile(PRESETS["paper"], 8, 384)
    assert (tile.slices, tile.rest, tile.full) == (16, 8, True)
    rng = np.random.default_rng(1)
    raw = np.concatenate([rng.integers(-128, 128, (2, 384)), np.sort(rng.integers(-128, 128, (2, 384)), 1)])
    for name in ("paper", "row-scaled", "lean"):
        words, _ = call(interpreted.words, PRESETS[name], raw.astype(np.int32))
        assert np.array_equal(words, golden.softermax(raw, PRESETS[name]).words)


def test_output_words_that_cannot_exceed_the_highest_are_not_clipped() -> None:
    assert not numbers(PRESETS["paper"]).clips
    assert numbers(PRESETS["row-scaled"]).clips
    assert numbers(DeferredSpec()).clips
    assert _may_clip(SoftermaxSpec(output="Q(0,8)"))
    # One score alone has the largest word there is: 129/128, for a fraction of .5.
    alone = golden.softermax(np.arange(-128, 128)[:, None], PRESETS["paper"]).words
    assert alone.max() == 129
