"""The FP16 baselines for `softermax verify`: both units of each, one after the other, against their model.

The scores are those of the input words, which half precision holds exactly.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from softermax.fixedpoint import IntArray
from softermax.golden import BoolArray
from softermax.rtl.baseline import model
from softermax.rtl.baseline.generic import model as generic_model
from softermax.rtl.baseline.generic import normalization as generic_normalization
from softermax.rtl.baseline.generic import unnormed as generic_unnormed
from softermax.rtl.baseline.normalization import Normalization
from softermax.rtl.baseline.online import LOOP, OnlineUnnormed
from softermax.rtl.baseline.online_normalization import OnlineNormalization
from softermax.rtl.baseline.unnormed import Unnormed
from softermax.rtl.simulation import Simulation
from softermax.rtl.sizes import check_buildable
from softermax.rtl.vectors import drained, slices_of
from softermax.spec import SoftermaxSpec

_STALL = 0.1
_ROWS = LOOP
"""Rows in turn, so that the online unit need not wait."""

Result = tuple[IntArray, None]


@lru_cache(maxsize=2)
def _two_passes(lanes: int) -> tuple[Simulation, Simulation]:
    return Simulation(Unnormed(lanes)), Simulation(Normalization(lanes))


@lru_cache(maxsize=2)
def _generic(lanes: int) -> tuple[Simulation, Simulation]:
    return Simulation(generic_unnormed.Unnormed(lanes)), Simulation(
        generic_normalization.Normalization(lanes)
    )


@lru_cache(maxsize=2)
def _online(lanes: int) -> tuple[Simulation, Simulation]:
    return Simulation(OnlineUnnormed(lanes, _ROWS)), Simulation(OnlineNormalization(lanes))


def expected(spec: SoftermaxSpec, raw: IntArray, mask: BoolArray) -> Result:
    return model.softmax(_half(spec, raw), mask, check_buildable(spec)), None


def expected_generic(spec: SoftermaxSpec, raw: IntArray, mask: BoolArray) -> Result:
    return generic_model.softmax(_half(spec, raw), mask, check_buildable(spec)), None


def expected_online(spec: SoftermaxSpec, raw: IntArray, mask: BoolArray) -> Result:
    return model.online_softmax(_half(spec, raw), mask, check_buildable(spec)), None


def run(spec: SoftermaxSpec, raw: IntArray, mask: BoolArray) -> Result:
    return _run(_two_passes(check_buildable(spec)), spec, raw, mask)


def run_generic(spec: SoftermaxSpec, raw: IntArray, mask: BoolArray) -> Result:
    return _run(_generic(check_buildable(spec)), spec, raw, mask)


def _run(units: tuple[Simulation, Simulation], spec: SoftermaxSpec, raw: IntArray, mask: BoolArray) -> Result:
    unnormed, normalization = units
    slices = slices_of(spec, _half(spec, raw), mask, 1)
    count = len(slices["first"])
    out = unnormed.run(
        {"first_pass": slices, "second_pass": slices}, {"unnormed": count, "sums": len(raw)}, _STALL
    )
    inputs = {name: out[name].fields for name in ("unnormed", "sums")}
    return _rows(
        normalization.run(inputs, {"probabilities": count}, _STALL)["probabilities"].fields, raw
    ), None


def run_online(spec: SoftermaxSpec, raw: IntArray, mask: BoolArray) -> Result:
    unnormed, normalization = _online(check_buildable(spec))
    slices = slices_of(spec, _half(spec, raw), mask, _ROWS)
    count, rows = len(slices["first"]), len(raw)
    out = unnormed.run({"slices": slices}, {"unnormed": count, "sums": rows}, _STALL)
    words, ends = out["unnormed"].fields, np.flatnonzero(out["unnormed"].fields["last"])
    order = drained(rows, count // max(rows, 1), _ROWS)
    inputs = {
        "maxima": {name: words[name][order] for name in ("max", "last")},
        "rows": {"max": words["max"][ends], "powsum": out["sums"].fields["powsum"]},
        "unnormed": {name: words[name][order] for name in ("u", "last")},
    }
    return _rows(
        normalization.run(inputs, {"probabilities": count}, _STALL)["probabilities"].fields, raw
    ), None


def _half(spec: SoftermaxSpec, raw: IntArray) -> IntArray:
    return model.bits_of((raw * 2.0**-spec.input.fraction).astype(np.float16))


def _rows(out: dict[str, IntArray], raw: IntArray) -> IntArray:
    return out["y"].reshape(len(raw), -1)[:, : raw.shape[1]]
