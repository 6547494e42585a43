"""The PyTorch operator: the golden model's bits, and the paper's gradient."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the PyTorch operator needs .[torch]")

from hypothesis import given, settings
from hypothesis import strategies as st
from torch._dynamo.testing import CompileCounterWithBackend
from torch.utils.checkpoint import checkpoint

import softermax
from softermax import PRESETS, SoftermaxSpec, get_spec, golden
from softermax.functional import softermax as op
from softermax.pytorch import gradient, words
from softermax.pytorch import operators as ops
from softermax.spec import AnySpec

WIDE = SoftermaxSpec(
    input="Q(8,8)", max="Q(8,0)", unnormed="Q(1,23)", powsum="Q(12,12)", reciprocal="Q(1,15)",
    output="Q(1,15)", unnormed_rounding="half-up", output_rounding="half-even", pow2_segments=16,
)  # fmt: skip
FLOORED = SoftermaxSpec(max_rounding="truncate", powsum_rounding="half-even", slice_width=7)
HALF_UP = SoftermaxSpec(unnormed_rounding="half-up", input_rounding="half-up", output_rounding="truncate")
FOUR_BITS = SoftermaxSpec(input="Q(6,4)", pow2_segments=4)
SPECS = {
    **PRESETS, "fold": get_spec("paper+fold"), "wide": WIDE, "floored": FLOORED, "half-up": HALF_UP,
    "m-table": FOUR_BITS,
}  # fmt: skip


@pytest.fixture(params=SPECS, ids=str)
def spec(request: pytest.FixtureRequest) -> SoftermaxSpec:
    return SPECS[request.param]


@pytest.fixture(autouse=True, params=["pytorch", "native"])
def path(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Everything holds on both paths: PyTorch's own, and the native core where it takes the spec."""
    torch._dynamo.reset()
    if request.param == "pytorch":
        monkeypatch.setattr(ops, "takes", lambda x, spec: False)
    elif not ops.takes_spec(PRESETS["paper"]):
        pytest.skip("the native core is not built here: `softermax info` says why")
    return str(request.param)


def scores(*shape: int, spread: float = 6.0, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)) * spread


def judged(x: torch.Tensor, spec: AnySpec, mask: torch.Tensor | None = None) -> torch.Tensor:
    """What the golden model says, in the scores' own precision."""
    array = x.float().numpy() if x.dtype in (torch.bfloat16, torch.float16) else x.numpy()
    value = spec.run(array, None if mask is None else mask.numpy()).value
    return torch.from_numpy(value).to(x.dtype)


@pytest.mark.parametrize("columns", [1, 5, 16, 100, 384, 700])
def test_equals_the_golden_model(spec: SoftermaxSpec, columns: int) -> None:
    x = scores(40, columns)
    assert torch.equal(op(x, spec=spec), judged(x, spec))
    mask = torch.rand(40, columns, generator=torch.Generator().manual_seed(1)) < 0.6
    mask[0] = False
    assert torch.equal(op(x, mask=mask, spec=spec), judged(x, spec, mask))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_every_float_type(spec: SoftermaxSpec, dtype: torch.dtype) -> None:
    x = scores(8, 40).to(dtype)
    y = op(x, spec=spec)
    assert y.dtype == dtype
    assert torch.equal(y, judged(x, spec))


@pytest.mark.parametrize("name", ["paper", "paper-32", "row-scaled"])
def test_saturating_and_renormalising_sums(name: str) -> None:
    """Sums past the top, before and after the max grows, against the sequential golden model."""
    spec = PRESETS[name].replace(powsum="Q(5,6)")
    rng = np.random.default_rng(0)
    steps = np.cumsum(rng.integers(0, 2, (200, 400)) * (rng.random((200, 400)) < 0.05) * 4, axis=1)
    raw = np.clip(steps + rng.integers(-3, 1, steps.shape), -128, 127)
    expected = golden.softermax(raw, spec, trace=True)
    assert expected.trace is not None
    assert (expected.trace.powsum == spec.powsum.high).any()
    y, leading_one = words.softermax(torch.from_numpy(raw).double(), None, spec)
    assert np.array_equal(y.long().numpy(), expected.words)
    assert np.array_equal(leading_one.numpy(), expected.trace.leading_one)


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_powsum_without_a_loop_is_the_running_sum(data: st.DataObject) -> None:
    """The closed form, for any terms and any growth of the max, down to shifts of 63."""
    bits = data.draw(st.integers(3, 24))
    spec = SoftermaxSpec(powsum=(bits - 2, 2), unnormed="Q(1,2)", output="Q(1,3)", slice_width=1)
    slices = data.draw(st.integers(1, 12))
    maxima = np.sort(data.draw(st.lists(st.integers(-32, 31), min_size=slices, max_size=slices)))
    terms = data.draw(st.lists(st.integers(0, 7), min_size=slices, max_size=slices))
    d, last = 0, maxima[0]
    for m, term in zip(maxima, terms, strict=True):
        d, last = min((d >> int(m - last)) + term, spec.powsum.high), m
    unnormed = torch.tensor(terms, dtype=torch.float32).reshape(1, slices, 1)
    assert int(words.powsum(unnormed, torch.from_numpy(maxima).reshape(1, slices), spec)) == d


@pytest.mark.parametrize("dim", [0, 1, 2, -1, -2, -3])
def test_any_dimension(dim: int) -> None:
    x = scores(3, 20, 5)
    y = op(x, dim=dim)
    assert y.shape == x.shape
    assert torch.equal(y.movedim(dim, -1), op(x.movedim(dim, -1).contiguous()))


def test_empty_and_single() -> None:
    for shape in [(0,), (0, 5), (3, 0), (2, 0, 4)]:
        x = torch.empty(shape, requires_grad=True)
        y = op(x)
        assert y.shape == shape
        y.sum().backward()
        assert x.grad is not None
        assert x.grad.shape == shape
    assert op(torch.zeros(1)).item() == 127 / 128


def test_masks_broadcast() -> None:
    x = scores(2, 3, 4, 10)
    mask = torch.rand(2, 1, 1, 10) < 0.5
    mask[..., 0] = True
    y = op(x, mask=mask)
    assert torch.equal(y, op(x, mask=mask.expand(x.shape)))
    assert (y[~mask.expand(x.shape)] == 0).all()
    assert torch.equal(op(x, mask=mask[0, 0, 0]), op(x, mask=mask[0, 0, 0].expand(x.shape)))


@pytest.mark.parametrize("name", ["paper", "whole-row", "paper+fold:deferred"])
@pytest.mark.parametrize("mask", [None, (7, 40), (3, 1, 40), (2, 1, 7, 1), (2, 3, 7, 40)])
def test_rows_in_blocks_have_the_same_words(monkeypatch, name: str, mask: tuple[int, ...] | None) -> None:
    x = scores(2, 3, 7, 40)
    keep = None if mask is None else scores(*mask, seed=1) > -4
    whole = gradient.probabilities(x, keep, get_spec(name))
    calls: list[int] = []
    at_once = gradient._at_once
    monkeypatch.setattr(gradient, "_at_once", lambda *given: calls.append(0) or at_once(*given))
    for block, count in ((1680, 1), (1679, 2), (300, 6), (100, 24), (1, 42)):
        calls.clear()
        monkeypatch.setattr(gradient, "_BLOCK", block)
        assert torch.equal(gradient.probabilities(x, keep, get_spec(name)), whole)
        assert len(calls) == count


def test_infinities_under_the_mask_are_fine() -> None:
    x = scores(4, 9)
    mask = torch.ones(4, 9, dtype=torch.bool)
    mask[:, 3] = False
    spoiled = x.clone()
    spoiled[:, 3] = torch.tensor([float("inf"), -float("inf"), float("nan"), 1e38])
    assert torch.equal(op(spoiled, mask=mask), op(x, mask=mask))


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_what_is_not_finite_is_refused(value: float, path: str) -> None:
    x = scores(2, 4)
    x[1, 2] = value
    with pytest.raises(ValueError, match="finite"):
        op(x)
    compiled = torch.compile(op, fullgraph=True, backend="aot_eager")
    if path == "pytorch":
        assert compiled(x)[1, 2].isnan()
    else:
        with pytest.raises(ValueError, match="finite"):
            compiled(x)


def test_huge_scores_saturate() -> None:
    x = torch.tensor([[3e38, -3e38, 0.0]])
    for spec in (PRESETS["paper"], get_spec("paper+fold")):
        assert torch.equal(op(x, spec=spec), judged(x, spec))


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"x": torch.zeros(2, 3, dtype=torch.int8)}, TypeError, "floating-point tensor, got torch.int8"),
        ({"x": [1.0, 2.0]}, TypeError, "floating-point tensor, got list"),
        ({"x": torch.tensor(1.0)}, ValueError, "at least one dimension"),
        ({"x": torch.zeros(2, 3), "dim": 2}, IndexError, "dim must be -2 to 1 .* got 2"),
        ({"x": torch.zeros(2, 3), "mask": torch.ones(2, 3)}, TypeError, "boolean tensor.*float32"),
        (
            {"x": torch.zeros(2, 3), "mask": torch.ones(2, 4, dtype=torch.bool)},
            ValueError,
            r"\(2, 4\).*\(2, 3\)",
        ),
        ({"x": torch.zeros(3), "mask": torch.ones(1, 3, dtype=torch.bool)}, ValueError, "does not broadcast"),
        ({"x": torch.zeros(2, 3), "spec": "paper"}, TypeError, "SoftermaxSpec or a DeferredSpec, got str"),
        ({"x": torch.zeros(2, 3), "gradient": "exact"}, ValueError, "'fused' or 'composed', got 'exact'"),
    ],
)
def test_bad_input_is_refused(arguments: dict[str, object], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        op(**arguments)  # type: ignore[arg-type]


def gradients(
    x: torch.Tensor, spec: SoftermaxSpec, mask: torch.Tensor | None, **options: str
) -> torch.Tensor:
    x = x.clone().requires_grad_()
    weights = scores(*x.shape, spread=1.0, seed=9).to(x.dtype)
    (op(x, mask=mask, spec=spec, **options) * weights).sum().backward()
    assert x.grad is not None
    return x.grad


def test_fused_gradient_is_the_formula(spec: SoftermaxSpec) -> None:
    x = scores(20, 50, spread=3.0).double()
    y, g = op(x, spec=spec), scores(20, 50, spread=1.0, seed=9).double()
    factor = 1.0 if spec.base == "fold" else np.log(2.0)
    expected = factor * y * (g - (g * y).sum(-1, keepdim=True))
    assert torch.allclose(gradients(x, spec, None), expected, rtol=0, atol=1e-12)


def test_the_two_gradients_agree(spec: SoftermaxSpec) -> None:
    """They differ in where y is rounded: composed takes u/d before, fused y after the reciprocal and
    the output word. With eps that difference per row, |dx - dx'| <= factor * (|g|_max * (3 * eps + n * eps^2)
    summed over the row); below it is bounded by the measured eps of each element."""
    x, mask = scores(20, 50, spread=3.0).double(), torch.rand(20, 50) < 0.8
    g = scores(20, 50, spread=1.0, seed=9).double()
    fused = gradients(x, spec, mask)
    composed = gradients(x, spec, mask, gradient="composed")
    y = op(x, mask=mask, spec=spec)
    run = spec.run(x.numpy(), mask.numpy(), trace=True)
    assert run.trace is not None
    numerator = torch.from_numpy(run.trace.numerator.reshape(20, -1)[:, :50] * spec.unnormed.lsb)
    d = torch.from_numpy(run.trace.powsum[:, -1:] * spec.powsum.lsb)
    ratio = numerator / d
    recip = torch.from_numpy(run.trace.reciprocal * spec.reciprocal.lsb)[:, None]
    table = (
        recip
        * torch.exp2(spec.powsum.fraction - torch.from_numpy(run.trace.leading_one)[:, None].double())
        * d
        - 1
    ).abs()
    eps = (y - ratio).abs() + ratio * table + spec.unnormed.lsb
    biggest = g.abs().amax(-1, keepdim=True)
    bound = biggest * (2 * eps + y * eps.sum(-1, keepdim=True) + ratio * eps.sum(-1, keepdim=True)) * 1.5
    assert ((fused - composed).abs() <= bound).all()
    assert fused.abs().max() > 0.1


@pytest.mark.parametrize("gradient", ["fused", "composed"])
def test_saturated_and_masked_scores_get_no_gradient(gradient: str) -> None:
    x = torch.tensor([[40.0, 31.0, 30.5, -50.0, 31.2]])
    mask = torch.tensor([[True, True, False, True, True]])
    grad = gradients(x, PRESETS["paper"], mask, gradient=gradient)[0]
    assert grad[[0, 2, 3]].tolist() == [0.0, 0.0, 0.0]
    assert (grad[[1, 4]] != 0).all()


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", ["paper", "paper+fold"])
def test_the_gradient_ends_where_the_word_does(name: str, dtype: torch.dtype) -> None:
    """Scores around the ends of the input word, ties included: A1's own rounding decides."""
    spec = get_spec(name)
    edges = [edge / spec.input_scale for edge in (spec.input.low - 0.5, spec.input.high + 0.5)]
    x = torch.cat([edge + torch.linspace(-1, 1, 801, dtype=torch.float64) for edge in edges]).to(dtype)[
        :, None
    ]
    scaled = x.to(torch.promote_types(dtype, torch.float32)).numpy()
    raw = np.rint(scaled * scaled.dtype.type(spec.input_scale))
    clipped = (raw < spec.input.low) | (raw > spec.input.high)
    assert clipped.any()
    assert not clipped.all()
    row = torch.cat([x, x.sign() * 20], dim=1).requires_grad_()
    op(row, spec=spec)[:, 0].sum().backward()
    y = op(row.detach(), spec=spec)
    moves = (y > 0).all(dim=1).numpy()
    assert row.grad is not None
    got = (row.grad[:, 0] == 0).numpy()[moves]
    assert np.array_equal(got, clipped[:, 0][moves])


def test_backward_keeps_a_byte_per_score_beside_the_output() -> None:
    x = scores(8, 64).requires_grad_()
    saved: list[torch.Tensor] = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: saved.append(t) or t, lambda t: t):
        y = op(x)
    storages = {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in saved}
    storages.pop(y.untyped_storage().data_ptr(), None)
    assert sum(storages.values()) <= 1.2 * x.numel()


def test_checkpoint_gives_the_same_gradient() -> None:
    x = scores(4, 30).requires_grad_()
    checkpoint(op, x, use_reentrant=False).pow(2).sum().backward()
    plain = x.grad.clone()
    x.grad = None
    op(x).pow(2).sum().backward()
    assert torch.equal(plain, x.grad)


def test_under_autocast() -> None:
    q = torch.randn(2, 4, 8)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        s = q @ q.transpose(1, 2)
        y = op(s)
    assert y.dtype == torch.bfloat16
    assert torch.equal(y, judged(s, PRESETS["paper"]))


@pytest.mark.parametrize("name", ["paper", "whole-row", "wide"])
def test_compiles_whole_with_dynamic_shapes(name: str) -> None:
    """One graph for every shape, the same bits forward and backward."""
    spec = SPECS[name]
    counted = CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(op, fullgraph=True, dynamic=True, backend=counted)
    for rows, columns in [(4, 40), (6, 50), (3, 100)]:
        x = scores(rows, columns)
        mask = torch.rand(rows, columns) < 0.7
        xs = [x.clone().requires_grad_() for _ in range(2)]
        ys = [f(v, mask=mask, spec=spec) for f, v in zip((op, compiled), xs, strict=True)]
        for y in ys:
            (y * torch.arange(columns)).sum().backward()
        assert torch.equal(*ys)
        assert torch.allclose(xs[0].grad, xs[1].grad, rtol=1e-5, atol=1e-5)
    # Rows of one, two or more slices are told apart; further lengths are not.
    assert counted.frame_count <= 2


@pytest.mark.slow
@pytest.mark.parametrize("name", list(PRESETS))
def test_inductor_keeps_the_bits(name: str) -> None:
    compiled = torch.compile(op, fullgraph=True)
    x = scores(500, 200)
    x[0] = torch.arange(200) / 4 - 30
    assert torch.equal(compiled(x, spec=PRESETS[name]), op(x, spec=PRESETS[name]))


@pytest.mark.parametrize("name", ["paper", "whole-row"])
def test_exports_with_dynamic_rows_and_columns(name: str) -> None:
    module = softermax.Softermax(spec=name)
    exported = torch.export.export(
        module, (scores(4, 40),), dynamic_shapes=({0: torch.export.Dim.DYNAMIC, 1: torch.export.Dim.DYNAMIC},)
    )
    for rows, columns in [(4, 40), (7, 33), (2, 1200)]:
        x = scores(rows, columns)
        assert torch.equal(exported.module()(x), op(x, spec=PRESETS[name]))


def test_module_is_the_function() -> None:
    x, mask = scores(3, 5), torch.tensor([True, False, True, True, False])
    module = softermax.Softermax(dim=0, spec="row-scaled")
    assert torch.equal(module(x.T, mask[:, None]), op(x.T, 0, mask[:, None], PRESETS["row-scaled"]))
    assert "row-scaled" in repr(module)
    deferred = softermax.Softermax(spec="paper+fold:deferred")
    assert torch.equal(deferred(x, mask), judged(x, get_spec("paper+fold:deferred"), mask))
    with pytest.raises(ValueError, match="unknown spec 'papre'"):
        softermax.Softermax(spec="papre")
