// Linear layers in int8: packed weights, and what becomes of a product before it leaves the registers' neighbourhood.
//
// Activations are bytes, 128 more than the word they stand for; the layer's bias has that taken off again. A policy V
// names its dot product V::Linear, whose flush stores instead of adding. Work goes stripe by stripe: as many columns as
// make whole vectors of bytes and whole panels, all rows of the block, then the next stripe.
#pragma once

#include <cmath>

#include "gemm.h"
#include "model.h"

namespace smx {
namespace {

// Four products of an unsigned and a signed byte per lane, for the policies that bring no dot product of their own.
struct PlainLinearDot {
    static constexpr int G = 4, LANES = 8, VECTORS = 2, ROWS = 4, OFFSET = 0, MOST = 0, WEIGHT_BITS = 8;
    using A = uint8_t;
    using B = int8_t;
    struct Vector {
        const uint8_t* p;
    };
    struct Acc {
        int32_t v[LANES];
    };
    static Acc zero() { return {}; }
    static Vector load(const B* p) { return {reinterpret_cast<const uint8_t*>(p)}; }
    static Vector everywhere(const A* p) { return {p}; }
    static Acc dot(Acc acc, Vector a, Vector b) {
        for (int i = 0; i < LANES; i++)
            for (int e = 0; e < G; e++) acc.v[i] += int(a.p[e]) * int8_t(b.p[i * G + e]);
        return acc;
    }
    static void flush(const Acc& acc, int32_t* c) { std::memcpy(c, acc.v, sizeof acc.v); }
};

template <class V>
constexpr int stripe_width() {
    return V::W > panel_width<typename V::Linear>() ? V::W : panel_width<typename V::Linear>();
}

template <class V>
int64_t linear_size(int64_t outputs, int64_t inputs) {
    return round_up(outputs, stripe_width<V>()) * round_up(inputs, V::Linear::G);
}

template <class V>
SMX_TARGET void linear_pack(const int8_t* weight, int64_t outputs, int64_t inputs, int8_t* to) {
    std::memset(to, 0, size_t(linear_size<V>(outputs, inputs)));
    pack<typename V::Linear>(weight, outputs, inputs, inputs, 1, to);
}

// The byte of a number in units of its word, and those of V::W of them.
inline uint8_t byte_of(float v) {
    v = std::nearbyintf(v > 127.0f ? 127.0f : v < -128.0f ? -128.0f : v);
    return uint8_t(int(v) + 128);
}

template <class V>
SMX_TARGET inline typename V::Bytes bytes_of(typename V::F* f) {
    for (int j = 0; j < 4; j++) f[j] = V::clip(f[j], 128.0f);
    return V::sub(V::narrow(f, SMX_HALF_EVEN), V::set1(-128));
}

template <class V>
SMX_TARGET void to_bytes(const float* x, int64_t n, float inverse, uint8_t* out) {
    constexpr int PART = V::W / 4;
    const typename V::F by = V::set1f(inverse);
    int64_t i = 0;
    for (; i + V::W <= n; i += V::W) {
        typename V::F f[4];
        for (int j = 0; j < 4; j++) f[j] = V::mul(V::load(x + i + j * PART), by);
        V::store(out + i, bytes_of<V>(f));
    }
    for (; i < n; i++) out[i] = byte_of(x[i] * inverse);
}

// All columns of the rows of `a`; `finish` gets each row's sums of a stripe.
template <class V, int R, class Finish>
SMX_TARGET inline void rows_of_stripe(const Linear& l, const uint8_t* a, int64_t a_stride, int64_t row, int64_t column,
                                      const Finish& finish) {
    using D = typename V::Linear;
    constexpr int STRIPE = stripe_width<V>(), WIDTH = panel_width<D>();
    const int64_t groups = l.inputs / D::G;
    alignas(64) int32_t c[R * STRIPE];
    for (int p = 0; p < STRIPE; p += WIDTH)
        tile<D, R>(a + row * a_stride, a_stride, l.packed + (column + p) * l.inputs, groups, c + p, STRIPE);
    for (int r = 0; r < R; r++) finish(row + r, column, c + r * STRIPE);
}

template <class V, class Finish>
SMX_TARGET void product(const Linear& l, const uint8_t* a, int64_t a_stride, int64_t rows, const Finish& finish) {
    constexpr int ROWS = V::Linear::ROWS;
    for (int64_t column = 0; column < l.outputs; column += stripe_width<V>()) {
        int64_t row = 0;
        for (; row + ROWS <= rows; row += ROWS) rows_of_stripe<V, ROWS>(l, a, a_stride, row, column, finish);
        switch (rows - row) {
            case 5: rows_of_stripe<V, 5>(l, a, a_stride, row, column, finish); break;
            case 4: rows_of_stripe<V, 4>(l, a, a_stride, row, column, finish); break;
            case 3: rows_of_stripe<V, 3>(l, a, a_stride, row, column, finish); break;
            case 2: rows_of_stripe<V, 2>(l, a, a_stride, row, column, finish); break;
            case 1: rows_of_stripe<V, 1>(l, a, a_stride, row, column, finish); break;
            default: break;
        }
    }
}

// Sums of V::W columns to numbers.
template <class V>
SMX_TARGET inline void scaled(const Linear& l, int64_t column, const int32_t* c, typename V::F* f) {
    constexpr int PART = V::W / 4;
    for (int j = 0; j < 4; j++)
        f[j] = V::fma(V::integers(c + j * PART, 0), V::load(l.scale + column + j * PART),
                      V::load(l.bias + column + j * PART));
}

// x Phi(x), Phi as a half and an odd polynomial of x held within its reach, at whose ends it is 0 and 1.
template <class V>
SMX_TARGET inline typename V::F gelu(const Gelu& g, typename V::F x) {
    const typename V::F t = V::clip(x, g.reach), u = V::mul(t, t);
    typename V::F p = V::set1f(g.coefficient[5]);
    for (int i = 4; i >= 0; i--) p = V::fma(p, u, V::set1f(g.coefficient[i]));
    return V::mul(x, V::fma(t, p, V::set1f(0.5f)));
}

// int8 words, for attention.
template <class V>
struct ToWords {
    const Linear& l;
    int8_t* out;
    int64_t stride;
    SMX_TARGET void operator()(int64_t row, int64_t column, const int32_t* c) const {
        for (int at = 0; at < stripe_width<V>() && column + at < l.outputs; at += V::W) {
            typename V::F f[4];
            scaled<V>(l, column + at, c + at, f);
            for (auto& one : f) one = V::clip(one, 128.0f);
            put(out + row * stride + column + at, V::narrow(f, SMX_HALF_EVEN), l.outputs - column - at);
        }
    }
    SMX_TARGET static void put(void* to, typename V::Bytes v, int64_t left) {
        if (left >= V::W) {
            V::store(to, v);
            return;
        }
        alignas(64) uint8_t some[V::W];
        V::store(some, v);
        std::memcpy(to, some, size_t(left));
    }
};

// GELU, then the bytes that the next layer takes.
template <class V>
struct ToGelu {
    const Linear& l;
    const Gelu& g;
    float inverse;
    uint8_t* out;
    int64_t stride;
    SMX_TARGET void operator()(int64_t row, int64_t column, const int32_t* c) const {
        const typename V::F by = V::set1f(inverse);
        for (int at = 0; at < stripe_width<V>() && column + at < l.outputs; at += V::W) {
            typename V::F f[4];
            scaled<V>(l, column + at, c + at, f);
            for (auto& one : f) one = V::mul(gelu<V>(g, one), by);
            ToWords<V>::put(out + row * stride + column + at, bytes_of<V>(f), l.outputs - column - at);
        }
    }
};

// Numbers, added to what is there or in its place.
template <class V, bool Add>
struct ToFloats {
    const Linear& l;
    float* out;
    int64_t stride;
    SMX_TARGET void operator()(int64_t row, int64_t column, const int32_t* c) const {
        constexpr int PART = V::W / 4;
        const typename V::F one = V::set1f(1.0f);
        for (int at = 0; at < stripe_width<V>() && column + at < l.outputs; at += V::W) {
            typename V::F f[4];
            scaled<V>(l, column + at, c + at, f);
            float* to = out + row * stride + column + at;
            const int64_t left = l.outputs - column - at;
            if (left >= V::W) {
                for (int j = 0; j < 4; j++)
                    V::store(to + j * PART, Add ? V::fma(V::load(to + j * PART), one, f[j]) : f[j]);
                continue;
            }
            alignas(64) float some[V::W];
            for (int j = 0; j < 4; j++) V::store(some + j * PART, f[j]);
            for (int64_t i = 0; i < left; i++) to[i] = Add ? to[i] + some[i] : some[i];
        }
    }
};

}  // namespace
}  // namespace smx
