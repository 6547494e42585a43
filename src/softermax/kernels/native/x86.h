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

// For each of 128 bytes, the slice of 16 that it belongs to.
alignas(64) constexpr uint8_t LANE_OF[128] = {
    0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1,
    2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3,
    4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5,
    6, 6, 6, 6, 6, 6, 6, 6, 6, 6, 6, 6, 6, 6, 6, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7,
};

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

// Exact sums of slices 0 4 2 6 | 1 5 3 7 to A4's terms, in order; returns their total.
template <int Width>
SMX_TARGET inline uint32_t x86_terms(__m256i exact, const smx_spec& s, uint32_t* terms) {
    const __m128i by = _mm_cvtsi32_si128(s.sum_shift), bias = _mm_set1_epi32(int(s.sum_bias));
    const __m128i even = _mm256_castsi256_si128(exact), odd = _mm256_extracti128_si256(exact, 1);
    __m128i all;
    if (Width == 32) {
        all = _mm_srl_epi32(_mm_add_epi32(_mm_add_epi32(even, odd), bias), by);  // 0 2 1 3
        _mm_store_si128(reinterpret_cast<__m128i*>(terms), _mm_shuffle_epi32(all, 0xd8));
    } else {
        const __m128i a = _mm_shuffle_epi32(_mm_srl_epi32(_mm_add_epi32(even, bias), by), 0xd8);  // 0 2 4 6
        const __m128i b = _mm_shuffle_epi32(_mm_srl_epi32(_mm_add_epi32(odd, bias), by), 0xd8);   // 1 3 5 7
        _mm_store_si128(reinterpret_cast<__m128i*>(terms), _mm_unpacklo_epi32(a, b));
        _mm_store_si128(reinterpret_cast<__m128i*>(terms) + 1, _mm_unpackhi_epi32(a, b));
        all = _mm_add_epi32(a, b);
    }
    all = _mm_add_epi32(all, _mm_shuffle_epi32(all, 0x4e));
    all = _mm_add_epi32(all, _mm_shuffle_epi32(all, 0xb1));
    return uint32_t(_mm_cvtsi128_si32(all));
}

}  // namespace
}  // namespace smx
