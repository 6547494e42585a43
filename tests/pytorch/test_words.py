"""The words in PyTorch are the golden model's, for any spec and at every edge of it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the PyTorch operator needs .[torch]")

from softermax import PRESETS, SoftermaxSpec, get_spec, golden
from softermax.functional import bodies
from softermax.functional import softermax as op
from softermax.pytorch import onnx, words
from softermax.pytorch.registry import spec_of, spec_text
from softermax.spec import DeferredSpec
from softermax.verify import SPECS, check, draw_deferred, draw_spec, draw_specs, score_cases

DTYPES = [torch.float64, torch.float32, torch.bfloat16, torch.float16]
ROUNDINGS = ["truncate", "half-up", "half-even"]


def widened(spec: SoftermaxSpec, rng: np.random.Generator) -> SoftermaxSpec:
    """With a max that may be far wider than the scores."""
    return spec.replace(max=(int(rng.integers(spec.input.integer, 33)), 0))


def test_a_row_without_elements_is_zero_below_the_widest_max() -> None:
    spec = SoftermaxSpec(input="Q(2,10)", max="Q(11,0)")
    x, mask = torch.zeros(2, 16), torch.ones(2, 16, dtype=torch.bool)
    mask[1] = False
    for gradient in ("fused", "composed"):
        y = op(x, mask=mask, spec=spec, gradient=gradient)
        assert torch.equal(y.double(), torch.from_numpy(spec.compute(x.numpy(), mask.numpy())))
        assert not y[1].any()


@pytest.mark.parametrize("seed", range(80))
def test_any_spec_with_any_max_and_masked_rows(seed: int) -> None:
    rng = np.random.default_rng(seed)
    spec = widened(draw_spec(rng), rng)
    raw = rng.integers(spec.input.low, spec.input.high + 1, (30, int(rng.integers(1, 90))))
    mask = rng.random(raw.shape) < 0.8
    mask[0], mask[1, raw.shape[1] // 2 :], mask[2, : raw.shape[1] // 2] = False, False, False
    want = golden.softermax(raw, spec, mask, trace=True)
    assert want.trace is not None
    y, leading_one = words.softermax(torch.from_numpy(raw).double(), torch.from_numpy(mask), spec)
    assert np.array_equal(y.long().numpy(), want.words)
    assert np.array_equal(leading_one.numpy(), want.trace.leading_one)
    assert not y[0].any()


@pytest.mark.parametrize("seed", range(20))
def test_any_spec_that_onnx_takes_with_its_primitives(seed: int) -> None:
    """In PyTorch, before a runtime has it."""
    rng = np.random.default_rng(seed)
    spec = draw_spec(rng, widest=24)
    while onnx.refusal(spec) is not None:
        spec = draw_spec(rng, widest=24)
    spec = spec.replace(max=(8, 0))
    raw = rng.integers(spec.input.low, spec.input.high + 1, (30, int(rng.integers(1, 90))))
    mask = rng.random(raw.shape) < 0.8
    mask[0] = False
    y, leading_one = onnx.softermax(torch.from_numpy(raw).double(), torch.from_numpy(mask), spec)
    want = golden.softermax(raw, spec, mask, trace=True)
    assert want.trace is not None
    assert np.array_equal(y.long().numpy(), want.words)
    assert np.array_equal(leading_one.numpy(), want.trace.leading_one)


@pytest.mark.parametrize("seed", range(20))
def test_any_deferred_spec_with_any_max_and_masked_rows(seed: int) -> None:
    rng = np.random.default_rng(seed)
    spec = draw_deferred(rng)
    spec = spec.replace(scores=widened(spec.scores, rng))
    x = rng.normal(0, 2.0 ** (spec.scores.input.integer - 2), (20, int(rng.integers(1, 90))))
    mask = rng.random(x.shape) < 0.8
    mask[0] = False
    for dtype in (np.float32, np.float64):
        want = spec.compute(x.astype(dtype), mask).astype(dtype)
        for gradient in ("fused", "composed"):
            got = op(
                torch.from_numpy(x.astype(dtype)), mask=torch.from_numpy(mask), spec=spec, gradient=gradient
            )
            assert np.array_equal(got.numpy(), want)


def test_drawn_specs_agree_in_words_scores_marks_and_attention() -> None:
    (body,) = bodies()
    verdict = check(body, {}, rows=2, seed=3, drawn=draw_specs(10, seed=3), pairs=0.01)
    assert min(verdict.words, verdict.scores, verdict.attention, verdict.marks) > 0
    assert verdict.mismatches == 0, verdict.first
    assert all(body.supports(spec) for spec in SPECS.values())


def edges(spec: SoftermaxSpec, dtype: torch.dtype) -> torch.Tensor:
    """Scores at and beside every tie, both ends of the word, subnormal and huge ones, in a type's own steps."""
    kind = "float64" if dtype == torch.float64 else "float32"
    x = torch.cat([torch.from_numpy(c.scores).flatten() for c in score_cases(spec, 4, kind) if c.mask.all()])
    inexact = x[x.to(dtype).isfinite()].to(dtype).flatten()
    bits = {8: torch.int64, 4: torch.int32, 2: torch.int16}[dtype.itemsize]
    beside = [(inexact.view(bits) + step).view(dtype) for step in (-2, -1, 0, 1, 2)]
    every = torch.cat([*beside, torch.tensor([31.875, -32.125, 31.75, -32.0], dtype=dtype)])
    return every[every.isfinite()]


@pytest.mark.parametrize("rounding", ROUNDINGS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    "name", ["paper", "paper+fold", "drawn 0", "drawn 1", "drawn 2", "whole numbers", "wide"]
)
def test_scores_round_and_saturate_as_in_the_golden_model(
    name: str, dtype: torch.dtype, rounding: Any
) -> None:
    """Ties, their neighbours, subnormals and the ends of the word."""
    if name.startswith("drawn"):
        spec = draw_spec(np.random.default_rng(int(name[-1])))
    elif name in ("whole numbers", "wide"):
        spec = SoftermaxSpec(input="Q(6,0)" if name == "whole numbers" else "Q(6,26)")
    else:
        spec = get_spec(name)  # type: ignore[assignment]
    spec = spec.replace(input_rounding=rounding)
    x = edges(spec, dtype)
    scores = x.numpy() if dtype == torch.float64 else x.float().numpy()
    assert np.array_equal(words.quantize(x, spec).double().numpy(), golden.quantize(scores, spec))
    marks = golden.saturates(scores, spec)
    assert np.array_equal(words.saturates(x, spec).numpy(), marks)
    assert marks.any()
    assert not marks.all()


@pytest.mark.parametrize("rounding", ROUNDINGS)
def test_the_largest_score_saturates_or_not_by_its_rounding(rounding: Any) -> None:
    spec = PRESETS["paper"].replace(input_rounding=rounding)
    x = torch.tensor([31.875, 31.874998, -32.125, -32.12501])
    saturated = {"truncate": [0, 0, 1, 1], "half-up": [1, 0, 0, 1], "half-even": [1, 0, 0, 1]}[rounding]
    assert words.saturates(x, spec).int().tolist() == saturated
    assert golden.saturates(x.numpy(), spec).astype(int).tolist() == saturated


@pytest.mark.parametrize(
    "spec", [*PRESETS.values(), DeferredSpec(), SoftermaxSpec(slice_width=3, base="fold")]
)
def test_a_spec_s_text_stands_for_it_in_any_process(spec: Any) -> None:
    text = spec_text(spec)
    spec_of.cache_clear()
    assert spec_of(text) == spec
    assert spec_of(text) is spec_of(spec_text(spec.replace()))
    with pytest.raises(ValueError, match="not the text of a spec"):
        spec_of(text[1:])
    with pytest.raises(TypeError, match="SoftermaxSpec or a DeferredSpec, got str"):
        spec_text(text)  # type: ignore[arg-type]
