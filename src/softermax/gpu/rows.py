"""Rows: float scores to probabilities, int8 words to uint8 words, and the gradient from what training keeps.

One program takes a few rows. A row of up to `RESIDENT` elements is read once and stays in registers; a longer one is swept
twice, in blocks of whole slices; a slice wider than a block is swept once more, for its max. A block has the shape (rows,
slices, lanes), lanes a power of two: for other widths the last lanes of a slice are masked.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import triton
import triton.language as tl

from softermax.gpu.arithmetic import (
    hidden,
    input_words,
    int_max,
    integers_of,
    marked_words,
    no_sum,
    outputs,
    powers,
    powsum,
    reciprocal,
    running_max,
    saturated,
    slice_sums,
    unnormed,
    values_of,
)
from softermax.gpu.floats import near_of, two_to


class Batch(NamedTuple):
    """Rows of scores, one after another, and which elements take part. What is not there is a pointer never read.

    A row's mask starts at ``stride0`` times its batch entry, ``stride1`` times its head and ``stride2`` times its row
    within the head; its columns are ``stride3`` apart.
    """

    scores: Any
    masks: Any
    lengths: Any
    rows: int
    columns: int
    per_batch: int
    """Rows of a batch entry."""
    per_head: int
    stride0: int
    stride1: int
    stride2: int
    stride3: int
    offset: int
    """With causality, row i of a head sees columns 0 to i + offset."""
    scale: float


class Has(NamedTuple):
    """What a kernel is given and gives, known when it is compiled."""

    floats: bool = True
    """Scores are floats and probabilities are wanted; else int8 words, and words alone."""
    mask: bool = False
    lengths: bool = False
    causal: bool = False
    words: bool = False
    marks: bool = False
    exponents: bool = False


class Tile(NamedTuple):
    """The block of a program: rows, slices of a row, lanes of a slice, of which ``width`` are elements."""

    rows: int
    slices: int
    lanes: int
    width: int
    step: int
    """Elements of a row per sweep's step: the block's slices, or one slice that is wider than a block."""
    resident: bool
    """The block holds whole rows."""
    full: bool = False
    """And nothing beside them: no lane needs to be asked whether it is one of a row's."""
    rest: int = 0
    """Slices of a second block, after the first, where both have fewer lanes than one would have."""


@triton.jit
def _kept(batch, row, column, inside, has: tl.constexpr):
    """Which elements take part: inside the row, and as mask, lengths and causality say."""
    keep = inside
    if has.lengths:
        keep = keep & (column < tl.load(batch.lengths + row, mask=row < batch.rows, other=0))
    if has.causal:
        keep = keep & (column <= row % batch.per_head + batch.offset)
    if has.mask:
        at = row // batch.per_batch * batch.stride0 + row % batch.per_batch // batch.per_head * batch.stride1
        at = at + row % batch.per_head * batch.stride2 + column * batch.stride3
        keep = keep & (tl.load(batch.masks + at, mask=keep, other=0) != 0)
    return keep


@triton.jit
def _load(batch, row, column, keep, p: tl.constexpr, has: tl.constexpr):
    """Input words; what spoils them: NaN for NaN and infinity, else 0; and where marks are kept, what saturates: else 0."""
    if has.floats:
        x = tl.load(batch.scores + row * batch.columns + column, mask=keep, other=0.0).to(tl.float32)
        spoiled = x - x
        beyond = spoiled
        if has.marks:
            word, beyond = marked_words(x * batch.scale, p)
        else:
            word = input_words(x * batch.scale, 0, p)
    else:
        word = tl.load(batch.scores + row * batch.columns + column, mask=keep, other=0).to(tl.int32)
        if p.near:
            word = near_of(word)
        spoiled = word
        beyond = word
    return word, spoiled, beyond


@triton.jit
def _place(row, base, span, batch, slices: tl.constexpr, tile: tl.constexpr):
    """Columns of a block from column ``base`` on, and which of them there are; a slice has ``span`` elements here."""
    lane = tl.arange(0, tile.lanes)[None, None, :]
    column = base + tl.arange(0, slices)[None, :, None] * tile.width + lane
    if not tile.full:
        inside = (row < batch.rows) & (column < batch.columns) & (lane < span)
    elif tile.rows > 1:
        inside = row < batch.rows
    else:  # a program per row
        inside = tl.full([1, 1, 1], 1, tl.int1)
    return column, inside


@triton.jit
def _words(
    batch, row, base, span, slices: tl.constexpr, p: tl.constexpr, has: tl.constexpr, tile: tl.constexpr
):
    """A block of input words, and per row what spoils it and what saturates."""
    column, inside = _place(row, base, span, batch, slices, tile)
    keep = _kept(batch, row, column, inside, has)
    word, spoiled, beyond = _load(batch, row, column, keep, p, has)
    if has.mask or has.lengths or has.causal or not tile.full:
        word = hidden(word, keep, p)
    bad = tl.zeros([tile.rows], tl.float32)
    excess = bad
    if has.floats:
        bad = tl.sum(tl.sum(spoiled, 2), 1)
        if has.marks:
            excess = tl.sum(tl.sum(beyond, 2), 1)
    return word, bad, excess


@triton.jit
def _widest(batch, row, start, end, last, p: tl.constexpr, has: tl.constexpr, tile: tl.constexpr):
    """The running max after a slice that is wider than a block."""
    for base in range(start, end, tile.lanes):
        words, _, _ = _words(batch, row, base, end - base, tile.slices, p, has, tile)
        last = tl.max(running_max(int_max(words, p), last), 1)
    return last


@triton.jit
def _emit(
    batch, row, base, span, power, words, running, last, leading_one, recip, spoiled, out, kept, tables,
    slices: tl.constexpr, p: tl.constexpr, has: tl.constexpr, tile: tl.constexpr,
):  # fmt: skip
    """Output words of a block, as probabilities, as words, or both."""
    column, inside = _place(row, base, span, batch, slices, tile)
    word = outputs(power, words, running, last, leading_one, recip, tables, p)
    if has.words:
        tl.store(
            kept + row * batch.columns + column, integers_of(word, p).to(kept.dtype.element_ty), mask=inside
        )
    if has.floats:
        exponent = tl.zeros_like(leading_one) - p.output_fraction
        if not p.fixed:
            exponent = exponent - (leading_one - p.powsum_fraction)
        y = values_of(word, two_to(exponent), spoiled, p)
        tl.store(out + row * batch.columns + column, y.to(out.dtype.element_ty), mask=inside)


@triton.jit
def _mark(batch, some, marks, p: tl.constexpr, has: tl.constexpr, tile: tl.constexpr):
    """Per row a byte, whether any score saturated, and then a bit per score: what backward must not pass.

    Where any score of the program's rows saturates, they are read again, from the cache: bytes of marks do not end where
    slices of any width do.
    """
    row = some[:, None, None]
    size = 1 + (batch.columns + 7) // 8
    found = tl.zeros([tile.rows], tl.int32)
    bytes_of: tl.constexpr = max(1, tile.slices * tile.lanes // 8)
    byte = tl.arange(0, bytes_of)[None, :]
    bit = tl.arange(0, 8)[None, None, :]
    for base in range(0, batch.columns, bytes_of * 8):
        column = base + tl.arange(0, bytes_of)[None, :, None] * 8 + bit
        keep = _kept(batch, row, column, (row < batch.rows) & (column < batch.columns), has)
        x = tl.load(batch.scores + row * batch.columns + column, mask=keep, other=0.0).to(tl.float32)
        out = saturated(input_words(x * batch.scale, 1, p), p)
        bits = tl.sum((keep & out).to(tl.int32) << bit, 2)
        found = tl.maximum(found, tl.max(bits, 1))
        at = base // 8 + byte
        inside = (some[:, None] < batch.rows) & (at < size - 1)
        tl.store(marks + some[:, None] * size + 1 + at, bits.to(tl.uint8), mask=inside)
    tl.store(marks + some * size, (found > 0).to(tl.uint8), mask=some < batch.rows)


@triton.jit
def _mark_none(batch, some, marks, tile: tl.constexpr):
    """The marks of rows in which no score saturates."""
    size = 1 + (batch.columns + 7) // 8
    span: tl.constexpr = max(1, tile.slices * tile.lanes // 8)
    for base in range(0, size, span):
        at = base + tl.arange(0, span)[None, :]
        zeros = tl.zeros([tile.rows, span], tl.uint8)
        tl.store(marks + some[:, None] * size + at, zeros, mask=(some[:, None] < batch.rows) & (at < size))


@triton.jit
def forward_kernel(
    batch, out, kept, marks, exponents, tables, p: tl.constexpr, has: tl.constexpr, tile: tl.constexpr
):
    """Rows of scores to probabilities or words."""
    some = tl.program_id(0).to(tl.int64) * tile.rows + tl.arange(0, tile.rows)
    row = some[:, None, None]
    last = tl.full([tile.rows], p.max_low, tl.int32)
    d = no_sum(tile.rows, p)
    wide: tl.constexpr = tile.step > tile.slices * tile.width
    lanes: tl.constexpr = (tile.slices + tile.rest) * tile.lanes if tile.resident else 1 << 30
    if tile.resident:
        words, spoiled, excess = _words(batch, row, 0, tile.width, tile.slices, p, has, tile)
        running = running_max(int_max(words, p), last)
        power = powers(words, tables, p)
        real = (batch.columns + tile.width - 1) // tile.width
        parts = unnormed(power, words, running[:, :, None], p)
        d, last = powsum(slice_sums(parts, p), running, d, last, real, lanes, p)
        if tile.rest > 0:
            base: tl.constexpr = tile.slices * tile.width
            more, bad, beyond = _words(batch, row, base, tile.width, tile.rest, p, has, tile)
            spoiled += bad
            excess += beyond
            running_more = running_max(int_max(more, p), last)
            power_more = powers(more, tables, p)
            parts = unnormed(power_more, more, running_more[:, :, None], p)
            d, last = powsum(slice_sums(parts, p), running_more, d, last, real - tile.slices, lanes, p)
        leading_one, recip = reciprocal(d, tables, p)
        _emit(
            batch, row, 0, tile.width, power, words, running, last, leading_one, recip, spoiled, out, kept, tables,
            tile.slices, p, has, tile,
        )  # fmt: skip
        if tile.rest > 0:
            _emit(
                batch, row, base, tile.width, power_more, more, running_more, last, leading_one, recip, spoiled, out,
                kept, tables, tile.rest, p, has, tile,
            )  # fmt: skip
    else:
        spoiled = tl.zeros([tile.rows], tl.float32)
        excess = tl.zeros([tile.rows], tl.float32)
        for start in range(0, batch.columns, tile.step):
            if wide:
                end = tl.minimum(start + tile.step, batch.columns)
                before = last
                last = _widest(batch, row, start, end, last, p, has, tile)
                total = tl.zeros([tile.rows, 1], tl.int64)
                for base in range(start, end, tile.lanes):
                    words, bad, beyond = _words(batch, row, base, end - base, tile.slices, p, has, tile)
                    power = powers(words, tables, p)
                    total += slice_sums(unnormed(power, words, last[:, None, None], p), p).to(tl.int64)
                    spoiled += bad
                    excess += beyond
                d, last = powsum(total, last[:, None], d, before, 1, lanes, p)
            else:
                words, bad, beyond = _words(batch, row, start, tile.width, tile.slices, p, has, tile)
                running = running_max(int_max(words, p), last)
                parts = unnormed(powers(words, tables, p), words, running[:, :, None], p)
                real = (batch.columns - start + tile.width - 1) // tile.width
                d, last = powsum(slice_sums(parts, p), running, d, last, real, lanes, p)
                spoiled += bad
                excess += beyond
        leading_one, recip = reciprocal(d, tables, p)
        seen = tl.full([tile.rows], p.max_low, tl.int32)
        for start in range(0, batch.columns, tile.step):
            if wide:
                end = tl.minimum(start + tile.step, batch.columns)
                if p.unnormed_rounding != "truncate" and not p.row_products:
                    seen = _widest(batch, row, start, end, seen, p, has, tile)
                for base in range(start, end, tile.lanes):
                    words, _, _ = _words(batch, row, base, end - base, tile.slices, p, has, tile)
                    _emit(
                        batch, row, base, end - base, powers(words, tables, p), words, seen[:, None], last,
                        leading_one, recip, spoiled, out, kept, tables, tile.slices, p, has, tile,
                    )  # fmt: skip
            else:
                words, _, _ = _words(batch, row, start, tile.width, tile.slices, p, has, tile)
                running = running_max(int_max(words, p), seen)
                seen = tl.max(running, 1)
                _emit(
                    batch, row, start, tile.width, powers(words, tables, p), words, running, last, leading_one, recip,
                    spoiled, out, kept, tables, tile.slices, p, has, tile,
                )  # fmt: skip
    if has.exponents:
        exponent = leading_one - p.powsum_fraction
        if p.fixed:
            exponent = exponent * 0
        tl.store(exponents + some, exponent, mask=some < batch.rows)
    if has.marks:
        if tl.min((excess == 0.0).to(tl.int32), 0) == 1:
            _mark_none(batch, some, marks, tile)
        else:
            _mark(batch, some, marks, p, has, tile)


@triton.jit
def backward_kernel(
    grads,
    words,
    marks,
    exponents,
    out,
    rows,
    columns,
    factor,
    lsb,
    row_scaled: tl.constexpr,
    tile: tl.constexpr,
):
    """dL/dx = factor * y * (g - sum g*y), and nothing where a score saturated."""
    some = tl.program_id(0).to(tl.int64) * tile.rows + tl.arange(0, tile.rows)
    row = some[:, None]
    scale = tl.full([tile.rows], 1.0, tl.float32) * lsb
    if row_scaled:
        scale = scale * two_to(-tl.load(exponents + some, mask=some < rows, other=0))
    size = 1 + (columns + 7) // 8
    marked = tl.max(tl.load(marks + some * size, mask=some < rows, other=0).to(tl.int32), 0) > 0
    dot = tl.zeros([tile.rows], tl.float32)
    lane = tl.arange(0, tile.lanes)[None, :]
    if tile.resident:
        inside = (row < rows) & (lane < columns)
        g = tl.load(grads + row * columns + lane, mask=inside, other=0.0).to(tl.float32)
        y = tl.load(words + row * columns + lane, mask=inside, other=0).to(tl.float32)
        dot = tl.sum(g * y, 1) * scale
        dx = y * (factor * scale)[:, None] * (g - dot[:, None])
        if marked:
            bits = tl.load(marks + row * size + 1 + lane // 8, mask=inside, other=0).to(tl.int32)
            dx = tl.where(((bits >> (lane % 8)) & 1) == 1, 0.0, dx)
        tl.store(out + row * columns + lane, dx.to(out.dtype.element_ty), mask=inside)
    else:
        for base in range(0, columns, tile.lanes):
            inside = (row < rows) & (base + lane < columns)
            g = tl.load(grads + row * columns + base + lane, mask=inside, other=0.0).to(tl.float32)
            y = tl.load(words + row * columns + base + lane, mask=inside, other=0).to(tl.float32)
            dot += tl.sum(g * y, 1)
        dot = dot * scale
        for base in range(0, columns, tile.lanes):
            inside = (row < rows) & (base + lane < columns)
            g = tl.load(grads + row * columns + base + lane, mask=inside, other=0.0).to(tl.float32)
            y = tl.load(words + row * columns + base + lane, mask=inside, other=0).to(tl.float32)
            dx = y * (factor * scale)[:, None] * (g - dot[:, None])
            if marked:
                bits = tl.load(marks + row * size + 1 + (base + lane) // 8, mask=inside, other=0).to(tl.int32)
                dx = tl.where(((bits >> ((base + lane) % 8)) & 1) == 1, 0.0, dx)
            tl.store(out + row * columns + base + lane, dx.to(out.dtype.element_ty), mask=inside)
