// AVX-512 by SIMDe's portable intrinsics, and by plain loops the few that older versions of it lack.
#pragma once

#define SIMDE_ENABLE_NATIVE_ALIASES
#include <simde/x86/avx512.h>
#include <simde/x86/f16c.h>
#include <simde/x86/fma.h>

#include <cmath>
#include <cstdint>
#include <cstring>

namespace lacking {

template <class To, class From, int N, class Result, class Vector, class Function>
inline Result each(Vector v, Function f) {
    From from[N];
    To to[N];
    static_assert(sizeof to == sizeof(Result) && sizeof from <= sizeof v, "lanes fill the vectors");
    std::memcpy(from, &v, sizeof from);
    for (int i = 0; i < N; i++) to[i] = f(from[i]);
    Result r;
    std::memcpy(&r, to, sizeof r);
    return r;
}

inline int32_t nearest(float v) { return std::isfinite(v) && std::fabs(v) < 2147483648.0f ? int32_t(std::nearbyint(v)) : INT32_MIN; }

}  // namespace lacking

#ifndef _mm512_stream_si512
inline void _mm512_stream_si512(__m512i* p, __m512i v) { std::memcpy(p, &v, sizeof v); }
#endif
#ifndef _mm512_shuffle_epi32
enum _MM_PERM_ENUM : int {};
inline __m512i _mm512_shuffle_epi32(__m512i v, _MM_PERM_ENUM how) {
    uint32_t from[16], to[16];
    std::memcpy(from, &v, sizeof from);
    for (int i = 0; i < 16; i++) to[i] = from[i / 4 * 4 + (int(how) >> 2 * (i % 4) & 3)];
    std::memcpy(&v, to, sizeof v);
    return v;
}
#endif
#ifndef _mm512_cvtepu16_epi32
inline __m512i _mm512_cvtepu16_epi32(__m256i v) {
    return lacking::each<uint32_t, uint16_t, 16, __m512i>(v, [](uint16_t x) { return uint32_t(x); });
}
#endif
#ifndef _mm512_cvtepu8_epi32
inline __m512i _mm512_cvtepu8_epi32(__m128i v) {
    return lacking::each<uint32_t, uint8_t, 16, __m512i>(v, [](uint8_t x) { return uint32_t(x); });
}
#endif
#ifndef _mm512_cvtepi32_epi16
inline __m256i _mm512_cvtepi32_epi16(__m512i v) {
    return lacking::each<uint16_t, uint32_t, 16, __m256i>(v, [](uint32_t x) { return uint16_t(x); });
}
#endif
#ifndef _mm512_cvtepi32_ps
inline __m512 _mm512_cvtepi32_ps(__m512i v) {
    return lacking::each<float, int32_t, 16, __m512>(v, [](int32_t x) { return float(x); });
}
#endif
#ifndef _mm512_cvtps_epi32
inline __m512i _mm512_cvtps_epi32(__m512 v) {
    return lacking::each<int32_t, float, 16, __m512i>(v, [](float x) { return lacking::nearest(x); });
}
#endif
#ifndef _mm512_cvtph_ps
inline __m512 _mm512_cvtph_ps(__m256i v) {
    return _mm512_insertf32x8(_mm512_castps256_ps512(_mm256_cvtph_ps(_mm256_castsi256_si128(v))),
                              _mm256_cvtph_ps(_mm256_extracti128_si256(v, 1)), 1);
}
#endif
#ifndef _mm512_cvtps_ph
inline __m256i _mm512_cvtps_ph(__m512 v, int how) {
    float f[16];
    uint16_t half[16];
    std::memcpy(f, &v, sizeof f);
    for (int i = 0; i < 16; i += 4) {
        const __m128i four = _mm_cvtps_ph(_mm_loadu_ps(f + i), how);
        std::memcpy(half + i, &four, 8);
    }
    __m256i r;
    std::memcpy(&r, half, sizeof r);
    return r;
}
#endif
#ifndef _mm512_maskz_loadu_epi8
inline __m512i _mm512_maskz_loadu_epi8(uint64_t mask, const void* p) {
    alignas(64) uint8_t to[64] = {};
    for (int i = 0; i < 64; i++)
        if (mask >> i & 1) to[i] = static_cast<const uint8_t*>(p)[i];
    return _mm512_loadu_si512(to);
}
#endif
#ifndef _mm512_reduce_add_epi32
inline int32_t _mm512_reduce_add_epi32(__m512i v) {
    uint32_t from[16], all = 0;
    std::memcpy(from, &v, sizeof from);
    for (uint32_t one : from) all += one;
    return int32_t(all);
}
#endif
