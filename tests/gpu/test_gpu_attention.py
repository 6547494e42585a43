"""Attention by the Triton kernels, interpreted: int8 with the golden model's bits; floats with those words, and a gradient."""

from __future__ import annotations

import numpy as np
import pytest

from gpu import interpreted

pytest.importorskip("triton", reason="the kernels need .[gpu]")
pytest.importorskip("torch", reason="the kernels need .[torch]")

from softermax import DeferredSpec, SoftermaxSpec, get_spec
from softermax.golden.attention import attention
from softermax.gpu.interpreter import call
from softermax.gpu.plan import attention_refusal, gradient_refusal, refusal
from softermax.spec import PRESETS, SPECS
from softermax.verify import attention_cases, draw_deferred, draw_spec

QUICK = {
    "paper": ("masked",), "paper:deferred": ("causal", "rising, falling"), "lean-row-scaled": ("random",),
    "whole-row:deferred": ("masked",),
}  # fmt: skip
ODD = DeferredSpec(SoftermaxSpec(slice_width=7, unnormed_rounding="half-up"))


def differing(spec: SoftermaxSpec | DeferredSpec, case) -> int:
    got = call(
        interpreted.attend, spec, case.q, case.k, case.v, case.scale, case.value_scale, case.mask, case.causal
    )
    want = attention(case.q, case.k, case.v, spec, case.scale, case.value_scale, case.mask, case.causal).value
    return int((got.view(np.int32) != want.view(np.int32)).sum())


@pytest.mark.parametrize("name", QUICK)
def test_int8_attention_has_the_golden_bits(name: str) -> None:
    for case in attention_cases(SPECS[name]):
        if case.name in QUICK[name]:
            assert differing(SPECS[name], case) == 0, case.name


@pytest.mark.slow
@pytest.mark.parametrize("name", [*SPECS, "odd"])
def test_every_case_of_every_preset(name: str) -> None:
    spec = ODD if name == "odd" else SPECS[name]
    for case in attention_cases(spec):
        assert differing(spec, case) == 0, case.name


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(20))
def test_drawn_specs(seed: int) -> None:
    rng = np.random.default_rng(seed)
    draw = draw_deferred if seed % 2 else draw_spec
    while refusal(spec := draw(rng, eight_bit=seed % 4 < 2)) or attention_refusal(spec, 300, 24):
        pass
    for case in attention_cases(spec):
        assert differing(spec, case) == 0, (spec, case.name)


def test_lengths_leave_keys_out() -> None:
    rng = np.random.default_rng(0)
    q, k, v = (rng.integers(-127, 128, (2, 2, n, 8)).astype(np.int8) for n in (3, 20, 20))
    spec, lengths = PRESETS["paper"], np.array([7, 30])
    got = call(interpreted.attend, spec, q, k, v, 1e-3, 1.0, None, False, lengths)
    keep = (np.arange(20) < lengths[:, None])[:, None, None]
    assert np.array_equal(got, attention(q, k, v, spec, 1e-3, mask=keep).value)


@pytest.mark.parametrize(
    ("name", "kind", "masked", "causal"),
    [
        ("paper", "float32", True, True),
        ("paper:deferred", "float32", True, False),
        ("lean-row-scaled", "float32", False, True),
        ("row-scaled+fold", "float16", False, False),
    ],
)
def test_attention_of_floats_and_its_gradient(name: str, kind: str, masked: bool, causal: bool) -> None:
    """Forward differs from scores, rows and product by how sums round; so do the three gradients.

    bfloat16 is compiled only: the interpreter multiplies the bits of such matrices.
    """
    got, want = call(interpreted.float_attention, get_spec(name), kind, masked, causal)
    most = {"float32": 4e-6, "float16": 0.004}[kind]
    for one, other in zip(got, want, strict=True):
        assert np.abs(one - other).max() <= most * np.abs(other).max()


@pytest.mark.parametrize("name", ["paper", "paper:deferred"])
def test_fused_attention_in_a_compiled_graph_has_the_same_bits(name: str) -> None:
    plain, compiled = call(interpreted.compiled_attention, get_spec(name))
    for one, other in zip(plain, compiled, strict=True):
        assert np.array_equal(one, other)


@pytest.mark.slow
def test_a_model_trains_with_them_with_no_change() -> None:
    pytest.importorskip("transformers", reason="the model needs .[transformers]")
    calls, (out, grads, plain, plain_grads) = call(interpreted.model_steps, get_spec("paper+fold"))
    assert calls == 2
    assert np.abs(out - plain).max() < 1e-4
    assert np.abs(grads - plain_grads).max() <= 1e-3 * np.abs(plain_grads).max()


def test_what_does_not_fit_is_refused_by_name() -> None:
    wide = SoftermaxSpec(output="Q(1,9)")
    assert attention_refusal(wide, 10, 64) == "output is Q(1,9); attention takes up to 8 bits"
    assert (
        attention_refusal(PRESETS["paper"], 65537, 64) == "there are 65537 keys; the kernels take up to 65536"
    )
    assert str(gradient_refusal(SoftermaxSpec(unnormed_rounding="half-up"))).startswith("unnormed_rounding")
