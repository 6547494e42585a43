#include "isa.h"

#undef SMX_TARGET

#if defined(SMX_INTRINSICS)
// For tests on CPUs without AVX-512: the same code on a header that emulates the intrinsics.
#include SMX_INTRINSICS
#define SMX_TARGET
#elif defined(__x86_64__)
#include <immintrin.h>
#define SMX_TARGET \
    __attribute__((target("avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vbmi,avx512vnni")))
#endif

#if defined(SMX_TARGET)

#include "avx512.h"

namespace smx {

const Isa* avx512() {
    static const Isa isa{rows_int8<Avx512>, rows_float_any<Avx512>, backward_any<Avx512>, attend<Avx512>,
                         quantize<Avx512>, Avx512::Linear::WEIGHT_BITS, linear_size<Avx512>, linear_pack<Avx512>,
                         linear<Avx512>, to_bytes<Avx512>, weigh<Avx512>, attend_floats<Avx512>, between<Avx512>};
    return &isa;
}

}  // namespace smx

#else

const smx::Isa* smx::avx512() { return nullptr; }

#endif
