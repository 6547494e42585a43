"""The native core's paths as bodies of `softermax verify`."""

from __future__ import annotations

from functools import partial

import numpy as np
from numpy.typing import NDArray

from softermax.fixedpoint import IntArray
from softermax.golden import BoolArray
from softermax.kernels.attention import int8_attention
from softermax.kernels.core import native, usable
from softermax.kernels.plan import supports
from softermax.kernels.rows import FLOATS, softermax_float, softermax_int8
from softermax.spec import AnySpec, DeferredSpec, SoftermaxSpec
from softermax.verify import AttentionCase, Body, FloatArray


def bodies() -> list[Body]:
    """Two for every path that runs here: rows and attention, and attention with deferred normalisation."""
    if native is None:
        raise ImportError("the native core is not installed; reinstall with a C++17 compiler to get it")
    made = []
    for path in usable():
        attend = partial(_attend, path)
        rows = Body(
            f"kernel {path}", partial(_run, path), _takes_rows, run_scores=partial(_run_scores, path),
            floats=tuple(FLOATS), attend=attend, marks=partial(_marks, path), drawn=True,
        )  # fmt: skip
        made += [rows, Body(f"kernel {path} deferred", None, _takes_deferred, attend=attend, drawn=True)]
    return made


def _takes_rows(spec: AnySpec) -> bool:
    return isinstance(spec, SoftermaxSpec) and supports(spec)


def _takes_deferred(spec: AnySpec) -> bool:
    return isinstance(spec, DeferredSpec) and supports(spec)


def _run(path: str, spec: SoftermaxSpec, raw: IntArray, mask: BoolArray) -> tuple[IntArray, IntArray | None]:
    words, exponent = softermax_int8(raw.astype(np.int8), spec, mask, path=path)
    return words.astype(np.int64), exponent.astype(np.int64) if spec.output_mode == "row-scaled" else None


def _run_scores(path: str, spec: SoftermaxSpec, scores: FloatArray, mask: BoolArray) -> FloatArray:
    return softermax_float(scores, spec, mask, path).probabilities


def _marks(path: str, spec: SoftermaxSpec, scores: FloatArray, mask: BoolArray) -> BoolArray:
    return softermax_float(scores, spec, mask, path).saturated


def _attend(path: str, spec: AnySpec, case: AttentionCase) -> NDArray[np.float32]:
    return int8_attention(
        case.q, case.k, case.v, spec, case.scale, case.value_scale, case.mask, causal=case.causal, path=path
    )
