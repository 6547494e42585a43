"""Vectors for the streams of a unit, from the golden model: what goes in and what must come out."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from softermax import golden
from softermax.fixedpoint import IntArray
from softermax.golden import BoolArray, Output, Trace
from softermax.golden import attention as golden_attention
from softermax.rtl.deferred import VALUE_BITS, DeferredTail
from softermax.rtl.normalization import Normalization
from softermax.rtl.packing import Words, pack
from softermax.rtl.simulation import ports_of
from softermax.rtl.softermax_top import Softermax
from softermax.rtl.words import check_buildable
from softermax.spec import DeferredSpec, SoftermaxSpec

Fields = dict[str, IntArray]

LONGEST = 16384
"""Elements of the longest rows in the vectors, where the unit takes so long ones."""
_SHORT = 8
"""Slices of the other rows at most."""


def vectors(component: Any, slices: int = 600, seed: int = 0) -> dict[str, Words]:
    """Packed payloads of every stream of a unit: about so many slices of random and adversarial rows, and
    two rows as long as the unit takes them, up to `LONGEST` elements."""
    spec = component.spec.scores if isinstance(component.spec, DeferredSpec) else component.spec
    spec = spec.replace(slice_width=component.lanes)
    rng = np.random.default_rng(seed)
    most = LONGEST
    if isinstance(component, Softermax):
        most = min(most, component.depth * component.lanes)
    elif isinstance(component, DeferredTail):
        most = min(most, component.longest_row)
    parts = []
    for raw, mask in _rows(spec, slices, most, rng):
        out = golden.softermax(raw, spec, mask, trace=True)
        if isinstance(component, DeferredTail):
            parts.append(_deferred_streams(component, spec, raw, mask, out, rng))
        else:
            parts.append(_streams(component, spec, raw, mask, out))
    return {
        port.name: np.concatenate([pack(port.layout, part[port.name]) for part in parts])
        for port in ports_of(component)
    }


def _rows(
    spec: SoftermaxSpec, slices: int, most: int, rng: np.random.Generator
) -> Iterator[tuple[IntArray, BoolArray]]:
    """Blocks of rows of one length each. Every block has rows that saturate, are equal, rise in every slice so that
    each renormalises, fall, and one without an element."""
    low, high, width = spec.input.low, spec.input.high, spec.slice_width or 1
    step = 1 << spec.input.fraction
    longest = min(_SHORT * width, most)
    lengths = sorted({1, min(width, most), longest, max(longest - width // 2, 1)})
    for columns in lengths:
        count = max(10, slices // (len(lengths) * spec.slices(columns)))
        uniform = rng.integers(low, high + 1, (count, columns))
        near = np.clip(np.rint(rng.normal(0, (high - low) / 16, (count, columns))), low, high).astype(
            np.int64
        )
        raw = np.where(np.arange(count)[:, None] % 2 == 0, uniform, near)
        mask = np.ones(raw.shape, dtype=np.bool_)
        mask[count // 2 :] = rng.random((count - count // 2, columns)) < 0.7
        raw[0], raw[1], raw[6] = high, low, 0
        raw[2] = np.clip(low + np.arange(columns), low, high)
        raw[3] = raw[2, ::-1]
        # Scores above the largest max: only they show every bit of 2^f.
        raw[5] = high - np.arange(columns) % step
        raw[7] = np.clip(low + np.arange(columns) // width * step, low, high)
        mask[:8], mask[4] = True, False
        yield raw, mask
    if most > longest:
        # The first one fills PowSum, the second one grows until its scores are at their end.
        raw = np.full((2, most), high, dtype=np.int64)
        grown = np.minimum(np.arange(most) // width * step, high - low)
        raw[1] = low + rng.integers(0, grown + 1)
        yield raw, np.ones(raw.shape, dtype=np.bool_)


def slices_of(spec: SoftermaxSpec, raw: IntArray, mask: BoolArray, open_rows: int) -> dict[str, IntArray]:
    """Rows as the fields of a stream of slices, some rows at a time, a slice of each in turn."""
    lanes = check_buildable(spec)
    rows, columns = raw.shape
    slices = spec.slices(columns)

    def cut(values: IntArray | BoolArray) -> IntArray:
        padded = np.zeros((rows, slices * lanes), dtype=np.int64)
        padded[:, :columns] = values
        return padded.reshape(rows * slices, lanes)

    row, at = np.divmod(np.arange(rows * slices), slices)
    order = np.lexsort((row, at, row // open_rows))
    fields = {"x": cut(raw)[order], "mask": cut(mask)[order]}
    fields |= {"first": (at == 0).astype(np.int64)[order], "last": (at == slices - 1).astype(np.int64)[order]}
    if open_rows > 1:
        fields["row"] = (row % open_rows)[order]
    return fields


def drained(rows: int, slices: int, open_rows: int) -> IntArray:
    """Where the slices of `slices_of` stand in that stream, row after row."""
    row, at = np.divmod(np.arange(rows * slices), slices)
    return np.argsort(np.lexsort((row, at, row // open_rows)), kind="stable")


def _streams(
    component: Any, spec: SoftermaxSpec, raw: IntArray, mask: BoolArray, out: Output
) -> dict[str, Fields]:
    rows = component.rows
    trace = out.trace
    assert trace is not None
    count, slices = trace.running_max.shape
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
        "slices": {"u": unnormed, "max": running_max, "last": last}
        if isinstance(component, Normalization)
        else slices_of(spec, raw, mask, rows),
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


def _deferred_streams(
    component: DeferredTail,
    spec: SoftermaxSpec,
    raw: IntArray,
    mask: BoolArray,
    out: Output,
    rng: np.random.Generator,
) -> dict[str, Fields]:
    """Values are anything, the smallest in all of the first row, and random ones in lanes that are masked."""
    assert out.trace is not None
    shape = (len(raw), spec.slices(raw.shape[1]) * component.lanes, component.columns)
    low, high = -(1 << (VALUE_BITS - 1)), (1 << (VALUE_BITS - 1)) - 1
    values = rng.integers(low, high + 1, shape)
    values[0] = low
    return deferred_fields(out.trace, values) | {
        "outputs": deferred_outputs(component.spec, raw, mask, values[:, : raw.shape[1]])
    }


def deferred_fields(trace: Trace, values: IntArray) -> dict[str, Fields]:
    """What goes into the attention tail: golden's unnormed slices, row after row, with the values of every
    lane (rows, lanes of all slices, columns)."""
    count, slices = trace.running_max.shape
    return {
        "slices": {
            "u": trace.unnormed.reshape(count * slices, -1),
            "max": trace.running_max.reshape(-1),
            "last": np.tile(np.arange(slices) == slices - 1, count).astype(np.int64),
            "v": values.reshape(count * slices, -1),
        }
    }


def deferred_outputs(spec: DeferredSpec, raw: IntArray, mask: BoolArray, values: IntArray) -> Fields:
    """What must come out of it: a row is a batch of its own here, for it has values of its own."""
    out = golden.deferred(raw[:, None], spec, mask[:, None], trace=True)
    assert out.trace is not None
    a = golden_attention.accumulate(out.trace, values.astype(np.float64))[:, 0]
    leading_one, reciprocal = out.leading_one[:, 0], out.reciprocal[:, 0]
    return {"o": a * reciprocal[:, None], "exponent": leading_one + spec.reciprocal.fraction}
