"""What the PE's own softmax units are fed and what they must answer: the fields of every stream, by name."""

from __future__ import annotations

import numpy as np

from softermax import golden
from softermax.fixedpoint import IntArray
from softermax.golden import BoolArray
from softermax.rtl.sizes import check_buildable
from softermax.rtl.vectors import Streams, answers, cut, finished, places, probabilities, slices_of
from softermax.spec import DeferredSpec, SoftermaxSpec


def weight_streams(spec: DeferredSpec, raw: IntArray, mask: BoolArray, open_rows: int = 1) -> Streams:
    """`WeightSoftmax`: slices of scores in; weights, and the sum of each row's, out."""
    trace = golden.deferred(raw, spec, mask, trace=True).trace
    assert trace is not None
    words = {"u": trace.weight, "max": trace.running_max}
    return {"slices": slices_of(spec.scores, raw, mask, open_rows)} | answers(words, trace.powsum, open_rows)


def score_normalization_streams(
    spec: SoftermaxSpec, raw: IntArray, mask: BoolArray, rows: int = 1
) -> Streams:
    """`ScoreNormalization`: finished rows and the slices of their scores in, row after row; probabilities out."""
    out = golden.softermax(raw, spec, mask, trace=True)
    assert out.trace is not None
    lanes = check_buildable(spec)
    count, slices = out.trace.running_max.shape
    return {
        "finished": finished(out.trace, rows),
        "slices": {
            "x": cut(raw, lanes),
            "mask": cut(mask, lanes),
            "max": np.repeat(out.trace.running_max[:, -1], slices),
            "last": places(count, slices)["last"],
        },
        "probabilities": probabilities(out, rows),
    }
