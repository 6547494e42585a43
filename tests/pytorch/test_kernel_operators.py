"""The PyTorch operators: float rows as a drop-in, the training pair, compile and export."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from kernels.native_build import words as raw_words
from softermax import PRESETS, get_spec, golden
from softermax.functional import softermax
from softermax.pytorch import operators as ops
from softermax.pytorch.registry import spec_text
from softermax.spec import DeferredSpec, SoftermaxSpec

DTYPES = [torch.float32, torch.bfloat16, torch.float16]


def judged(x: torch.Tensor, spec: SoftermaxSpec, mask: torch.Tensor | None = None) -> torch.Tensor:
    keep = None if mask is None else mask.numpy()
    value = spec.compute(x.detach().float().numpy(), keep)
    return torch.from_numpy(value).to(x.dtype)


def scores(
    *shape: int, dtype: torch.dtype = torch.float32, spread: float = 6.0, seed: int = 0
) -> torch.Tensor:
    return (torch.randn(shape, generator=torch.Generator().manual_seed(seed)) * spread).to(dtype)


@pytest.mark.parametrize("dtype", DTYPES)
def test_float_rows_equal_the_golden_model(dtype: torch.dtype, spec: SoftermaxSpec, path: str) -> None:
    for columns in (1, 5, 31, 32, 33, 64, 100, 128, 300):
        x = scores(2, 3, columns, dtype=dtype, spread=(2.0, 15.0)[columns % 2], seed=columns)
        mask = torch.rand(2, 1, columns, generator=torch.Generator().manual_seed(columns)) < 0.8
        assert torch.equal(ops.softermax(x, None, spec), judged(x, spec))
        assert torch.equal(ops.softermax(x, mask, spec), judged(x, spec, mask))


def test_every_value_of_a_half_converts(path: str) -> None:
    """Each finite bfloat16 and float16 as a score, quantised and, as a probability, written."""
    bits = torch.arange(1 << 16, dtype=torch.int32).to(torch.int16)
    for dtype in (torch.bfloat16, torch.float16):
        x = bits.view(dtype)
        x = x[x.isfinite()]
        x = x[: x.numel() // 64 * 64].reshape(-1, 64)
        for name in ("whole-row", "row-scaled"):
            assert torch.equal(ops.softermax(x, None, PRESETS[name]), judged(x, PRESETS[name]))


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_gradient_is_the_contract_s(dtype: torch.dtype, spec: SoftermaxSpec, path: str) -> None:
    for columns in (1, 7, 64, 129, 300):
        x = scores(2, 3, columns, dtype=dtype, spread=20.0, seed=columns).requires_grad_()
        mask = torch.rand(x.shape, generator=torch.Generator().manual_seed(1)) < 0.9
        g = scores(*x.shape, dtype=dtype, spread=1.0, seed=3)
        y = ops.softermax(x, mask, spec)
        (dx,) = torch.autograd.grad(y, x, g)
        p = judged(x, spec, mask).double()
        factor = np.log(2.0) * (1.4426950408889634 if spec.base == "fold" else 1.0)
        want = factor * p * (g.double() - (g.double() * p).sum(-1, keepdim=True))
        scaled = x.detach().float() * np.float32(spec.input_scale)
        saturated = (scaled > 127.5) | (scaled < -128.5)
        want = torch.where(saturated, 0.0, want)
        assert saturated.any() or columns < 64
        torch.testing.assert_close(dx.double(), want, rtol=2 * torch.finfo(dtype).eps, atol=1e-6)
        assert not dx[saturated].any()


def test_forward_keeps_only_words_and_marks() -> None:
    x = scores(4, 256).requires_grad_()
    kept: list[torch.Tensor] = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t) or t, lambda t: t):
        ops.softermax(x, None, PRESETS["paper"])
    assert sum(t.untyped_storage().nbytes() for t in kept) < 1.2 * x.numel()


def test_rows_in_any_place(path: str) -> None:
    spec = PRESETS["paper"]
    x = scores(4, 6, 96)
    for view in (
        x[:, ::2],
        x[..., 3:77],
        x.transpose(1, 2),
        x[:, :, ::3],
        x.expand(2, 4, 6, 96),
        x[:0],
        x[..., :0],
    ):
        assert torch.equal(softermax(view, spec=spec), judged(view, spec))
    assert torch.equal(softermax(x, dim=0, spec=spec), judged(x.movedim(0, -1), spec).movedim(-1, 0))
    deep = scores(*(1,) * 10, 40)
    assert torch.equal(softermax(deep, spec=spec), judged(deep, spec))


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_what_is_not_finite_is_an_error_unless_masked(value: float, path: str) -> None:
    x = scores(3, 100)
    x[1, 70] = value
    with pytest.raises(ValueError, match=r"finite where they are not masked.*row 1"):
        ops.softermax(x, None, PRESETS["paper"])
    mask = torch.ones(3, 100, dtype=torch.bool)
    mask[:, 70] = False
    assert torch.equal(ops.softermax(x, mask, PRESETS["paper"]), judged(x, PRESETS["paper"], mask))


def test_unsupported_specs_and_types_take_pytorch_with_the_right_answer() -> None:
    x = scores(3, 50)
    other = PRESETS["paper"].replace(output="Q(1,12)")
    assert not ops.takes(x, other)
    assert torch.equal(softermax(x, spec=other), judged(x, other))
    assert not ops.takes(x.double(), PRESETS["paper"])
    assert not ops.takes(x.to("meta"), PRESETS["paper"])
    assert not ops.takes(x, DeferredSpec())
    assert ops.takes(x, PRESETS["paper"])


def test_int8_operator(path: str, rng: np.random.Generator, spec: SoftermaxSpec) -> None:
    raw = raw_words(rng, 2, 5, 150)
    mask = rng.random((2, 1, 150)) < 0.7
    lengths = rng.integers(0, 151, (2, 5))
    keep = mask & (np.arange(150) < lengths[..., None]) & np.tri(5, 150, 145, dtype=bool)
    got, exponent = ops.softermax_int8(
        torch.from_numpy(raw), spec, torch.from_numpy(mask), torch.from_numpy(lengths), causal=True
    )
    want = golden.softermax(raw, spec, keep)
    np.testing.assert_array_equal(got.numpy(), want.words)
    if spec.output_mode == "row-scaled":
        np.testing.assert_array_equal(exponent.numpy(), want.exponent)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"raw": torch.zeros(2, 3)}, TypeError, "int8, got torch.float32"),
        ({"raw": torch.zeros((), dtype=torch.int8)}, ValueError, "scalar"),
        ({"mask": torch.ones(2, 3)}, TypeError, "boolean.*float32"),
        ({"mask": torch.ones(2, 4, dtype=torch.bool)}, ValueError, r"\(2, 4\) does not broadcast"),
        ({"lengths": torch.ones(2)}, TypeError, "integers, got torch.float32"),
        ({"lengths": torch.tensor([1, -1])}, ValueError, "0 or more, got -1"),
        ({"raw": torch.zeros(3, dtype=torch.int8), "causal": True}, ValueError, "rows and columns"),
        ({"spec": PRESETS["paper"].replace(output="Q(1,12)")}, ValueError, r"output is Q\(1,12\)"),
        ({"raw": torch.zeros(2, 3, dtype=torch.int8, device="meta"), "mask": None}, None, ""),
    ],
)
def test_bad_tensors_are_named(
    arguments: dict[str, object], error: type[Exception] | None, message: str
) -> None:
    good: dict[str, object] = {"raw": torch.zeros(2, 3, dtype=torch.int8), "spec": PRESETS["paper"]}
    if error is None:  # another device computes nothing, and crashes nothing
        words, _ = ops.softermax_int8(**(good | arguments))  # type: ignore[arg-type]
        assert words.device.type == "meta"
        return
    with pytest.raises(error, match=message):
        ops.softermax_int8(**(good | arguments))  # type: ignore[arg-type]


def test_operators_pass_torch_s_own_checks(path: str) -> None:
    for name in ("paper", "row-scaled"):
        text = spec_text(PRESETS[name])
        x, mask = scores(2, 3, 40), torch.ones(3, 40, dtype=torch.bool)
        torch.library.opcheck(torch.ops.softermax.forward, (x, mask, text))
        torch.library.opcheck(torch.ops.softermax.training, (x.requires_grad_(), None, text))
        raw = torch.zeros(2, 5, dtype=torch.int8)
        torch.library.opcheck(torch.ops.softermax.int8_rows, (raw, text, None, torch.tensor([2, 5]), True))


def test_compiled_with_dynamic_shapes_forward_and_backward() -> None:
    spec = get_spec("paper+fold")
    compiled = torch.compile(
        lambda x: softermax(x * 2, spec=spec) * 3, fullgraph=True, dynamic=True, backend="aot_eager"
    )
    for columns in (40, 41, 128):
        x = scores(2, columns).requires_grad_()
        eager = softermax(x * 2, spec=spec) * 3
        got = compiled(x)
        assert torch.equal(got, eager)
        g = scores(2, columns, seed=5)
        assert torch.equal(*(torch.autograd.grad(y, x, g)[0] for y in (got, eager)))


def test_exported_program_gives_the_same_words() -> None:
    class Model(torch.nn.Module):
        def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
            return softermax(x, mask=mask, spec=PRESETS["paper"])

    batch = torch.export.Dim("batch", min=2, max=64)
    x, mask = scores(3, 50), torch.ones(3, 50, dtype=torch.bool)
    program = torch.export.export(Model(), (x, mask), dynamic_shapes=({0: batch}, {0: batch}))
    assert any("softermax.forward" in str(node.target) for node in program.graph.nodes)
    other = scores(7, 50, seed=2)
    keep = torch.rand(7, 50) < 0.5
    assert torch.equal(program.module()(other, keep), judged(other, PRESETS["paper"], keep))
