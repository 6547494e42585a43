#include "portable.h"

namespace smx {

const Isa* scalar() {
    static const Isa isa{rows_int8<Portable>, rows_float_any<Portable>, backward_any<Portable>, attend<Portable>,
                         quantize<Portable>};
    return &isa;
}

}  // namespace smx
