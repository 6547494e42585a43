"""Linear layers and encoders in int8: exact sums, and golden attention between them."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from softermax.golden import attention as golden
from softermax.kernels.core import ISAS, native
from softermax.kernels.encoder import GELU, PackedEncoder, PackedLayer
from softermax.kernels.linear import PackedLinear, narrowed
from softermax.kernels.rows import address
from softermax.spec import PRESETS, DeferredSpec, get_spec


def words_of(x, scale):
    return np.clip(np.rint(np.float32(x) * np.float32(1 / scale)), -128, 127)


def a_matrix(rng, outputs, inputs):
    return rng.integers(-127, 128, (outputs, inputs)).astype(np.int8), rng.uniform(1e-3, 1e-2, outputs)


def times(path, words, scale, bias, quantised, input_scale):
    """The layer in integers: the weights are those that this path multiplies by."""
    narrow, step = narrowed(words, native.weight_bits(ISAS[path]))
    sums = quantised @ narrow.T.astype(np.float64)
    return sums * (scale * step * input_scale) + bias


@pytest.mark.parametrize(
    ("rows", "inputs", "outputs"), [(1, 4, 1), (5, 36, 100), (13, 384, 64), (7, 64, 129)]
)
def test_sums_are_exact_for_any_size(path, rng, rows, inputs, outputs):
    words, scale = a_matrix(rng, outputs, inputs)
    bias, x = rng.standard_normal(outputs), rng.standard_normal((rows, inputs)).astype(np.float32)
    wanted = times(path, words, scale, bias, words_of(x, 0.02), 0.02)
    got = PackedLinear(words, scale, bias, 0.02)(x)
    assert np.abs(got - wanted).max() <= 1e-6 * np.abs(wanted).max()


def test_no_pair_of_the_largest_products_saturates(path):
    """AVX2 adds two products in 16 bits: its weights are narrow enough for any pair."""
    words = np.full((3, 64), 127, np.int8)
    words[1] = -127
    layer = PackedLinear(words, np.ones(3), None, 1.0)
    x = np.full((1, 64), 127, np.float32)
    # 127 becomes 64 steps of 2 in 7 bits.
    held = 64 * 2 if native.weight_bits(layer.path) == 7 else 127
    assert layer(x).tolist() == [[64 * 127 * held, -64 * 127 * held, 64 * 127 * held]]


def test_threads_do_not_change_a_bit(path, rng):
    words, scale = a_matrix(rng, 96, 64)
    x = rng.standard_normal((200, 64)).astype(np.float32)
    layer = PackedLinear(words, scale, None, 0.02)
    assert np.array_equal(layer(x, threads=1), layer(x, threads=2))


def test_threads_share_the_outputs_of_a_single_row(path, rng):
    words, scale = a_matrix(rng, 1300, 64)
    x = rng.standard_normal((1, 64)).astype(np.float32)
    layer = PackedLinear(words, scale, rng.standard_normal(1300), 0.02)
    assert np.array_equal(layer(x, threads=1), layer(x, threads=2))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"words": np.zeros((2, 4), np.int16)}, "words must be int8"),
        ({"words": np.zeros((2, 6), np.int8)}, "6 inputs: must be a multiple of 4"),
        ({"scale": np.ones(3)}, r"scale must have shape \(2,\)"),
        ({"input_scale": 0.0}, "input_scale = 0.0: must be positive"),
        ({"scale": np.full(2, np.nan)}, "scale and bias must be finite"),
    ],
)
def test_a_layer_that_cannot_be_packed_is_refused(change, message):
    given = {"words": np.zeros((2, 4), np.int8), "scale": np.ones(2), "bias": None, "input_scale": 1.0}
    with pytest.raises((TypeError, ValueError), match=message):
        PackedLinear(**(given | change))


def test_gelu_is_within_half_a_thousandth():
    x = np.linspace(-12, 12, 20001)
    exact = np.array([v * 0.5 * (1 + math.erf(v / 2**0.5)) for v in x])
    assert np.abs(GELU(x) - exact).max() < 5e-4


HIDDEN, INNER, HEADS, STEP = 64, 96, 2, 0.03
SCORE, VALUE = 0.02 * 0.02 * 32**-0.5, 0.02


class Layer:
    """A random layer, packed and in NumPy."""

    def __init__(self, rng, path):
        self.path = path
        sizes = {
            "qkv": (3 * HIDDEN, HIDDEN), "out": (HIDDEN, HIDDEN), "up": (INNER, HIDDEN), "down": (HIDDEN, INNER),
        }  # fmt: skip
        self.matrices = {
            name: (*a_matrix(rng, *size), rng.standard_normal(size[0])) for name, size in sizes.items()
        }
        self.norms = [
            (rng.uniform(0.5, 1.5, HIDDEN).astype(np.float32), rng.standard_normal(HIDDEN).astype(np.float32))
            for _ in range(2)
        ]

    def packed(self):
        linear = {
            name: PackedLinear(*given, STEP, 0.02 if name == "qkv" else 1.0)
            for name, given in self.matrices.items()
        }
        return PackedLayer(**linear, attention_norm=self.norms[0], network_norm=self.norms[1],
                           score_scale=SCORE, value_scale=VALUE)  # fmt: skip

    def linear(self, name, x):
        words, scale, bias = self.matrices[name]
        return times(self.path, words, scale, bias, words_of(x, STEP), STEP)

    def norm(self, which, x):
        weight, bias = self.norms[which]
        middle = x - x.mean(1, keepdims=True)
        return middle / np.sqrt((middle**2).mean(1, keepdims=True) + 1e-5) * weight + bias

    def __call__(self, x, spec):
        rows = len(x)
        qkv = np.clip(np.rint(self.linear("qkv", x) / 0.02), -128, 127).astype(np.int8)
        q, k, v = qkv.reshape(rows, 3, HEADS, -1).transpose(1, 2, 0, 3)[:, None]
        context = golden.attention(q, k, v, spec, SCORE, VALUE).value[0].transpose(1, 0, 2).reshape(rows, -1)
        x = self.norm(0, x + self.linear("out", context))
        return self.norm(1, x + self.linear("down", GELU(self.linear("up", x))))


@pytest.mark.parametrize(
    "spec",
    [PRESETS["paper"], get_spec("row-scaled+fold"), DeferredSpec()],
    ids=["paper", "row-scaled", "deferred"],
)
@pytest.mark.parametrize("threads", [1, 2])
def test_an_encoder_is_golden_attention_between_exact_layers(path, rng, spec, threads):
    layers = [Layer(rng, path), Layer(rng, path)]
    encoder = PackedEncoder([layer.packed() for layer in layers], HEADS, spec, 1e-5)
    starts = np.array([0, 19, 19, 60])
    x = rng.standard_normal((60, HIDDEN)).astype(np.float32)
    for number, layer in enumerate(layers):
        wanted = np.concatenate(
            [layer(x[a:b].astype(np.float64), spec) for a, b in itertools.pairwise(starts) if b > a]
        )
        encoder.run(address(x), starts, threads, number, number + 1)
        off = np.abs(x - wanted)
        # A word at the edge of its step may fall to the other side, in a float or a double; it shows in its rows alone.
        assert np.mean(off.max(1) < 1e-4) > 0.9
        assert np.median(off) < 1e-5
        assert off.max() < 0.2


def test_all_layers_at_once_are_the_layers_one_by_one(path, rng):
    encoder = PackedEncoder([Layer(rng, path).packed() for _ in range(3)], HEADS, PRESETS["paper"], 1e-5)
    x = rng.standard_normal((50, HIDDEN)).astype(np.float32)
    y, starts = x.copy(), np.array([0, 20, 50])
    encoder.run(address(x), starts)
    for number in range(3):
        encoder.run(address(y), starts, 1, number, number + 1)
    assert np.array_equal(x, y)


def test_an_attention_that_the_core_does_not_take_is_refused(rng):
    layer = Layer(rng, "scalar").packed()
    far = PackedLayer(
        **{name: getattr(layer, name) for name in layer.__dataclass_fields__} | {"score_scale": 1e6}
    )
    encoder = PackedEncoder([far], HEADS, PRESETS["paper"], 1e-5)
    x = np.zeros((4, HIDDEN), np.float32)
    with pytest.raises(ValueError, match="more than 256 raw units"):
        encoder.run(address(x), np.array([0, 4]))
