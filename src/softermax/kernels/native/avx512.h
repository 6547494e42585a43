// The policy of AVX-512 (VBMI, VNNI): 64 bytes, a table of 64 entries in one register and one `vpermb`.
#pragma once

#include "attention.h"
#include "encoder.h"
#include "float_attention.h"
#include "x86.h"

namespace smx {
namespace {

#if defined(SMX_INTRINSICS)
using Lanes32 = __m512i;
#else
// Accumulators have the type of the instruction's lanes: GCC copies those of type __m512i twice per product.
using Lanes32 = __v16si;
#endif

// Per lane four products of a signed and an unsigned byte, exact.
struct Avx512ValueDot {
    static constexpr int G = 4, LANES = 16, VECTORS = 2, ROWS = 8, OFFSET = 0, MOST = 0;
    using A = uint8_t;
    using B = int8_t;
    using Vector = __m512i;
    using Acc = Lanes32;
    SMX_TARGET static Acc zero() { return (Acc)_mm512_setzero_si512(); }
    SMX_TARGET static Vector load(const void* p) { return _mm512_loadu_si512(p); }
    SMX_TARGET static Vector everywhere(const void* p) {
        int32_t group;
        std::memcpy(&group, p, 4);
        return _mm512_set1_epi32(group);
    }
    SMX_TARGET static Acc dot(Acc acc, Vector a, Vector b) { return (Acc)_mm512_dpbusd_epi32((__m512i)acc, a, b); }
    SMX_TARGET static void flush(Acc acc, int32_t* c) {
        _mm512_storeu_si512(c, _mm512_add_epi32(_mm512_loadu_si512(c), (__m512i)acc));
    }
};

// For Q·K^T the keys are the unsigned operand: 128 more than they are, which is taken off again per row.
struct Avx512ScoreDot : Avx512ValueDot {
    static constexpr int VECTORS = 4, ROWS = 6, OFFSET = 128;
    using A = int8_t;
    using B = uint8_t;
    SMX_TARGET static Acc dot(Acc acc, Vector a, Vector b) { return (Acc)_mm512_dpbusd_epi32((__m512i)acc, b, a); }

    // A query times four keys as they lie in memory, a block of their elements.
    static constexpr int BYTES = 64;
    SMX_TARGET static __m256i folded(Acc acc) {
        return _mm256_add_epi32(_mm512_castsi512_si256((__m512i)acc), _mm512_extracti64x4_epi64((__m512i)acc, 1));
    }
    SMX_TARGET static void four_keys(const int8_t* q, const int8_t* k, int64_t stride, int64_t n, int32_t* out) {
        const __m512i offset = _mm512_set1_epi8(char(OFFSET));
        Acc sum[4] = {zero(), zero(), zero(), zero()}, off = zero();
        for (int64_t i = 0; i + BYTES <= n; i += BYTES) {
            const Vector one = load(q + i);
            off = dot(off, one, offset);
#pragma GCC unroll 4
            for (int j = 0; j < 4; j++) sum[j] = dot(sum[j], one, _mm512_xor_si512(load(k + j * stride + i), offset));
        }
        const __m256i less = folded(off);
        __m256i rest[4];
#pragma GCC unroll 4
        for (int j = 0; j < 4; j++) rest[j] = _mm256_sub_epi32(folded(sum[j]), less);
        _mm_storeu_si128(reinterpret_cast<__m128i*>(out), x86_four_sums(rest[0], rest[1], rest[2], rest[3]));
    }
};

// For linear layers the activations are the unsigned operand, and a tile has all the sums of its columns.
struct Avx512LinearDot : Avx512ValueDot {
    static constexpr int VECTORS = 4, ROWS = 6, WEIGHT_BITS = 8;
    SMX_TARGET static void flush(Acc acc, int32_t* c) { _mm512_storeu_si512(c, (__m512i)acc); }
};

constexpr _MM_PERM_ENUM SWAP_HALVES = _MM_PERM_ENUM(0x4e);

struct Avx512 {
    using Scores = Avx512ScoreDot;
    using Values = Avx512ValueDot;
    using Probabilities = Avx512ValueDot;
    using Linear = Avx512LinearDot;
    static constexpr int W = 64;
    static constexpr bool BLOCKS = true;
    static constexpr int FLOAT_ROWS = 8;

    using Bytes = __m512i;
    using F = __m512;
    struct Sums {
        __m512i low, high;
        bool narrow;  // u has a high byte only within the first 4 steps, and the last is zero
    };
    using Words = __m512i;
    struct Total {
        Lanes32 low, high;
    };

    SMX_TARGET static Bytes set1(int v) { return _mm512_set1_epi8(char(v)); }
    SMX_TARGET static Bytes load(const void* p) { return _mm512_loadu_si512(p); }
    SMX_TARGET static Bytes load(const int8_t* p) { return _mm512_loadu_si512(p); }
    SMX_TARGET static Bytes load(const uint8_t* p) { return _mm512_loadu_si512(p); }
    SMX_TARGET static void store(void* p, Bytes v) { _mm512_storeu_si512(p, v); }
    SMX_TARGET static Bytes load_first(const void* p, int n) {
        return _mm512_maskz_loadu_epi8(n < W ? (uint64_t(1) << n) - 1 : ~uint64_t(0), p);
    }
    SMX_TARGET static void stream(void* p, Bytes v) { _mm512_stream_si512(static_cast<__m512i*>(p), v); }
    SMX_TARGET static void fence() { _mm_sfence(); }
    SMX_TARGET static Bytes hidden(const uint8_t* keep) {
        return _mm512_movm_epi8(_mm512_cmpeq_epi8_mask(load(keep), _mm512_setzero_si512()));
    }
    SMX_TARGET static Bytes first(int n) { return load(FIRST + 64 - (n < W ? n : W)); }
    SMX_TARGET static Bytes join(Bytes a, Bytes b) { return _mm512_or_si512(a, b); }
    SMX_TARGET static Bytes sink(Bytes v, Bytes hidden) {
        return _mm512_or_si512(_mm512_andnot_si512(hidden, v), _mm512_and_si512(hidden, set1(-128)));
    }
    SMX_TARGET static Bytes max(Bytes a, Bytes b) { return _mm512_max_epi8(a, b); }
    SMX_TARGET static int highest(Bytes v) {
        const __m256i half = _mm256_max_epi8(_mm512_castsi512_si256(v), _mm512_extracti64x4_epi64(v, 1));
        return x86_highest(_mm_max_epi8(_mm256_castsi256_si128(half), _mm256_extracti128_si256(half, 1)));
    }
    SMX_TARGET static Bytes sub(Bytes a, Bytes b) { return _mm512_sub_epi8(a, b); }

    SMX_TARGET static Sums sums(const uint32_t* u) {
        alignas(64) uint8_t low[SMX_STEPS], high[SMX_STEPS];
        for (int i = 0; i < SMX_STEPS; i++) {
            low[i] = uint8_t(u[i]);
            high[i] = uint8_t(u[i] >> 8);
        }
        bool narrow = u[SMX_STEPS - 1] == 0;
        for (int i = 4; i < SMX_STEPS; i++) narrow &= u[i] < 256;
        return {load(low), load(high), narrow};
    }
    SMX_TARGET static Bytes find(Bytes table, Bytes step) {
        return _mm512_maskz_permutexvar_epi8(_mm512_cmplt_epu8_mask(step, set1(SMX_STEPS)), step, table);
    }
    SMX_TARGET static Total none() { return {(Lanes32)_mm512_setzero_si512(), (Lanes32)_mm512_setzero_si512()}; }
    SMX_TARGET static void add(Total& acc, const Sums& t, Bytes step) {
        const __m512i ones = set1(1);
        acc.low = (Lanes32)_mm512_dpbusd_epi32((__m512i)acc.low, find(t.low, step), ones);
        acc.high = (Lanes32)_mm512_dpbusd_epi32((__m512i)acc.high, find(t.high, step), ones);
    }
    SMX_TARGET static uint64_t total(const Total& acc) {
        alignas(64) uint32_t low[16], high[16];
        _mm512_storeu_si512(low, (__m512i)acc.low);
        _mm512_storeu_si512(high, (__m512i)acc.high);
        uint64_t all = 0;
        for (int i = 0; i < 16; i++) all += low[i] + (uint64_t(high[i]) << 8);
        return all;
    }
    SMX_TARGET static Words words(const uint8_t* entries) { return load(entries); }
    SMX_TARGET static Bytes look(const Words& t, Bytes step) { return find(t, step); }

    SMX_TARGET static __m256i half(const int8_t* x) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(x)); }
    SMX_TARGET static __m256i sunk(const int8_t* x, const uint8_t* keep) {
        const __m256i kept = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(keep));
        const __m256i hidden = _mm256_cmpeq_epi8(kept, _mm256_setzero_si256());
        return _mm256_blendv_epi8(half(x), _mm256_set1_epi8(-128), hidden);
    }
    template <bool Masked, int Width>
    SMX_TARGET static void block(const Sums& t, const smx_spec& s, const int8_t* x, const uint8_t* keep, int& carry,
                                 Block& out) {
        const __m128i found =
            Masked ? x86_slice_maxima(sunk(x, keep), sunk(x + 32, keep + 32), sunk(x + 64, keep + 64),
                                      sunk(x + 96, keep + 96))
                   : x86_slice_maxima(half(x), half(x + 32), half(x + 64), half(x + 96));
        const __m128i top = x86_ceilings<Width>(found, s.max_ceil, carry);
        _mm_storel_epi64(reinterpret_cast<__m128i*>(out.c), top);
        const __m512i tops = _mm512_broadcast_i32x4(top);
        __m512i sums[2];
        for (int j = 0; j < 2; j++) {
            __m512i step = sub(_mm512_shuffle_epi8(tops, load(LANE_OF + 64 * j)), load(x + 64 * j));
            if (Masked) step = join(step, hidden(keep + 64 * j));
            const __m512i low = _mm512_sad_epu8(find(t.low, step), _mm512_setzero_si512());
            const __m512i high = _mm512_sad_epu8(find(t.high, step), _mm512_setzero_si512());
            sums[j] = _mm512_add_epi64(low, _mm512_slli_epi64(high, 8));
        }
        // As in AVX2: two partial sums per slice, two vectors in one.
        __m512i both = _mm512_or_si512(sums[0], _mm512_slli_epi64(sums[1], 32));
        both = _mm512_add_epi32(both, _mm512_shuffle_epi32(both, SWAP_HALVES));  // 0, 4 | 1, 5 | 2, 6 | 3, 7
        const __m512i order = _mm512_set_epi32(0, 0, 0, 0, 0, 0, 0, 0, 13, 12, 5, 4, 9, 8, 1, 0);
        x86_terms<Width>(_mm512_castsi512_si256(_mm512_permutexvar_epi32(order, both)), top, s, out);
    }

    // A table by a score's low six bits instead of by its steps below c.
    SMX_TARGET static Bytes by_score(Bytes table, int c) {
        return _mm512_permutexvar_epi8(_mm512_sub_epi8(set1(c), load(COUNT)), table);
    }
    template <int Width>
    SMX_TARGET static int64_t flat(const Sums& t, const smx_spec& s, int c, const int8_t* x, int64_t n, uint64_t& d) {
        const __m512i zero = _mm512_setzero_si512(), low = by_score(t.low, c);
        const __m512i least = set1(c - 63 < -128 ? -128 : c - 63), most = set1(highest_within(c, s.max_ceil));
        const bool narrow = t.narrow && c - 4 >= -128;
        const __m512i small = set1(c - 4);  // up to here a narrow u has one byte
        const __m128i by = _mm_cvtsi32_si128(s.sum_shift);
        const __m512i bias = _mm512_set1_epi32(int(s.sum_bias));
        __m512i acc = zero;
        int64_t at = 0;
        for (; at + BLOCK <= n; at += BLOCK) {
            const __m512i a = load(x + at), b = load(x + at + 64), highest = max(a, b);
            __m512i both;
            if (narrow && !_mm512_cmpgt_epi8_mask(highest, small)) {
                const __m512i first = _mm512_sad_epu8(_mm512_permutexvar_epi8(max(a, least), low), zero);
                const __m512i second = _mm512_sad_epu8(_mm512_permutexvar_epi8(max(b, least), low), zero);
                both = _mm512_or_si512(first, _mm512_slli_epi64(second, 32));
            } else {
                if (_mm512_cmpgt_epi8_mask(highest, most)) break;
                const __m512i high = by_score(t.high, c);
                const auto in_a = _mm512_cmpge_epi8_mask(a, least), in_b = _mm512_cmpge_epi8_mask(b, least);
                const __m512i lows = _mm512_or_si512(
                    _mm512_sad_epu8(_mm512_maskz_permutexvar_epi8(in_a, a, low), zero),
                    _mm512_slli_epi64(_mm512_sad_epu8(_mm512_maskz_permutexvar_epi8(in_b, b, low), zero), 32));
                const __m512i highs = _mm512_or_si512(
                    _mm512_sad_epu8(_mm512_maskz_permutexvar_epi8(in_a, a, high), zero),
                    _mm512_slli_epi64(_mm512_sad_epu8(_mm512_maskz_permutexvar_epi8(in_b, b, high), zero), 32));
                both = _mm512_add_epi32(lows, _mm512_slli_epi32(highs, 8));
            }
            both = _mm512_add_epi32(both, _mm512_shuffle_epi32(both, SWAP_HALVES));
            if (Width == 32) both = _mm512_add_epi32(both, _mm512_shuffle_i32x4(both, both, 0xb1));
            acc = _mm512_add_epi32(acc, _mm512_srl_epi32(_mm512_add_epi32(both, bias), by));
        }
        // A slice's sum stands in both halves of its 16 bytes.
        d += uint64_t(uint32_t(_mm512_reduce_add_epi32(acc))) / (Width / 8);
        return at;
    }

    SMX_TARGET static void transpose4(const float* from, int64_t stride, float* to, int64_t to_stride) {
        x86_transpose4(from, stride, to, to_stride);
    }
    SMX_TARGET static F set1f(float v) { return _mm512_set1_ps(v); }
    SMX_TARGET static F load(const float* p) { return _mm512_loadu_ps(p); }
    SMX_TARGET static F load(const Bf16* p) {
        const __m256i bits = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
        return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
    }
    SMX_TARGET static F load(const Fp16* p) {
        return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
    }
    SMX_TARGET static void store(float* p, F v) { _mm512_storeu_ps(p, v); }
    SMX_TARGET static void store(Bf16* p, F v) {
        const __m512i bits = _mm512_castps_si512(v), top = _mm512_srli_epi32(bits, 16);
        const __m512i odd = _mm512_and_si512(top, _mm512_set1_epi32(1));
        __m512i up = _mm512_srli_epi32(_mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff))), 16);
        up = _mm512_mask_or_epi32(up, _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q), top, _mm512_set1_epi32(0x40));
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtepi32_epi16(up));
    }
    SMX_TARGET static void store(Fp16* p, F v) {
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
    }
    SMX_TARGET static F integers(const int32_t* p, int32_t offset) {
        return _mm512_cvtepi32_ps(_mm512_add_epi32(_mm512_loadu_si512(p), _mm512_set1_epi32(offset)));
    }
    SMX_TARGET static F mul(F a, F b) { return _mm512_mul_ps(a, b); }
    SMX_TARGET static F subf(F a, F b) { return _mm512_sub_ps(a, b); }
    SMX_TARGET static F fma(F a, F b, F c) { return _mm512_fmadd_ps(a, b, c); }
    SMX_TARGET static F clip(F v, float limit) {
        return _mm512_max_ps(_mm512_min_ps(v, _mm512_set1_ps(limit)), _mm512_set1_ps(-limit));
    }
    SMX_TARGET static float across(const F* v) {
        alignas(64) float f[16];
        _mm512_storeu_ps(f, _mm512_add_ps(_mm512_add_ps(v[0], v[1]), _mm512_add_ps(v[2], v[3])));
        float r = 0;
        for (int i = 0; i < 8; i++) r += f[i] + f[i + 8];
        return r;
    }
    SMX_TARGET static bool within(const F* v, float limit) {
        const __m512 top = _mm512_set1_ps(limit);
        const __m512 a = _mm512_max_ps(_mm512_abs_ps(v[0]), _mm512_abs_ps(v[1]));
        const __m512 b = _mm512_max_ps(_mm512_abs_ps(v[2]), _mm512_abs_ps(v[3]));
        // A maximum drops a NaN in its first operand, so NaN is asked for beside it.
        const __m512 c = _mm512_max_ps(a, b);
        const unsigned unordered = _mm512_cmp_ps_mask(v[0], v[1], _CMP_UNORD_Q) | _mm512_cmp_ps_mask(v[2], v[3], _CMP_UNORD_Q);
        return _mm512_cmp_ps_mask(c, top, _CMP_LE_OQ) == 0xffff && !unordered;
    }
    SMX_TARGET static __m128i bytes(F v, smx_rounding how) {
        if (how == SMX_HALF_EVEN) return _mm512_cvtsepi32_epi8(_mm512_cvtps_epi32(v));
        const __m512 floor = _mm512_roundscale_ps(v, 0x09);
        __m512i whole = _mm512_cvtps_epi32(floor);
        if (how == SMX_HALF_UP) {
            const auto up = _mm512_cmp_ps_mask(_mm512_sub_ps(v, floor), _mm512_set1_ps(0.5f), _CMP_GE_OQ);
            whole = _mm512_mask_add_epi32(whole, up, whole, _mm512_set1_epi32(1));
        }
        return _mm512_cvtsepi32_epi8(whole);
    }
    SMX_TARGET static Bytes narrow(const F* v, smx_rounding how) {
        __m512i r = _mm512_castsi128_si512(bytes(v[0], how));
        r = _mm512_inserti32x4(r, bytes(v[1], how), 1);
        r = _mm512_inserti32x4(r, bytes(v[2], how), 2);
        return _mm512_inserti32x4(r, bytes(v[3], how), 3);
    }
    SMX_TARGET static void widen(Bytes v, F* out) {
        out[0] = _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm512_castsi512_si128(v)));
        out[1] = _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm512_extracti32x4_epi32(v, 1)));
        out[2] = _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm512_extracti32x4_epi32(v, 2)));
        out[3] = _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm512_extracti32x4_epi32(v, 3)));
    }
};

}  // namespace
}  // namespace smx
