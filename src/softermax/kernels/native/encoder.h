// The rows of an encoder between two attentions, in one pass per block of rows: its bytes stay in the cache.
#pragma once

#include <cmath>
#include <vector>

#include "linear.h"

namespace smx {
namespace {

// x = norm(x), and its bytes for the layer that follows, or none.
template <class V>
SMX_TARGET void layer_norm(const Norm& norm, int64_t n, float* x, uint8_t* bytes) {
    constexpr int PART = V::W / 4;
    const typename V::F one = V::set1f(1.0f);
    const int64_t whole = n / V::W * V::W;
    typename V::F sum[4] = {V::set1f(0), V::set1f(0), V::set1f(0), V::set1f(0)};
    for (int64_t i = 0; i < whole; i += V::W)
        for (int j = 0; j < 4; j++) sum[j] = V::fma(V::load(x + i + j * PART), one, sum[j]);
    float mean = V::across(sum);
    for (int64_t i = whole; i < n; i++) mean += x[i];
    mean /= float(n);
    const typename V::F middle = V::set1f(mean);
    for (auto& s : sum) s = V::set1f(0);
    for (int64_t i = 0; i < whole; i += V::W)
        for (int j = 0; j < 4; j++) {
            const typename V::F d = V::subf(V::load(x + i + j * PART), middle);
            sum[j] = V::fma(d, d, sum[j]);
        }
    float square = V::across(sum);
    for (int64_t i = whole; i < n; i++) square += (x[i] - mean) * (x[i] - mean);
    const float inverse = 1.0f / std::sqrt(square / float(n) + norm.epsilon);
    const typename V::F by = V::set1f(inverse), to_byte = V::set1f(norm.inverse);
    for (int64_t i = 0; i < whole; i += V::W) {
        typename V::F f[4];
        for (int j = 0; j < 4; j++) {
            const int64_t at = i + j * PART;
            f[j] = V::fma(V::mul(V::subf(V::load(x + at), middle), by), V::load(norm.weight + at), V::load(norm.bias + at));
            V::store(x + at, f[j]);
            f[j] = V::mul(f[j], to_byte);
        }
        if (bytes) V::store(bytes + i, bytes_of<V>(f));
    }
    for (int64_t i = whole; i < n; i++) {
        x[i] = (x[i] - mean) * inverse * norm.weight[i] + norm.bias[i];
        if (bytes) bytes[i] = byte_of(x[i] * norm.inverse);
    }
}

// The rows first ... last, from the context of layer `done` to the queries, keys and values of layer `next`; either may
// be missing.
template <class V>
SMX_TARGET void between(const EncoderRun& run, const EncoderLayer* done, const EncoderLayer* next, int64_t first,
                        int64_t last) {
    const int64_t rows = last - first, hidden = run.hidden, inner = run.inner;
    static thread_local std::vector<uint8_t> space;
    if (int64_t(space.size()) < rows * (hidden + inner) + 64) space.resize(size_t(rows * (hidden + inner) + 64));
    uint8_t* bytes = space.data();
    uint8_t* network = bytes + rows * hidden;
    float* x = run.x + first * hidden;
    if (done) {
        product<V>(done->out, run.context + first * hidden, hidden, rows, ToFloats<V, true>{done->out, x, hidden});
        for (int64_t r = 0; r < rows; r++)
            layer_norm<V>(done->after_attention, hidden, x + r * hidden, bytes + r * hidden);
        product<V>(done->up, bytes, hidden, rows,
                   ToGelu<V>{done->up, *run.gelu, done->inner_inverse, network, inner});
        product<V>(done->down, network, inner, rows, ToFloats<V, true>{done->down, x, hidden});
        for (int64_t r = 0; r < rows; r++)
            layer_norm<V>(done->after_network, hidden, x + r * hidden, next ? bytes + r * hidden : nullptr);
    } else {
        to_bytes<V>(x, rows * hidden, next->qkv_inverse, bytes);
    }
    if (next)
        product<V>(next->qkv, bytes, hidden, rows,
                   ToWords<V>{next->qkv, run.qkv + first * 3 * hidden, 3 * hidden});
}

// Numbers times the layer, with their bytes made on the way.
template <class V>
SMX_TARGET void linear(const Linear& l, const float* x, float inverse, int64_t rows, float* out) {
    static thread_local std::vector<uint8_t> space;
    if (int64_t(space.size()) < rows * l.inputs + 64) space.resize(size_t(rows * l.inputs + 64));
    to_bytes<V>(x, rows * l.inputs, inverse, space.data());
    product<V>(l, space.data(), l.inputs, rows, ToFloats<V, false>{l, out, l.outputs});
}

}  // namespace
}  // namespace smx
