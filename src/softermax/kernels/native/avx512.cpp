#include "isa.h"
const smx::Isa* smx::avx512() { return nullptr; }
