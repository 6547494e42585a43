"""A whole post-norm encoder in int8 in the native core: one call for all its layers.

Between two attentions all is row by row, so a block of rows goes through output layer, sum and norm, feed-forward
network, sum and norm and the next layer's queries, keys and values while its bytes are in the cache. Words are int8 from
layer to layer; the residual stream, and what is added to it, stays in single precision. Attention is the fused kernel of
`softermax.kernels.attention`: from the same words it gives the same bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from softermax.kernels.core import native
from softermax.kernels.linear import PackedLinear
from softermax.kernels.plan import attention_refusal, native_attention, score_factor
from softermax.kernels.rows import address, path_number
from softermax.spec import AnySpec

Float32 = NDArray[np.float32]


@dataclass(frozen=True)
class Gelu:
    """x Phi(x) with Phi = 1/2 + t p(t²), t being x held within ±reach, where Phi is 0 and 1."""

    reach: float
    coefficients: tuple[float, float, float, float, float, float]

    def __call__(self, x: NDArray[np.floating[Any]]) -> NDArray[np.floating[Any]]:
        t = np.clip(x, -self.reach, self.reach)
        return np.asarray(x * (0.5 + t * np.polynomial.polynomial.polyval(t * t, self.coefficients)))


def _fitted(reach: float, factors: Sequence[float]) -> Gelu:
    """p from the factors q of p(u) = 1/(2 reach) + (u - reach²) q(u), which is exact at the ends."""
    p = np.polynomial.polynomial.polymul([-(reach**2), 1.0], factors)
    p[0] += 0.5 / reach
    a, b, c, d, e, f = (float(v) for v in p)
    return Gelu(reach, (a, b, c, d, e, f))


GELU = _fitted(3.7, (-1.90898383e-02, 3.17734161e-03, -3.41222120e-04, 2.01808608e-05, -4.89967520e-07))
"""Within 0.0005 of the exact function everywhere, as its usual approximation with tanh is: a fiftieth of an 8-bit step."""


@dataclass(frozen=True)
class PackedLayer:
    """A layer's matrices and numbers. The linear layers' outputs have these units: ``qkv`` the words of Q, K and V,
    the others 1."""

    qkv: PackedLinear
    out: PackedLinear
    up: PackedLinear
    down: PackedLinear
    attention_norm: tuple[Float32, Float32]
    network_norm: tuple[Float32, Float32]
    score_scale: float
    """What an integer score is multiplied by to be a score."""
    value_scale: float


class PackedEncoder:
    """Layers of the same sizes, packed; `run` takes rows through some of them, in place."""

    def __init__(
        self,
        layers: Sequence[PackedLayer],
        heads: int,
        spec: AnySpec,
        epsilon: float,
        gelu: Gelu = GELU,
        path: str | None = None,
    ) -> None:
        if not layers:
            raise ValueError("an encoder has at least one layer, got none")
        self.layers, self.spec = tuple(layers), spec
        self.hidden, inner = layers[0].out.outputs, layers[0].up.outputs
        if self.hidden % heads:
            raise ValueError(f"{self.hidden} channels: must be a multiple of the {heads} heads")
        self._head = self.hidden // heads
        self._specs = native_attention(spec)  # kept: the core knows their addresses
        scores, deferred = self._specs
        self.native = native.Encoder(
            path_number(path), self.hidden, inner, heads, gelu.reach, list(gelu.coefficients), scores.address,
            0 if deferred is None else deferred.address,
        )  # fmt: skip
        for number, layer in enumerate(layers):
            following = layers[number + 1].qkv.input_scale if number + 1 < len(layers) else 1.0
            inputs = [one.input_scale for one in (layer.qkv, layer.out, layer.up, layer.down)]
            norms = [np.ascontiguousarray(x) for x in (*layer.attention_norm, *layer.network_norm)]
            self.native.add(
                [one.native for one in (layer.qkv, layer.out, layer.up, layer.down)],
                [address(x) for x in norms], [1.0 / scale for scale in (*inputs, following)], epsilon,
                score_factor(spec, layer.score_scale), layer.value_scale,
            )  # fmt: skip

    def run(
        self, x: int, starts: NDArray[np.int64], threads: int = 1, first: int = 0, last: int | None = None
    ) -> None:
        """Dense float32 rows at address ``x`` through layers first to last, in place.

        Sequence n is the rows from ``starts[n]`` to ``starts[n + 1]``; each attends to itself alone.
        """
        longest = int(np.diff(starts).max(initial=0))
        for layer in self.layers[first:last]:
            reason = attention_refusal(self.spec, longest, self._head, layer.score_scale)
            if reason is not None:
                raise ValueError(f"the native core does not compute this attention: {reason}")
        starts = np.ascontiguousarray(starts, dtype=np.int64)
        stop = len(self.layers) if last is None else last
        self.native.run(x, address(starts), len(starts) - 1, first, stop, threads)
