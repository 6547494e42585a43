"""Rows for the tests of the units, interleaved as slices, with golden's words beside them."""

from __future__ import annotations

import importlib.resources
import json
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pytest

from softermax import golden
from softermax.fixedpoint import IntArray
from softermax.golden import BoolArray
from softermax.silicon import stimuli
from softermax.spec import SoftermaxSpec

Block = tuple[IntArray, BoolArray]
"""Rows of one length: raw words and which take part, (rows, columns)."""

_BY_SLICE = (
    "local_max", "running_max", "renorm_shift", "unnormed", "slice_sum", "slice_powsum", "powsum",
    "numerator", "numerator_shift",
)  # fmt: skip
_MADE = ("k", "renormed")


@dataclass(frozen=True)
class Schedule:
    """Slices in the order in which a unit gets them, and golden's words of each."""

    fields: dict[str, IntArray]
    """The input stream."""
    trace: dict[str, IntArray]
    """Golden's words, in the order of the input stream."""
    drained: IntArray
    """Positions of all slices, row by row, in the order in which rows finish."""
    words: IntArray
    """Golden's output, in the order of `drained`."""
    exponent: IntArray
    """Likewise, the row's exponent (A7)."""
    leading_one: IntArray
    """Of each slice's row, likewise."""
    reciprocal: IntArray

    @property
    def count(self) -> int:
        return len(self.fields["first"])

    @property
    def finished(self) -> IntArray:
        """Positions of the rows' last slices."""
        return np.flatnonzero(self.fields["last"])


def interleave(spec: SoftermaxSpec, blocks: list[Block], rows: int, rng: np.random.Generator) -> Schedule:
    """All rows of the blocks, with up to ``rows`` of them open at a time, slices mixed at random."""
    width = spec.slice_width
    assert width is not None
    parts: dict[str, list[IntArray]] = {
        name: [] for name in ("x", "mask", "words", "exponent", *_BY_SLICE, *_MADE)
    }
    by_row: dict[str, list[IntArray]] = {"leading_one": [], "reciprocal": []}
    lengths: list[int] = []
    for raw, mask in blocks:
        count, columns = raw.shape
        slices = spec.slices(columns)
        out = golden.softermax(raw, spec, mask, trace=True)
        assert out.trace is not None
        for name, value in (("x", raw), ("mask", mask), ("words", out.words)):
            padded = np.zeros((count, slices * width), dtype=np.int64)
            padded[:, :columns] = value
            parts[name].append(padded.reshape(-1, width))
        parts["exponent"].append(np.repeat(out.exponent, slices))
        for name in _BY_SLICE:
            value = getattr(out.trace, name)
            parts[name].append(value.reshape(count * slices, *value.shape[2:]))
        # Steps within a word of the trace: Power of Two's shift, and what is left of the sum so far.
        t = parts["x"][-1] - (parts["running_max"][-1][:, None] << spec.input.fraction)
        parts["k"].append(-(t >> spec.input.fraction))
        so_far = np.pad(out.trace.powsum[:, :-1], ((0, 0), (1, 0)))
        parts["renormed"].append((so_far >> np.minimum(out.trace.renorm_shift, 63)).reshape(-1))
        for name, column in by_row.items():
            column.append(getattr(out.trace, name))
        lengths += [slices] * count
    flat = {name: np.concatenate(values) for name, values in parts.items()}

    starts = np.concatenate([[0], np.cumsum(lengths)])
    waiting = iter(rng.permutation(len(lengths)).tolist())
    total = int(starts[-1])
    order, ids, ends = np.zeros(total, np.int64), np.zeros(total, np.int64), []
    draws = rng.random(total).tolist()
    free = list(range(rows))
    opened: list[list[int]] = []  # row id, next slice, end, row
    finished: list[int] = []
    for at in range(total):
        while free:
            row = next(waiting, None)
            if row is None:
                break
            opened.append([free.pop(int(draws[at] * len(free))), int(starts[row]), int(starts[row + 1]), row])
        chosen = int(draws[at] * len(opened))
        entry = opened[chosen]
        order[at], ids[at] = entry[1], entry[0]
        entry[1] += 1
        if entry[1] == entry[2]:
            ends.append(at)
            finished.append(entry[3])
            free.append(entry[0])
            opened.pop(chosen)
    first, last = np.zeros(total, np.int64), np.zeros(total, np.int64)
    first[np.isin(order, starts[:-1])] = 1
    last[ends] = 1
    fields = {"x": flat["x"][order], "mask": flat["mask"][order], "first": first, "last": last}
    if rows > 1:
        fields["row"] = ids
    drained = np.concatenate([np.arange(starts[row], starts[row + 1]) for row in finished])
    position = np.empty(total, np.int64)
    position[order] = np.arange(total)
    return Schedule(
        fields,
        {name: flat[name][order] for name in (*_BY_SLICE, *_MADE)},
        position[drained],
        flat["words"][drained],
        flat["exponent"][drained],
        *(np.concatenate(values)[finished].repeat(np.array(lengths)[finished]) for values in by_row.values()),
    )


def whole(raw: IntArray) -> Block:
    return raw, np.ones(raw.shape, dtype=np.bool_)


def adversarial(spec: SoftermaxSpec, longest: int, rng: np.random.Generator) -> Iterator[Block]:
    """Rows that go to the limits: of length 1, all masked, all equal, strictly increasing (every slice
    renormalises), saturating, and as long as ``longest``."""
    low, high, width = spec.input.low, spec.input.high, spec.slice_width
    assert width is not None
    words = np.arange(low, high + 1, dtype=np.int64)
    yield whole(rng.permutation(words)[:512, None])
    for columns in (1, width, 3 * width - 1):
        raw = rng.integers(low, high + 1, (4, columns))
        yield raw, np.zeros(raw.shape, dtype=np.bool_)
    for columns in (width, 4 * width + 1, longest):
        yield whole(np.repeat(np.array([[low], [-1], [0], [1], [high]], dtype=np.int64), columns, axis=1))
    # Each slice's scores lie an integer above those of the slice before.
    step = 1 << spec.input.fraction
    rising = np.clip(low + np.arange(min(longest, (high - low) // step * width)) // width * step, low, high)
    yield whole(np.stack([rising, rising[::-1]]))
    ramp = np.clip(low + np.arange(min(longest, high - low + width), dtype=np.int64), low, high)
    yield whole(np.stack([ramp, ramp[::-1]]))
    late = np.full((2, 4 * width), low, dtype=np.int64)
    late[0, -1] = late[1, 0] = high
    yield whole(late)
    raw = rng.choice([low, high], (8, 5 * width))
    mask = rng.random(raw.shape) < 0.5
    mask[:, width : 3 * width] = False  # slices without any element between others
    mask[0, : 4 * width] = False
    yield raw, mask
    yield whole(rng.integers(low, high + 1, (1, longest)))


def random_rows(spec: SoftermaxSpec, slices: int, longest: int, rng: np.random.Generator) -> Iterator[Block]:
    """About ``slices`` slices of random rows: logits like those of attention, uniform words, masks."""
    low, high, width = spec.input.low, spec.input.high, spec.slice_width
    assert width is not None
    spread = max(1, (high - low) // 16)
    lengths = [n for n in (1, width, width + 1, 3 * width, 64, 100, 8 * width) if n <= longest]
    share = max(1, slices // (3 * len(lengths)))
    for columns in lengths:
        count = max(1, share // spec.slices(columns))
        normal = rng.normal(
            rng.normal(0, spread, (count, 1)), spread * rng.random((count, 1)), (count, columns)
        )
        yield whole(np.clip(np.rint(normal), low, high).astype(np.int64))
        uniform = rng.integers(low, high + 1, (count, columns))
        yield uniform, rng.random(uniform.shape) < rng.random((count, 1))
        padded = np.clip(np.rint(rng.normal(0, spread, (count, columns))), low, high).astype(np.int64)
        yield padded, np.arange(columns) < rng.integers(0, columns + 1, (count, 1))


def sentence(spec: SoftermaxSpec) -> Block:
    """A row of a real model's attention, from the package's own data."""
    text = (
        importlib.resources.files("softermax.reproduce")
        .joinpath("attention_row.json")
        .read_text(encoding="utf-8")
    )
    return whole(golden.quantize(np.array([json.loads(text)["scores"]]), spec))


def recorded_rows(spec: SoftermaxSpec, columns: int, rng: np.random.Generator) -> Block:
    """Attention scores of a real model on real text, cut to rows of ``columns``; half of the rows end early,
    as rows of padded or causal attention do, and some are scaled as with A9's fold."""
    scores, reason = stimuli.recorded()
    if scores is None:
        pytest.skip(reason)
    values = scores.values[:, : scores.values.shape[1] // columns * columns].reshape(-1, columns)
    values = np.where(rng.random((len(values), 1)) < 0.5, values, values * np.float32(np.log2(np.e)))
    ends = np.where(rng.random(len(values)) < 0.5, columns, rng.integers(1, columns + 1, len(values)))
    return golden.quantize(values, spec), np.arange(columns) < ends[:, None]
