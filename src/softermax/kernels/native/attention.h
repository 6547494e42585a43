// Fused int8 attention: scores live for a block of queries, as int8 in the cache, and nowhere else.
//
// For a block of rows: Q·K^T in panels of keys, requantised to input words as they come; Softermax of each row,
// to probabilities (the paper's mode) or to unnormed weights and the places where the running max grows (A8); then P·V.
//
// Few rows, as a decoder has with one query and a long cache, are not worth packing K and V for: they take the keys and
// values as they lie in memory, and leave out the values whose word is zero.
#pragma once

#include <new>
#include <type_traits>

#include "gemm.h"

namespace smx {
namespace {

constexpr int64_t BLOCK_ROWS = 24, BLOCK_KEYS = 128, BLOCK_DEPTH = 512;
constexpr int64_t FEW_QUERIES = 8;  // most that K and V are not packed for
constexpr int MAX_RUNS = 64;  // the integer max takes 64 values

// A thread's memory for short-lived buffers: to ask the system for each takes as long as a short row.
class Shelf {
  public:
    void* take(size_t bytes) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
        return nullptr;  // each buffer by itself, so that a sanitizer sees its ends
#endif
        if (!memory_) memory_ = static_cast<char*>(::operator new(SIZE, std::align_val_t(64)));
        if (bytes > SIZE - used_) return nullptr;
        used_ += bytes;
        return memory_ + used_ - bytes;
    }
    // The last that was taken comes back first.
    void give(size_t bytes) { used_ -= bytes; }
    ~Shelf() {
        if (memory_) ::operator delete(memory_, std::align_val_t(64));
    }

  private:
    static constexpr size_t SIZE = size_t(1) << 19;
    char* memory_ = nullptr;
    size_t used_ = 0;
};

inline Shelf& shelf() {
    static thread_local Shelf one;
    return one;
}

template <class T>
struct Buffer {
    T* data;
    explicit Buffer(int64_t n) : bytes_((size_t(n + 64) * sizeof(T) + 63) / 64 * 64) {
        void* found = shelf().take(bytes_);
        shelved_ = found != nullptr;
        data = static_cast<T*>(found ? found : ::operator new(bytes_, std::align_val_t(64)));
    }
    ~Buffer() {
        if (shelved_)
            shelf().give(bytes_);
        else
            ::operator delete(data, std::align_val_t(64));
    }
    Buffer(const Buffer&) = delete;
    Buffer& operator=(const Buffer&) = delete;

  private:
    size_t bytes_;
    bool shelved_;
};

struct Run {
    int64_t at;  // its first column
    int c;       // 4m + 3 from there on
};

// Where the running max of a row grows.
template <class V, bool Masked>
SMX_TARGET int runs(const smx_spec& s, const int8_t* x, const uint8_t* keep, int64_t n, Run* found) {
    const int64_t width = s.slice_width ? s.slice_width : n;
    int count = 0, carry = -128;
    found[count++] = {0, ceiling(-128, s.max_ceil)};
    const int64_t step = V::BLOCKS && (width == 16 || width == 32) ? BLOCK : width;
    for (int64_t at = 0; at < n; at += step) {
        // A stretch that does not exceed the max so far, which is the rule, needs no look at its slices.
        const int64_t some = n - at < step ? n - at : step;
        const int highest = largest<V, Masked>(x + at, Masked ? keep + at : nullptr, some);
        if (ceiling(highest, s.max_ceil) <= found[count - 1].c) continue;
        for (int64_t slice = at; slice < at + some; slice += width) {
            const int64_t lanes = at + some - slice < width ? at + some - slice : width;
            const int here = largest<V, Masked>(x + slice, Masked ? keep + slice : nullptr, lanes);
            if (here > carry) carry = here;
            const int c = ceiling(carry, s.max_ceil);
            if (c > found[count - 1].c) {
                if (found[count - 1].at == slice) count--;
                found[count++] = {slice, c};
            }
        }
    }
    return count;
}

SMX_TARGET uint64_t total(const uint8_t* w, int64_t n) {
    uint64_t all = 0;
    for (int64_t at = 0; at < n; at += 4096) {
        uint32_t some = 0;
        const int64_t end = n - at < 4096 ? n : at + 4096;
        for (int64_t i = at; i < end; i++) some += w[i];
        all += some;
    }
    return all;
}

// A8 for a row of scores: weights, and PowSum over them.
template <class V, bool Masked>
SMX_TARGET uint64_t weights(const smx_attention& t, const typename V::Words& table, const int8_t* x, const uint8_t* keep, int64_t n, const Run* run, int count, uint8_t* w) {
    uint64_t d = 0;
    for (int i = 0; i < count; i++) {
        const int64_t at = run[i].at, end = i + 1 < count ? run[i + 1].at : n;
        write<V, Masked, false>(table, run[i].c, x + at, Masked ? keep + at : nullptr, end - at, w + at);
        if (i) d >>= (run[i].c - run[i - 1].c) >> 2;
        d += total(w + at, end - at);
        if (d > t.weight_sum_high) d = t.weight_sum_high;
    }
    return d;
}

inline void shift_half_up(int32_t* a, int64_t n, int by) {
    for (int64_t i = 0; i < n; i++) a[i] = by > 31 ? 0 : int32_t((int64_t(a[i]) + (int64_t(1) << by >> 1)) >> by);
}

// Products of a row of bytes with packed V one by one: for rows whose sum could exceed D's accumulators.
template <class D>
void multiply_slowly(const uint8_t* a, const typename D::B* b, int64_t depth, int64_t panels, int64_t first,
                     int64_t groups, int32_t* c) {
    constexpr int WIDTH = panel_width<D>();
    for (int64_t p = 0; p < panels; p++)
        for (int64_t g = first; g < first + groups; g++)
            for (int col = 0; col < WIDTH; col++)
                for (int e = 0; e < D::G; e++)
                    c[p * WIDTH + col] += a[g * D::G + e] * int(b[((p * depth + g) * WIDTH + col) * D::G + e]);
}

SMX_TARGET inline int32_t dot(const int8_t* a, const int8_t* b, int64_t n) {
    int32_t sum = 0;
    for (int64_t i = 0; i < n; i++) sum += int32_t(a[i]) * int32_t(b[i]);
    return sum;
}

// a += w·v for up to four rows of V: a word times a value has 16 bits.
template <int Rows>
SMX_TARGET inline void add_rows(const uint8_t* w, const int8_t* const* v, int64_t n, int32_t* a) {
    for (int64_t i = 0; i < n; i++) {
        int32_t sum = a[i];
#pragma GCC unroll 4
        for (int j = 0; j < Rows; j++) sum += int16_t(int16_t(w[j]) * int16_t(v[j][i]));
        a[i] = sum;
    }
}

// a += the rows of V times their words, without those whose word is zero.
SMX_TARGET inline void add_values(const uint8_t* w, const int8_t* v, int64_t stride, int64_t count, int64_t n, int32_t* a) {
    uint8_t words[4];
    const int8_t* rows[4];
    int have = 0;
    for (int64_t i = 0; i < count; i++) {
        words[have] = w[i], rows[have] = v + i * stride;
        have += w[i] != 0;
        if (have < 4) continue;
        add_rows<4>(words, rows, n, a);
        have = 0;
    }
    for (int i = 0; i < have; i++) add_rows<1>(words + i, rows + i, n, a);
}

// The work of one head of K and V, on the rows (queries of all its query heads, one after another) first ... last.
// S and P are the dot products of Q·K^T and P·V.
template <class V, class S, class P>
class Head {
  public:
    SMX_TARGET static void run(const smx_spec& spec, const smx_attention& t, int64_t batch, int64_t kv_head,
                               int64_t first, int64_t last) {
        Head head(spec, t, batch, kv_head, first, last);
        for (int64_t at = first; at < last; at += BLOCK_ROWS)
            head.block(at, last - at < BLOCK_ROWS ? last - at : BLOCK_ROWS);
    }

  private:
    static constexpr int S_WIDTH = panel_width<S>(), P_WIDTH = panel_width<P>();
    static constexpr bool WIDE = !std::is_same<typename P::A, uint8_t>::value;
    static_assert(BLOCK_KEYS % S_WIDTH == 0 && BLOCK_KEYS % V::W == 0 && BLOCK_DEPTH % P::G == 0, "blocks divide");

    SMX_TARGET Head(const smx_spec& spec, const smx_attention& attention, int64_t b, int64_t kv_head, int64_t first,
                    int64_t last)
        : s(spec),
          t(attention),
          batch(b),
          group(t.heads / t.kv_heads),
          first_head(kv_head * group),
          keys(visible(first, last)),
          direct(last - first <= FEW_QUERIES),
          padded(round_up(keys, BLOCK_KEYS)),
          score_groups(round_up(t.head, S::G) / S::G),
          value_groups(round_up(keys, P::G) / P::G),
          panels(round_up(t.head, P_WIDTH) / P_WIDTH),
          k_rows(t.k + batch * t.k_stride[0] + kv_head * t.k_stride[1]),
          v_rows(t.v + batch * t.v_stride[0] + kv_head * t.v_stride[1]),
          k(direct ? 0 : score_groups * S::G * padded),
          v(direct ? 0 : value_groups * P::G * panels * P_WIDTH),
          q(BLOCK_ROWS * score_groups * S::G),
          scores(BLOCK_ROWS * padded),
          weight(BLOCK_ROWS * padded),
          wide(WIDE && !direct ? BLOCK_ROWS * padded : 0),
          product(BLOCK_ROWS * BLOCK_KEYS),
          acc(BLOCK_ROWS * panels * P_WIDTH),
          to_word(t.requantizes ? t.requantizes[kv_head] : t.requantize),
          value_scale(t.value_scales ? t.value_scales[kv_head] : t.value_scale),
          sums(V::sums(s.unnormed)) {
        if (!direct) {
            pack<S>(k_rows, keys, t.k_stride[2], t.head, 1, k.data);
            pack<P>(v_rows, t.head, 1, keys, t.v_stride[2], v.data);
        }
        for (int i = 0; i < SMX_STEPS; i++) entries[i] = uint8_t(t.deferred ? t.weight[i] : 0);
    }

    int64_t length(int64_t row) const {
        int64_t n = t.keys;
        if (t.lengths && t.lengths[batch] < n) n = t.lengths[batch];
        if (t.causal && row % t.queries + t.offset + 1 < n) n = row % t.queries + t.offset + 1;
        return n > 0 ? n : 0;
    }

    int64_t visible(int64_t first, int64_t last) const {
        int64_t most = 0;
        for (int64_t row = first; row < last; row++)
            if (length(row) > most) most = length(row);
        return most;
    }

    const uint8_t* kept(int64_t row) const {
        const int64_t head = first_head + row / t.queries, query = row % t.queries;
        return t.keep + batch * t.keep_stride[0] + head * t.keep_stride[1] + query * t.keep_stride[2];
    }

    SMX_TARGET void block(int64_t at, int64_t rows) {
        int64_t n[BLOCK_ROWS], most = 0;
        for (int64_t r = 0; r < rows; r++) {
            n[r] = length(at + r);
            if (n[r] > most) most = n[r];
        }
        if (direct)
            score_directly(at, rows, most);
        else
            score(at, rows, most);
        std::memset(acc.data, 0, size_t(rows * panels * P_WIDTH) * sizeof(int32_t));
        const int64_t width = round_up(most, P::G);
        uint64_t d[BLOCK_ROWS];
        int exponent[BLOCK_ROWS], counts[BLOCK_ROWS];
        Run growth[BLOCK_ROWS][MAX_RUNS + 1];
        for (int64_t r = 0; r < rows; r++) {
            const int8_t* x = scores.data + r * padded;
            uint8_t* w = weight.data + r * padded;
            if (t.keep)
                softermax<true>(x, kept(at + r), n[r], w, growth[r], counts[r], d[r], exponent[r]);
            else
                softermax<false>(x, nullptr, n[r], w, growth[r], counts[r], d[r], exponent[r]);
            std::memset(w + n[r], 0, size_t(width - n[r]));
            if (WIDE && !direct)
                for (int64_t i = 0; i < width; i++) wide.data[r * padded + i] = typename P::A(w[i]);
        }
        if (direct)
            values_directly(rows, n, growth, counts);
        else if (t.deferred)
            values_deferred(rows, width, growth, counts);
        else
            values(rows, width);
        for (int64_t r = 0; r < rows; r++) finish(at + r, acc.data + r * panels * P_WIDTH, d[r], exponent[r]);
    }

    const int8_t* query_of(int64_t row) const {
        const int64_t head = first_head + row / t.queries, query = row % t.queries;
        return t.q + batch * t.q_stride[0] + head * t.q_stride[1] + query * t.q_stride[2];
    }

    SMX_TARGET void score_directly(int64_t at, int64_t rows, int64_t most) {
        for (int64_t key = 0; key < most; key += BLOCK_KEYS) {
            const int64_t some = most - key < BLOCK_KEYS ? most - key : BLOCK_KEYS, whole = round_up(some, V::W);
            for (int64_t r = 0; r < rows; r++) {
                const int8_t* from = query_of(at + r);
                int32_t* to = product.data + r * BLOCK_KEYS;
                query_by_keys(from, k_rows + key * t.k_stride[2], some, to);
                for (int64_t i = some; i < whole; i++) to[i] = 0;
                requantize(to, whole, 0, scores.data + r * padded + key);
            }
        }
    }

    // A query times `count` keys as they lie in memory: four at a time where S can, element by element what is left.
    SMX_TARGET void query_by_keys(const int8_t* from, const int8_t* key, int64_t count, int32_t* to) {
        const int64_t stride = t.k_stride[2];
        int64_t i = 0;
        if constexpr (S::BYTES > 0) {
            const int64_t whole = t.head / S::BYTES * S::BYTES, left = t.head - whole;
            for (; i + 4 <= count; i += 4) {
                S::four_keys(from, key + i * stride, stride, whole, to + i);
                for (int j = 0; left && j < 4; j++) to[i + j] += dot(from + whole, key + (i + j) * stride + whole, left);
            }
        }
        for (; i < count; i++) to[i] = dot(from, key + i * stride, t.head);
    }

    SMX_TARGET void score(int64_t at, int64_t rows, int64_t most) {
        const int64_t stride = score_groups * S::G;
        int32_t offset[BLOCK_ROWS];
        for (int64_t r = 0; r < rows; r++) {
            const int8_t* from = query_of(at + r);
            typename S::A* to = q.data + r * stride;
            int32_t sum = 0;
            for (int64_t i = 0; i < stride; i++) {
                const int8_t one = i < t.head ? from[i] : int8_t(0);
                to[i] = typename S::A(one);
                sum += one;
            }
            offset[r] = -S::OFFSET * sum;
        }
        for (int64_t key = 0; key < most; key += BLOCK_KEYS) {
            const int64_t some = round_up(most - key < BLOCK_KEYS ? most - key : BLOCK_KEYS, V::W > S_WIDTH ? V::W : S_WIDTH);
            std::memset(product.data, 0, size_t(rows * BLOCK_KEYS) * sizeof(int32_t));
            multiply<S>(q.data, stride, rows, k.data + key * stride, score_groups, some / S_WIDTH, 0, score_groups,
                        product.data, BLOCK_KEYS);
            for (int64_t r = 0; r < rows; r++)
                requantize(product.data + r * BLOCK_KEYS, some, offset[r], scores.data + r * padded + key);
        }
    }

    SMX_TARGET void requantize(const int32_t* from, int64_t count, int32_t offset, int8_t* to) {
        const typename V::F factor = V::set1f(to_word);
        for (int64_t i = 0; i < count; i += V::W) {
            typename V::F f[4];
            for (int j = 0; j < 4; j++) f[j] = V::mul(V::integers(from + i + j * (V::W / 4), offset), factor);
            V::store(to + i, V::narrow(f, s.input_rounding));
        }
    }

    template <bool Masked>
    SMX_TARGET void softermax(const int8_t* x, const uint8_t* keep, int64_t n, uint8_t* w, Run* growth, int& count,
                              uint64_t& d, int& exponent) {
        if (!t.deferred) {
            exponent = row<V, Masked>(sums, s, x, keep, n, w, false);
            d = 0;
            return;
        }
        exponent = 0;
        count = runs<V, Masked>(s, x, keep, n, growth);
        d = weights<V, Masked>(t, V::words(entries), x, keep, n, growth, count, w);
    }

    const typename P::A* left() const {
        if constexpr (WIDE)
            return wide.data;
        else
            return weight.data;
    }

    SMX_TARGET void values(int64_t rows, int64_t width) {
        const int64_t stride = panels * P_WIDTH;
        for (int64_t key = 0; key < width; key += BLOCK_DEPTH) {
            const int64_t some = width - key < BLOCK_DEPTH ? width - key : BLOCK_DEPTH;
            if (fits(rows, key, some)) {
                multiply<P>(left(), padded, rows, v.data, value_groups, panels, key / P::G, some / P::G, acc.data,
                            stride);
                continue;
            }
            for (int64_t r = 0; r < rows; r++)
                multiply_slowly<P>(weight.data + r * padded, v.data, value_groups, panels, key / P::G, some / P::G,
                                   acc.data + r * stride);
        }
    }

    // Whether P's accumulators hold any product of this stretch.
    SMX_TARGET bool fits(int64_t rows, int64_t key, int64_t count) const {
        if (!P::MOST) return true;
        for (int64_t r = 0; r < rows; r++)
            if (total(weight.data + r * padded + key, count) > uint64_t(P::MOST)) return false;
        return true;
    }

    // A8: where a row's max grows, its accumulators are shifted; a tile of rows goes from one such place to the next.
    SMX_TARGET void values_deferred(int64_t rows, int64_t width, Run (*growth)[MAX_RUNS + 1], const int* counts) {
        const int64_t stride = panels * P_WIDTH;
        for (int64_t r = 0; r < rows; r += P::ROWS) {
            const int64_t some = rows - r < P::ROWS ? rows - r : P::ROWS;
            int next[P::ROWS];
            for (int64_t i = 0; i < some; i++) next[i] = 1;
            for (int64_t key = 0; key < width;) {
                int64_t end = width;
                for (int64_t i = 0; i < some; i++)
                    if (next[i] < counts[r + i] && growth[r + i][next[i]].at < end) end = growth[r + i][next[i]].at;
                multiply<P>(left() + r * padded, padded, some, v.data, value_groups, panels, key / P::G,
                            (end - key) / P::G, acc.data + r * stride, stride);
                for (int64_t i = 0; i < some; i++) {
                    if (next[i] >= counts[r + i] || growth[r + i][next[i]].at != end) continue;
                    const int by = (growth[r + i][next[i]].c - growth[r + i][next[i] - 1].c) >> 2;
                    shift_half_up(acc.data + (r + i) * stride, t.head, by);
                    next[i]++;
                }
                key = end;
            }
        }
    }

    SMX_TARGET void values_directly(int64_t rows, const int64_t* n, Run (*growth)[MAX_RUNS + 1], const int* counts) {
        for (int64_t r = 0; r < rows; r++) {
            const uint8_t* w = weight.data + r * padded;
            int32_t* a = acc.data + r * panels * P_WIDTH;
            const int runs = t.deferred ? counts[r] : 1;
            for (int i = 0; i < runs; i++) {
                const int64_t first = i ? growth[r][i].at : 0, last = i + 1 < runs ? growth[r][i + 1].at : n[r];
                if (i) shift_half_up(a, t.head, (growth[r][i].c - growth[r][i - 1].c) >> 2);
                add_values(w + first, v_rows + first * t.v_stride[2], t.v_stride[2], last - first, t.head, a);
            }
        }
    }

    SMX_TARGET void finish(int64_t row, const int32_t* a, uint64_t d, int exponent) {
        const int64_t head = first_head + row / t.queries, query = row % t.queries;
        const int64_t at = t.out_heads_last ? (batch * t.queries + query) * t.heads + head
                                             : (batch * t.heads + head) * t.queries + query;
        float* out = t.out + at * t.head;
        double factor = value_scale, r = 1.0;
        if (t.deferred) {
            if (d == 0) d = 1;
            const int e = 63 - __builtin_clzll(d), fraction_bits = t.weight_sum_bits - 1;
            const uint64_t z = (d << (fraction_bits - e)) & ((uint64_t(1) << fraction_bits) - 1);
            r = t.row_reciprocal[z >> (fraction_bits - t.row_reciprocal_bits)];
            factor = std::ldexp(factor, -(t.row_reciprocal_fraction + e));
        } else {
            factor = std::ldexp(factor, -(s.output_fraction + exponent));
        }
        for (int64_t i = 0; i < t.head; i++) out[i] = float(double(a[i]) * r * factor);
    }

    const smx_spec& s;
    const smx_attention& t;
    const int64_t batch, group, first_head, keys;
    const bool direct;
    const int64_t padded, score_groups, value_groups, panels;
    const int8_t *k_rows, *v_rows;
    Buffer<typename S::B> k;
    Buffer<typename P::B> v;
    Buffer<typename S::A> q;
    Buffer<int8_t> scores;
    Buffer<uint8_t> weight;
    Buffer<typename P::A> wide;
    Buffer<int32_t> product, acc;
    const float to_word;
    const double value_scale;
    const typename V::Sums sums;
    alignas(64) uint8_t entries[SMX_STEPS];
};

template <class V>
SMX_TARGET void attend(const smx_spec& s, const smx_attention& t, int64_t batch, int64_t kv_head, int64_t first,
                       int64_t last) {
    if (t.deferred || s.row_scaled)
        Head<V, typename V::Scores, typename V::Values>::run(s, t, batch, kv_head, first, last);
    else
        Head<V, typename V::Scores, typename V::Probabilities>::run(s, t, batch, kv_head, first, last);
}

}  // namespace
}  // namespace smx
