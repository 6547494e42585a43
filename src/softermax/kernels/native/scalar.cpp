#include "portable.h"

namespace smx {

const Isa* scalar() {
    static const Isa isa{rows_int8<Portable>, rows_float_any<Portable>, backward_any<Portable>, attend<Portable>,
                         quantize<Portable>, Portable::Linear::WEIGHT_BITS, linear_size<Portable>, linear_pack<Portable>,
                         linear<Portable>, to_bytes<Portable>, weigh<Portable>, nullptr, between<Portable>};
    return &isa;
}

}  // namespace smx
