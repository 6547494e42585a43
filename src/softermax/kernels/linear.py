"""Linear layers in int8 in the native core: weights packed for the instruction set at hand.

A layer's input is quantised by one scale, its weights by one per output. AVX2 multiplies bytes in pairs whose sum has
16 bits: there weights have 7 bits, so that no pair ever saturates; elsewhere they keep their 8.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from softermax.kernels.core import native
from softermax.kernels.rows import address, path_number

OFFSET = 128
"""What the core adds to an activation's word: its products take unsigned bytes."""
GROUP = 4
LARGEST = 127
MAX_INPUTS = 65536
"""Inputs whose products surely fit the core's sums of 32 bits."""


class PackedLinear:
    """y = W·x + b from int8 words of W (outputs, inputs), ``scale`` (one per output) times which the weights are.

    ``input_scale`` is the step of the inputs' words. ``unit`` (a number, or one per output) divides the result: the
    step of the words that it becomes in a layer that follows.
    """

    def __init__(
        self,
        words: NDArray[np.int8],
        scale: NDArray[np.floating[Any]],
        bias: NDArray[np.floating[Any]] | None,
        input_scale: float,
        unit: float | NDArray[np.floating[Any]] = 1.0,
        path: str | None = None,
    ) -> None:
        if words.dtype != np.int8 or words.ndim != 2:
            raise TypeError(f"words must be int8 of two dimensions, got {words.dtype} of {words.ndim}")
        self.outputs, self.inputs = words.shape
        if scale.shape != (self.outputs,):
            raise ValueError(f"scale must have shape ({self.outputs},), one per output, got {scale.shape}")
        if self.inputs % GROUP or not 0 < self.inputs <= MAX_INPUTS:
            raise ValueError(f"{self.inputs} inputs: must be a multiple of {GROUP}, {GROUP} to {MAX_INPUTS}")
        if not 0 < input_scale < np.inf:
            raise ValueError(f"input_scale = {input_scale}: must be positive and finite")
        self.path = path_number(path)
        packed, step = narrowed(words, native.weight_bits(self.path))
        self.input_scale = float(input_scale)
        factor = scale.astype(np.float64) * step * input_scale
        start = np.zeros(self.outputs) if bias is None else bias.astype(np.float64)
        start = start - OFFSET * factor * packed.sum(1, dtype=np.int64)
        scales, biases = (np.ascontiguousarray(x / unit, dtype=np.float32) for x in (factor, start))
        if not (np.isfinite(scales).all() and np.isfinite(biases).all()):
            raise ValueError("scale and bias must be finite")
        self.native = native.Linear(
            self.path, self.outputs, self.inputs, address(packed), address(scales), address(biases)
        )

    def run(self, x: int, rows: int, out: int, threads: int = 1) -> None:
        """Dense float32 at address ``x``, ``rows`` of them, to dense float32 at ``out``."""
        self.native.run(x, 1.0 / self.input_scale, rows, out, threads)

    def __call__(self, x: NDArray[np.float32], threads: int = 1) -> NDArray[np.float32]:
        """(rows, inputs) to (rows, outputs)."""
        if x.dtype != np.float32 or x.ndim != 2 or x.shape[1] != self.inputs:
            raise ValueError(f"x must be float32 of shape (rows, {self.inputs}), got {x.dtype} of {x.shape}")
        x = np.ascontiguousarray(x)
        out = np.empty((len(x), self.outputs), np.float32)
        if len(x):
            self.run(address(x), len(x), address(out), threads)
        return out

    def by_row(self, x: NDArray[np.float32], threads: int = 1) -> NDArray[np.float32]:
        """(rows, inputs) to (rows, outputs), each row quantised by its own largest magnitude, which is word 127.

        For layers with no bias and an ``input_scale`` of 1.
        """
        rows = len(x)
        out = np.empty((rows, self.outputs), np.float32)
        if not rows:
            return out
        largest = np.maximum(x.max(1, keepdims=True), -x.min(1, keepdims=True))
        largest[largest == 0] = 1.0
        x = np.ascontiguousarray(x * (np.float32(LARGEST) / largest))
        self.native.run(address(x), 1.0, rows, address(out), threads)
        out *= largest / np.float32(LARGEST)
        return out


def narrowed(words: NDArray[np.int8], bits: int) -> tuple[NDArray[np.int8], int]:
    """Words of at most ``bits`` bits and the step that they are in units of the old one.

    In 7 bits ±64 is taken, which a pair of products with bytes just holds: 2 · 255 · 64 < 2^15.
    """
    if bits == 8:
        return np.ascontiguousarray(words), 1
    return np.rint(words / 2).astype(np.int8), 2
