"""Vectors for the streams of a unit, from the golden model: what goes in and what must come out."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from softermax import golden
from softermax.fixedpoint import IntArray
from softermax.golden import BoolArray
from softermax.rtl.normalization import Normalization
from softermax.rtl.packing import Words, pack
from softermax.rtl.simulation import ports_of
from softermax.rtl.softermax_top import Softermax
from softermax.rtl.verification import slices_of
from softermax.spec import SoftermaxSpec

Fields = dict[str, IntArray]


def vectors(component: Any, slices: int = 600, seed: int = 0) -> dict[str, Words]:
    """Packed payloads of every stream of a unit: about so many slices of random and adversarial rows."""
    spec: SoftermaxSpec = component.spec
    lanes = component.lanes if isinstance(component, Normalization) else spec.slice_width
    spec = spec.replace(slice_width=lanes)
    longest = min(8, component.depth) if isinstance(component, Softermax) else 8
    parts = [
        _streams(component, spec, raw, mask)
        for raw, mask in _rows(spec, slices, longest, np.random.default_rng(seed))
    ]
    return {
        port.name: np.concatenate([pack(port.layout, part[port.name]) for part in parts])
        for port in ports_of(component)
    }


def _rows(
    spec: SoftermaxSpec, slices: int, longest: int, rng: np.random.Generator
) -> Iterator[tuple[IntArray, BoolArray]]:
    """Blocks of rows of one length each."""
    low, high, width = spec.input.low, spec.input.high, spec.slice_width or 1
    lengths = sorted({1, width, longest * width, max(longest * width - width // 2, 1)})
    for columns in lengths:
        count = max(8, slices // (len(lengths) * spec.slices(columns)))
        uniform = rng.integers(low, high + 1, (count, columns))
        near = np.clip(np.rint(rng.normal(0, (high - low) / 16, (count, columns))), low, high).astype(
            np.int64
        )
        raw = np.where(np.arange(count)[:, None] % 2 == 0, uniform, near)
        mask = np.ones(raw.shape, dtype=np.bool_)
        mask[count // 2 :] = rng.random((count - count // 2, columns)) < 0.7
        raw[0], raw[1] = high, low
        raw[2] = np.clip(low + np.arange(columns), low, high)
        raw[3] = raw[2, ::-1]
        # Scores above the largest max: only they show every bit of 2^f.
        raw[5] = high - np.arange(columns) % (1 << spec.input.fraction)
        mask[:4], mask[4], mask[5] = True, False, True
        yield raw, mask


def _streams(component: Any, spec: SoftermaxSpec, raw: IntArray, mask: BoolArray) -> dict[str, Fields]:
    rows = component.rows
    out = golden.softermax(raw, spec, mask, trace=True)
    trace = out.trace
    assert trace is not None
    count, slices = trace.running_max.shape
    fields = slices_of(spec, raw, mask, rows)
    row, at = np.divmod(np.arange(count * slices), slices)
    order = np.lexsort((row, at, row // rows))
    words = np.zeros((count, slices * (spec.slice_width or 1)), dtype=np.int64)
    words[:, : raw.shape[1]] = out.words
    unnormed = trace.unnormed.reshape(count * slices, -1)
    running_max = trace.running_max.reshape(-1)
    last = (at == slices - 1).astype(np.int64)
    ids = np.arange(count) % rows
    return {
        # Normalization's input has the name of the others'; its slices come row after row.
        "slices": {"u": unnormed, "max": running_max, "last": last} if isinstance(component, Normalization) else fields,
        "unnormed": {
            "u": unnormed[order], "max": running_max[order], "last": last[order], "row": (row % rows)[order],
        },
        "sums": {"powsum": trace.powsum[:, -1], "row": ids},
        "finished": {"max": trace.running_max[:, -1], "powsum": trace.powsum[:, -1], "row": ids},
        "probabilities": {
            "y": words.reshape(count * slices, -1),
            "last": last,
            "row": row % rows,
            "exponent": np.repeat(out.exponent, slices),
        },
    }  # fmt: skip
