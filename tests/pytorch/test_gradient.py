"""Derivatives of any order and in both directions, with and without the native core."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the PyTorch operator needs .[torch]")

import torch.autograd.forward_ad as forward_ad
from functorch.compile import make_boxed_func
from torch._dynamo.backends.common import aot_autograd
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.func import grad, hessian, jacfwd, jacrev, jvp, vmap

from softermax import PRESETS, DeferredSpec, SoftermaxSpec, get_spec, golden, kernels
from softermax.functional import softermax as op
from softermax.pytorch.registry import spec_text
from softermax.spec import LOG2E, AnySpec

SPECS: dict[str, AnySpec] = {
    "paper": PRESETS["paper"],
    "fold": get_spec("paper+fold"),
    "row-scaled": PRESETS["row-scaled"],
    "not native": PRESETS["paper"].replace(output="Q(1,12)", slice_width=7),
    "deferred": DeferredSpec(),
}
FINE = SoftermaxSpec(
    input="Q(6,18)", unnormed="Q(1,26)", powsum="Q(10,20)", reciprocal="Q(1,26)", output="Q(1,26)",
    pow2_segments=1024, reciprocal_segments=1024,
)  # fmt: skip
"""So many bits that the operator is the real softmax of base two, up to about 2^-18."""


@pytest.fixture(autouse=True, params=["core", "no core"])
def core(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    torch._dynamo.reset()
    if request.param == "no core":
        monkeypatch.setenv("SOFTERMAX_ISA", "none")
    elif not kernels.available():
        pytest.skip("the native core is not built here: `softermax info` says why")
    return str(request.param) == "core"


@pytest.fixture(params=SPECS)
def spec(request: pytest.FixtureRequest) -> AnySpec:
    return SPECS[request.param]


@pytest.fixture(params=["fused", "composed"])
def gradient(request: pytest.FixtureRequest) -> Any:
    return request.param


def drawn(*shape: int, spread: float = 1.0, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)) * spread


def scores() -> torch.Tensor:
    x = drawn(4, 21, spread=4.0)
    x[0, 3], x[1, 5] = 40.0, -50.0  # these saturate
    return x


class Rule:
    """The fused derivative written out in double precision, from the golden model's own words."""

    def __init__(self, x: torch.Tensor, spec: AnySpec) -> None:
        inner = spec.scores if isinstance(spec, DeferredSpec) else spec
        self.y = torch.from_numpy(spec.compute(x.numpy()))
        self.live = torch.from_numpy(~golden.saturates(x.numpy(), inner)).double()
        self.factor = math.log(2) * (LOG2E if spec.base == "fold" else 1.0)

    def jacobian(self) -> torch.Tensor:
        """(rows, outputs, scores)."""
        eye = torch.eye(self.y.shape[-1], dtype=torch.float64)
        centred = eye * self.y[:, :, None] - self.y[:, :, None] * self.y[:, None, :]
        return self.factor * centred * self.live[:, None, :]

    def second(self, g: torch.Tensor, h: torch.Tensor) -> torch.Tensor:
        """By the scores, of h times the gradient that g makes."""
        moved = self.live * h
        centred = g - (g * self.y).sum(-1, keepdim=True)
        of_y = self.factor * (moved * centred - g * (moved * self.y).sum(-1, keepdim=True))
        return torch.einsum("rij,ri->rj", self.jacobian(), of_y)


def close(got: torch.Tensor, want: torch.Tensor) -> None:
    assert want.abs().max() > 1e-3
    torch.testing.assert_close(got.double(), want.double(), rtol=1e-5, atol=1e-6)


def test_the_tangent_is_the_derivative_times_the_direction(spec: AnySpec) -> None:
    x, t = scores(), drawn(4, 21, seed=1)
    want = torch.einsum("rij,rj->ri", Rule(x, spec).jacobian(), t.double())
    y, got = jvp(lambda x: op(x, spec=spec), (x,), (t,))
    assert torch.equal(y, op(x, spec=spec))
    close(got, want)
    with forward_ad.dual_level():
        dual = op(forward_ad.make_dual(x, t), spec=spec)
        primal, tangent = forward_ad.unpack_dual(dual)
        assert torch.equal(primal, y)
        close(tangent, want)
        with torch.no_grad():  # which turns off backward only
            close(forward_ad.unpack_dual(op(forward_ad.make_dual(x, t), spec=spec)).tangent, want)


def test_a_gradient_penalty_has_a_gradient(spec: AnySpec) -> None:
    x, g, h = scores().requires_grad_(), drawn(4, 21, seed=1).requires_grad_(), drawn(4, 21, seed=2)
    (dx,) = torch.autograd.grad(op(x, spec=spec), x, g, create_graph=True)
    of_x, of_g = torch.autograd.grad((dx * h).sum(), (x, g))
    rule = Rule(x.detach(), spec)
    close(of_g, torch.einsum("rij,rj->ri", rule.jacobian(), h.double()))
    close(of_x, rule.second(g.detach().double(), h.double()))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_a_penalty_in_other_precisions(dtype: torch.dtype) -> None:
    x = scores().to(dtype).requires_grad_()
    g, h = drawn(4, 21, seed=1).to(dtype), drawn(4, 21, seed=2).to(dtype)
    (dx,) = torch.autograd.grad(op(x), x, g, create_graph=True)
    (of_x,) = torch.autograd.grad((dx * h).sum(), x)
    assert of_x.dtype == dtype
    want = Rule(x.detach().float(), PRESETS["paper"]).second(g.double(), h.double())
    step = 8 * torch.finfo(dtype).eps
    torch.testing.assert_close(of_x.double(), want, rtol=step, atol=step * float(want.abs().max()))


def real(x: torch.Tensor) -> torch.Tensor:
    return torch.softmax(x * math.log(2), -1)


def test_a_fine_spec_has_the_derivatives_of_the_real_softmax(gradient: Any) -> None:
    """Second and third, by every way there is of taking them."""
    x = drawn(6, spread=1.5, seed=3).double()

    def fine(x: torch.Tensor) -> torch.Tensor:
        return op(x, spec=FINE, gradient=gradient)

    # In a fine spec words of 2^-18 and the rounding of y decide how near these are.
    for way in (
        hessian,
        lambda f: jacrev(jacrev(f)),
        lambda f: jacrev(jacfwd(f)),
        lambda f: jacfwd(jacfwd(f)),
    ):
        torch.testing.assert_close(way(fine)(x), way(real)(x), rtol=0, atol=1e-4)
    third = jacrev(jacfwd(jacrev(lambda x: fine(x)[0])))(x)
    torch.testing.assert_close(third, jacrev(jacfwd(jacrev(lambda x: real(x)[0])))(x), rtol=0, atol=1e-4)


def test_a_fine_spec_has_the_second_derivative_by_backward_twice(gradient: Any) -> None:
    x, h = drawn(5, 9, spread=1.5, seed=3).requires_grad_(), drawn(5, 9, seed=4)
    found = []
    for f in (lambda x: op(x, spec=FINE, gradient=gradient), real):
        (dx,) = torch.autograd.grad(f(x).pow(2).sum(), x, create_graph=True)
        (second,) = torch.autograd.grad((dx * h).sum(), x, create_graph=True)
        (third,) = torch.autograd.grad((second * h).sum(), x)
        found.append((second.detach(), third))
    assert found[1][0].abs().max() > 0.1
    for got, want in zip(*found, strict=True):
        torch.testing.assert_close(got, want, rtol=0, atol=1e-4)


def test_transforms_agree_with_backward(spec: AnySpec, gradient: Any) -> None:
    x, g = scores(), drawn(4, 21, seed=1)

    def loss(x: torch.Tensor, g: torch.Tensor) -> torch.Tensor:
        return (op(x, spec=spec, gradient=gradient) * g).sum()

    leaf = x.clone().requires_grad_()
    (want,) = torch.autograd.grad(loss(leaf, g), leaf)
    close(grad(loss)(x, g), want)
    close(vmap(grad(loss))(x, g), want)
    close(grad(lambda x: vmap(loss)(x, g).sum())(x), want)
    row = x[2]
    backward = jacrev(lambda x: op(x, spec=spec, gradient=gradient))(row)
    close(backward, jacfwd(lambda x: op(x, spec=spec, gradient=gradient))(row))
    if gradient == "fused":
        close(backward, Rule(x, spec).jacobian()[2])


def test_a_batch_by_vmap_gives_the_same_bits(spec: AnySpec, gradient: Any) -> None:
    x, mask = scores(), drawn(4, 21, seed=5) > -1
    whole = op(x, mask=mask, spec=spec, gradient=gradient)
    one = lambda x, mask: op(x, mask=mask, spec=spec, gradient=gradient)  # noqa: E731
    assert torch.equal(vmap(one)(x, mask), whole)
    assert torch.equal(vmap(one, in_dims=(1, 1), out_dims=1)(x.T, mask.T), whole.T)
    shared = vmap(one, in_dims=(0, None))(x, mask[0])
    assert torch.equal(shared, op(x, mask=mask[0], spec=spec))
    many = vmap(one, in_dims=(None, 0))(x[0], mask)
    assert torch.equal(many, op(x[0].expand(4, 21), mask=mask, spec=spec))


def test_many_cotangents_at_once() -> None:
    x = scores().requires_grad_()
    y, g = op(x), drawn(3, 4, 21, seed=1)
    (batched,) = torch.autograd.grad(y, x, g, is_grads_batched=True, retain_graph=True)
    for got, one in zip(batched, g, strict=True):
        close(got, torch.autograd.grad(y, x, one, retain_graph=True)[0])
    f = lambda x: op(x).pow(2).sum()  # noqa: E731
    small = x[2, :6].detach()
    plain, vectorised = (torch.autograd.functional.hessian(f, small, vectorize=v) for v in (False, True))
    close(vectorised, plain)


def test_nan_is_refused_or_stays_nan_where_raising_is_not_possible(gradient: Any) -> None:
    x = scores()
    x[1, 2] = float("nan")

    def f(x: torch.Tensor) -> torch.Tensor:
        return op(x, gradient=gradient)

    assert vmap(f)(x)[1, 2].isnan()
    assert vmap(f)(x)[0].isfinite().all()
    for derivative in (lambda x: jvp(f, (x,), (x,)), grad(lambda x: f(x).sum())):
        with pytest.raises(ValueError, match="finite"):
            derivative(x)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_tensors_without_numbers(spec: AnySpec, gradient: Any, dtype: torch.dtype) -> None:
    """Meta and fake ones: shapes and types pass, forward and backward."""
    for mode, device in ((None, "meta"), (FakeTensorMode(), "cpu")):
        with mode or torch.enable_grad():
            x = torch.empty(2, 3, 20, dtype=dtype, device=device, requires_grad=True)
            keep = torch.ones(3, 20, dtype=torch.bool, device=device)
            y = op(x, mask=keep, spec=spec, gradient=gradient)
            assert (y.shape, y.dtype, y.device.type) == (x.shape, dtype, device)
            y.sum().backward()
            assert x.grad is not None
            assert (x.grad.shape, x.grad.dtype) == (x.shape, dtype)
            assert op(x, dim=1, spec=spec, gradient=gradient).shape == x.shape


def test_compiled_code_runs_backward_in_the_core(core: bool) -> None:
    graphs: list[Any] = []

    def keep(graph: Any, inputs: Any) -> Any:
        graphs.append(graph)
        return make_boxed_func(graph)

    x, g = scores().requires_grad_(), drawn(4, 21, seed=1)
    compiled = torch.compile(op, fullgraph=True, backend=aot_autograd(fw_compiler=keep, bw_compiler=keep))
    (dx,) = torch.autograd.grad(compiled(x), x, g)
    close(dx, torch.autograd.grad(op(x), x, g)[0])
    operators = {str(node.target) for graph in graphs for node in graph.graph.nodes}
    assert ("softermax.backward.default" in operators) == core


def test_transforms_compile() -> None:
    x, t = scores(), drawn(4, 21, seed=1)
    for way in (grad(lambda x: op(x).pow(2).sum()), lambda x: jvp(op, (x,), (t,))[1]):
        compiled = torch.compile(way, fullgraph=True, backend="aot_eager")
        close(compiled(x), way(x))


def test_the_backward_operator_says_that_it_has_no_derivative(core: bool) -> None:
    if not core:
        pytest.skip("the operator is the native core's")
    g, text = drawn(4, 21, seed=1).requires_grad_(), spec_text(PRESETS["paper"])
    kept = torch.ops.softermax.training(scores(), None, text)[1:-1]
    dx = torch.ops.softermax.backward(g, *kept, text)
    with pytest.raises(RuntimeError, match="no derivative of its own"):
        dx.sum().backward()


def test_the_deferred_gradients_agree() -> None:
    x, g = drawn(20, 50, spread=3.0), drawn(20, 50, seed=9)
    found = []
    for gradient in ("fused", "composed"):
        leaf = x.double().requires_grad_()
        (op(leaf, spec=DeferredSpec(), gradient=gradient) * g).sum().backward()
        assert leaf.grad is not None
        found.append(leaf.grad)
    assert found[0].abs().max() > 0.1
    # Composed takes weights where fused takes their quotient: these differ by half a weight's unit and the table's error.
    assert (found[0] - found[1]).abs().max() <= 0.01 * float(np.abs(g).max())
