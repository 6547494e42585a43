// The policy of AVX2 (with FMA and F16C): 32 bytes, tables of 16 entries per `pshufb`.
//
// A look-up in four tables of 16 takes no blends: table j answers to every index below 16(j + 1), because adding
// 0x70 - 16j with saturation sets the top bit, pshufb's zero, for all others. What several tables answer
// to is combined by exclusive or, so each holds its entries xor those of the next.
#pragma once

#include "attention.h"
#include "encoder.h"
#include "float_attention.h"
#include "x86.h"

namespace smx {
namespace {

// Pairs of 16-bit words: two exact products per lane.
struct Avx2Dot {
    static constexpr int G = 2, LANES = 8, VECTORS = 2, ROWS = 4, OFFSET = 0, MOST = 0;
    using A = int16_t;
    using B = int16_t;
    using Vector = __m256i;
    using Acc = __m256i;
    SMX_TARGET static Acc zero() { return _mm256_setzero_si256(); }
    SMX_TARGET static Vector load(const void* p) { return _mm256_loadu_si256(static_cast<const __m256i*>(p)); }
    SMX_TARGET static Vector everywhere(const void* p) {
        int32_t group;
        std::memcpy(&group, p, 4);
        return _mm256_set1_epi32(group);
    }
    SMX_TARGET static Acc dot(Acc acc, Vector a, Vector b) {
        return _mm256_add_epi32(acc, _mm256_madd_epi16(a, b));
    }
    SMX_TARGET static void flush(Acc acc, int32_t* c) {
        __m256i* to = reinterpret_cast<__m256i*>(c);
        _mm256_storeu_si256(to, _mm256_add_epi32(_mm256_loadu_si256(to), acc));
    }

    // A query times four keys as they lie in memory, a block of their elements.
    static constexpr int BYTES = 16;
    SMX_TARGET static Vector wide(const int8_t* p) {
        return _mm256_cvtepi8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
    }
    SMX_TARGET static void four_keys(const int8_t* q, const int8_t* k, int64_t stride, int64_t n, int32_t* out) {
        Acc sum[4] = {zero(), zero(), zero(), zero()};
        for (int64_t i = 0; i + BYTES <= n; i += BYTES) {
            const Vector one = wide(q + i);
#pragma GCC unroll 4
            for (int j = 0; j < 4; j++) sum[j] = dot(sum[j], one, wide(k + j * stride + i));
        }
        _mm_storeu_si128(reinterpret_cast<__m128i*>(out), x86_four_sums(sum[0], sum[1], sum[2], sum[3]));
    }
};

// Four bytes per lane into two 16-bit sums: exact while the left operands of a row add up to no more than 255, as
// probabilities in a fixed format do but for odd cases.
struct Avx2ByteDot : Avx2Dot {
    static constexpr int G = 4, MOST = 255;
    using A = uint8_t;
    using B = int8_t;
    SMX_TARGET static Acc dot(Acc acc, Vector a, Vector b) {
        return _mm256_add_epi16(acc, _mm256_maddubs_epi16(a, b));
    }
    SMX_TARGET static void flush(Acc acc, int32_t* c) {
        Avx2Dot::flush(_mm256_madd_epi16(acc, _mm256_set1_epi16(1)), c);
    }
};

// For linear layers: an unsigned byte times a weight of 7 bits, of which a pair always fits 16 bits.
struct Avx2LinearDot : Avx2Dot {
    static constexpr int G = 4, ROWS = 4, WEIGHT_BITS = 7;
    using A = uint8_t;
    using B = int8_t;
    SMX_TARGET static Acc dot(Acc acc, Vector a, Vector b) {
        return _mm256_add_epi32(acc, _mm256_madd_epi16(_mm256_maddubs_epi16(a, b), _mm256_set1_epi16(1)));
    }
    SMX_TARGET static void flush(Acc acc, int32_t* c) { _mm256_storeu_si256(reinterpret_cast<__m256i*>(c), acc); }
};

struct Avx2 {
    using Scores = Avx2Dot;
    using Values = Avx2Dot;
    using Probabilities = Avx2ByteDot;
    using Linear = Avx2LinearDot;
    static constexpr int W = 32;
    static constexpr bool BLOCKS = true;
    static constexpr int FLOAT_ROWS = 6;

    using Bytes = __m256i;
    using F = __m256;
    struct Sums {
        __m256i low[4], high[2];  // u has a high byte only within the first 32 steps
        bool narrow;              // or only within the first 4, and is zero past the first 48
    };
    struct Words {
        __m256i y[3];  // an 8-bit output is zero past the first 44 steps
    };
    struct Total {
        __m256i low, high;
    };

    SMX_TARGET static Bytes set1(int v) { return _mm256_set1_epi8(char(v)); }
    SMX_TARGET static Bytes load(const void* p) { return _mm256_loadu_si256(static_cast<const __m256i*>(p)); }
    SMX_TARGET static Bytes load(const int8_t* p) { return load(static_cast<const void*>(p)); }
    SMX_TARGET static Bytes load(const uint8_t* p) { return load(static_cast<const void*>(p)); }
    SMX_TARGET static void store(void* p, Bytes v) { _mm256_storeu_si256(static_cast<__m256i*>(p), v); }
    SMX_TARGET static Bytes load_first(const void* p, int n) {
        if (n >= W) return load(p);
        if (n <= 0) return _mm256_setzero_si256();
        alignas(32) uint8_t some[W] = {};
        std::memcpy(some, p, size_t(n));
        return load(static_cast<const void*>(some));
    }
    SMX_TARGET static void stream(void* p, Bytes v) { _mm256_stream_si256(static_cast<__m256i*>(p), v); }
    SMX_TARGET static void fence() { _mm_sfence(); }
    SMX_TARGET static Bytes hidden(const uint8_t* keep) {
        return _mm256_cmpeq_epi8(load(keep), _mm256_setzero_si256());
    }
    SMX_TARGET static Bytes first(int n) { return load(FIRST + 64 - (n < W ? n : W)); }
    SMX_TARGET static Bytes join(Bytes a, Bytes b) { return _mm256_or_si256(a, b); }
    SMX_TARGET static Bytes sink(Bytes v, Bytes hidden) { return _mm256_blendv_epi8(v, set1(-128), hidden); }
    SMX_TARGET static Bytes max(Bytes a, Bytes b) { return _mm256_max_epi8(a, b); }
    SMX_TARGET static int highest(Bytes v) {
        return x86_highest(_mm_max_epi8(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1)));
    }
    SMX_TARGET static Bytes sub(Bytes a, Bytes b) { return _mm256_sub_epi8(a, b); }

    SMX_TARGET static __m256i both(const uint8_t* p) {
        return _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
    }
    SMX_TARGET static Sums sums(const uint32_t* u) {
        alignas(32) uint8_t low[SMX_STEPS], high[SMX_STEPS];
        for (int i = 0; i < SMX_STEPS; i++) {
            const uint32_t next = i + 16 < SMX_STEPS ? u[i + 16] : 0;
            low[i] = uint8_t(u[i] ^ next);
            high[i] = uint8_t((u[i] ^ next) >> 8);
        }
        Sums t;
        t.narrow = true;
        for (int i = 4; i < SMX_STEPS; i++) t.narrow &= u[i] < (i < 48 ? 256u : 1u);
        for (int j = 0; j < 4; j++) t.low[j] = both(low + 16 * j);
        for (int j = 0; j < 2; j++) t.high[j] = both(high + 16 * j);
        return t;
    }
    SMX_TARGET static Total none() { return {_mm256_setzero_si256(), _mm256_setzero_si256()}; }
    SMX_TARGET static void unnormed(const Sums& t, Bytes step, Bytes& low, Bytes& high) {
        const __m256i a = _mm256_adds_epu8(step, set1(0x70)), b = _mm256_adds_epu8(step, set1(0x60));
        const __m256i c = _mm256_adds_epu8(step, set1(0x50)), d = _mm256_adds_epu8(step, set1(0x40));
        high = _mm256_xor_si256(_mm256_shuffle_epi8(t.high[0], a), _mm256_shuffle_epi8(t.high[1], b));
        low = _mm256_xor_si256(
            _mm256_xor_si256(_mm256_shuffle_epi8(t.low[0], a), _mm256_shuffle_epi8(t.low[1], b)),
            _mm256_xor_si256(_mm256_shuffle_epi8(t.low[2], c), _mm256_shuffle_epi8(t.low[3], d)));
    }
    SMX_TARGET static void add(Total& acc, const Sums& t, Bytes step) {
        Bytes low, high;
        unnormed(t, step, low, high);
        acc.low = _mm256_add_epi64(acc.low, _mm256_sad_epu8(low, _mm256_setzero_si256()));
        acc.high = _mm256_add_epi64(acc.high, _mm256_sad_epu8(high, _mm256_setzero_si256()));
    }
    SMX_TARGET static uint64_t total(const Total& acc) {
        const __m256i v = _mm256_add_epi64(acc.low, _mm256_slli_epi64(acc.high, 8));
        const __m128i half = _mm_add_epi64(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
        return uint64_t(_mm_cvtsi128_si64(half)) + uint64_t(_mm_extract_epi64(half, 1));
    }
    SMX_TARGET static Words words(const uint8_t* entries) {
        const __m256i a = both(entries), b = both(entries + 16), c = both(entries + 32);
        return {{_mm256_xor_si256(a, b), _mm256_xor_si256(b, c), c}};
    }
    SMX_TARGET static Bytes look(const Words& t, Bytes step) {
        const __m256i a = _mm256_shuffle_epi8(t.y[0], _mm256_adds_epu8(step, set1(0x70)));
        const __m256i b = _mm256_shuffle_epi8(t.y[1], _mm256_adds_epu8(step, set1(0x60)));
        const __m256i c = _mm256_shuffle_epi8(t.y[2], _mm256_adds_epu8(step, set1(0x50)));
        return _mm256_xor_si256(_mm256_xor_si256(a, b), c);
    }

    template <bool Masked, int Width>
    SMX_TARGET static void block(const Sums& t, const smx_spec& s, const int8_t* x, const uint8_t* keep, int& carry,
                                 Block& out) {
        __m256i v[4], off[4];
        for (int j = 0; j < 4; j++) {
            v[j] = load(x + 32 * j);
            off[j] = Masked ? hidden(keep + 32 * j) : _mm256_setzero_si256();
        }
        const __m128i found =
            Masked ? x86_slice_maxima(sink(v[0], off[0]), sink(v[1], off[1]), sink(v[2], off[2]), sink(v[3], off[3]))
                   : x86_slice_maxima(v[0], v[1], v[2], v[3]);
        const __m128i top = x86_ceilings<Width>(found, s.max_ceil, carry);
        _mm_storel_epi64(reinterpret_cast<__m128i*>(out.c), top);
        const __m256i tops = _mm256_broadcastsi128_si256(top);
        __m256i sums[4];
        for (int j = 0; j < 4; j++) {
            const __m256i lanes = _mm256_load_si256(reinterpret_cast<const __m256i*>(LANE_OF + 32 * j));
            __m256i step = sub(_mm256_shuffle_epi8(tops, lanes), v[j]), low, high;
            if (Masked) step = join(step, off[j]);
            unnormed(t, step, low, high);
            low = _mm256_sad_epu8(low, _mm256_setzero_si256());
            high = _mm256_sad_epu8(high, _mm256_setzero_si256());
            sums[j] = _mm256_add_epi64(low, _mm256_slli_epi64(high, 8));
        }
        x86_terms<Width>(slice_sums(sums), top, s, out);
    }
    // Sums of eight bytes each to those of slices 0 4 2 6 | 1 5 3 7.
    SMX_TARGET static __m256i slice_sums(const __m256i* sums) {
        // Each slice has two partial sums of 64 bits; they fit 32, so two vectors share one.
        __m256i a = _mm256_or_si256(sums[0], _mm256_slli_epi64(sums[2], 32));
        __m256i b = _mm256_or_si256(sums[1], _mm256_slli_epi64(sums[3], 32));
        a = _mm256_add_epi32(a, _mm256_shuffle_epi32(a, 0x4e));  // slices 0, 4 | 1, 5
        b = _mm256_add_epi32(b, _mm256_shuffle_epi32(b, 0x4e));  // slices 2, 6 | 3, 7
        return _mm256_unpacklo_epi64(a, b);
    }
    template <int Width>
    SMX_TARGET static int64_t flat(const Sums& t, const smx_spec& s, int c, const int8_t* x, int64_t n, uint64_t& d) {
        const __m256i top = set1(c), zero = _mm256_setzero_si256();
        const __m256i most = set1(highest_within(c, s.max_ceil));
        const bool narrow = t.narrow && c - 4 >= -128;
        const __m256i small = set1(c - 4);  // up to here a narrow u has one byte
        const __m128i by = _mm_cvtsi32_si128(s.sum_shift);
        const __m256i bias = _mm256_set1_epi32(int(s.sum_bias));
        __m256i acc = zero;
        int64_t at = 0;
        for (; at + BLOCK <= n; at += BLOCK) {
            __m256i v[4], sums[4];
            for (int j = 0; j < 4; j++) v[j] = load(x + at + 32 * j);
            const __m256i highest = max(max(v[0], v[1]), max(v[2], v[3]));
            if (narrow && !_mm256_movemask_epi8(_mm256_cmpgt_epi8(highest, small))) {
                for (int j = 0; j < 4; j++) {
                    const __m256i step = sub(top, v[j]);
                    const __m256i a = _mm256_shuffle_epi8(t.low[0], _mm256_adds_epu8(step, set1(0x70)));
                    const __m256i b = _mm256_shuffle_epi8(t.low[1], _mm256_adds_epu8(step, set1(0x60)));
                    const __m256i d = _mm256_shuffle_epi8(t.low[2], _mm256_adds_epu8(step, set1(0x50)));
                    sums[j] = _mm256_sad_epu8(_mm256_xor_si256(_mm256_xor_si256(a, b), d), zero);
                }
            } else {
                if (_mm256_movemask_epi8(_mm256_cmpgt_epi8(highest, most))) break;
                for (int j = 0; j < 4; j++) {
                    __m256i low, high;
                    unnormed(t, sub(top, v[j]), low, high);
                    sums[j] = _mm256_add_epi64(_mm256_sad_epu8(low, zero),
                                               _mm256_slli_epi64(_mm256_sad_epu8(high, zero), 8));
                }
            }
            __m256i exact = slice_sums(sums);
            if (Width == 32) exact = _mm256_add_epi32(exact, _mm256_permute2x128_si256(exact, exact, 1));
            acc = _mm256_add_epi32(acc, _mm256_srl_epi32(_mm256_add_epi32(exact, bias), by));
        }
        alignas(32) uint32_t all[8];
        store(all, acc);
        // Slices of 32 stand in both halves.
        for (int i = 0; i < (Width == 32 ? 4 : 8); i++) d += all[i];
        return at;
    }

    SMX_TARGET static void transpose4(const float* from, int64_t stride, float* to, int64_t to_stride) {
        x86_transpose4(from, stride, to, to_stride);
    }
    SMX_TARGET static F set1f(float v) { return _mm256_set1_ps(v); }
    SMX_TARGET static F load(const float* p) { return _mm256_loadu_ps(p); }
    SMX_TARGET static F load(const Bf16* p) {
        const __m128i bits = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
        return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
    }
    SMX_TARGET static F load(const Fp16* p) {
        return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
    }
    SMX_TARGET static void store(float* p, F v) { _mm256_storeu_ps(p, v); }
    SMX_TARGET static void store(Bf16* p, F v) {
        const __m256i bits = _mm256_castps_si256(v), odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
        __m256i up = _mm256_srli_epi32(_mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff))), 16);
        const __m256i quiet = _mm256_or_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(0x40));
        up = _mm256_blendv_epi8(up, quiet, _mm256_castps_si256(_mm256_cmp_ps(v, v, _CMP_UNORD_Q)));
        const __m256i packed = _mm256_permute4x64_epi64(_mm256_packus_epi32(up, up), 0x08);
        _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm256_castsi256_si128(packed));
    }
    SMX_TARGET static void store(Fp16* p, F v) {
        _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
    }
    SMX_TARGET static F integers(const int32_t* p, int32_t offset) {
        return _mm256_cvtepi32_ps(_mm256_add_epi32(load(static_cast<const void*>(p)), _mm256_set1_epi32(offset)));
    }
    SMX_TARGET static F mul(F a, F b) { return _mm256_mul_ps(a, b); }
    SMX_TARGET static F subf(F a, F b) { return _mm256_sub_ps(a, b); }
    SMX_TARGET static F fma(F a, F b, F c) { return _mm256_fmadd_ps(a, b, c); }
    SMX_TARGET static F size(F v) { return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), v); }
    SMX_TARGET static F clip(F v, float limit) {
        return _mm256_max_ps(_mm256_min_ps(v, _mm256_set1_ps(limit)), _mm256_set1_ps(-limit));
    }
    SMX_TARGET static float across(const F* v) {
        alignas(32) float f[8];
        _mm256_store_ps(f, _mm256_add_ps(_mm256_add_ps(v[0], v[1]), _mm256_add_ps(v[2], v[3])));
        return ((f[0] + f[4]) + (f[1] + f[5])) + ((f[2] + f[6]) + (f[3] + f[7]));
    }
    SMX_TARGET static bool within(const F* v, float limit) {
        const __m256 top = _mm256_set1_ps(limit);
        const __m256 a = _mm256_and_ps(_mm256_cmp_ps(size(v[0]), top, _CMP_LE_OQ), _mm256_cmp_ps(size(v[1]), top, _CMP_LE_OQ));
        const __m256 b = _mm256_and_ps(_mm256_cmp_ps(size(v[2]), top, _CMP_LE_OQ), _mm256_cmp_ps(size(v[3]), top, _CMP_LE_OQ));
        return _mm256_movemask_ps(_mm256_and_ps(a, b)) == 0xff;
    }
    SMX_TARGET static __m256i whole(F v, smx_rounding how) {
        if (how == SMX_HALF_EVEN) return _mm256_cvtps_epi32(v);
        const __m256 floor = _mm256_floor_ps(v);
        const __m256i down = _mm256_cvtps_epi32(floor);
        if (how == SMX_TRUNCATE) return down;
        const __m256 up = _mm256_cmp_ps(_mm256_sub_ps(v, floor), _mm256_set1_ps(0.5f), _CMP_GE_OQ);
        return _mm256_sub_epi32(down, _mm256_castps_si256(up));  // a set lane is -1
    }
    SMX_TARGET static Bytes narrow(const F* v, smx_rounding how) {
        const __m256i ab = _mm256_packs_epi32(whole(v[0], how), whole(v[1], how));
        const __m256i cd = _mm256_packs_epi32(whole(v[2], how), whole(v[3], how));
        return _mm256_permutevar8x32_epi32(_mm256_packs_epi16(ab, cd), _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
    }
    SMX_TARGET static void widen(Bytes v, F* out) {
        const __m128i low = _mm256_castsi256_si128(v), high = _mm256_extracti128_si256(v, 1);
        out[0] = _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(low));
        out[1] = _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_srli_si128(low, 8)));
        out[2] = _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(high));
        out[3] = _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_srli_si128(high, 8)));
    }
};

}  // namespace
}  // namespace smx
