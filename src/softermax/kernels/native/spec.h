// A smx_spec that owns its tables.
#pragma once

#include <algorithm>
#include <cstdint>
#include <stdexcept>
#include <vector>

#include "abi.h"

namespace smx {

struct Spec {
    smx_spec c{};
    std::vector<uint32_t> reciprocal;
    std::vector<uint8_t> outputs;

    // Tables come last: the output tables are made of everything else.
    template <class T>
    void set_tables(const std::vector<T>& unnormed, const std::vector<T>& recip, const std::vector<T>& powers) {
        if (unnormed.size() != SMX_STEPS || recip.empty() || powers.size() != 4) throw std::length_error("tables");
        std::copy(unnormed.begin(), unnormed.end(), c.unnormed);
        std::copy(powers.begin(), powers.end(), c.powers);
        reciprocal.assign(recip.begin(), recip.end());
        c.reciprocal = reciprocal.data();
        const auto [low, high] = std::minmax_element(reciprocal.begin(), reciprocal.end());
        c.reciprocal_low = *low;
        c.outputs_stride = int64_t(*high) - int64_t(*low) + 1;
        outputs.resize(size_t(smx_outputs_size(&c)));
        if (outputs.empty()) return;
        smx_fill_outputs(&c, outputs.data());
        c.outputs = outputs.data();
    }
};

}  // namespace smx
