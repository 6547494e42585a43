"""Attention in one kernel: scores never reach memory. Queries in blocks, keys swept in blocks of whole slices.

Deferred normalisation (A8) is the natural form: one sweep, the accumulators shifted as the max grows, one division per
output. The paper's output words need the row's sum before the first of them: two sweeps, the first for the sum alone. A slice
wider than a block is swept once more, for its max.

Operands are int8, with the golden model's bits; or floats, whose products of Q and K are rounded to words where the
operator on rows would round them, and whose P·V adds exact words times values in single precision.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import triton
import triton.language as tl

from softermax.gpu.arithmetic import (
    hidden,
    input_words,
    int_max,
    no_sum,
    outputs,
    powers,
    powsum,
    reciprocal,
    running_max,
    scaled_weights,
    slice_sums,
    unnormed,
    values_of,
    weights,
)
from softermax.gpu.floats import MAGIC, MAGIC_BITS, two_to, word_of


class Operands(NamedTuple):
    """Q, K and V as (batch and head, length, size), dense, and which keys take part, as in `rows.Batch`.

    Where Q and K are bytes, V holds bytes as float16: words times them fit that, and need no packing.
    """

    q: Any
    k: Any
    v: Any
    masks: Any
    lengths: Any
    queries: int
    keys: int
    heads: int
    group: int
    """Query heads of a head of K and V."""
    stride0: int
    stride1: int
    stride2: int
    stride3: int
    offset: int
    """With causality, query i sees keys 0 to i + offset."""
    scale: float
    """What a product of Q and K is multiplied by to be a score; for int8, to be an input word."""
    input_scale: float
    """For floats: what a score is multiplied by to be an input word."""


class Block(NamedTuple):
    """The block of a program: queries; slices of keys, lanes of a slice, ``width`` of them keys; size of a head."""

    queries: int
    slices: int
    lanes: int
    width: int
    step: int
    """Keys per sweep's step: the block's slices, or one slice that is wider than a block."""
    size: int
    padded: int
    """The head's size as a power of two that a matrix product takes."""
    floats: bool
    mask: bool
    lengths: bool
    causal: bool
    once: bool = False
    """Scores are scaled to input words at once: the factor of the latter is a power of two, part of the operands' scale."""
    full: bool = False
    """Every lane of every block is a key, and all of them take part: nothing needs to be asked."""
    keeps: bool = False
    """Whether backward will need what it recomputes probabilities from."""


@triton.jit
def query_block(operands, at, b: tl.constexpr):
    """Queries ``at``, their head's entry of Q, and the operand itself."""
    head = tl.program_id(1).to(tl.int64)
    query = at * b.queries + tl.arange(0, b.queries)
    column = tl.arange(0, b.padded)
    inside = (query[:, None] < operands.queries) & (column[None, :] < b.size)
    offset = (head * operands.queries + query)[:, None] * b.size + column[None, :]
    return head, query, offset, inside


@triton.jit
def key_block(operands, head, base, span, b: tl.constexpr):
    """Keys of a block from ``base`` on, which of its lanes are keys, and where K and V hold them."""
    lane = tl.arange(0, b.slices * b.lanes)
    key = base + lane // b.lanes * b.width + lane % b.lanes
    real = (key < operands.keys) & (lane % b.lanes < span)
    column = tl.arange(0, b.padded)
    kv_head = (
        head // operands.heads * (operands.heads // operands.group) + head % operands.heads // operands.group
    )
    offset = (kv_head * operands.keys + key)[:, None] * b.size + column[None, :]
    return key, real, offset, real[:, None] & (column[None, :] < b.size)


@triton.jit
def kept(operands, head, query, key, real, b: tl.constexpr):
    """Which keys take part for which queries."""
    keep = (query[:, None] < operands.queries) & real[None, :]
    if b.lengths:
        keep = keep & (key < tl.load(operands.lengths + head // operands.heads))[None, :]
    if b.causal:
        keep = keep & (key[None, :] <= query[:, None] + operands.offset)
    if b.mask:
        at = head // operands.heads * operands.stride0 + head % operands.heads * operands.stride1
        at = at + query[:, None] * operands.stride2 + key[None, :] * operands.stride3
        keep = keep & (tl.load(operands.masks + at, mask=keep, other=0) != 0)
    return keep


@triton.jit
def scaled_scores(operands, q, k, b: tl.constexpr):
    """Products of Q and K, in units of the input word."""
    if b.floats:
        scaled = tl.dot(q, tl.trans(k), input_precision="ieee") * operands.scale
        if not b.once:
            scaled = scaled * operands.input_scale
    else:
        # Sums of up to 2^22 are added to the bits of a float whose low bits they become: none is converted.
        begin = tl.full([q.shape[0], k.shape[0]], MAGIC_BITS, tl.int32)
        scaled = (tl.dot(q, tl.trans(k), begin).to(tl.float32, bitcast=True) - MAGIC) * operands.scale
    return scaled


@triton.jit
def _words(operands, head, query, q, base, span, p: tl.constexpr, b: tl.constexpr):
    """A block of input words, (queries, slices, lanes), and per query what spoils it: NaN if a score is no number."""
    key, real, offset, inside = key_block(operands, head, base, span, b)
    k = tl.load(operands.k + offset, mask=inside, other=0)
    scaled = scaled_scores(operands, q, k, b)
    word = input_words(scaled, 0, p)
    spoiled = tl.zeros([b.queries], tl.float32)
    if b.full:
        if b.floats:
            spoiled = tl.sum(scaled - scaled, 1)
    else:
        keep = kept(operands, head, query, key, real, b)
        word = hidden(word, keep, p)
        if b.floats:
            spoiled = tl.sum(tl.where(keep, scaled - scaled, 0.0), 1)
    return tl.reshape(word, [b.queries, b.slices, b.lanes]), spoiled


@triton.jit
def _values(operands, head, base, span, b: tl.constexpr):
    _, _, offset, inside = key_block(operands, head, base, span, b)
    return tl.load(operands.v + offset, mask=inside, other=0)


@triton.jit
def _weighed(flat, v):
    """Words of at most 8 bits, (queries, keys), times values. Bytes are floats here: of up to 128 keys their sum is less than
    2^22, hence exact, and `word_of` takes it."""
    return tl.dot(flat.to(v.dtype), v, input_precision="ieee")


@triton.jit
def _flat(words, b: tl.constexpr):
    return tl.reshape(words, [b.queries, b.slices * b.lanes])


@triton.jit
def _output_values(y, p: tl.constexpr, b: tl.constexpr):
    """Output words as floats, (queries, keys)."""
    one = tl.full([b.queries], 1.0, tl.float32)
    return _flat(values_of(y, one, one - one, p), b)


@triton.jit
def _renormed(acc, grown, b: tl.constexpr):
    """A8: accumulators after the max has grown; integers half up, floats exactly."""
    if b.floats:
        acc = acc * two_to(-tl.minimum(grown, 126))[:, None]
    else:
        # One bit is left to round by; half a unit is not added before the shift, for it might overflow.
        once = tl.minimum(grown, 1)[:, None]
        acc = ((acc >> tl.minimum(tl.maximum(grown - 1, 0), 31)[:, None]) + once) >> once
    return acc


@triton.jit
def _accumulated(acc, words, running, before, v, real, p: tl.constexpr, b: tl.constexpr):
    """A8: accumulators after a block of slices. Where the max grows within it, slices are added one by one."""
    last = tl.max(running, 1)
    grown = (last[:, None] - running)[:, :, None]
    if b.floats:
        acc = _renormed(acc, last - before, b) + _weighed(_flat(scaled_weights(words, grown, p), b), v)
    else:
        w = scaled_weights(words, tl.zeros_like(grown), p)
        if tl.max(last - before, 0) == 0:
            # Nothing has grown: then the accumulators stay as they are.
            acc += word_of(_weighed(_flat(w, b), v) + MAGIC)
        else:
            order = tl.arange(0, b.slices)[None, :]
            for s in range(tl.minimum(real, b.slices)):
                here = tl.max(tl.where(order == s, running, p.max_low), 1)
                acc = _renormed(acc, here - before, b)
                some = tl.where(order[:, :, None] == s, w, 0.0)
                acc += word_of(_weighed(_flat(some, b), v) + MAGIC)
                before = here
    return acc


@triton.jit
def _widest(operands, head, query, q, start, end, last, p: tl.constexpr, b: tl.constexpr):
    """The running max after a slice that is wider than a block."""
    for base in range(start, end, b.lanes):
        words, _ = _words(operands, head, query, q, base, end - base, p, b)
        last = tl.max(running_max(int_max(words, p), last), 1)
    return last


@triton.jit
def _keep_maxima(maxima, operands, head, query, start, running, b: tl.constexpr):
    """For backward: the running max of each slice, a byte."""
    width: tl.constexpr = b.step if b.step > b.slices * b.width else b.width
    count = (operands.keys + width - 1) // width
    at = start // width + tl.arange(0, running.shape[1])[None, :]
    row = (head * operands.queries + query)[:, None]
    inside = (query[:, None] < operands.queries) & (at < count)
    tl.store(maxima + row * count + at, running.to(tl.int8), mask=inside)


@triton.jit
def forward_kernel(operands, out, value_scale, state, maxima, tables, p: tl.constexpr, b: tl.constexpr):
    """Attention of a block of queries."""
    head, query, offset, inside = query_block(operands, tl.program_id(0), b)
    q = tl.load(operands.q + offset, mask=inside, other=0)
    end_of_keys = operands.keys
    if b.causal:  # keys past the last query of the block: masked slices change nothing
        end_of_keys = tl.minimum(end_of_keys, (tl.program_id(0) + 1) * b.queries + operands.offset)
    wide: tl.constexpr = b.step > b.slices * b.width
    last = tl.full([b.queries], p.max_low, tl.int32)
    d = no_sum(b.queries, p)
    acc = tl.zeros([b.queries, b.padded], tl.float32 if b.floats else tl.int32)
    spoiled = tl.zeros([b.queries], tl.float32)
    for start in range(0, end_of_keys, b.step):
        before = last
        if wide:
            end = tl.minimum(start + b.step, operands.keys)
            last = _widest(operands, head, query, q, start, end, last, p, b)
            total = tl.zeros([b.queries, 1], tl.int64)
            if p.deferred:
                acc = _renormed(acc, last - before, b)
                if b.keeps:
                    _keep_maxima(maxima, operands, head, query, start, last[:, None], b)
            for base in range(start, end, b.lanes):
                words, bad = _words(operands, head, query, q, base, end - base, p, b)
                spoiled += bad
                power = powers(words, tables, p)
                if p.deferred:
                    parts = weights(power, words, last[:, None, None], p)
                    grown = tl.zeros([b.queries, 1, 1], tl.int32)
                    w = _flat(scaled_weights(parts, grown, p), b)
                    product = _weighed(w, _values(operands, head, base, end - base, b))
                    acc += product if b.floats else word_of(product + MAGIC)
                else:
                    parts = unnormed(power, words, last[:, None, None], p)
                total += slice_sums(parts, p).to(tl.int64)
            d, last = powsum(total, last[:, None], d, before, 1, 1 << 30, p)
        else:
            words, bad = _words(operands, head, query, q, start, b.width, p, b)
            spoiled += bad
            running = running_max(int_max(words, p), last)
            power = powers(words, tables, p)
            real = (operands.keys - start + b.width - 1) // b.width
            if p.deferred:
                parts = weights(power, words, running[:, :, None], p)
                acc = _accumulated(
                    acc, parts, running, before, _values(operands, head, start, b.width, b), real, p, b
                )
                if b.keeps:
                    _keep_maxima(maxima, operands, head, query, start, running, b)
            else:
                parts = unnormed(power, words, running[:, :, None], p)
            d, last = powsum(slice_sums(parts, p), running, d, last, real, 1 << 30, p)
    leading_one, recip = reciprocal(d, tables, p)
    if not p.deferred:
        seen = tl.full([b.queries], p.max_low, tl.int32)
        product = tl.zeros([b.queries, b.padded], tl.float32)
        for start in range(0, end_of_keys, b.step):
            end = tl.minimum(start + b.step, operands.keys)
            if wide:
                if p.unnormed_rounding != "truncate" and not p.row_products:
                    seen = _widest(operands, head, query, q, start, end, seen, p, b)
                for base in range(start, end, b.lanes):
                    words, _ = _words(operands, head, query, q, base, end - base, p, b)
                    power = powers(words, tables, p)
                    y = outputs(power, words, seen[:, None], last, leading_one, recip, tables, p)
                    v = _values(operands, head, base, end - base, b)
                    product = tl.dot(_output_values(y, p, b).to(v.dtype), v, product, input_precision="ieee")
                    if not b.floats and (base - start) % (2 * b.lanes) == b.lanes:
                        acc += word_of(product + MAGIC)
                        product = tl.zeros_like(product)
                if not b.floats:
                    acc += word_of(product + MAGIC)
                    product = tl.zeros_like(product)
            else:
                words, _ = _words(operands, head, query, q, start, b.width, p, b)
                running = running_max(int_max(words, p), seen)
                seen = tl.max(running, 1)
                y = outputs(powers(words, tables, p), words, running, last, leading_one, recip, tables, p)
                v = _values(operands, head, start, b.width, b)
                product = tl.dot(_output_values(y, p, b).to(v.dtype), v, product, input_precision="ieee")
                if not b.floats and start % (2 * b.step) == b.step:
                    acc += word_of(product + MAGIC)
                    product = tl.zeros_like(product)
        acc += product if b.floats else word_of(product + MAGIC)
    shift = tl.zeros_like(leading_one) + p.output_fraction
    if p.deferred:
        shift = leading_one + p.recip_fraction
    elif not p.fixed:
        shift = shift + (leading_one - p.powsum_fraction)
    if b.floats:
        value = acc * two_to(-shift)[:, None]
        if p.deferred:
            value = value * recip.to(tl.float32)[:, None]
        value = value + spoiled[:, None]
        tl.store(out + offset, value.to(out.dtype.element_ty), mask=inside)
        if b.keeps:
            at = (head * operands.queries + query) * 3
            tl.store(state + at, last, mask=query < operands.queries)
            tl.store(state + at + 1, leading_one, mask=query < operands.queries)
            tl.store(state + at + 2, recip.to(tl.int32), mask=query < operands.queries)
    else:
        # In double precision, as the golden model: the widest accumulators times the widest reciprocal have 47 bits.
        factor = tl.load(value_scale) * ((1023 - shift.to(tl.int64)) << 52).to(tl.float64, bitcast=True)
        value = acc.to(tl.float64)
        if p.deferred:
            value = value * recip.to(tl.float64)[:, None]
        tl.store(out + offset, (value * factor[:, None]).to(tl.float32), mask=inside)
