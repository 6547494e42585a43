"""Fused int8 attention equals the NumPy model bit for bit, in both modes."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from kernels.native_build import SPECS
from softermax import PRESETS, DeferredSpec, golden, kernels
from softermax.golden import attention as golden_attention
from softermax.pytorch.attention import attention, int8_attention
from softermax.pytorch.operators import quantize_int8
from softermax.pytorch.registry import spec_text
from softermax.spec import SoftermaxSpec

MODES: dict[str, SoftermaxSpec | DeferredSpec] = {
    **SPECS,
    **{
        f"deferred {name}": DeferredSpec(spec)
        for name, spec in SPECS.items()
        if (spec.slice_width or 0) % 4 == 0
    },
}


def operands(rng: np.random.Generator, b: int, h: int, kv: int, m: int, n: int, d: int) -> list[torch.Tensor]:
    shapes = ((b, h, m, d), (b, kv, n, d), (b, kv, n, d))
    return [torch.from_numpy(rng.integers(-128, 128, shape).astype(np.int8)) for shape in shapes]


def model(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *args: object, **named: object) -> np.ndarray:
    return golden_attention.attention(q.numpy(), k.numpy(), v.numpy(), *args, **named).value  # type: ignore[arg-type]


@pytest.mark.parametrize("mode", MODES)
def test_equals_the_model(mode: str, path: str, rng: np.random.Generator) -> None:
    spec = MODES[mode]
    for shape in (
        (1, 2, 1, 5, 7, 3),
        (2, 4, 2, 26, 130, 64),
        (1, 2, 2, 40, 300, 100),
        (1, 1, 1, 1, 520, 256),
        (1, 9, 3, 1, 700, 64),  # few rows per head of keys: nothing is packed
        (2, 4, 1, 2, 131, 83),
    ):
        q, k, v = operands(rng, *shape)
        b, _, _, m, n, _ = shape
        lengths = torch.from_numpy(rng.integers(0, n + 1, b))
        padding = torch.arange(n) < lengths[:, None, None, None]
        some = torch.from_numpy(rng.random((m, n)) < 0.7)
        for scale in (0.0004, 0.01):
            for causal in (False, True):
                args = (scale, 0.013, spec)
                got = int8_attention(q, k, v, *args, lengths=lengths, causal=causal)
                want = model(q, k, v, spec, *args[:2], mask=padding.numpy(), causal=causal)
                np.testing.assert_array_equal(got.numpy(), want)
                got = int8_attention(q, k, v, *args, mask=some, causal=causal)
                np.testing.assert_array_equal(
                    got.numpy(), model(q, k, v, spec, *args[:2], mask=some.numpy(), causal=causal)
                )


def test_each_head_of_keys_may_have_its_own_scales(path: str, rng: np.random.Generator) -> None:
    for queries in (1, 30):
        q, k, v = (x.numpy() for x in operands(rng, 2, 6, 3, queries, 70, 32))
        scales, value_scales = [0.001, 0.02, 0.0003], [0.5, 0.01, 2.0]
        got = kernels.attention.int8_attention(q, k, v, PRESETS["paper"], scales, value_scales, path=path)
        for n in range(3):
            heads = slice(2 * n, 2 * n + 2)
            want = golden_attention.attention(
                q[:, heads], k[:, n : n + 1], v[:, n : n + 1], PRESETS["paper"], scales[n], value_scales[n]
            ).value
            np.testing.assert_array_equal(got[:, heads], want)
    with pytest.raises(ValueError, match="value_scale has 2 values: must be one, or one per head of keys, 3"):
        kernels.attention.int8_attention(q, k, v, PRESETS["paper"], 0.1, [1.0, 2.0], path=path)


def test_probabilities_that_add_up_to_more_than_a_byte(path: str) -> None:
    """Where a short PowSum saturates, they do, and 16-bit sums of products would overflow."""
    q = k = torch.ones(1, 1, 300, 8, dtype=torch.int8)
    v = torch.full((1, 1, 300, 8), -128, dtype=torch.int8)
    spec = SPECS["short words"]
    got = int8_attention(q, k, v, 0.01, 1.0, spec)
    np.testing.assert_array_equal(got.numpy(), model(q, k, v, spec, 0.01))
    assert got[0, 0, 0, 0] * 2**spec.output.fraction < -255 * 128


def test_a_max_that_grows_all_along_the_row(path: str, rng: np.random.Generator) -> None:
    """Accumulators are shifted at every slice, and at once by more than they are long."""
    n = 1040
    q = torch.full((1, 1, 3, 4), 100, dtype=torch.int8)
    v = torch.from_numpy(rng.integers(-128, 128, (1, 1, n, 4)).astype(np.int8))
    rising = torch.linspace(-128, 127, n).to(torch.int8)[None, None, :, None].expand(1, 1, n, 4).contiguous()
    jump = (
        torch.where(torch.arange(n) < 500, -128, 127).to(torch.int8)[None, None, :, None].expand(1, 1, n, 4)
    )
    for spec in (DeferredSpec(), DeferredSpec(PRESETS["paper-32"])):
        for k in (rising, jump.contiguous()):
            got = int8_attention(q, k, v, 0.0006, 1.0, spec)
            np.testing.assert_array_equal(got.numpy(), model(q, k, v, spec, 0.0006))


def test_rows_that_see_nothing_are_zero(path: str, rng: np.random.Generator) -> None:
    q, k, v = operands(rng, 2, 2, 2, 5, 3, 16)
    for spec in (PRESETS["paper"], DeferredSpec()):
        got = int8_attention(
            q, k, v, 0.01, 1.0, spec, causal=True
        )  # the first two queries stand before any key
        assert not got[:, :, :2].any()
        assert got[:, :, 2:].any()
        assert not int8_attention(q, k, v, 0.01, 1.0, spec, lengths=torch.zeros(2, dtype=torch.int64)).any()


def test_operands_in_any_place(path: str, rng: np.random.Generator) -> None:
    q, k, v = (x.transpose(1, 2).contiguous().transpose(1, 2) for x in operands(rng, 2, 4, 2, 30, 50, 20))
    want = model(*(x.contiguous() for x in (q, k, v)), PRESETS["paper"], 0.001)
    np.testing.assert_array_equal(int8_attention(q, k, v, 0.001).numpy(), want)
    wide = [x.transpose(2, 3).contiguous().transpose(2, 3) for x in (q, k, v)]
    np.testing.assert_array_equal(int8_attention(*wide, 0.001).numpy(), want)
    for shape in ((0, 2, 1, 4, 4, 8), (1, 2, 1, 0, 4, 8), (1, 2, 1, 4, 0, 8)):
        empty = int8_attention(*operands(rng, *shape), 0.001)
        assert not empty.any()
        assert empty.shape == (shape[0], shape[1], shape[3], shape[5])


def test_threads_do_not_change_the_result(path: str, rng: np.random.Generator) -> None:
    q, k, v = operands(rng, 1, 2, 1, 300, 200, 64)
    before = torch.get_num_threads()
    try:
        results = []
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            results.append(int8_attention(q, k, v, 0.001, causal=True))
    finally:
        torch.set_num_threads(before)
    assert all(torch.equal(results[0], other) for other in results[1:])


def test_what_the_core_does_not_cover_the_model_computes(rng: np.random.Generator) -> None:
    q, k, v = operands(rng, 1, 2, 1, 70, 40, 16)
    specs = [
        PRESETS["paper"].replace(output="Q(1,12)"),
        DeferredSpec(PRESETS["paper"].replace(slice_width=6)),
    ]
    for spec in specs:
        assert kernels.refusal(spec) is not None
        mask = torch.from_numpy(rng.random((1, 1, 1, 40)) < 0.5)
        got = int8_attention(q, k, v, 0.001, 0.5, spec, mask=mask, lengths=torch.tensor([30]), causal=True)
        keep = mask.numpy() & (np.arange(40) < 30)
        np.testing.assert_array_equal(got.numpy(), model(q, k, v, spec, 0.001, 0.5, mask=keep, causal=True))
    wide = operands(rng, 1, 1, 1, 3, 20, 300)
    np.testing.assert_array_equal(int8_attention(*wide, 0.001).numpy(), model(*wide, PRESETS["paper"], 0.001))


def test_the_model_s_paper_mode_is_golden_softermax_between_two_products(rng: np.random.Generator) -> None:
    q, k, v = operands(rng, 1, 1, 1, 6, 40, 8)
    spec = PRESETS["paper"]
    exact = np.einsum("md,nd->mn", *(x[0, 0].numpy().astype(np.int64) for x in (q, k)))
    raw = np.clip(np.rint(exact.astype(np.float32) * np.float32(0.002 * 4)), -128, 127).astype(np.int64)
    p = golden.softermax(raw, spec).value
    want = p @ (v[0, 0].numpy() * 0.5)
    np.testing.assert_allclose(model(q, k, v, spec, 0.002, 0.5)[0, 0], want, rtol=1e-6)


def test_both_modes_are_close_to_float_attention() -> None:
    generator = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(2, 4, 64, 32, generator=generator) for _ in range(3))
    exact = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    folded = PRESETS["row-scaled"].replace(base="fold")
    for spec in (folded, DeferredSpec(folded)):
        error = (attention(q, k, v, spec, causal=True) - exact).abs()
        # Half a step of the input word, 2^-3, is a factor of 1.09 in a weight.
        assert error.mean() < 0.09 * exact.abs().mean()


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("at", [0, 1])
def test_operands_that_are_no_numbers_are_refused(
    value: float, at: int, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On every path, in the vector loop and in what is left after it."""
    q = torch.ones(1, 1, 5, 13)
    q.flatten()[-at] = value
    with pytest.raises(ValueError, match="found NaN or infinity"):
        attention(q, q, q)
    monkeypatch.setenv("SOFTERMAX_ISA", "none")
    with pytest.raises(ValueError, match="found NaN or infinity"):
        attention(q, q, q)


def test_floats_become_the_same_bytes_with_and_without_the_core(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = torch.randn(7, 31, generator=torch.Generator().manual_seed(0))
    x[0, :4] = torch.tensor([127.0, 0.5, 1.5, -2.5]) * x.abs().max() / 127  # ties
    words, scale = quantize_int8(x)
    monkeypatch.setenv("SOFTERMAX_ISA", "none")
    assert torch.equal(words, quantize_int8(x)[0])
    assert scale == quantize_int8(x)[1]


def test_operator_passes_torch_s_own_checks(rng: np.random.Generator) -> None:
    q, k, v = operands(rng, 1, 2, 1, 4, 9, 8)
    torch.library.opcheck(
        torch.ops.softermax.attend,
        (q, k, v, spec_text(DeferredSpec()), 0.01, 1.0, None, torch.tensor([5]), True),
    )
    compiled = torch.compile(lambda *t: int8_attention(*t, 0.01), fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(q, k, v), int8_attention(q, k, v, 0.01))


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"q": torch.zeros(1, 2, 4, 8)}, TypeError, "q must be int8 .* torch.float32"),
        ({"k": torch.zeros(2, 4, 8, dtype=torch.int8)}, TypeError, "k must be .* of 3"),
        ({"v": torch.zeros(1, 1, 5, 8, dtype=torch.int8)}, ValueError, r"v \(1, 1, 5, 8\) do not fit"),
        ({"q": torch.zeros(1, 2, 4, 9, dtype=torch.int8)}, ValueError, "do not fit"),
        ({"scale": float("nan")}, ValueError, "scale = nan: must be finite"),
        ({"mask": torch.ones(4, 4)}, TypeError, "mask must be a boolean tensor"),
        ({"mask": torch.ones(3, 4, dtype=torch.bool)}, ValueError, r"\(3, 4\) does not broadcast"),
        ({"lengths": torch.tensor([1, 2])}, ValueError, r"shape \(1,\)"),
        ({"lengths": torch.tensor([1.0])}, TypeError, "integers"),
        ({"spec": "paper"}, TypeError, "SoftermaxSpec or a DeferredSpec, got str"),
    ],
)
def test_bad_operands_are_named(change: dict[str, object], error: type[Exception], message: str) -> None:
    zeros = torch.zeros(1, 1, 4, 8, dtype=torch.int8)
    good: dict[str, object] = {"q": zeros.expand(1, 2, 4, 8), "k": zeros, "v": zeros, "scale": 0.1}
    with pytest.raises(error, match=message):
        int8_attention(**(good | change))  # type: ignore[arg-type]


def test_memory_grows_with_the_keys_not_with_the_scores() -> None:
    """At 16384 keys the scores alone would take 256 MiB as bytes."""
    program = """
import json, resource, torch
from softermax import PRESETS, DeferredSpec
from softermax.pytorch.attention import int8_attention
torch.set_num_threads(1)
q, k, v = (torch.randint(-128, 128, (1, 1, 16384, 64), dtype=torch.int8) for _ in range(3))
int8_attention(q[:, :, :64], k[:, :, :64], v[:, :, :64], 0.001)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
for spec in (PRESETS["paper"], DeferredSpec()):
    out = int8_attention(q, k, v, 0.001, 1.0, spec)
after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(json.dumps((after - before) * 1024 - 2 * out.numel() * 4))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) < 24 << 20
