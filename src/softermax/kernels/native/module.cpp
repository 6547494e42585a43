// The Python module: addresses and numbers in, nothing returned but what C returns. What is checked is checked by the
// Python side, which knows the tensors; every call lets other Python threads run.
#include <nanobind/nanobind.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cstdlib>
#include <stdexcept>
#include <vector>

#include "spec.h"

namespace nb = nanobind;
using Ints = std::vector<int64_t>;
using smx::Spec;

namespace {

template <class T>
T* at(uintptr_t address) {
    return reinterpret_cast<T*>(address);
}

// A8's words and tables.
struct Deferred {
    std::vector<uint32_t> weight;
    int powsum_bits;
    uint64_t powsum_high;
    std::vector<uint32_t> reciprocal;
    int reciprocal_bits, reciprocal_fraction;
    smx_attention mode{};

    void set(smx_attention& t) const {
        t.deferred = 1;
        std::copy(weight.begin(), weight.end(), t.weight);
        t.weight_sum_bits = powsum_bits;
        t.weight_sum_high = powsum_high;
        t.row_reciprocal = reciprocal.data();
        t.row_reciprocal_bits = reciprocal_bits;
        t.row_reciprocal_fraction = reciprocal_fraction;
    }
};

void copy(const Ints& from, int64_t* to, size_t most, const char* name) {
    if (from.size() > most) throw std::length_error(name);
    std::copy(from.begin(), from.end(), to);
}

smx_rows rows(const Ints& shape, const Ints& in_stride, const Ints& keep_stride, int64_t columns, uintptr_t keep,
              uintptr_t lengths, bool causal, int64_t offset) {
    smx_rows r{};
    r.dims = int64_t(shape.size());
    copy(shape, r.shape, SMX_MAX_DIMS, "shape");
    copy(in_stride, r.in_stride, SMX_MAX_DIMS, "in_stride");
    copy(keep_stride, r.keep_stride, SMX_MAX_DIMS, "keep_stride");
    r.columns = columns;
    r.keep = at<const uint8_t>(keep);
    r.lengths = at<const int32_t>(lengths);
    r.causal = causal;
    r.offset = offset;
    return r;
}

}  // namespace

void bind_model(nb::module_& m);  // model.cpp

NB_MODULE(_native, m) {
    bind_model(m);
    nb::set_leak_warnings(false);  // specs are kept as long as the process lives
    m.def("environment", [](const char* name) { return std::getenv(name); }, nb::arg("name"));
    m.def("usable", &smx_usable, nb::arg("isa"));
    m.def("best", &smx_best);

    nb::class_<Spec>(m, "Spec").def(
        "__init__",
        [](Spec* self, const std::vector<uint32_t>& unnormed, const std::vector<uint32_t>& reciprocal,
           int reciprocal_bits, bool max_ceil, int64_t slice_width, int sum_shift, uint32_t sum_bias, int powsum_bits,
           int powsum_fraction, uint64_t powsum_high, bool row_products, const std::vector<uint32_t>& powers,
           int product_shift, uint64_t product_high, int output_shift, bool row_scaled, bool output_half_up,
           uint32_t output_high, int output_fraction, float input_scale, int input_rounding) {
            new (self) Spec;
            smx_spec& c = self->c;
            c.reciprocal_bits = reciprocal_bits;
            c.max_ceil = max_ceil;
            c.slice_width = slice_width;
            c.sum_shift = sum_shift;
            c.sum_bias = sum_bias;
            c.powsum_bits = powsum_bits;
            c.powsum_fraction = powsum_fraction;
            c.powsum_high = powsum_high;
            c.row_products = row_products;
            c.product_shift = product_shift;
            c.product_high = product_high;
            c.output_shift = output_shift;
            c.row_scaled = row_scaled;
            c.output_half_up = output_half_up;
            c.output_high = output_high;
            c.output_fraction = output_fraction;
            c.input_scale = input_scale;
            c.input_rounding = smx_rounding(input_rounding);
            self->set_tables(unnormed, reciprocal, powers);
        },
        nb::kw_only(), nb::arg("unnormed"), nb::arg("reciprocal"), nb::arg("reciprocal_bits"), nb::arg("max_ceil"),
        nb::arg("slice_width"), nb::arg("sum_shift"), nb::arg("sum_bias"), nb::arg("powsum_bits"),
        nb::arg("powsum_fraction"), nb::arg("powsum_high"), nb::arg("row_products"), nb::arg("powers"),
        nb::arg("product_shift"), nb::arg("product_high"), nb::arg("output_shift"), nb::arg("row_scaled"),
        nb::arg("output_half_up"), nb::arg("output_high"), nb::arg("output_fraction"), nb::arg("input_scale"),
        nb::arg("input_rounding"))
        .def_prop_ro("address", [](Spec& self) { return reinterpret_cast<uintptr_t>(&self.c); });

    m.def(
        "rows_int8",
        [](const Spec& spec, const Ints& shape, const Ints& in_stride, const Ints& keep_stride, int64_t columns,
           uintptr_t keep, uintptr_t lengths, bool causal, int64_t offset, uintptr_t in, uintptr_t out,
           uintptr_t exponent, int isa, int threads) {
            const smx_rows r = rows(shape, in_stride, keep_stride, columns, keep, lengths, causal, offset);
            nb::gil_scoped_release release;
            smx_rows_int8(&spec.c, &r, at<const int8_t>(in), at<uint8_t>(out), at<int32_t>(exponent), isa, threads);
        });

    m.def("rows_float",
          [](const Spec& spec, const Ints& shape, const Ints& in_stride, const Ints& keep_stride, int64_t columns,
             uintptr_t keep, uintptr_t lengths, bool causal, int64_t offset, int type, uintptr_t in, uintptr_t out,
             uintptr_t words, uintptr_t marks, uintptr_t exponent, int isa, int threads) {
              const smx_rows r = rows(shape, in_stride, keep_stride, columns, keep, lengths, causal, offset);
              nb::gil_scoped_release release;
              return smx_rows_float(&spec.c, &r, smx_float(type), at<const void>(in), at<void>(out),
                                    at<uint8_t>(words), at<uint8_t>(marks), at<int32_t>(exponent), isa, threads);
          });

    m.def("backward", [](const Spec& spec, int type, int64_t rows, int64_t columns, uintptr_t grad, uintptr_t words,
                         uintptr_t marks, uintptr_t exponent, float factor, uintptr_t dx, int isa, int threads) {
        nb::gil_scoped_release release;
        smx_backward(&spec.c, smx_float(type), rows, columns, at<const void>(grad), at<const uint8_t>(words),
                     at<const uint8_t>(marks), at<const int32_t>(exponent), factor, at<void>(dx), isa, threads);
    });

    nb::class_<Deferred>(m, "Deferred")
        .def(
            "__init__",
            [](Deferred* self, const std::vector<uint32_t>& weight, int powsum_bits, uint64_t powsum_high,
               const std::vector<uint32_t>& reciprocal, int reciprocal_bits, int reciprocal_fraction) {
                if (weight.size() != SMX_STEPS || reciprocal.empty()) throw std::length_error("tables");
                new (self)
                    Deferred{weight, powsum_bits, powsum_high, reciprocal, reciprocal_bits, reciprocal_fraction, {}};
            },
            nb::kw_only(), nb::arg("weight"), nb::arg("powsum_bits"), nb::arg("powsum_high"), nb::arg("reciprocal"),
            nb::arg("reciprocal_bits"), nb::arg("reciprocal_fraction"))
        .def_prop_ro("address", [](Deferred& self) {
            self.set(self.mode);
            return reinterpret_cast<uintptr_t>(&self.mode);
        });

    m.def(
        "attend",
        [](const Spec& spec, const Deferred* deferred, const Ints& sizes, uintptr_t q, const Ints& q_stride,
           uintptr_t k, const Ints& k_stride, uintptr_t v, const Ints& v_stride, uintptr_t out,
           const std::vector<float>& requantize, const std::vector<double>& value_scale, uintptr_t keep, const Ints& keep_stride, uintptr_t lengths, bool causal, int isa,
           int threads) {
            smx_attention t{};
            if (sizes.size() != 6) throw std::length_error("sizes");
            for (const size_t n : {requantize.size(), value_scale.size()})
                if (int64_t(n) != sizes[2]) throw std::length_error("scales");
            t.batch = sizes[0], t.heads = sizes[1], t.kv_heads = sizes[2];
            t.queries = sizes[3], t.keys = sizes[4], t.head = sizes[5];
            t.q = at<const int8_t>(q), t.k = at<const int8_t>(k), t.v = at<const int8_t>(v);
            copy(q_stride, t.q_stride, 3, "q_stride");
            copy(k_stride, t.k_stride, 3, "k_stride");
            copy(v_stride, t.v_stride, 3, "v_stride");
            copy(keep_stride, t.keep_stride, 3, "keep_stride");
            t.out = at<float>(out);
            t.requantizes = requantize.data();
            t.value_scales = value_scale.data();
            t.keep = at<const uint8_t>(keep);
            t.lengths = at<const int32_t>(lengths);
            t.causal = causal;
            t.offset = t.keys - t.queries;
            if (deferred) deferred->set(t);
            nb::gil_scoped_release release;
            smx_attend(&spec.c, &t, isa, threads);
        },
        nb::arg("spec"), nb::arg("deferred").none(), nb::arg("sizes"), nb::arg("q"), nb::arg("q_stride"), nb::arg("k"),
        nb::arg("k_stride"), nb::arg("v"), nb::arg("v_stride"), nb::arg("out"), nb::arg("requantize"),
        nb::arg("value_scale"), nb::arg("keep"), nb::arg("keep_stride"), nb::arg("lengths"), nb::arg("causal"),
        nb::arg("isa"), nb::arg("threads"));

    m.def("quantize", [](uintptr_t in, int64_t count, float scale, uintptr_t out, int isa, int threads) {
        nb::gil_scoped_release release;
        smx_quantize(at<const float>(in), count, scale, at<int8_t>(out), isa, threads);
    });
}
