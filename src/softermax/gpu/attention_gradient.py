"""The gradient of attention: probabilities are computed again, from what forward kept of each row.

That is the row's last max, leading one and reciprocal, and with deferred normalisation a byte per slice. Two kernels, as in
flash attention: one sweeps the keys of a block of queries, the other the queries of a block of keys.
"""

from __future__ import annotations

import triton
import triton.language as tl

from softermax.gpu.arithmetic import (
    hidden,
    input_words,
    outputs,
    powers,
    saturated,
    scaled_weights,
    values_of,
    weights,
    within,
)
from softermax.gpu.attention import kept, key_block, query_block, scaled_scores
from softermax.gpu.floats import two_to


@triton.jit
def _probabilities(
    operands, head, query, key, real, q, k, state, maxima, tables, p: tl.constexpr, b: tl.constexpr
):
    """Of a block, in single precision, and where they pass a gradient: not where a score saturated."""
    word = input_words(scaled_scores(operands, q, k, b), 1, p)
    keep = kept(operands, head, query, key, real, b)
    passes = keep & (saturated(word, p) == 0)
    words = tl.reshape(hidden(within(word, p), keep, p), [b.queries, 1, b.slices * b.lanes])
    row = head * operands.queries + query
    there = query < operands.queries
    last = tl.load(state + row * 3, mask=there, other=0)
    leading_one = tl.load(state + row * 3 + 1, mask=there, other=0)
    recip = tl.load(state + row * 3 + 2, mask=there, other=0)
    power = powers(words, tables, p)
    if p.deferred:
        count = (operands.keys + b.width - 1) // b.width
        # Offsets of 32 bits from the head's first row: 64 bits per score would not fit the registers.
        at = query[:, None] * count + (key // b.width)[None, :]
        running = tl.load(
            maxima + head * operands.queries * count + at, mask=there[:, None] & real[None, :], other=0
        )
        running = running.to(tl.int32)
        running = tl.reshape(running, [b.queries, 1, b.slices * b.lanes])
        scale = recip.to(tl.float32) * two_to(-(leading_one + p.recip_fraction))
        w = weights(power, words, running, p)
        y = scaled_weights(w, last[:, None, None] - running, p) * scale[:, None, None]
    else:
        shift = tl.zeros_like(leading_one) + p.output_fraction
        if not p.fixed:
            shift = shift + (leading_one - p.powsum_fraction)
        word = outputs(power, words, last[:, None], last, leading_one, recip.to(tl.int64), tables, p)
        y = values_of(word, two_to(-shift), tl.zeros([b.queries], tl.float32), p)
    y = tl.reshape(y, [b.queries, b.slices * b.lanes])
    return tl.where(keep, y, 0.0), passes


@triton.jit
def queries_kernel(
    operands, grads, deltas, state, maxima, tables, out, factor, p: tl.constexpr, b: tl.constexpr
):
    """The gradient of a block of queries."""
    head, query, offset, inside = query_block(operands, tl.program_id(0), b)
    q = tl.load(operands.q + offset, mask=inside, other=0.0)
    grad = tl.load(grads + offset, mask=inside, other=0.0)
    delta = tl.load(deltas + head * operands.queries + query, mask=query < operands.queries, other=0.0)
    end = operands.keys
    if b.causal:
        end = tl.minimum(end, (tl.program_id(0) + 1) * b.queries + operands.offset)
    acc = tl.zeros([b.queries, b.padded], tl.float32)
    for base in range(0, end, b.step):
        key, real, at, there = key_block(operands, head, base, b.lanes, b)
        k = tl.load(operands.k + at, mask=there, other=0.0)
        v = tl.load(operands.v + at, mask=there, other=0.0)
        y, passes = _probabilities(operands, head, query, key, real, q, k, state, maxima, tables, p, b)
        dp = tl.dot(grad, tl.trans(v), input_precision="ieee")
        ds = tl.where(passes, y * (dp - delta[:, None]), 0.0) * factor
        acc += tl.dot(ds.to(k.dtype), k, input_precision="ieee")
    tl.store(out + offset, acc.to(out.dtype.element_ty), mask=inside)


@triton.jit
def keys_kernel(
    operands, grads, deltas, state, maxima, tables, out_k, out_v, factor, p: tl.constexpr, b: tl.constexpr
):
    """The gradients of a block of keys and of their values."""
    head = tl.program_id(1).to(tl.int64)
    start = tl.program_id(0) * b.step
    key, real, at, there = key_block(operands, head, start, b.lanes, b)
    k = tl.load(operands.k + at, mask=there, other=0.0)
    v = tl.load(operands.v + at, mask=there, other=0.0)
    dk = tl.zeros([b.slices * b.lanes, b.padded], tl.float32)
    dv = tl.zeros([b.slices * b.lanes, b.padded], tl.float32)
    first = 0
    if b.causal:  # blocks of queries that see none of these keys
        first = tl.maximum(start - operands.offset, 0) // b.queries
    for block in range(first, (operands.queries + b.queries - 1) // b.queries):
        _, query, offset, inside = query_block(operands, block, b)
        q = tl.load(operands.q + offset, mask=inside, other=0.0)
        grad = tl.load(grads + offset, mask=inside, other=0.0)
        delta = tl.load(deltas + head * operands.queries + query, mask=query < operands.queries, other=0.0)
        y, passes = _probabilities(operands, head, query, key, real, q, k, state, maxima, tables, p, b)
        dv += tl.dot(tl.trans(y.to(grad.dtype)), grad, input_precision="ieee")
        dp = tl.dot(grad, tl.trans(v), input_precision="ieee")
        ds = tl.where(passes, y * (dp - delta[:, None]), 0.0) * factor
        dk += tl.dot(tl.trans(ds.to(q.dtype)), q, input_precision="ieee")
    tl.store(out_k + at, dk.to(out_k.dtype.element_ty), mask=there)
    tl.store(out_v + at, dv.to(out_v.dtype.element_ty), mask=there)
