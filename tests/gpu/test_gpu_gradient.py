"""The gradient by the Triton kernels, interpreted: PyTorch's, from a byte per score."""

from __future__ import annotations

import numpy as np
import pytest

from gpu import interpreted

pytest.importorskip("triton", reason="the kernels need .[gpu]")
pytest.importorskip("torch", reason="the kernels need .[torch]")

from softermax import PRESETS, get_spec
from softermax.gpu.interpreter import call

EPSILON = {"float32": 2.0**-22, "bfloat16": 2.0**-7, "float16": 2.0**-10}
"""Two units of a number near 1: sums are added in another order, and the interpreter cuts bfloat16 off."""


def drawn(columns: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(columns)
    x = rng.normal(0, 14, (2, 3, columns)).astype(np.float32)
    return x, rng.random((2, 1, columns)) < 0.8


@pytest.mark.parametrize("name", [*PRESETS, "row-scaled+fold"])
def test_the_fused_gradient(name: str) -> None:
    x, mask = drawn(70)
    got, want = call(
        interpreted.gradients, get_spec(name), x, np.broadcast_to(mask, x.shape).copy(), "float32", "fused"
    )
    assert np.abs(got - want).max() <= EPSILON["float32"] * np.abs(want).max()
    outside = (np.abs(x) > 33) & mask
    assert outside.any()
    assert not got[outside].any()
    assert not got[~np.broadcast_to(mask, x.shape)].any()


@pytest.mark.parametrize("kind", ["bfloat16", "float16"])
def test_in_half_precision(kind: str) -> None:
    x, mask = drawn(33)
    got, want = call(
        interpreted.gradients, PRESETS["paper"], x, np.broadcast_to(mask, x.shape).copy(), kind, "fused"
    )
    assert np.abs(got - want).max() <= EPSILON[kind] * np.abs(want).max()


@pytest.mark.parametrize("name", ["paper", "row-scaled"])
def test_rows_that_are_swept(name: str) -> None:
    x, mask = drawn(70)
    keep = np.broadcast_to(mask, x.shape).copy()
    got, want = call(interpreted.gradients, PRESETS[name], x, keep, "float32", "fused", (16, 32))
    assert np.abs(got - want).max() <= EPSILON["float32"] * np.abs(want).max()


@pytest.mark.parametrize("name", ["paper", "row-scaled", "lean"])
def test_against_the_composed_form(name: str) -> None:
    """The composed form divides by the real sum: the two differ by what the words leave of the probabilities."""
    x, mask = drawn(40)
    x = x / 8
    keep = np.broadcast_to(mask, x.shape).copy()
    got, want = call(interpreted.gradients, get_spec(name), x, keep, "float32", "composed")
    assert np.abs(got - want).max() < 0.02
    cosine = (got * want).sum() / np.linalg.norm(got) / np.linalg.norm(want)
    assert cosine > 0.995


def test_training_keeps_a_byte_and_a_bit_per_score() -> None:
    kept = call(interpreted.kept_for_backward, PRESETS["paper"], (8, 64))
    assert kept == {"torch.uint8": 8 * 64 + 8 * (1 + 64 // 8)}


def test_a_compiled_graph_is_whole_and_has_the_same_bits() -> None:
    x, _ = drawn(33)
    y, g, compiled_y, compiled_g = call(interpreted.compiled, PRESETS["paper"], x)
    assert np.array_equal(y, compiled_y)
    assert np.array_equal(g, compiled_g)
