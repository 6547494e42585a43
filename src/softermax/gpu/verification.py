"""The Triton kernels as a body of `softermax verify`: in the interpreter, which needs no GPU and is slow."""

from __future__ import annotations

import numpy as np

from softermax.extras import need
from softermax.fixedpoint import IntArray
from softermax.golden import BoolArray
from softermax.gpu.interpreter import call
from softermax.spec import PRESETS, SoftermaxSpec
from softermax.verify import Body, FloatArray

_SPECS = [PRESETS["paper"], PRESETS["lean-row-scaled"]]


def bodies() -> list[Body]:
    """Rows of words and of scores, and the marks of the gradient: two presets, which take every branch but for
    roundings, and a share of the rows, for the interpreter is slow. The tests have the rest."""
    need("torch", "torch")
    need("triton", "gpu")

    def run(spec: SoftermaxSpec, raw: IntArray, mask: BoolArray) -> tuple[IntArray, IntArray | None]:
        return call(rows, spec, raw, mask)

    def run_scores(spec: SoftermaxSpec, scores: FloatArray, mask: BoolArray) -> FloatArray:
        return call(probabilities, spec, scores, mask)[0]

    def marks(spec: SoftermaxSpec, scores: FloatArray, mask: BoolArray) -> BoolArray:
        return call(probabilities, spec, scores, mask)[1]

    return [
        Body(
            "triton, interpreted", run, lambda spec: spec in _SPECS, share=0.01, run_scores=run_scores, marks=marks
        )
    ]  # fmt: skip


def rows(spec: SoftermaxSpec, raw: IntArray, mask: BoolArray) -> tuple[IntArray, IntArray]:
    """In the interpreter's process: output words of raw words, and the rows' exponents."""
    import torch

    from softermax.gpu import launch

    words, exponent = launch.word_rows(
        torch.from_numpy(raw.astype(np.int32)), spec, torch.from_numpy(mask), None, False
    )
    return words.numpy().astype(np.int64), exponent.numpy().astype(np.int64)


def probabilities(spec: SoftermaxSpec, scores: FloatArray, mask: BoolArray) -> tuple[FloatArray, BoolArray]:
    """In the interpreter's process: probabilities of float scores, and where these saturate, as training keeps it."""
    import torch

    from softermax.gpu import launch
    from softermax.pytorch import operators

    x, keep = torch.from_numpy(scores), torch.from_numpy(mask)
    words, marks, exponent = (
        operators.words_like(x, spec), operators.marks_like(x), operators.exponent_like(x, spec)
    )  # fmt: skip
    y = launch.forward(x, keep, spec, words, marks, exponent)
    bits = np.unpackbits(marks.numpy()[:, 1:], axis=1, bitorder="little")[:, : x.shape[1]].astype(np.bool_)
    assert np.array_equal(bits.any(axis=1), marks.numpy()[:, 0] == 1)
    return y.numpy(), bits
