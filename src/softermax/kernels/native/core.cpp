// The C ABI: picks the instruction set and cuts the work into ranges for the threads.
#include <atomic>
#include <vector>

#include "isa.h"
#include "pool.h"
#include "rows.h"

namespace {

constexpr int64_t PIECE = 1 << 17;            // elements a thread takes at a time
constexpr int64_t LARGE = int64_t(8) << 20;   // bytes of output beyond which it should not displace the cache

constexpr int64_t QUERIES = 96;               // fewest rows of attention worth packing K and V for
constexpr int64_t OUTPUTS = 1 << 17;          // bytes of output tables that a cache can hold

int64_t count(const smx_rows& rows) {
    int64_t n = 1;
    for (int64_t d = 0; d < rows.dims; d++) n *= rows.shape[d];
    return n;
}

int64_t grain(int64_t columns) { return columns > 0 ? (PIECE + columns - 1) / columns : PIECE; }

const smx::Isa* of(int32_t isa) { return smx::isa_of(isa); }

}  // namespace

const smx::Isa* smx::isa_of(int32_t number) {
    switch (number) {
        case SMX_AVX512: return avx512();
        case SMX_AVX2: return avx2();
        case SMX_NEON: return neon();
        default: return scalar();
    }
}

int32_t smx_usable(int32_t isa) {
    switch (isa) {
        case SMX_SCALAR: return 1;
#if defined(__x86_64__)
        case SMX_AVX2:
            return smx::avx2() && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                   __builtin_cpu_supports("f16c");
        case SMX_AVX512:
            return smx::avx512() && smx_usable(SMX_AVX2) && __builtin_cpu_supports("avx512f") &&
                   __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
                   __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vbmi") &&
                   __builtin_cpu_supports("avx512vnni");
#endif
        case SMX_NEON: return smx::neon() != nullptr;
        default: return 0;
    }
}

int32_t smx_best() {
    for (int32_t isa : {SMX_AVX512, SMX_AVX2, SMX_NEON})
        if (smx_usable(isa)) return isa;
    return SMX_SCALAR;
}

int64_t smx_outputs_size(const smx_spec* spec) {
    const int64_t sums = spec->row_scaled ? 1 : spec->powsum_bits;
    const int64_t size = sums * spec->outputs_stride * SMX_STEPS;
    return size <= OUTPUTS ? size : 0;
}

void smx_fill_outputs(const smx_spec* spec, uint8_t* outputs) {
    const int sums = spec->row_scaled ? 1 : spec->powsum_bits;
    for (int e = 0; e < sums; e++)
        for (int64_t i = 0; i < spec->outputs_stride; i++, outputs += SMX_STEPS)
            smx::output_entries(*spec, spec->reciprocal_low + uint32_t(i), e, outputs);
}

void smx_rows_int8(const smx_spec* spec, const smx_rows* rows, const int8_t* in, uint8_t* out, int32_t* exponent,
                   int32_t isa, int32_t threads) {
    const int64_t n = count(*rows);
    const bool stream = n * rows->columns >= LARGE;
    smx::parallel(n, grain(rows->columns), threads, [&](int64_t first, int64_t last) {
        of(isa)->rows_int8(*spec, *rows, in, out, exponent, first, last, stream);
    });
}

int64_t smx_rows_float(const smx_spec* spec, const smx_rows* rows, smx_float type, const void* in, void* out,
                       uint8_t* words, uint8_t* marks, int32_t* exponent, int32_t isa, int32_t threads) {
    std::atomic<int64_t> broken{-1};
    smx::parallel(count(*rows), grain(rows->columns), threads, [&](int64_t first, int64_t last) {
        const int64_t row =
            of(isa)->rows_float(*spec, *rows, type, in, out, words, marks, exponent, first, last);
        int64_t before = broken;
        while (row >= 0 && (before < 0 || row < before) && !broken.compare_exchange_weak(before, row)) {
        }
    });
    return broken;
}

void smx_backward(const smx_spec* spec, smx_float type, int64_t rows, int64_t columns, const void* grad,
                  const uint8_t* words, const uint8_t* marks, const int32_t* exponent, float factor, void* dx,
                  int32_t isa, int32_t threads) {
    smx::parallel(rows, grain(columns), threads, [&](int64_t first, int64_t last) {
        of(isa)->backward(*spec, type, columns, grad, words, marks, exponent, factor, dx, first, last);
    });
}

void smx_quantize(const float* in, int64_t n, float scale, int8_t* out, int32_t isa, int32_t threads) {
    smx::parallel(n, PIECE, threads, [&](int64_t first, int64_t last) {
        of(isa)->quantize(in + first, last - first, scale, out + first);
    });
}

void smx_attend(const smx_spec* spec, const smx_attention* t, int32_t isa, int32_t threads) {
    // Each piece packs K and V anew, so there are no more than keep the threads busy.
    const int64_t heads = t->batch * t->kv_heads, rows = t->heads / t->kv_heads * t->queries;
    const int64_t wanted = threads > 1 ? (4 * threads + heads - 1) / heads : 1;
    int64_t pieces = rows / QUERIES < wanted ? rows / QUERIES : wanted;
    if (pieces < 1) pieces = 1;
    const bool small = heads * rows * t->keys * t->head < PIECE * 16;
    smx::parallel(heads * pieces, 1, small ? 1 : threads, [&](int64_t first, int64_t last) {
        for (int64_t i = first; i < last; i++) {
            const int64_t head = i / pieces, piece = i % pieces;
            of(isa)->attend(*spec, *t, head / t->kv_heads, head % t->kv_heads, rows * piece / pieces,
                            rows * (piece + 1) / pieces);
        }
    });
}
