"""The integer models in NumPy: the judge of every other body.

`softermax.golden.rows` computes rows of scores, `softermax.golden.attention` whole attention around them; both with
every intermediate word on request.
"""

from softermax.golden.rows import (
    BoolArray,
    Output,
    Trace,
    int_max,
    normalize,
    power_of_two,
    quantize,
    reciprocal,
    softermax,
)

__all__ = [
    "BoolArray",
    "Output",
    "Trace",
    "int_max",
    "normalize",
    "power_of_two",
    "quantize",
    "reciprocal",
    "softermax",
]
