"""What the units are fed and what they must answer: the fields of every stream, by name, from the golden model.

The one place that knows it. `softermax verify`, the exported test benches and the gate level all take their streams from
here; `softermax.rtl.baseline.vectors` and `softermax.rtl.pe.vectors` have those of the baselines' and the PE's own units. Rows
are (rows, columns); a last slice that they do not fill is masked.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeAlias

import numpy as np

from softermax import golden
from softermax.fixedpoint import IntArray
from softermax.golden import BoolArray, Output, Trace
from softermax.golden import attention as golden_attention
from softermax.rtl.deferred import DeferredTail
from softermax.rtl.normalization import Normalization
from softermax.rtl.packing import Words, pack
from softermax.rtl.payloads import VALUE_BITS
from softermax.rtl.product_normalization import ProductNormalization
from softermax.rtl.simulation import ports_of
from softermax.rtl.sizes import check_buildable
from softermax.rtl.unit import Unit
from softermax.spec import DeferredSpec, SoftermaxSpec
from softermax.tables import reciprocal_table

Fields: TypeAlias = dict[str, IntArray]
"""A stream's transfers, an array for each field: (transfers) or (transfers, lanes)."""
Streams: TypeAlias = dict[str, Fields]

LONGEST = 16384
"""Elements of the longest rows in the vectors, where the unit takes so long ones."""
_SHORT = 8
"""Slices of the other rows at most."""


def vectors(component: Unit, slices: int = 600, seed: int = 0) -> dict[str, Words]:
    """Packed payloads of every stream of a unit, of `fields_of_streams`."""
    fields = fields_of_streams(component, slices, seed)
    return {port.name: pack(port.layout, fields[port.name]) for port in ports_of(component)}


def fields_of_streams(component: Unit, slices: int = 600, seed: int = 0) -> Streams:
    """What goes through every stream of a unit: about so many slices of random and adversarial rows, two rows as long as
    the unit takes them, up to `LONGEST` elements, and short ones after them."""
    spec = component.spec.scores if isinstance(component.spec, DeferredSpec) else component.spec
    spec = spec.replace(slice_width=component.lanes)
    rng = np.random.default_rng(seed)
    most = min(LONGEST, component.longest_row or LONGEST)
    parts = [_streams(component, spec, raw, mask, rng) for raw, mask in _rows(spec, slices, most, rng)]
    return {
        name: {field: np.concatenate([part[name][field] for part in parts]) for field in parts[0][name]}
        for name in parts[0]
    }


def _streams(
    component: Any, spec: SoftermaxSpec, raw: IntArray, mask: BoolArray, rng: np.random.Generator
) -> Streams:
    if isinstance(component, DeferredTail):
        # Values are anything, the smallest in all of the first row, and random ones in lanes that are masked.
        shape = (len(raw), spec.slices(raw.shape[1]) * component.lanes, component.columns)
        low, high = -(1 << (VALUE_BITS - 1)), (1 << (VALUE_BITS - 1)) - 1
        values = rng.integers(low, high + 1, shape)
        values[0] = low
        return tail_streams(component.spec, raw, mask, values)
    if isinstance(component, (Normalization, ProductNormalization)):
        return normalization_streams(spec, raw, mask, component.rows)
    return unnormed_streams(spec, raw, mask, component.rows) | {
        "probabilities": probabilities(golden.softermax(raw, spec, mask), component.rows)
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
    if most >= 2 * width:
        yield _growing_rows(spec)
    if most > longest:
        # The first one fills PowSum, the second one grows until its scores are at their end.
        raw = np.full((2, most), high, dtype=np.int64)
        grown = np.minimum(np.arange(most) // width * step, high - low)
        raw[1] = low + rng.integers(0, grown + 1)
        yield raw, np.ones(raw.shape, dtype=np.bool_)
    yield from _rows_of_sums(spec, slices, most)
    # Rows that follow at once: what a long row left in buffers must not matter to them.
    raw = rng.integers(low, high + 1, (6, min(2 * width, most)))
    yield raw, rng.random(raw.shape) < 0.8


def _growing_rows(spec: SoftermaxSpec) -> tuple[IntArray, BoolArray]:
    """Rows of two slices whose max grows by every amount, from nothing to more than a word can be shifted by.

    An odd number of them: of two rows at a time, what one has stored and read is then ahead of the other's.
    """
    width, step = spec.slice_width or 1, 1 << spec.input.fraction
    most = min(spec.max_high - spec.max_low, max(spec.powsum.bits, spec.unnormed.bits) + 2)
    raw = np.full((most + 1 | 1, 2 * width), spec.input.low, dtype=np.int64)
    raw[:, width:] += step * np.arange(len(raw))[:, None]
    return np.minimum(raw, spec.input.high), np.ones(raw.shape, dtype=np.bool_)


def _rows_of_sums(spec: SoftermaxSpec, slices: int, most: int) -> Iterator[tuple[IntArray, BoolArray]]:
    """Rows whose PowSum is every one from that of a few elements to where it has every mantissa that the reciprocal tells
    apart; evenly spread over them, as many as go into so many slices.

    Each has scores of every fraction from the largest max on, where nothing is shifted out of 2^f, as far as they fit;
    integer scores make up what is missing of the PowSum.
    """
    width, step, fraction = spec.slice_width or 1, 1 << spec.input.fraction, spec.powsum.fraction
    top = min(spec.max_high << spec.input.fraction, spec.input.high)
    probes = np.minimum(top + np.arange(step), spec.input.high)
    # Turned from row to row, so that every lane gets every fraction; how much the first so many of each turn add up to.
    turned = np.stack([np.roll(probes, turn) for turn in range(step)])
    adds = [
        _trace(golden.softermax(turned[:, :begin], spec, trace=True)).powsum[:, -1]
        for begin in range(1, step + 1)
    ]
    low = int(adds[0].max()) + 1
    high = max(2 << reciprocal_table(spec).used_bits, 2 * low)
    # Of its bits below one about half are set.
    length = 2 + (low + high >> fraction + 1) + fraction // 2
    count = min(high - low, max(8, slices // -(-length // width)))
    rows: dict[int, list[list[int]]] = {}
    for number, total in enumerate(np.linspace(low, high - 1, count).round().astype(int)):
        turn = number % step
        begin = max(count for count in range(1, step + 1) if adds[count - 1][turn] <= total)
        left = int(total - adds[begin - 1][turn])
        scores = [*map(int, turned[turn, :begin]), *[top] * (left >> fraction)]
        scores += [top - (fraction - bit) * step for bit in range(fraction) if left >> bit & 1]
        rows.setdefault(left.bit_length(), []).append([max(x, spec.input.low) for x in scores][:most])
    for block in rows.values():
        raw = np.zeros((len(block), max(map(len, block))), dtype=np.int64)
        mask = np.zeros(raw.shape, dtype=np.bool_)
        for row, scores in enumerate(block):
            raw[row, : len(scores)], mask[row, : len(scores)] = scores, True
        yield raw, mask


def cut(values: IntArray | BoolArray, lanes: int) -> IntArray:
    """Rows as slices (rows * slices, lanes), the last one of a row filled up with zeros."""
    rows, columns = values.shape
    slices = -(-columns // lanes)
    padded = np.zeros((rows, slices * lanes), dtype=np.int64)
    padded[:, :columns] = values
    return padded.reshape(rows * slices, lanes)


def places(rows: int, slices: int) -> Fields:
    """Where each slice stands in its row: ``first`` and ``last``, row after row."""
    at = np.tile(np.arange(slices), rows)
    return {"first": (at == 0).astype(np.int64), "last": (at == slices - 1).astype(np.int64)}


def in_turn(rows: int, slices: int, open_rows: int) -> IntArray:
    """The order of slices when that many rows are open at a time, a slice of each in turn."""
    row, at = np.divmod(np.arange(rows * slices), slices)
    return np.lexsort((row, at, row // open_rows))


def drained(rows: int, slices: int, open_rows: int) -> IntArray:
    """Where the slices of rows stand in the order `in_turn`, row after row."""
    return np.argsort(in_turn(rows, slices, open_rows), kind="stable")


def slice_fields(lanes: int, x: IntArray, mask: BoolArray, open_rows: int = 1) -> Fields:
    """Rows as a stream of slices of scores, some rows at a time, a slice of each in turn."""
    rows, slices = len(x), -(-x.shape[1] // lanes)
    row = np.repeat(np.arange(rows), slices)
    fields = {"x": cut(x, lanes), "mask": cut(mask, lanes), "row": row % open_rows} | places(rows, slices)
    order = in_turn(rows, slices, open_rows)
    return {name: values[order] for name, values in fields.items()}


def slices_of(spec: SoftermaxSpec, raw: IntArray, mask: BoolArray, open_rows: int) -> Fields:
    """`slice_fields` in slices of a spec."""
    return slice_fields(check_buildable(spec), raw, mask, open_rows)


def unnormed_streams(spec: SoftermaxSpec, raw: IntArray, mask: BoolArray, open_rows: int = 1) -> Streams:
    """`UnnormedSoftmax`: slices of scores in; unnormed words and the PowSum of each row out. With row products,
    `UnnormedSum`: max and PowSum of each row."""
    trace = _trace(golden.softermax(raw, spec, mask, trace=True))
    if spec.normalization == "row-products":
        return {"slices": slices_of(spec, raw, mask, open_rows), "finished": finished(trace, open_rows)}
    words = {"u": trace.unnormed, "max": trace.running_max}
    return {"slices": slices_of(spec, raw, mask, open_rows)} | answers(words, trace.powsum, open_rows)


def answers(words: Fields, powsum: IntArray, open_rows: int) -> Streams:
    """What an unnormed unit gives: words of each slice (rows, slices, ...), and of each row the last (rows, slices)."""
    rows, slices = powsum.shape
    order = in_turn(rows, slices, open_rows)
    fields = {name: values.reshape(rows * slices, *values.shape[2:]) for name, values in words.items()}
    fields |= {
        "row": np.repeat(np.arange(rows) % open_rows, slices),
        "last": places(rows, slices)["last"],
    }
    return {
        "unnormed": {name: values[order] for name, values in fields.items()},
        "sums": {"powsum": powsum[:, -1], "row": np.arange(rows) % open_rows},
    }


def normalization_streams(spec: SoftermaxSpec, raw: IntArray, mask: BoolArray, rows: int = 1) -> Streams:
    """`Normalization`: finished rows and their slices in, row after row, of unnormed words or, with row products, of
    scores (`ProductNormalization`); probabilities out."""
    out = golden.softermax(raw, spec, mask, trace=True)
    trace = _trace(out)
    row_products = spec.normalization == "row-products"
    return {
        "finished": finished(trace, rows),
        "slices": slices_of(spec, raw, mask, 1) if row_products else numerators(trace),
        "probabilities": probabilities(out, rows),
    }


def finished(trace: Trace, rows: int = 1) -> Fields:
    """Max and PowSum of each row."""
    ids = np.arange(len(trace.powsum)) % rows
    return {"max": trace.running_max[:, -1], "powsum": trace.powsum[:, -1], "row": ids}


def numerators(trace: Trace) -> Fields:
    """Unnormed words with the max that they refer to, row after row."""
    count, slices = trace.running_max.shape
    return {
        "u": trace.unnormed.reshape(count * slices, -1),
        "max": trace.running_max.reshape(-1),
        "last": places(count, slices)["last"],
    }


def probabilities(out: Output, rows: int = 1) -> Fields:
    """Output words, row after row, with their row's exponent."""
    words = cut(out.words, check_buildable(out.spec))
    count = len(out.words)
    slices = len(words) // max(count, 1)
    return {
        "y": words,
        "last": places(count, slices)["last"],
        "row": np.repeat(np.arange(count) % rows, slices),
        "exponent": np.repeat(out.exponent, slices),
    }


def tail_streams(spec: DeferredSpec, raw: IntArray, mask: BoolArray, values: IntArray) -> Streams:
    """`DeferredTail`: unnormed slices and the values of every lane in (rows, lanes of all slices, columns), outputs out."""
    trace = _trace(golden.softermax(raw, spec.scores, mask, trace=True))
    return deferred_fields(trace, values) | {
        "outputs": deferred_outputs(spec, raw, mask, values[:, : raw.shape[1]])
    }


def deferred_fields(trace: Trace, values: IntArray) -> Streams:
    """What goes into the attention tail: golden's unnormed slices, row after row, with the values of every
    lane (rows, lanes of all slices, columns)."""
    count, slices = trace.running_max.shape
    return {"slices": numerators(trace) | {"v": values.reshape(count * slices, -1)}}


def deferred_outputs(spec: DeferredSpec, raw: IntArray, mask: BoolArray, values: IntArray) -> Fields:
    """What must come out of it: a row is a batch of its own here, for it has values of its own."""
    out = golden.deferred(raw[:, None], spec, mask[:, None], trace=True)
    assert out.trace is not None
    a = golden_attention.accumulate(out.trace, values.astype(np.float64))[:, 0]
    leading_one, reciprocal = out.leading_one[:, 0], out.reciprocal[:, 0]
    return {"o": a * reciprocal[:, None], "exponent": leading_one + spec.reciprocal.fraction}


def _trace(out: Output) -> Trace:
    assert out.trace is not None
    return out.trace
