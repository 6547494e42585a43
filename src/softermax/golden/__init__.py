"""The integer models in NumPy: the judge of every other body.

`softermax.golden.rows` computes rows of scores, `softermax.golden.attention` whole attention around them; both with
every intermediate word on request.
"""

from softermax.golden.rows import (
    BoolArray,
    DeferredOutput,
    DeferredTrace,
    Output,
    Trace,
    deferred,
    int_max,
    normalize,
    normalize_scores,
    power_of_two,
    quantize,
    reciprocal,
    row_products,
    saturates,
    softermax,
    weights,
)

__all__ = [
    "BoolArray",
    "DeferredOutput",
    "DeferredTrace",
    "Output",
    "Trace",
    "deferred",
    "int_max",
    "normalize",
    "normalize_scores",
    "power_of_two",
    "quantize",
    "reciprocal",
    "row_products",
    "saturates",
    "softermax",
    "weights",
]
