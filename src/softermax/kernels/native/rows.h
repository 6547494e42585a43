// Rows of int8 scores to uint8 words, once for all instruction sets.
//
// A policy V brings vectors of V::W bytes and the look-ups. The one idea that makes rows fast: with
// c = 4m + 3, every score has an index i = c - x >= 0, u is a table of 64 entries of i, and so is, whatever the
// slicing, what the output word is made of: the numerator of A5, since truncating shifts compose, or a shifted
// product of A10. The output word is then a table of the row. A masked element gets an index past the tables, where
// both are zero.
#pragma once

#include <cstring>

#include "isa.h"

namespace smx {
namespace {  // every instruction set has its own copy: one shared copy could use another set's instructions

constexpr int BLOCK = 128;         // elements of a step of the sliced sum
constexpr int LANES = 16;          // its granularity
constexpr int SLICES = BLOCK / LANES;

// 4m + 3 for the largest raw score of a slice. 31.75 has no ceiling in range: it takes 31 (A2).
inline int ceiling(int largest, bool ceil) {
    if (ceil) largest = largest + 3 > 127 ? 127 : largest + 3;
    return largest | 3;
}

// What does not take part of n elements, fewer than a vector has.
template <class V, bool Masked>
SMX_TARGET inline typename V::Bytes hidden_of_few(const uint8_t* keep, int64_t n) {
    alignas(64) uint8_t kept[V::W];
    V::store(kept, Masked ? V::load_first(keep, int(n)) : V::first(int(n)));
    return V::hidden(kept);
}

template <class V, bool Masked>
SMX_TARGET int largest(const int8_t* x, const uint8_t* keep, int64_t n) {
    if (n < V::W) return V::highest(V::sink(V::load_first(x, int(n)), hidden_of_few<V, Masked>(keep, n)));
    typename V::Bytes best = V::set1(-128);
    for (int64_t i = 0;; i += V::W) {
        if (i + V::W > n) i = n - V::W;  // the last vector overlaps: harmless to a maximum
        typename V::Bytes v = V::load(x + i);
        if (Masked) v = V::sink(v, V::hidden(keep + i));
        best = V::max(best, v);
        if (i + V::W >= n) break;
    }
    return V::highest(best);
}

// The largest raw score of a slice that leaves 4m + 3 where it is.
inline int highest_within(int c, bool ceil) { return ceil && c < 127 ? c - 3 : c; }

constexpr int64_t PIECE_OF_SUM = 1 << 24;  // elements whose sums surely fit a policy's 32-bit lanes

template <class V, bool Masked>
SMX_TARGET uint64_t sum_piece(const typename V::Sums& table, int c, const int8_t* x, const uint8_t* keep, int64_t n) {
    const typename V::Bytes top = V::set1(c);
    typename V::Total acc = V::none();
    if (n < V::W) {
        V::add(acc, table, V::join(V::sub(top, V::load_first(x, int(n))), hidden_of_few<V, Masked>(keep, n)));
        return V::total(acc);
    }
    int64_t i = 0;
    for (; i + V::W <= n; i += V::W) {
        typename V::Bytes step = V::sub(top, V::load(x + i));
        if (Masked) step = V::join(step, V::hidden(keep + i));
        V::add(acc, table, step);
    }
    if (i < n) {  // the last vector overlaps: what was counted is hidden
        const int64_t at = n - V::W;
        typename V::Bytes step = V::join(V::sub(top, V::load(x + at)), V::first(int(i - at)));
        if (Masked) step = V::join(step, V::hidden(keep + at));
        V::add(acc, table, step);
    }
    return V::total(acc);
}

template <class V, bool Masked>
SMX_TARGET uint64_t sum(const typename V::Sums& table, int c, const int8_t* x, const uint8_t* keep, int64_t n) {
    uint64_t total = 0;
    for (int64_t at = 0; at < n; at += PIECE_OF_SUM)
        total += sum_piece<V, Masked>(table, c, x + at, Masked ? keep + at : nullptr,
                                      n - at < PIECE_OF_SUM ? n - at : PIECE_OF_SUM);
    return total;
}

template <class V, bool Masked, bool Stream>
SMX_TARGET void write(const typename V::Words& table, int c, const int8_t* x,
                      const uint8_t* keep, int64_t n, uint8_t* y) {
    const typename V::Bytes top = V::set1(c);
    if (n < V::W) {
        alignas(64) uint8_t found[V::W];
        const typename V::Bytes step = V::sub(top, V::load_first(x, int(n)));
        V::store(found, V::look(table, V::join(step, hidden_of_few<V, Masked>(keep, n))));
        std::memcpy(y, found, size_t(n));
        return;
    }
    int64_t i = 0;
    for (; i + V::W <= n; i += V::W) {
        typename V::Bytes step = V::sub(top, V::load(x + i));
        if (Masked) step = V::join(step, V::hidden(keep + i));
        if (Stream) {
            V::stream(y + i, V::look(table, step));
        } else {
            V::store(y + i, V::look(table, step));
        }
    }
    if (i < n) {
        i = n - V::W;
        typename V::Bytes step = V::sub(top, V::load(x + i));
        if (Masked) step = V::join(step, V::hidden(keep + i));
        V::store(y + i, V::look(table, step));
    }
}

struct PowSum {
    uint64_t d;
    int c;  // 4m + 3 of the row's last running max
};

// A4 for one slice after another, of any width.
template <class V, bool Masked>
SMX_TARGET PowSum powsum_in_order(const typename V::Sums& table, const smx_spec& s, const int8_t* x,
                                  const uint8_t* keep, int64_t n, int64_t width) {
    PowSum p{0, ceiling(-128, s.max_ceil)};
    for (int64_t at = 0; at < n; at += width) {
        const int64_t count = n - at < width ? n - at : width;
        const uint8_t* kept = Masked ? keep + at : nullptr;
        int c = ceiling(largest<V, Masked>(x + at, kept, count), s.max_ceil);
        if (c < p.c) c = p.c;
        const uint64_t l = (sum<V, Masked>(table, c, x + at, kept, count) + s.sum_bias) >> s.sum_shift;
        p.d = (p.d >> ((c - p.c) >> 2)) + l;
        if (p.d > s.powsum_high) p.d = s.powsum_high;
        p.c = c;
    }
    return p;
}

// What V::block finds in a block: A4's terms of its slices, 4m + 3 for every 16 elements, and two sums of the terms.
struct Block {
    alignas(64) int8_t c[SLICES];
    alignas(64) uint32_t terms[SLICES];
    uint32_t together;  // at most 128·(2^16 - 1)
    uint32_t renormed;  // each term shifted left by what the max grew by since the first slice; up to MOST_GROWTH
};

// More of either would not surely fit 32 bits.
constexpr int MOST_GROWTH = 8;
constexpr int64_t MOST_FLAT = 1 << 13;

// V::block for policies whose vector is one slice of 16.
template <class V, bool Masked, int Width>
SMX_TARGET void block_in_order(const typename V::Sums& t, const smx_spec& s, const int8_t* x, const uint8_t* keep,
                               int& carry, Block& out) {
    int8_t* c = out.c;
    uint32_t* terms = out.terms;
    out.together = out.renormed = 0;
    for (int at = 0; at < BLOCK; at += Width) {
        const uint8_t* kept = Masked ? keep + at : nullptr;
        const int found = largest<V, Masked>(x + at, kept, Width);
        if (found > carry) carry = found;
        const int top = ceiling(carry, s.max_ceil);
        for (int i = 0; i < Width / LANES; i++) *c++ = int8_t(top);
        *terms = (uint32_t(sum_piece<V, Masked>(t, top, x + at, kept, Width)) + s.sum_bias) >> s.sum_shift;
        out.together += *terms;
        out.renormed += *terms++ << (((top - out.c[0]) >> 2) & 31);
    }
}

// V::flat for policies whose vector is one slice of 16.
template <class V, int Width>
SMX_TARGET int64_t flat_in_order(const typename V::Sums& t, const smx_spec& s, int c, const int8_t* x, int64_t n,
                                 uint64_t& d) {
    const int most = highest_within(c, s.max_ceil);
    int64_t at = 0;
    for (; at + BLOCK <= n && largest<V, false>(x + at, nullptr, BLOCK) <= most; at += BLOCK)
        for (int i = 0; i < BLOCK; i += Width)
            d += (sum_piece<V, false>(t, c, x + at + i, nullptr, Width) + s.sum_bias) >> s.sum_shift;
    return at;
}

// A4 for slices of 16 or 32. V::block takes 128 elements and carries the largest score on; V::flat takes the blocks
// before the next one in which the running max grows, and adds up their terms. Rows are fast because the max soon stays.
template <class V, bool Masked, int Width>
SMX_TARGET PowSum powsum_blocks(const typename V::Sums& table, const smx_spec& s, const int8_t* x,
                                const uint8_t* keep, int64_t n) {
    constexpr int STEP = Width / LANES;
    PowSum p{0, ceiling(-128, s.max_ceil)};
    int carry = -128;
    Block b;
    alignas(64) int8_t last[BLOCK];
    alignas(64) uint8_t last_keep[BLOCK];
    for (int64_t at = 0; at < n; at += BLOCK) {
        if (!Masked && at) {
            const int64_t most = n - at < MOST_FLAT ? n - at : MOST_FLAT;
            at += V::template flat<Width>(table, s, p.c, x + at, most, p.d);
            if (p.d > s.powsum_high) p.d = s.powsum_high;
            if (at == n) break;
        }
        if (at + BLOCK <= n) {
            V::template block<Masked, Width>(table, s, x + at, Masked ? keep + at : nullptr, carry, b);
        } else {
            for (int i = 0; i < BLOCK; i += V::W) {
                const int some = int(n - at) > i ? int(n - at) - i : 0;
                V::store(last + i, V::load_first(x + at + i, some));
                V::store(last_keep + i, Masked ? V::load_first(keep + at + i, some) : V::first(some));
            }
            V::template block<true, Width>(table, s, last, last_keep, carry, b);
        }
        const int now = ceiling(carry, s.max_ceil);  // b.c's last, without the way through memory
        // Truncating shifts compose: where nothing saturates, one shift of the exact sum does for all slices.
        const int first = b.c[0], growth = (now - first) >> 2;
        p.d >>= (first - p.c) >> 2;
        p.c = first;
        if (p.d + b.together <= s.powsum_high && growth <= MOST_GROWTH) {
            p.d = (p.d + b.renormed) >> growth;
            p.c = now;
            continue;
        }
        if (now == first) {
            p.d = p.d + b.together < s.powsum_high ? p.d + b.together : s.powsum_high;
            continue;
        }
        for (int i = 0; i < SLICES / STEP; i++) {
            p.d = (p.d >> ((b.c[i * STEP] - p.c) >> 2)) + b.terms[i];
            if (p.d > s.powsum_high) p.d = s.powsum_high;
            p.c = b.c[i * STEP];
        }
    }
    return p;
}

template <class V, bool Masked>
SMX_TARGET PowSum powsum(const typename V::Sums& table, const smx_spec& s, const int8_t* x, const uint8_t* keep,
                         int64_t n) {
    if constexpr (V::BLOCKS) {
        if (n <= s.slice_width) return powsum_in_order<V, Masked>(table, s, x, keep, n, n);
        if (s.slice_width == 16) return powsum_blocks<V, Masked, 16>(table, s, x, keep, n);
        if (s.slice_width == 32) return powsum_blocks<V, Masked, 32>(table, s, x, keep, n);
    }
    return powsum_in_order<V, Masked>(table, s, x, keep, n, s.slice_width ? s.slice_width : n);
}

// A10 for every index that a score can have: its fraction takes a product, its integer part shifts it.
SMX_TARGET inline void product_entries(const smx_spec& s, uint32_t r, int shift, uint8_t* entries) {
    const uint64_t half = (uint64_t(1) << s.product_shift) >> 1;
    for (int i = 0; i < SMX_STEPS; i++) {
        uint64_t p = (uint64_t(s.powers[3 - i % 4]) * r + half) >> s.product_shift;
        if (p > s.product_high) p = s.product_high;
        int by = shift + i / 4;
        by = by < 0 ? 0 : by > 62 ? 62 : by;  // below zero for indices that no element of such a row has
        const uint64_t y = (p + (s.output_half_up ? (uint64_t(1) << by) >> 1 : 0)) >> by;
        entries[i] = uint8_t(y < s.output_high ? y : s.output_high);
    }
}

// A5 or A10, and A7, for every index that a score can have, given the reciprocal and the leading one's position.
SMX_TARGET inline void output_entries(const smx_spec& s, uint32_t r, int e, uint8_t* entries) {
    const int shift = s.row_scaled ? s.output_shift : s.output_shift + e;
    if (s.row_products) return product_entries(s, r, shift, entries);
    if (shift > 31 || shift < 0) {  // u·r < 2^31: nothing is left; and no row has a sum below 0.5
        std::memset(entries, 0, SMX_STEPS);
        return;
    }
    const uint32_t bias = s.output_half_up ? (uint32_t(1) << shift) >> 1 : 0;
    const uint32_t high = s.output_high;
    for (int i = 0; i < SMX_STEPS; i++) {
        const uint32_t y = (s.unnormed[i] * r + bias) >> shift;
        entries[i] = uint8_t(y < high ? y : high);
    }
}

// The row's output table: one of the spec's where it has them all, else made here.
SMX_TARGET const uint8_t* output_table(const smx_spec& s, uint64_t d, int& exponent, uint8_t* entries) {
    if (d == 0) d = 1;
    const int e = 63 - __builtin_clzll(d);
    const int fraction_bits = s.powsum_bits - 1;
    const uint64_t z = (d << (fraction_bits - e)) & ((uint64_t(1) << fraction_bits) - 1);
    const uint32_t r = s.reciprocal[z >> (fraction_bits - s.reciprocal_bits)];
    exponent = s.row_scaled ? e - s.powsum_fraction : 0;
    if (s.outputs) return s.outputs + ((s.row_scaled ? 0 : e) * s.outputs_stride + (r - s.reciprocal_low)) * SMX_STEPS;
    output_entries(s, r, e, entries);
    return entries;
}

// One row; returns its exponent. Columns past n are the caller's.
template <class V, bool Masked>
SMX_TARGET int row(const typename V::Sums& table, const smx_spec& s, const int8_t* x, const uint8_t* keep, int64_t n,
                   uint8_t* y, bool stream) {
    alignas(64) uint8_t entries[SMX_STEPS];
    if (stream)  // most likely the next row
        for (int64_t i = 0; i < n; i += 64) __builtin_prefetch(x + n + i);
    const PowSum p = powsum<V, Masked>(table, s, x, keep, n);
    int exponent;
    const uint8_t* outputs = output_table(s, p.d, exponent, entries);
    const typename V::Words words = V::words(outputs);
    // Streaming pays only where it fills whole cache lines: a line written in both ways is far slower.
    if (stream && (reinterpret_cast<uintptr_t>(y) | uintptr_t(n)) % 64 == 0)
        write<V, Masked, true>(words, p.c, x, keep, n, y);
    else
        write<V, Masked, false>(words, p.c, x, keep, n, y);
    return exponent;
}

// Where a row of the batch lies, counted on from row to row.
struct Cursor {
    const smx_rows& rows;
    int64_t index[SMX_MAX_DIMS];
    int64_t in = 0, keep = 0, at;

    Cursor(const smx_rows& batch, int64_t first) : rows(batch), at(first) {
        for (int64_t d = rows.dims - 1; d >= 0; d--) {
            index[d] = first % rows.shape[d];
            first /= rows.shape[d];
            in += index[d] * rows.in_stride[d];
            keep += index[d] * rows.keep_stride[d];
        }
    }

    int64_t length() const {
        int64_t n = rows.columns;
        if (rows.lengths && rows.lengths[at] < n) n = rows.lengths[at];
        if (rows.causal) {
            const int64_t seen = (rows.dims ? index[rows.dims - 1] : 0) + rows.offset + 1;
            if (seen < n) n = seen;
        }
        return n > 0 ? n : 0;
    }

    void next() {
        at++;
        for (int64_t d = rows.dims - 1; d >= 0; d--) {
            in += rows.in_stride[d];
            keep += rows.keep_stride[d];
            if (++index[d] < rows.shape[d]) return;
            in -= rows.shape[d] * rows.in_stride[d];
            keep -= rows.shape[d] * rows.keep_stride[d];
            index[d] = 0;
        }
    }
};

template <class V>
SMX_TARGET void rows_int8(const smx_spec& s, const smx_rows& batch, const int8_t* in, uint8_t* out, int32_t* exponent,
                          int64_t first, int64_t last, bool stream) {
    const typename V::Sums table = V::sums(s.unnormed);
    Cursor at(batch, first);
    for (int64_t r = first; r < last; r++, at.next()) {
        const int64_t n = at.length();
        uint8_t* y = out + r * batch.columns;
        const int e = batch.keep ? row<V, true>(table, s, in + at.in, batch.keep + at.keep, n, y, stream)
                                 : row<V, false>(table, s, in + at.in, nullptr, n, y, stream);
        if (n < batch.columns) std::memset(y + n, 0, size_t(batch.columns - n));
        if (exponent) exponent[r] = e;
    }
    if (stream) V::fence();
}

}  // namespace
}  // namespace smx
