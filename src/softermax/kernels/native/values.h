// The second half of attention in floating point: rows of scores to words, and these times V.
//
// Scores come as they are, with the factor that they still need; their words are those of rows_float, which multiplies
// in the same order. Words times V is summed key after key, in single precision.
#pragma once

#include "attention.h"

namespace smx {
namespace {

constexpr int VALUE_ROWS = 6, VALUE_VECTORS = 2;
constexpr int64_t VALUE_BLOCK = 12;  // rows whose words, as floats, stay in the first cache

// R rows of words, as floats, times the columns of V that VALUE_VECTORS vectors hold; with `Listed`, of the keys in a list.
template <class V, int R, bool Listed>
SMX_TARGET inline void weighted_tile(const float* p, int64_t p_stride, const float* v, int64_t v_stride,
                                     const int32_t* list, int64_t keys, const float* factor, float* out,
                                     int64_t out_stride) {
    constexpr int PART = V::W / 4;
    typename V::F acc[R][VALUE_VECTORS];
#pragma GCC unroll 16
    for (int r = 0; r < R; r++)
#pragma GCC unroll 16
        for (int j = 0; j < VALUE_VECTORS; j++) acc[r][j] = V::set1f(0.0f);
    for (int64_t i = 0; i < keys; i++) {
        const int64_t k = Listed ? list[i] : i;
        typename V::F b[VALUE_VECTORS];
#pragma GCC unroll 16
        for (int j = 0; j < VALUE_VECTORS; j++) b[j] = V::load(v + k * v_stride + j * PART);
#pragma GCC unroll 16
        for (int r = 0; r < R; r++) {
            const typename V::F one = V::set1f(p[r * p_stride + k]);
#pragma GCC unroll 16
            for (int j = 0; j < VALUE_VECTORS; j++) acc[r][j] = V::fma(one, b[j], acc[r][j]);
        }
    }
#pragma GCC unroll 16
    for (int r = 0; r < R; r++)
#pragma GCC unroll 16
        for (int j = 0; j < VALUE_VECTORS; j++)
            V::store(out + r * out_stride + j * PART, V::mul(acc[r][j], V::set1f(factor[r])));
}

template <class V>
SMX_TARGET void weighted(int64_t rows, const float* p, int64_t p_stride, const float* v, int64_t v_stride, int64_t keys,
                         int64_t head, const float* factor, float* out, int64_t out_stride) {
    constexpr int WIDTH = VALUE_VECTORS * (V::W / 4);
    int64_t column = 0;
    for (; column + WIDTH <= head; column += WIDTH) {
        int64_t r = 0;
        for (; r + VALUE_ROWS <= rows; r += VALUE_ROWS)
            weighted_tile<V, VALUE_ROWS, false>(p + r * p_stride, p_stride, v + column, v_stride, nullptr, keys,
                                                factor + r, out + r * out_stride + column, out_stride);
        for (; r < rows; r++)
            weighted_tile<V, 1, false>(p + r * p_stride, p_stride, v + column, v_stride, nullptr, keys, factor + r,
                                       out + r * out_stride + column, out_stride);
    }
    for (; column < head; column++)
        for (int64_t r = 0; r < rows; r++) {
            float sum = 0;
            for (int64_t k = 0; k < keys; k++) sum += p[r * p_stride + k] * v[k * v_stride + column];
            out[r * out_stride + column] = sum * factor[r];
        }
}

// The rows first ... last, counted over all heads.
template <class V>
SMX_TARGET bool weigh(const smx_spec& s, const FloatValues& t, int64_t first, int64_t last) {
    const int64_t keys = t.keys, padded = round_up(keys, V::W) + V::W;
    Buffer<int8_t> raw(padded);
    Buffer<uint8_t> words(padded);
    Buffer<float> p(VALUE_BLOCK * padded);
    float factor[VALUE_BLOCK];
    const typename V::Sums sums = V::sums(s.unnormed);
    bool broken = false;
    for (int64_t at = first; at < last;) {
        // A block lies within one head.
        const int64_t head = at / t.queries, from = at % t.queries;
        int64_t rows = t.queries - from < VALUE_BLOCK ? t.queries - from : VALUE_BLOCK;
        if (rows > last - at) rows = last - at;
        for (int64_t r = 0; r < rows; r++) {
            const uint8_t* keep = t.keep ? t.keep + head * t.keep_stride[0] + (from + r) * t.keep_stride[1] : nullptr;
            const Quantized found =
                quantize_row<V>(s, t.scores + (at + r) * keys, keep, keys, raw.data, nullptr, t.factor);
            broken |= found.broken;
            const int exponent = keep ? row<V, true>(sums, s, raw.data, keep, keys, words.data, false)
                                      : row<V, false>(sums, s, raw.data, keep, keys, words.data, false);
            factor[r] = power_of_two(-(s.output_fraction + exponent));
            dequantize_row<V>(words.data, keys, 1.0f, p.data + r * padded);
        }
        weighted<V>(rows, p.data, padded, t.v + head * t.v_stride[0], t.v_stride[1], keys, t.head, factor,
                    t.out + head * t.out_stride[0] + from * t.out_stride[1], t.out_stride[1]);
        at += rows;
    }
    return broken;
}

}  // namespace
}  // namespace smx
