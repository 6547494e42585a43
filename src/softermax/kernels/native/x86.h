// What AVX2 and AVX-512 do alike, in 128 and 256 bits.
#pragma once

#include "rows.h"

namespace smx {
namespace {

// A load at FIRST + 64 - n has its first n bytes set.
alignas(64) constexpr uint8_t FIRST[128] = {
    255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255,
    255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255,
    255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255,
};

// The bytes' own numbers.
alignas(64) constexpr uint8_t COUNT[64] = {
    0,  1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21,
    22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 32, 33, 34, 35, 36, 37, 38, 39, 40, 41, 42, 43,
    44, 45, 46, 47, 48, 49, 50, 51, 52, 53, 54, 55, 56, 57, 58, 59, 60, 61, 62, 63,
};

// For each of 128 bytes, the slice of 16 that it belongs to.
alignas(64) constexpr uint8_t LANE_OF[128] = {
    0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1,
    2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3,
    4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5,
    6, 6, 6, 6, 6, 6, 6, 6, 6, 6, 6, 6, 6, 6, 6, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7,
};

// Four by four floats, turned.
SMX_TARGET inline void x86_transpose4(const float* from, int64_t stride, float* to, int64_t to_stride) {
    const __m128 a = _mm_loadu_ps(from), b = _mm_loadu_ps(from + stride);
    const __m128 c = _mm_loadu_ps(from + 2 * stride), d = _mm_loadu_ps(from + 3 * stride);
    const __m128 ab = _mm_unpacklo_ps(a, b), cd = _mm_unpacklo_ps(c, d);
    const __m128 ab_high = _mm_unpackhi_ps(a, b), cd_high = _mm_unpackhi_ps(c, d);
    _mm_storeu_ps(to, _mm_movelh_ps(ab, cd));
    _mm_storeu_ps(to + to_stride, _mm_movehl_ps(cd, ab));
    _mm_storeu_ps(to + 2 * to_stride, _mm_movelh_ps(ab_high, cd_high));
    _mm_storeu_ps(to + 3 * to_stride, _mm_movehl_ps(cd_high, ab_high));
}

// The sums of the lanes of four vectors.
SMX_TARGET inline __m128i x86_four_sums(__m256i a, __m256i b, __m256i c, __m256i d) {
    const __m256i both = _mm256_hadd_epi32(_mm256_hadd_epi32(a, b), _mm256_hadd_epi32(c, d));
    return _mm_add_epi32(_mm256_castsi256_si128(both), _mm256_extracti128_si256(both, 1));
}

SMX_TARGET inline int x86_highest(__m128i v) {
    v = _mm_max_epi8(v, _mm_srli_si128(v, 8));
    v = _mm_max_epi8(v, _mm_srli_si128(v, 4));
    v = _mm_max_epi8(v, _mm_srli_si128(v, 2));
    v = _mm_max_epi8(v, _mm_srli_si128(v, 1));
    return int8_t(_mm_extract_epi8(v, 0));
}

SMX_TARGET inline __m256i x86_fold(__m256i a, __m256i b) {
    return _mm256_max_epi8(_mm256_unpacklo_epi8(a, b), _mm256_unpackhi_epi8(a, b));
}

// The maxima of the eight slices of 16 in four vectors, in the low eight bytes and in order.
SMX_TARGET inline __m128i x86_slice_maxima(__m256i a, __m256i b, __m256i c, __m256i d) {
    // Each fold halves what is left of a slice and interleaves two: a c b d a c b d ...
    const __m256i four = x86_fold(x86_fold(a, b), x86_fold(c, d));
    const __m128i even = _mm256_castsi256_si128(four), odd = _mm256_extracti128_si256(four, 1);
    __m128i v = _mm_max_epi8(_mm_unpacklo_epi8(even, odd), _mm_unpackhi_epi8(even, odd));
    v = _mm_max_epi8(v, _mm_srli_si128(v, 8));  // slices 0 1 4 5 2 3 6 7
    return _mm_shuffle_epi8(v, _mm_setr_epi8(0, 1, 4, 5, 2, 3, 6, 7, -1, -1, -1, -1, -1, -1, -1, -1));
}

// Slice maxima to 4m + 3 of the running max, which goes in and out through `carry` (as a raw score).
template <int Width>
SMX_TARGET inline __m128i x86_ceilings(__m128i found, bool ceil, int& carry) {
    const __m128i sign = _mm_set1_epi8(-128);
    __m128i v = _mm_xor_si128(found, sign);  // unsigned: the zeros that shifts bring in are neutral
    if (Width == 32) {
        const __m128i swap = _mm_setr_epi8(1, 0, 3, 2, 5, 4, 7, 6, 9, 8, 11, 10, 13, 12, 15, 14);
        v = _mm_max_epu8(v, _mm_shuffle_epi8(v, swap));
    }
    v = _mm_max_epu8(v, _mm_slli_si128(v, 1));
    v = _mm_max_epu8(v, _mm_slli_si128(v, 2));
    v = _mm_max_epu8(v, _mm_slli_si128(v, 4));
    v = _mm_xor_si128(_mm_max_epu8(v, _mm_set1_epi8(char(carry ^ -128))), sign);
    carry = int8_t(_mm_extract_epi8(v, 7));
    if (ceil) v = _mm_adds_epi8(v, _mm_set1_epi8(3));
    return _mm_or_si128(v, _mm_set1_epi8(3));
}

// Exact sums of slices 0 4 2 6 | 1 5 3 7, and their 4m + 3, to A4's terms and the sums of these.
template <int Width>
SMX_TARGET inline void x86_terms(__m256i exact, __m128i top, const smx_spec& s, Block& out) {
    const __m128i by = _mm_cvtsi32_si128(s.sum_shift);
    // Slices of 32 stand in both halves, 0 2 1 3: the second is made to be nothing.
    if (Width == 32) exact = _mm256_add_epi32(exact, _mm256_permute2x128_si256(exact, exact, 1));
    __m256i terms = _mm256_srl_epi32(_mm256_add_epi32(exact, _mm256_set1_epi32(int(s.sum_bias))), by);
    const __m256i order = Width == 32 ? _mm256_setr_epi32(0, 2, 1, 3, 4, 4, 4, 4) : _mm256_setr_epi32(0, 4, 2, 6, 1, 5, 3, 7);
    terms = _mm256_permutevar8x32_epi32(terms, order);
    __m256i c = _mm256_cvtepi8_epi32(top);
    if (Width == 32) {
        terms = _mm256_blend_epi32(terms, _mm256_setzero_si256(), 0xf0);
        c = _mm256_permutevar8x32_epi32(c, _mm256_setr_epi32(0, 2, 4, 6, 0, 0, 0, 0));
    }
    _mm256_store_si256(reinterpret_cast<__m256i*>(out.terms), terms);
    const __m256i growth = _mm256_srli_epi32(_mm256_sub_epi32(c, _mm256_broadcastd_epi32(_mm256_castsi256_si128(c))), 2);
    const __m256i renormed = _mm256_sllv_epi32(terms, growth);
    const __m256i pairs = _mm256_hadd_epi32(terms, renormed);  // t01 t23 r01 r23 | t45 t67 r45 r67
    __m128i both = _mm_add_epi32(_mm256_castsi256_si128(pairs), _mm256_extracti128_si256(pairs, 1));
    both = _mm_hadd_epi32(both, both);
    const uint64_t sums = uint64_t(_mm_cvtsi128_si64(both));
    out.together = uint32_t(sums);
    out.renormed = uint32_t(sums >> 32);
}

}  // namespace
}  // namespace smx
