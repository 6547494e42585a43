"""Softermax's own units for `softermax verify`."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from softermax import golden
from softermax.fixedpoint import IntArray
from softermax.golden import BoolArray
from softermax.rtl.deferred import DeferredTail
from softermax.rtl.simulation import Simulation
from softermax.rtl.sizes import check_buildable
from softermax.rtl.softermax_top import Softermax
from softermax.rtl.units import create
from softermax.rtl.vectors import deferred_fields, deferred_outputs, drained, slices_of
from softermax.spec import DeferredSpec, SoftermaxSpec
from softermax.verify.cases import longest_row

_ROWS = 4
_COLUMNS = 4
"""Columns of V in the attention tail."""


@lru_cache(maxsize=8)
def _top(spec: SoftermaxSpec) -> Simulation:
    # A row of more slices than the top has room for would wait for itself: the narrower, the deeper.
    return Simulation(Softermax(spec, rows=_ROWS, depth=spec.slices(longest_row(spec))))


@lru_cache(maxsize=8)
def _units(spec: SoftermaxSpec) -> tuple[Simulation, Simulation]:
    return Simulation(create(spec, "unnormed-softmax", rows=_ROWS)), Simulation(create(spec, "normalization"))


def run_top(spec: SoftermaxSpec, raw: IntArray, mask: BoolArray) -> tuple[IntArray, IntArray | None]:
    slices = slices_of(spec, raw, mask, _ROWS)
    count = len(slices["first"])
    out = _top(spec).run({"slices": slices}, {"probabilities": count}, stall=0.1)["probabilities"].fields
    return _rows(spec, out, raw.shape)


def run_units(spec: SoftermaxSpec, raw: IntArray, mask: BoolArray) -> tuple[IntArray, IntArray | None]:
    unnormed_softmax, normalization = _units(spec)
    slices = slices_of(spec, raw, mask, _ROWS)
    count, rows = len(slices["first"]), len(raw)
    order = drained(rows, count // max(rows, 1), _ROWS)
    if spec.normalization == "row-products":
        finished = unnormed_softmax.run({"slices": slices}, {"finished": rows}, stall=0.1)["finished"].fields
        waiting = {name: slices[name][order] for name in ("x", "mask", "last")}
    else:
        out = unnormed_softmax.run({"slices": slices}, {"unnormed": count, "sums": rows}, stall=0.1)
        unnormed, sums = out["unnormed"].fields, out["sums"].fields
        finished = {"max": unnormed["max"][np.flatnonzero(unnormed["last"])], "powsum": sums["powsum"]}
        waiting = {name: unnormed[name][order] for name in ("u", "max", "last")}
    normed = normalization.run({"finished": finished, "slices": waiting}, {"probabilities": count}, stall=0.1)
    return _rows(spec, normed["probabilities"].fields, raw.shape)


def _rows(
    spec: SoftermaxSpec, out: dict[str, IntArray], shape: tuple[int, ...]
) -> tuple[IntArray, IntArray | None]:
    rows, columns = shape
    words = out["y"].reshape(rows, -1)[:, :columns]
    exponent = out["exponent"].reshape(rows, -1)[:, 0] if spec.output_mode == "row-scaled" else None
    return words, exponent


@lru_cache(maxsize=8)
def _tail(spec: DeferredSpec) -> Simulation:
    return Simulation(DeferredTail(spec, _COLUMNS))


def _values(spec: DeferredSpec, shape: tuple[int, ...]) -> IntArray:
    """Values of V for all lanes of all slices, the same whenever the shape is."""
    lanes = spec.scores.slices(shape[1]) * check_buildable(spec.scores)
    return np.random.default_rng(shape[1]).integers(-128, 128, (shape[0], lanes, _COLUMNS))


def run_tail(spec: DeferredSpec, raw: IntArray, mask: BoolArray) -> tuple[IntArray, IntArray | None]:
    trace = golden.softermax(raw, spec.scores, mask, trace=True).trace
    assert trace is not None
    fields = deferred_fields(trace, _values(spec, raw.shape))
    out = _tail(spec).run(fields, {"outputs": len(raw)}, stall=0.1)["outputs"].fields
    return out["o"], out["exponent"]


def expected_of_tail(spec: DeferredSpec, raw: IntArray, mask: BoolArray) -> tuple[IntArray, IntArray | None]:
    """The outputs of attention with these values, which are no weights: golden's integer attention has them."""
    out = deferred_outputs(spec, raw, mask, _values(spec, raw.shape)[:, : raw.shape[1]])
    return out["o"], out["exponent"]
