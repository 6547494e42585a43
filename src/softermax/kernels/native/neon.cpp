#include "isa.h"

#if defined(__aarch64__)

#include <arm_neon.h>

#include "neon.h"

namespace smx {

const Isa* neon() {
    static const Isa isa{rows_int8<Neon>, rows_float_any<Neon>, backward_any<Neon>, attend<Neon>,
                         quantize<Neon>, Neon::Linear::WEIGHT_BITS, linear_size<Neon>, linear_pack<Neon>,
                         linear<Neon>, to_bytes<Neon>, weigh<Neon>, nullptr, between<Neon>};
    return &isa;
}

}  // namespace smx

#else

const smx::Isa* smx::neon() { return nullptr; }

#endif
