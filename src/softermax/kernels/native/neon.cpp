#include "isa.h"
const smx::Isa* smx::neon() { return nullptr; }
