#include "isa.h"

#if defined(__x86_64__)

#include <immintrin.h>

#undef SMX_TARGET
#define SMX_TARGET __attribute__((target("avx2,fma,f16c")))

#include "avx2.h"

namespace smx {

const Isa* avx2() {
    static const Isa isa{rows_int8<Avx2>, rows_float_any<Avx2>, backward_any<Avx2>, attend<Avx2>,
                         quantize<Avx2>, Avx2::Linear::WEIGHT_BITS, linear_size<Avx2>, linear_pack<Avx2>,
                         linear<Avx2>, to_bytes<Avx2>, weigh<Avx2>, attend_floats<Avx2>, between<Avx2>};
    return &isa;
}

}  // namespace smx

#else

const smx::Isa* smx::avx2() { return nullptr; }

#endif
