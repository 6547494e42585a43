"""Attention of floats for inference: the words of the path with gradients, sums in another order."""

from __future__ import annotations

import pytest
import torch

from softermax import kernels
from softermax.functional import softermax
from softermax.pytorch import float_attention as fused
from softermax.spec import PRESETS, get_spec

pytestmark = pytest.mark.skipif(not kernels.usable(), reason="the native core is not built here")


@pytest.fixture(params=kernels.usable())
def path(request, monkeypatch):
    monkeypatch.setenv("SOFTERMAX_ISA", request.param)
    return request.param


def operands(batch=2, heads=3, queries=37, keys=37, size=32, groups=1):
    """Q and K in eighths: their products are exact, so that scores are the same whatever order a BLAS adds in."""
    generator = torch.Generator().manual_seed(size)
    shapes = ((queries, heads), (keys, heads // groups), (keys, heads // groups))
    q, k, v = (torch.randn(batch, *shape, size, generator=generator).transpose(1, 2) * 3 for shape in shapes)
    return (q * 8).round() / 8, (k * 8).round() / 8, v


def plainly(q, k, v, spec, scale, mask=None):
    p = softermax(torch.matmul(q, k.transpose(-1, -2)) * scale, spec=spec, mask=mask)
    return torch.matmul(p, v).transpose(1, 2)


@pytest.mark.parametrize("columns", [37, 64])
@pytest.mark.parametrize("spec", [*PRESETS, "row-scaled+fold"])
def test_words_are_those_of_the_path_with_gradients(path, spec, columns):
    """With the identity as V, outputs are the probabilities themselves."""
    q, k, _ = operands(size=40)
    v = torch.eye(37, columns).expand(2, 3, 37, columns)
    known = get_spec(spec)
    assert torch.equal(fused.float_attention(q, k, v, known, 0.3), plainly(q, k, v, known, 0.3))


@pytest.mark.parametrize("size", [8, 32, 50, 64])
def test_outputs_differ_by_rounding_alone(path, size):
    q, k, v = operands(size=size)
    spec = get_spec("paper+fold")
    got, want = fused.float_attention(q, k, v, spec, 0.2), plainly(q, k, v, spec, 0.2)
    assert (got - want).abs().max() < 1e-5
    assert got.is_contiguous()


@pytest.mark.parametrize("shape", [(2, 1, 1, 37), (2, 1, 29, 37), (2, 3, 29, 37), (29, 37), (1, 1, 29, 1)])
def test_masks_of_any_shape(path, shape):
    q, k, v = operands(queries=29)
    spec = PRESETS["paper"]
    mask = torch.rand(shape, generator=torch.Generator().manual_seed(1)) > 0.3
    got, want = (f(q, k, v, spec, 0.2, mask) for f in (fused.float_attention, plainly))
    assert (got - want).abs().max() < 1e-5


@pytest.mark.parametrize("chunk", [1, 100, 37 * 37, 2 * 37 * 37, 1 << 20])
def test_chunks_do_not_change_a_bit(monkeypatch, chunk):
    q, k, v = operands()
    mask = torch.rand(2, 3, 37, 37, generator=torch.Generator().manual_seed(1)) > 0.3
    want = fused.float_attention(q, k, v, PRESETS["paper"], 0.2, mask)
    monkeypatch.setattr(fused, "CHUNK", chunk)
    monkeypatch.setattr(fused, "FEW", 1000)
    assert torch.equal(fused.float_attention(q, k, v, PRESETS["paper"], 0.2, mask), want)


def test_threads_do_not_change_a_bit():
    q, k, v = operands(queries=200, keys=200)
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        one = fused.float_attention(q, k, v, PRESETS["paper"], 0.2)
        torch.set_num_threads(2)
        assert torch.equal(fused.float_attention(q, k, v, PRESETS["paper"], 0.2), one)
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("queries", [3, 37])
def test_heads_share_keys_and_values(path, queries):
    q, k, v = operands(heads=6, queries=queries, groups=3)
    spec = PRESETS["paper"]
    repeated = (x.repeat_interleave(3, dim=1) for x in (k, v))
    assert torch.equal(
        fused.float_attention(q, k, v, spec, 0.2), fused.float_attention(q, *repeated, spec, 0.2)
    )


@pytest.mark.parametrize("scale", [1e-4, 0.05, 0.5, 20.0, 1e30])
def test_scores_that_saturate_and_words_that_are_zero(path, scale):
    """Rows with hardly a word that is not zero, and with none, take other ways through the kernel."""
    q, k, v = operands(keys=300)
    spec = get_spec("row-scaled+fold")
    got, want = (f(q, k, v, spec, scale) for f in (fused.float_attention, plainly))
    assert (got - want).abs().max() < 1e-4


def test_rows_as_many_as_fill_no_tile(path):
    q, k, v = operands(batch=1, heads=1, queries=64)
    whole = fused.float_attention(q, k, v, PRESETS["paper"], 0.2)
    for queries in range(16, 36):
        assert torch.equal(
            fused.float_attention(q[:, :, :queries], k, v, PRESETS["paper"], 0.2), whole[:, :queries]
        )


def test_values_of_another_size_and_layout(path):
    q, k, _ = operands()
    v = torch.randn(2, 3, 20, 37, generator=torch.Generator().manual_seed(1)).transpose(2, 3)
    k = k.transpose(2, 3).contiguous().transpose(2, 3)
    spec = PRESETS["paper"]
    got, want = (f(q, k, v, spec, 0.2) for f in (fused.float_attention, plainly))
    assert (got - want).abs().max() < 1e-5


@pytest.mark.parametrize(
    ("k", "v"),
    [
        ((2, 3, 9, 31), (2, 3, 9, 32)),
        ((2, 2, 9, 32), (2, 2, 9, 32)),
        ((2, 3, 9, 32), (2, 3, 8, 32)),
        ((1, 3, 9, 32), (1, 3, 9, 32)),
    ],
)
def test_shapes_that_do_not_fit_are_refused(k, v):
    with pytest.raises(ValueError, match="do not fit: must be"):
        fused.float_attention(
            torch.zeros(2, 3, 20, 32), torch.zeros(k), torch.zeros(v), PRESETS["paper"], 1.0
        )


def test_nothing_to_attend_to_gives_zeros(path):
    q, k, v = operands()
    assert not fused.float_attention(q, k[:, :, :0], v[:, :, :0], PRESETS["paper"], 0.2).any()
    assert fused.float_attention(q[:, :, :0], k, v, PRESETS["paper"], 0.2).shape == (2, 0, 3, 32)
    masked = torch.zeros(1, 1, 1, 37, dtype=torch.bool)
    assert not fused.float_attention(q, k, v, PRESETS["paper"], 0.2, masked).any()


def test_a_score_that_is_not_finite_is_refused_unless_it_is_masked(path):
    q, k, v = operands()
    k[0, 0, 5] = float("nan")
    with pytest.raises(ValueError, match="must be finite where they are not masked"):
        fused.float_attention(q, k, v, PRESETS["paper"], 0.2)
    mask = torch.ones(37, dtype=torch.bool)
    mask[5] = False
    assert fused.float_attention(q, k, v, PRESETS["paper"], 0.2, mask).isfinite().all()


def test_other_types_are_refused():
    q, k, v = operands()
    with pytest.raises(TypeError, match="key must be float32 of four dimensions"):
        fused.float_attention(q, k.double(), v, PRESETS["paper"], 0.2)
