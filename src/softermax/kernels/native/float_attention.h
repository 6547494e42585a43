// Attention of floats in one call: scores of a block of queries live in the first cache, and nowhere else.
//
// A score is the sum of its products in their order, each rounded once: what PyTorch's BLAS gives on x86 for matrices of more
// than a few rows. From there on it is values.h: words of the row, and these times V, key after key. A key whose word is zero in
// all rows of a tile is left out, which changes no bit of a finite sum.
#pragma once

#include "values.h"

namespace smx {
namespace {

constexpr int SCORE_VECTORS = 2;
constexpr int64_t FEW_KEYS = 4;  // of five: where no more of them count, their list pays

// K transposed, in panels of as many keys as a tile takes; the last is filled with zeros.
template <class V>
SMX_TARGET void pack_keys(const float* k, int64_t stride, int64_t keys, int64_t size, float* packed) {
    constexpr int64_t WIDTH = SCORE_VECTORS * (V::W / 4);
    for (int64_t first = 0; first < keys; first += WIDTH, packed += size * WIDTH) {
        const int64_t count = keys - first < WIDTH ? keys - first : WIDTH;
        const float* from = k + first * stride;
        if (count < WIDTH) std::memset(packed, 0, size_t(size * WIDTH) * sizeof(float));
        int64_t key = 0;
        for (; key + 4 <= count; key += 4) {
            int64_t d = 0;
            for (; d + 4 <= size; d += 4)
                V::transpose4(from + key * stride + d, stride, packed + d * WIDTH + key, WIDTH);
            for (; d < size; d++)
                for (int64_t i = key; i < key + 4; i++) packed[d * WIDTH + i] = from[i * stride + d];
        }
        for (; key < count; key++)
            for (int64_t d = 0; d < size; d++) packed[d * WIDTH + key] = from[key * stride + d];
    }
}

// R queries times a panel of keys. Not inlined: what surrounds it would take its registers.
template <class V, int R>
SMX_TARGET __attribute__((noinline)) void score_tile(const float* q, int64_t q_stride, const float* panel, int64_t size, float* out,
                                  int64_t out_stride) {
    constexpr int PART = V::W / 4, WIDTH = SCORE_VECTORS * PART;
    typename V::F acc[R][SCORE_VECTORS];
#pragma GCC unroll 16
    for (int r = 0; r < R; r++)
#pragma GCC unroll 16
        for (int j = 0; j < SCORE_VECTORS; j++) acc[r][j] = V::set1f(0.0f);
    for (int64_t d = 0; d < size; d++) {
        typename V::F b[SCORE_VECTORS];
#pragma GCC unroll 16
        for (int j = 0; j < SCORE_VECTORS; j++) b[j] = V::load(panel + d * WIDTH + j * PART);
#pragma GCC unroll 16
        for (int r = 0; r < R; r++) {
            const typename V::F one = V::set1f(q[r * q_stride + d]);
#pragma GCC unroll 16
            for (int j = 0; j < SCORE_VECTORS; j++) acc[r][j] = V::fma(one, b[j], acc[r][j]);
        }
    }
#pragma GCC unroll 16
    for (int r = 0; r < R; r++)
#pragma GCC unroll 16
        for (int j = 0; j < SCORE_VECTORS; j++) V::store(out + r * out_stride + j * PART, acc[r][j]);
}

template <class V, int R>
SMX_TARGET inline void score_rows(int64_t rows, const float* q, int64_t q_stride, const float* panel, int64_t size,
                                  float* out, int64_t out_stride) {
    if (rows == R) return score_tile<V, R>(q, q_stride, panel, size, out, out_stride);
    if constexpr (R > 1) score_rows<V, R - 1>(rows, q, q_stride, panel, size, out, out_stride);
}

// One head of one batch entry.
template <class V>
class FloatHead {
  public:
    static constexpr int ROWS = V::FLOAT_ROWS;
    static constexpr int64_t BLOCK_OF_ROWS = 2 * ROWS, WIDTH = SCORE_VECTORS * (V::W / 4),
                             COLUMNS = VALUE_VECTORS * (V::W / 4);

    SMX_TARGET FloatHead(const smx_spec& spec, const FloatAttention& attention, int64_t entry, int64_t head)
        : s(spec), t(attention), entry_(entry), head_(head), keys_(t.keys), padded_(round_up(t.keys, V::W) + V::W),
          panels_(round_up(t.keys, WIDTH) * t.head), values_(t.keys * round_up(t.value_head, COLUMNS)),
          p_(BLOCK_OF_ROWS * padded_), raw_(padded_), words_(ROWS * padded_), any_(padded_), counted_(padded_),
          sums_(V::sums(spec.unnormed)) {
        const int64_t shared = head / (t.heads / t.kv_heads);
        pack_keys<V>(t.k + entry * t.k_stride[0] + shared * t.k_stride[1], t.k_stride[2], keys_, t.head, panels_.data);
        // Rows of V far apart would share a few sets of the cache.
        const float* v = t.v + entry * t.v_stride[0] + shared * t.v_stride[1];
        stride_ = round_up(t.value_head, COLUMNS);
        for (int64_t k = 0; k < keys_; k++) {
            std::memcpy(values_.data + k * stride_, v + k * t.v_stride[2], size_t(t.value_head) * sizeof(float));
            for (int64_t d = t.value_head; d < stride_; d++) values_.data[k * stride_ + d] = 0.0f;
        }
    }

    SMX_TARGET bool run(int64_t first, int64_t last) {
        bool broken = false;
        for (int64_t from = first; from < last; from += BLOCK_OF_ROWS) {
            const int64_t rows = last - from < BLOCK_OF_ROWS ? last - from : BLOCK_OF_ROWS;
            scores(from, rows);
            for (int64_t at = 0; at < rows; at += ROWS) {
                const int64_t some = rows - at < ROWS ? rows - at : ROWS;
                for (int64_t r = 0; r < some; r++) broken |= words(from + at + r, p_.data + (at + r) * padded_, r);
                values<ROWS>(some, p_.data + at * padded_, from + at);
            }
        }
        return broken;
    }

  private:
    SMX_TARGET void scores(int64_t from, int64_t rows) {
        const float* q = t.q + entry_ * t.q_stride[0] + head_ * t.q_stride[1] + from * t.q_stride[2];
        for (int64_t key = 0; key < keys_; key += WIDTH)
            for (int64_t at = 0; at < rows; at += ROWS)
                score_rows<V, ROWS>(rows - at < ROWS ? rows - at : ROWS, q + at * t.q_stride[2], t.q_stride[2],
                                    panels_.data + key * t.head, t.head, p_.data + at * padded_ + key, padded_);
    }

    // A row of scores to its words as floats, in place.
    SMX_TARGET bool words(int64_t query, float* x, int64_t r) {
        const uint8_t* keep =
            t.keep ? t.keep + entry_ * t.keep_stride[0] + head_ * t.keep_stride[1] + query * t.keep_stride[2] : nullptr;
        uint8_t* y = words_.data + r * padded_;
        const Quantized found = quantize_row<V>(s, x, keep, keys_, raw_.data, nullptr, t.factor);
        const int exponent = keep ? row<V, true>(sums_, s, raw_.data, keep, keys_, y, false)
                                  : row<V, false>(sums_, s, raw_.data, keep, keys_, y, false);
        factor_[r] = power_of_two(-(s.output_fraction + exponent));
        dequantize_row<V>(y, keys_, 1.0f, x);
        return found.broken;
    }

    // The keys that count in a tile; returns how many, or -1 where nearly all do.
    SMX_TARGET int64_t counting(int64_t rows) {
        uint8_t* any = any_.data;
        std::memcpy(any, words_.data, size_t(keys_));
        for (int64_t r = 1; r < rows; r++)
            for (int64_t k = 0; k < keys_; k++) any[k] = uint8_t(any[k] | words_.data[r * padded_ + k]);
        int64_t count = 0;
        for (int64_t k = 0; k < keys_; k++) count += any[k] != 0;
        if (5 * count > FEW_KEYS * keys_) return -1;
        int64_t at = 0;
        for (int64_t k = 0; k < keys_; k++) {
            counted_.data[at] = int32_t(k);
            at += any[k] != 0;
        }
        return count;
    }

    template <int R>
    SMX_TARGET void values(int64_t rows, const float* p, int64_t query) {
        if (rows == R) return values_of<R>(counting(rows), p, query);
        if constexpr (R > 1) values<R - 1>(rows, p, query);
    }

    template <int R>
    SMX_TARGET void values_of(int64_t count, const float* p, int64_t query) {
        const int64_t step = t.heads * t.value_head;
        float* out = t.out + ((entry_ * t.queries + query) * t.heads + head_) * t.value_head;
        for (int64_t column = 0; column < t.value_head; column += COLUMNS) {
            // Where columns are left over, the tile is written beside the output.
            const int64_t left = t.value_head - column;
            float* to = left < COLUMNS ? beside_ : out + column;
            const int64_t to_stride = left < COLUMNS ? COLUMNS : step;
            const float* v = values_.data + column;
            if (count < 0)
                weighted_tile<V, R, false>(p, padded_, v, stride_, nullptr, keys_, factor_, to, to_stride);
            else
                weighted_tile<V, R, true>(p, padded_, v, stride_, counted_.data, count, factor_, to, to_stride);
            if (left < COLUMNS)
                for (int64_t r = 0; r < R; r++)
                    std::memcpy(out + r * step + column, beside_ + r * COLUMNS, size_t(left) * sizeof(float));
        }
    }

    const smx_spec& s;
    const FloatAttention& t;
    const int64_t entry_, head_, keys_, padded_;
    int64_t stride_;
    Buffer<float> panels_, values_, p_;
    Buffer<int8_t> raw_;
    Buffer<uint8_t> words_, any_;
    Buffer<int32_t> counted_;
    const typename V::Sums sums_;
    float factor_[ROWS];
    alignas(64) float beside_[ROWS * COLUMNS];
};

template <class V>
SMX_TARGET bool attend_floats(const smx_spec& s, const FloatAttention& t, int64_t entry, int64_t head, int64_t first,
                              int64_t last) {
    FloatHead<V> one(s, t, entry, head);
    return one.run(first, last);
}

}  // namespace
}  // namespace smx
