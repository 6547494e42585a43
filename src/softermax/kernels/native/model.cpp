// Int8 models: linear layers and whole encoders, and their Python classes. As in module.cpp, the Python side checks.
#include <nanobind/nanobind.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <vector>

#include "isa.h"
#include "model.h"
#include "pool.h"

namespace nb = nanobind;

namespace {

using smx::EncoderLayer;
using smx::EncoderRun;

constexpr int64_t BLOCK_ROWS = 192;    // rows whose bytes stay in the second cache beside the weights' panel
constexpr int64_t LEAST_ROWS = 24;     // fewest worth a pass over the weights
constexpr int64_t FEW_ROWS = 64;       // fewest worth another
constexpr int64_t PIECE_QUERIES = 96;  // fewest queries worth packing K and V for
constexpr int64_t PIECE_OUTPUTS = 512;  // of one row that a thread takes at a time: whole stripes of every path
constexpr int64_t VALUE_QUERIES = 48;  // rows of floating-point attention that a thread takes at a time
constexpr int64_t SMALL = 1 << 17;      // products of floating-point attention that are not worth a second thread
constexpr int64_t ALIGNMENT = 64;

template <class T>
T* at(uintptr_t address) {
    return reinterpret_cast<T*>(address);
}

// Memory on a cache line that is never filled beforehand.
template <class T>
class Aligned {
  public:
    explicit Aligned(int64_t n = 0) { grow(n); }
    void grow(int64_t n) {
        if (n <= size_) return;
        data_.reset(static_cast<T*>(::operator new(size_t(n) * sizeof(T) + ALIGNMENT, std::align_val_t(ALIGNMENT))));
        size_ = n;
    }
    T* data() const { return data_.get(); }

  private:
    struct Free {
        void operator()(T* p) const { ::operator delete(p, std::align_val_t(ALIGNMENT)); }
    };
    std::unique_ptr<T, Free> data_;
    int64_t size_ = 0;
};

std::vector<float> floats(uintptr_t from, int64_t count, int64_t padded = 0) {
    std::vector<float> all(size_t(std::max(count, padded) + ALIGNMENT));
    if (from) std::copy_n(at<const float>(from), count, all.begin());
    return all;
}

// A linear layer with its memory.
struct PackedLinear {
    const smx::Isa* isa;
    Aligned<int8_t> packed;
    std::vector<float> scale, bias;
    smx::Linear c;

    PackedLinear(int32_t number, int64_t outputs, int64_t inputs, uintptr_t weight, uintptr_t scales, uintptr_t biases)
        : isa(smx::isa_of(number)), packed(isa->linear_size(outputs, inputs)), scale(floats(scales, outputs)),
          bias(floats(biases, outputs)) {
        isa->linear_pack(at<const int8_t>(weight), outputs, inputs, packed.data());
        c = {inputs, outputs, packed.data(), scale.data(), bias.data()};
    }

    void run(const float* x, float inverse, int64_t rows, float* out, int threads) const {
        if (rows == 1) return one_row(x, inverse, out, threads);
        const int64_t each = (rows + threads - 1) / threads;
        const int64_t block = std::max(LEAST_ROWS, std::min(BLOCK_ROWS, each));
        smx::parallel((rows + block - 1) / block, 1, threads, [&](int64_t first, int64_t last) {
            for (int64_t i = first; i < last; i++) {
                const int64_t begin = i * block, count = std::min(block, rows - begin);
                isa->linear(c, x + begin * c.inputs, inverse, count, out + begin * c.outputs);
            }
        });
    }

  private:
    // A decoder's step: threads share the outputs, since there are no rows to share.
    void one_row(const float* x, float inverse, float* out, int threads) const {
        smx::parallel(c.outputs, PIECE_OUTPUTS, threads, [&](int64_t first, int64_t last) {
            const smx::Linear part{c.inputs, last - first, c.packed + first * c.inputs, c.scale + first, c.bias + first};
            isa->linear(part, x, inverse, 1, out + first);
        });
    }
};

// A post-norm encoder. Layers keep their linear layers alive through Python's own references.
struct Encoder {
    const smx::Isa* isa;
    int64_t hidden, inner, heads;
    smx::Gelu gelu{};
    const smx_spec* spec;
    smx_attention mode{};  // A8's words, where they are used
    std::vector<EncoderLayer> layers;
    std::vector<std::shared_ptr<std::vector<float>>> norms;
    std::vector<std::shared_ptr<PackedLinear>> linears;

    const float* keep(uintptr_t from) {
        norms.push_back(std::make_shared<std::vector<float>>(floats(from, hidden)));
        return norms.back()->data();
    }

    void attend(const EncoderLayer& layer, const EncoderRun& run, const int64_t* starts, int64_t sequences,
                int threads) const {
        const int64_t head = hidden / heads, tasks = sequences * heads;
        const int64_t wanted = threads > 1 ? (2 * threads + tasks - 1) / tasks : 1;
        smx::parallel(tasks * wanted, 1, threads, [&](int64_t first, int64_t last) {
            static thread_local Aligned<float> out;
            for (int64_t i = first; i < last; i++) {
                const int64_t task = i / wanted, piece = i % wanted;
                const int64_t begin = starts[task / heads], rows = starts[task / heads + 1] - begin;
                int64_t pieces = std::max<int64_t>(1, std::min(wanted, rows / PIECE_QUERIES));
                if (piece >= pieces) continue;
                smx_attention t = mode;
                t.batch = t.heads = t.kv_heads = 1;
                t.queries = t.keys = rows, t.head = head;
                const int8_t* q = run.qkv + begin * 3 * hidden + task % heads * head;
                t.q = q, t.k = q + hidden, t.v = q + 2 * hidden;
                t.q_stride[2] = t.k_stride[2] = t.v_stride[2] = 3 * hidden;
                t.requantize = layer.requantize, t.value_scale = layer.value_scale;
                out.grow(rows * head);
                t.out = out.data();
                const int64_t from = rows * piece / pieces, to = rows * (piece + 1) / pieces;
                isa->attend(*spec, t, 0, 0, from, to);
                for (int64_t r = from; r < to; r++)
                    isa->to_bytes(t.out + r * head, head, layer.context_inverse,
                                  run.context + (begin + r) * hidden + task % heads * head);
            }
        });
    }

    void run(float* x, const int64_t* starts, int64_t sequences, int64_t first_layer, int64_t last_layer,
             int threads) const {
        const int64_t rows = starts[sequences];
        if (!rows || first_layer >= last_layer) return;
        static thread_local Aligned<int8_t> qkv;
        static thread_local Aligned<uint8_t> context;
        qkv.grow(rows * 3 * hidden);
        context.grow(rows * hidden);
        const EncoderRun run{hidden, inner, heads, &gelu, x, qkv.data(), context.data()};
        const smx::Awake awake(threads);
        // Two blocks per thread, so that a core taken by others does not hold up the rest; one where each pass over the
        // weights, which a large model has in memory, would serve few rows.
        const int64_t some = rows < 2 * threads * FEW_ROWS ? threads : 2 * threads;
        const int64_t parts = threads > 1 ? some : 1, each = (rows + parts - 1) / parts;
        const int64_t blocks = (each + BLOCK_ROWS - 1) / BLOCK_ROWS;
        const int64_t block = std::max(LEAST_ROWS, (each + blocks - 1) / blocks);
        const auto between = [&](const EncoderLayer* done, const EncoderLayer* next) {
            smx::parallel((rows + block - 1) / block, 1, threads, [&](int64_t first, int64_t last) {
                for (int64_t i = first; i < last; i++)
                    isa->between(run, done, next, i * block, std::min(rows, (i + 1) * block));
            });
        };
        const EncoderLayer* layer = layers.data() + first_layer;
        const EncoderLayer* end = layers.data() + last_layer;
        between(nullptr, layer);
        for (; layer < end; layer++) {
            attend(*layer, run, starts, sequences, threads);
            between(layer, layer + 1 < end ? layer + 1 : nullptr);
        }
    }
};

}  // namespace

void bind_model(nb::module_& m) {
    m.def("weight_bits", [](int32_t isa) { return smx::isa_of(isa)->weight_bits; });

    m.def("weigh", [](uintptr_t spec, int32_t number, const std::vector<int64_t>& sizes, uintptr_t scores, float factor,
                      uintptr_t keep, const std::vector<int64_t>& keep_stride, uintptr_t v,
                      const std::vector<int64_t>& v_stride, uintptr_t out, const std::vector<int64_t>& out_stride,
                      int threads) {
        if (sizes.size() != 4 || keep_stride.size() != 2 || v_stride.size() != 2 || out_stride.size() != 2)
            throw std::length_error("sizes");
        const smx::FloatValues t{sizes[1], sizes[2], sizes[3], at<const float>(scores), factor,
                                 at<const uint8_t>(keep), {keep_stride[0], keep_stride[1]}, at<const float>(v),
                                 {v_stride[0], v_stride[1]}, at<float>(out), {out_stride[0], out_stride[1]}};
        nb::gil_scoped_release release;
        std::atomic<bool> broken{false};
        smx::parallel_in_team(sizes[0] * sizes[1], VALUE_QUERIES, threads, [&](int64_t first, int64_t last) {
            if (smx::isa_of(number)->weigh(*at<const smx_spec>(spec), t, first, last)) broken = true;
        });
        return bool(broken);
    });

    m.def("attends_floats", [](int32_t number) { return smx::isa_of(number)->attend_floats != nullptr; });

    // `sizes` are batch, heads, heads of K and V, queries, keys, head size and that of V; strides come for q, k, v and keep.
    m.def("attend_floats", [](uintptr_t spec, int32_t number, const std::vector<int64_t>& sizes, uintptr_t q, uintptr_t k,
                              uintptr_t v, uintptr_t keep, const std::vector<int64_t>& strides, float factor,
                              uintptr_t out, int threads) {
        if (sizes.size() != 7 || strides.size() != 12) throw std::length_error("sizes");
        smx::FloatAttention t{sizes[1], sizes[2], sizes[3], sizes[4], sizes[5], sizes[6], at<const float>(q),
                              at<const float>(k), at<const float>(v), {}, {}, {}, factor, at<const uint8_t>(keep), {},
                              at<float>(out)};
        for (size_t i = 0; i < 3; i++) {
            t.q_stride[i] = strides[i], t.k_stride[i] = strides[3 + i];
            t.v_stride[i] = strides[6 + i], t.keep_stride[i] = strides[9 + i];
        }
        nb::gil_scoped_release release;
        const smx::Isa* isa = smx::isa_of(number);
        // Each piece packs K and V anew, so there are no more than keep the threads busy.
        const int64_t heads = sizes[0] * t.heads, wanted = threads > 1 ? (4 * threads + heads - 1) / heads : 1;
        const int64_t pieces = std::max<int64_t>(1, std::min(wanted, t.queries / PIECE_QUERIES));
        const bool small = heads * t.queries * t.keys * t.head < SMALL;
        std::atomic<bool> broken{false};
        smx::parallel_in_team(heads * pieces, 1, small ? 1 : threads, [&](int64_t first, int64_t last) {
            for (int64_t i = first; i < last; i++) {
                const int64_t head = i / pieces, piece = i % pieces;
                if (isa->attend_floats(*at<const smx_spec>(spec), t, head / t.heads, head % t.heads,
                                       t.queries * piece / pieces, t.queries * (piece + 1) / pieces))
                    broken = true;
            }
        });
        return bool(broken);
    });

    struct Handle {
        std::shared_ptr<PackedLinear> held;
    };
    nb::class_<Handle>(m, "Linear")
        .def("__init__",
             [](Handle* self, int32_t isa, int64_t outputs, int64_t inputs, uintptr_t weight, uintptr_t scale,
                uintptr_t bias) {
                 new (self) Handle{std::make_shared<PackedLinear>(isa, outputs, inputs, weight, scale, bias)};
             })
        .def("run", [](const Handle& self, uintptr_t x, float inverse, int64_t rows, uintptr_t out, int threads) {
            nb::gil_scoped_release release;
            self.held->run(at<const float>(x), inverse, rows, at<float>(out), threads);
        });

    nb::class_<Encoder>(m, "Encoder")
        .def("__init__",
             [](Encoder* self, int32_t isa, int64_t hidden, int64_t inner, int64_t heads, float reach,
                const std::vector<float>& gelu, uintptr_t spec, uintptr_t mode) {
                 if (gelu.size() != 6) throw std::length_error("gelu");
                 new (self) Encoder{};
                 self->isa = smx::isa_of(isa);
                 self->hidden = hidden, self->inner = inner, self->heads = heads;
                 self->gelu.reach = reach;
                 std::copy(gelu.begin(), gelu.end(), self->gelu.coefficient);
                 self->spec = at<const smx_spec>(spec);
                 if (mode) self->mode = *at<const smx_attention>(mode);
             })
        .def("add",
             [](Encoder& self, const std::vector<const Handle*>& linears, const std::vector<uintptr_t>& norms,
                const std::vector<float>& inverse, float epsilon, float requantize, double value_scale) {
                 if (linears.size() != 4 || norms.size() != 4 || inverse.size() != 5) throw std::length_error("layer");
                 for (const Handle* one : linears) self.linears.push_back(one->held);
                 EncoderLayer l{};
                 l.qkv = linears[0]->held->c, l.out = linears[1]->held->c;
                 l.up = linears[2]->held->c, l.down = linears[3]->held->c;
                 // Factors to bytes: into qkv, out, up and down, and into the next layer's qkv.
                 l.qkv_inverse = inverse[0], l.context_inverse = inverse[1], l.inner_inverse = inverse[3];
                 l.after_attention = {self.keep(norms[0]), self.keep(norms[1]), epsilon, inverse[2]};
                 l.after_network = {self.keep(norms[2]), self.keep(norms[3]), epsilon, inverse[4]};
                 l.requantize = requantize, l.value_scale = value_scale;
                 self.layers.push_back(l);
             })
        .def("run", [](const Encoder& self, uintptr_t x, uintptr_t starts, int64_t sequences, int64_t first,
                       int64_t last, int threads) {
            nb::gil_scoped_release release;
            self.run(at<float>(x), at<const int64_t>(starts), sequences, first, last, threads);
        });
}
