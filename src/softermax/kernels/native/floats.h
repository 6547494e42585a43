// Float rows: quantise, Softermax and back in one pass over memory, and the gradient in another.
//
// Blocks of V::W scores whose products all lie within the input word take the vector path, and those that saturate where
// nobody asks which score did; a block with a score that is not finite, or is to be marked, is looked at one by one.
#pragma once

#include <cfloat>
#include <cmath>
#include <vector>

#include "rows.h"

namespace smx {
namespace {

struct Bf16 {
    uint16_t bits;
};
struct Fp16 {
    uint16_t bits;
};

inline float from_bits(uint32_t bits) {
    float value;
    std::memcpy(&value, &bits, 4);
    return value;
}

inline uint32_t to_bits(float value) {
    uint32_t bits;
    std::memcpy(&bits, &value, 4);
    return bits;
}

inline float to_float(float v) { return v; }
inline float to_float(Bf16 v) { return from_bits(uint32_t(v.bits) << 16); }
inline float to_float(Fp16 v) {
    const uint32_t sign = uint32_t(v.bits & 0x8000) << 16, rest = v.bits & 0x7fff;
    if (rest >= 0x7c00) return from_bits(sign | 0x7f800000 | (rest & 0x3ff) << 13);
    // As a single with the half's exponent bits the value is 2^-112 times too small, subnormals included.
    return from_bits(sign | to_bits(from_bits(rest << 13) * from_bits(uint32_t(127 + 112) << 23)));
}

inline void to_type(float v, float* out) { *out = v; }
inline void to_type(float v, Bf16* out) {
    const uint32_t bits = to_bits(v);
    const bool nan = (bits & 0x7fffffff) > 0x7f800000;
    out->bits = uint16_t(nan ? (bits >> 16) | 0x40 : (bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}
inline void to_type(float v, Fp16* out) {
    const uint32_t bits = to_bits(v), sign = (bits >> 16) & 0x8000, size = bits & 0x7fffffff;
    uint32_t half;
    if (size > 0x7f800000)
        half = 0x7e00;
    else if (size >= 0x477ff000)  // rounds to 65536 or more
        half = 0x7c00;
    else if (size >= 0x38800000)  // a normal half: round to nearest even on 13 bits
        half = (size - 0x38000000 + 0xfff + ((size >> 13) & 1)) >> 13;
    else  // subnormal: adding 0.5 leaves the rounded multiple of 2^-24 in the low bits
        half = to_bits(from_bits(size) + 0.5f) - 0x3f000000;
    out->bits = uint16_t(sign | half);
}

inline float power_of_two(int exponent) { return from_bits(uint32_t(127 + exponent) << 23); }

// A1's rounding. Half up compares the fraction with one half: adding one half could round up a hair less.
inline float rounded(float v, smx_rounding how) {
    if (how == SMX_HALF_EVEN) return std::nearbyintf(v);
    const float whole = std::floor(v);
    return how == SMX_HALF_UP && v - whole >= 0.5f ? whole + 1.0f : whole;
}

// Per row a byte, whether any score saturated, and a bit per score.
inline int64_t marks_size(int64_t columns) { return 1 + (columns + 7) / 8; }

struct Quantized {
    bool saturated = false, broken = false;
};

// A1, one score after another; a score is x times `by`.
template <class T>
inline Quantized quantize_slowly(const smx_spec& s, const T* x, const uint8_t* keep, int n, int8_t* raw, uint8_t* marks,
                                 float by) {
    Quantized result;
    for (int i = 0; i < n; i++) {
        float v = to_float(x[i]) * by;
        if (keep && !keep[i]) v = 0;
        if (!std::isfinite(v)) {
            result.broken = true;
            v = 0;
        }
        v = v > 128.0f ? 128.0f : v < -128.0f ? -128.0f : v;  // loses nothing, keeps the product finite
        v *= s.input_scale;
        v = rounded(v, s.input_rounding);
        const bool outside = v > 127.0f || v < -128.0f;
        raw[i] = int8_t(v > 127.0f ? 127.0f : v < -128.0f ? -128.0f : v);
        if (outside) {
            result.saturated = true;
            if (marks) marks[i / 8] = uint8_t(marks[i / 8] | 1 << (i % 8));
        }
    }
    return result;
}

// A1 for a row. `raw` has room for a multiple of V::W; `marks` are zeroed.
template <class V, class T>
SMX_TARGET Quantized quantize_row(const smx_spec& s, const T* x, const uint8_t* keep, int64_t n, int8_t* raw,
                                  uint8_t* marks, float by = 1.0f) {
    constexpr int PART = V::W / 4;
    Quantized result;
    const typename V::F scale = V::set1f(s.input_scale), first = V::set1f(by);
    T tail[V::W];
    for (int64_t i = 0; i < n; i += V::W) {
        const T* from = x + i;
        const int count = n - i < V::W ? int(n - i) : V::W;
        if (count < V::W) {
            std::memset(static_cast<void*>(tail), 0, sizeof tail);
            std::memcpy(static_cast<void*>(tail), from, size_t(count) * sizeof(T));
            from = tail;
        }
        typename V::F f[4], product[4];
        for (int j = 0; j < 4; j++) product[j] = V::mul(V::load(from + j * PART), first);
        for (int j = 0; j < 4; j++) f[j] = V::mul(product[j], scale);
        if (V::within(f, 127.0f)) {
            V::store(raw + i, V::narrow(f, s.input_rounding));
        } else if (!marks && V::within(product, FLT_MAX)) {
            // What is finite saturates in the words themselves.
            for (int j = 0; j < 4; j++) f[j] = V::clip(f[j], 256.0f);
            V::store(raw + i, V::narrow(f, s.input_rounding));
            result.saturated = true;
        } else {
            const Quantized part =
                quantize_slowly(s, from, keep ? keep + i : nullptr, count, raw + i, marks ? marks + i / 8 : nullptr, by);
            result.saturated |= part.saturated;
            result.broken |= part.broken;
        }
    }
    return result;
}

template <class V, class T>
SMX_TARGET void dequantize_row(const uint8_t* words, int64_t n, float scale, T* out) {
    constexpr int PART = V::W / 4;
    const typename V::F factor = V::set1f(scale);
    int64_t i = 0;
    for (; i + V::W <= n; i += V::W) {
        typename V::F f[4];
        V::widen(V::load(words + i), f);
        for (int j = 0; j < 4; j++) V::store(out + i + j * PART, V::mul(f[j], factor));
    }
    for (; i < n; i++) to_type(float(words[i]) * scale, out + i);
}

template <class V, class T>
SMX_TARGET int64_t rows_float(const smx_spec& s, const smx_rows& batch, const T* in, T* out, uint8_t* words,
                              uint8_t* marks, int32_t* exponent, int64_t first, int64_t last) {
    const typename V::Sums table = V::sums(s.unnormed);
    const int64_t columns = batch.columns, padded = (columns + V::W - 1) / V::W * V::W;
    std::vector<int8_t> raw(size_t(padded) + 1);
    std::vector<uint8_t> scratch(words ? 1 : size_t(columns) + 1);
    int64_t broken = -1;
    if (marks) std::memset(marks + first * marks_size(columns), 0, size_t((last - first) * marks_size(columns)));
    Cursor at(batch, first);
    for (int64_t r = first; r < last; r++, at.next()) {
        const int64_t n = at.length();
        const uint8_t* keep = batch.keep ? batch.keep + at.keep : nullptr;
        uint8_t* mark = marks ? marks + r * marks_size(columns) : nullptr;
        const Quantized q = quantize_row<V>(s, in + at.in, keep, n, raw.data(), mark ? mark + 1 : nullptr);
        if (mark) mark[0] = q.saturated;
        if (q.broken && broken < 0) broken = r;
        uint8_t* y = words ? words + r * columns : scratch.data();
        const int e = keep ? row<V, true>(table, s, raw.data(), keep, n, y, false)
                           : row<V, false>(table, s, raw.data(), nullptr, n, y, false);
        if (n < columns) std::memset(y + n, 0, size_t(columns - n));
        if (exponent) exponent[r] = e;
        dequantize_row<V>(y, columns, power_of_two(-(s.output_fraction + e)), out + r * columns);
    }
    return broken;
}

template <class V, class T>
SMX_TARGET void backward(const smx_spec& s, int64_t columns, const T* grad, const uint8_t* words, const uint8_t* marks,
                         const int32_t* exponent, float factor, T* dx, int64_t first, int64_t last) {
    constexpr int PART = V::W / 4;
    for (int64_t r = first; r < last; r++) {
        const float scale = power_of_two(-(s.output_fraction + (exponent ? exponent[r] : 0)));
        const T* g = grad + r * columns;
        const uint8_t* y = words + r * columns;
        T* out = dx + r * columns;
        typename V::F acc[4], f[4];
        for (int j = 0; j < 4; j++) acc[j] = V::set1f(0);
        int64_t i = 0;
        for (; i + V::W <= columns; i += V::W) {
            V::widen(V::load(y + i), f);
            for (int j = 0; j < 4; j++) acc[j] = V::fma(f[j], V::load(g + i + j * PART), acc[j]);
        }
        float dot = V::across(acc);
        for (; i < columns; i++) dot += float(y[i]) * to_float(g[i]);
        dot *= scale;
        const typename V::F centre = V::set1f(dot), by = V::set1f(factor * scale);
        for (i = 0; i + V::W <= columns; i += V::W) {
            V::widen(V::load(y + i), f);
            for (int j = 0; j < 4; j++) {
                const typename V::F centred = V::subf(V::load(g + i + j * PART), centre);
                V::store(out + i + j * PART, V::mul(V::mul(f[j], by), centred));
            }
        }
        for (; i < columns; i++) to_type(float(y[i]) * (factor * scale) * (to_float(g[i]) - dot), out + i);
        const uint8_t* mark = marks + r * marks_size(columns);
        if (mark[0])
            for (i = 0; i < columns; i++)
                if (mark[1 + i / 8] >> (i % 8) & 1) to_type(0.0f, out + i);
    }
}

template <class V>
SMX_TARGET int64_t rows_float_any(const smx_spec& s, const smx_rows& batch, smx_float type, const void* in, void* out,
                                  uint8_t* words, uint8_t* marks, int32_t* exponent, int64_t first, int64_t last) {
    if (type == SMX_FP32)
        return rows_float<V>(s, batch, static_cast<const float*>(in), static_cast<float*>(out), words, marks, exponent,
                             first, last);
    if (type == SMX_BF16)
        return rows_float<V>(s, batch, static_cast<const Bf16*>(in), static_cast<Bf16*>(out), words, marks, exponent,
                             first, last);
    return rows_float<V>(s, batch, static_cast<const Fp16*>(in), static_cast<Fp16*>(out), words, marks, exponent, first,
                         last);
}

template <class V>
SMX_TARGET void backward_any(const smx_spec& s, smx_float type, int64_t columns, const void* grad, const uint8_t* words,
                             const uint8_t* marks, const int32_t* exponent, float factor, void* dx, int64_t first,
                             int64_t last) {
    if (type == SMX_FP32)
        backward<V>(s, columns, static_cast<const float*>(grad), words, marks, exponent, factor,
                    static_cast<float*>(dx), first, last);
    else if (type == SMX_BF16)
        backward<V>(s, columns, static_cast<const Bf16*>(grad), words, marks, exponent, factor, static_cast<Bf16*>(dx),
                    first, last);
    else
        backward<V>(s, columns, static_cast<const Fp16*>(grad), words, marks, exponent, factor, static_cast<Fp16*>(dx),
                    first, last);
}

// Symmetric int8 for Q, K and V: within -127 ... 127, rounded half to even.
template <class V>
SMX_TARGET void quantize(const float* in, int64_t count, float scale, int8_t* out) {
    constexpr int PART = V::W / 4;
    const typename V::F by = V::set1f(scale);
    int64_t i = 0;
    for (; i + V::W <= count; i += V::W) {
        typename V::F f[4];
        for (int j = 0; j < 4; j++) f[j] = V::clip(V::mul(V::load(in + i + j * PART), by), 127.0f);
        V::store(out + i, V::narrow(f, SMX_HALF_EVEN));
    }
    for (; i < count; i++) {
        const float v = in[i] * scale;
        out[i] = int8_t(std::nearbyintf(v > 127.0f ? 127.0f : v < -127.0f ? -127.0f : v));
    }
}

}  // namespace
}  // namespace smx
