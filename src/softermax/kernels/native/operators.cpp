// Softermax as operators of onnxruntime: a library of its own, registered with a session's options.
//
// Both take what the core takes of a spec as attributes, named as in smx_spec. Rows are shared out among the
// session's own threads.
#include <cstdlib>
#include <memory>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>

#include "isa.h"
#include "onnxruntime.h"
#include "spec.h"

namespace {

constexpr int64_t PIECE = 1 << 14;  // elements worth a thread's while

ort::Api api;

struct Failed {
    ort::Status* status;
};

void check(ort::Status* status) {
    if (status) throw Failed{status};
}

[[noreturn]] void refuse(const std::string& reason) {
    throw Failed{api.status(ort::INVALID_ARGUMENT, reason.c_str())};
}

// No exception leaves the library.
template <class F>
ort::Status* guarded(F&& body) {
    try {
        body();
        return nullptr;
    } catch (const Failed& failed) {
        return failed.status;
    } catch (const std::exception& error) {
        return api.status(ort::INVALID_ARGUMENT, error.what());
    }
}

int64_t number(const ort::KernelInfo* info, const char* name) {
    int64_t value = 0;
    check(api.attribute(info, name, &value));
    return value;
}

float real(const ort::KernelInfo* info, const char* name) {
    float value = 0;
    check(api.attribute(info, name, &value));
    return value;
}

std::vector<int64_t> numbers(const ort::KernelInfo* info, const char* name) {
    size_t count = 0;
    check(api.attribute(info, name, static_cast<int64_t*>(nullptr), &count));
    std::vector<int64_t> values(count);
    check(api.attribute(info, name, values.data(), &count));
    return values;
}

// As SOFTERMAX_ISA asks, else the fastest.
int32_t path() {
    const char* asked = std::getenv("SOFTERMAX_ISA");
    const std::string name = asked ? asked : "";
    const char* names[] = {"scalar", "avx2", "avx512", "neon"};
    for (int32_t isa = 0; isa < SMX_ISAS; isa++)
        if (name == names[isa] && smx_usable(isa)) return isa;
    return smx_best();
}

struct Kernel {
    smx::Spec spec;
    const smx::Isa* isa = smx::isa_of(path());
    float requantize = 0, value_scale = 0;  // these four are attention's
    bool heads_last = false, out_heads_last = false;

    explicit Kernel(const ort::KernelInfo* info) {
        smx_spec& c = spec.c;
        c.reciprocal_bits = int32_t(number(info, "reciprocal_bits"));
        c.max_ceil = int32_t(number(info, "max_ceil"));
        c.slice_width = number(info, "slice_width");
        c.sum_shift = int32_t(number(info, "sum_shift"));
        c.sum_bias = uint32_t(number(info, "sum_bias"));
        c.powsum_bits = int32_t(number(info, "powsum_bits"));
        c.powsum_fraction = int32_t(number(info, "powsum_fraction"));
        c.powsum_high = uint64_t(number(info, "powsum_high"));
        c.row_products = int32_t(number(info, "row_products"));
        c.product_shift = int32_t(number(info, "product_shift"));
        c.product_high = uint64_t(number(info, "product_high"));
        c.output_shift = int32_t(number(info, "output_shift"));
        c.row_scaled = int32_t(number(info, "row_scaled"));
        c.output_half_up = int32_t(number(info, "output_half_up"));
        c.output_high = uint32_t(number(info, "output_high"));
        c.output_fraction = int32_t(number(info, "output_fraction"));
        c.input_scale = real(info, "input_scale");
        c.input_rounding = smx_rounding(number(info, "input_rounding"));
        const std::vector<int64_t> reciprocal = numbers(info, "reciprocal");
        if (c.reciprocal_bits < 0 || c.reciprocal_bits > 16 || reciprocal.size() != size_t(1) << c.reciprocal_bits)
            refuse("reciprocal must have 2^reciprocal_bits entries");
        spec.set_tables(numbers(info, "unnormed"), reciprocal, numbers(info, "powers"));
    }
};

struct Tensor {
    std::vector<int64_t> sizes;
    void* data = nullptr;

    int64_t elements() const {
        int64_t n = 1;
        for (int64_t size : sizes) n *= size;
        return n;
    }
};

Tensor tensor(ort::Value* value) {
    Tensor t;
    ort::Shape* shape = nullptr;
    check(api.shape(value, &shape));
    size_t rank = 0;
    ort::Status* status = api.rank(shape, &rank);
    t.sizes.resize(rank);
    if (!status) status = api.sizes(shape, t.sizes.data(), rank);
    api.release(shape);
    check(status);
    check(api.data(value, &t.data));
    return t;
}

bool given(const ort::KernelContext* context, size_t index, Tensor& out) {
    size_t count = 0;
    check(api.input_count(context, &count));
    const ort::Value* value = nullptr;
    if (index < count) check(api.input(context, index, &value));
    if (!value) return false;
    out = tensor(const_cast<ort::Value*>(value));
    return true;
}

Tensor input(const ort::KernelContext* context, size_t index) {
    Tensor t;
    if (!given(context, index, t)) refuse("an input is missing");
    return t;
}

Tensor output(ort::KernelContext* context, const std::vector<int64_t>& sizes) {
    ort::Value* value = nullptr;
    check(api.output(context, 0, sizes.data(), sizes.size(), &value));
    Tensor t{sizes, nullptr};
    check(api.data(value, &t.data));
    return t;
}

// A mask's strides over the leading axes of rows of shape `sizes`, against which it broadcasts.
std::vector<int64_t> mask_strides(const Tensor& mask, const std::vector<int64_t>& sizes) {
    const size_t rank = sizes.size(), own = mask.sizes.size();
    bool fits = own >= 1 && own <= rank && mask.sizes.back() == sizes.back();
    std::vector<int64_t> strides(rank - 1, 0);
    int64_t step = fits ? mask.sizes.back() : 0;
    for (size_t d = 1; fits && d < own; d++) {
        const int64_t size = mask.sizes[own - 1 - d];
        fits = size == 1 || size == sizes[rank - 1 - d];
        strides[rank - 1 - d] = size == 1 ? 0 : step;
        step *= size;
    }
    if (!fits) refuse("mask must broadcast against the scores, with their number of columns");
    return strides;
}

// body(i) for every i below `count`, on the session's threads.
template <class F>
void shared(const ort::KernelContext* context, int64_t count, F&& body) {
    if (count <= 1) {
        for (int64_t i = 0; i < count; i++) body(i);
        return;
    }
    const auto call = [](void* data, size_t i) { (*static_cast<std::remove_reference_t<F>*>(data))(int64_t(i)); };
    check(api.parallel_for(context, call, size_t(count), 0, &body));
}

// Inputs: float scores, optionally a boolean mask, true where an element takes part. Output: probabilities.
void rows(const Kernel& kernel, ort::KernelContext* context) {
    const Tensor scores = input(context, 0);
    Tensor mask;
    const bool masked = given(context, 1, mask);
    if (scores.sizes.empty() || scores.sizes.size() > SMX_MAX_DIMS + 1) refuse("scores must have 1 to 9 dimensions");
    const Tensor out = output(context, scores.sizes);
    if (!scores.elements()) return;
    smx_rows r{};
    r.dims = int64_t(scores.sizes.size()) - 1;
    r.columns = scores.sizes.back();
    int64_t step = r.columns;
    for (int64_t d = r.dims - 1; d >= 0; d--) {
        r.shape[d] = scores.sizes[size_t(d)];
        r.in_stride[d] = step;
        step *= r.shape[d];
    }
    if (masked) {
        const std::vector<int64_t> strides = mask_strides(mask, scores.sizes);
        std::copy(strides.begin(), strides.end(), r.keep_stride);
        r.keep = static_cast<const uint8_t*>(mask.data);
    }
    const int64_t count = scores.elements() / r.columns, block = std::max<int64_t>(1, PIECE / r.columns);
    const int64_t blocks = (count + block - 1) / block;
    std::vector<int64_t> broken(size_t(blocks), -1);
    shared(context, blocks, [&](int64_t i) {
        broken[size_t(i)] = kernel.isa->rows_float(kernel.spec.c, r, SMX_FP32, scores.data, out.data, nullptr, nullptr,
                                                   nullptr, i * block, std::min(count, (i + 1) * block));
    });
    for (int64_t row : broken)
        if (row >= 0)
            refuse("scores must be finite where they are not masked, found NaN or infinity in row " +
                   std::to_string(row));
}

// Inputs: int8 Q, K, V as (batch, heads, length, head size) or, heads last, (batch, length, heads, head size),
// optionally a mask. Output: float, in either of these layouts.
void attend(const Kernel& kernel, ort::KernelContext* context) {
    Tensor q = input(context, 0), k = input(context, 1), v = input(context, 2), mask;
    const bool masked = given(context, 3, mask);
    for (Tensor* x : {&q, &k, &v})
        if (kernel.heads_last && x->sizes.size() == 4) std::swap(x->sizes[1], x->sizes[2]);
    if (q.sizes.size() != 4 || k.sizes.size() != 4 || k.sizes != v.sizes || q.sizes[0] != k.sizes[0] ||
        q.sizes[3] != k.sizes[3] || k.sizes[1] < 1 || q.sizes[1] % k.sizes[1])
        refuse("Q, K and V must be (batch, heads, length, size), with heads a multiple of the kv heads");
    if (q.sizes[3] > 256 || k.sizes[2] > 65536) refuse("heads are at most 256 wide, and keys at most 65536");
    std::vector<int64_t> sizes = q.sizes;
    if (kernel.out_heads_last) std::swap(sizes[1], sizes[2]);
    const Tensor out = output(context, sizes);
    if (!q.elements()) return;
    smx_attention t{};
    t.out_heads_last = kernel.out_heads_last;
    t.batch = q.sizes[0], t.heads = q.sizes[1], t.kv_heads = k.sizes[1];
    t.queries = q.sizes[2], t.keys = k.sizes[2], t.head = q.sizes[3];
    const auto dense = [&](const Tensor& x, int64_t* stride) {
        stride[2] = x.sizes[3] * (kernel.heads_last ? x.sizes[1] : 1);
        stride[1] = x.sizes[3] * (kernel.heads_last ? 1 : x.sizes[2]);
        stride[0] = x.sizes[1] * x.sizes[2] * x.sizes[3];
        return static_cast<const int8_t*>(x.data);
    };
    t.q = dense(q, t.q_stride), t.k = dense(k, t.k_stride), t.v = dense(v, t.v_stride);
    t.out = static_cast<float*>(out.data);
    t.requantize = kernel.requantize;
    t.value_scale = double(kernel.value_scale);
    if (masked) {
        const std::vector<int64_t> strides = mask_strides(mask, {t.batch, t.heads, t.queries, t.keys});
        std::copy(strides.begin(), strides.end(), t.keep_stride);
        t.keep = static_cast<const uint8_t*>(mask.data);
    }
    const int64_t queries = t.heads / t.kv_heads * t.queries;
    shared(context, t.batch * t.kv_heads, [&](int64_t i) {
        kernel.isa->attend(kernel.spec.c, t, i / t.kv_heads, i % t.kv_heads, 0, queries);
    });
}

struct Operator : ort::CustomOp {
    const char* title;
    std::vector<int> inputs_taken;

    using Compute = void (*)(const Kernel&, ort::KernelContext*);

    template <Compute COMPUTE, bool ATTENTION>
    static Operator make(const char* title, std::vector<int> inputs_taken) {
        Operator made{};
        made.title = title;
        made.inputs_taken = std::move(inputs_taken);
        made.ort::CustomOp::version = ort::OP_VERSION;
        made.name = [](const CustomOp* op) { return static_cast<const Operator*>(op)->title; };
        made.provider = [](const CustomOp*) -> const char* { return nullptr; };
        made.inputs = [](const CustomOp* op) { return static_cast<const Operator*>(op)->inputs_taken.size(); };
        made.input_type = [](const CustomOp* op, size_t i) {
            return static_cast<const Operator*>(op)->inputs_taken[i];
        };
        made.outputs = [](const CustomOp*) -> size_t { return 1; };
        made.output_type = [](const CustomOp*, size_t) -> int { return ort::FLOAT; };
        made.input_characteristic = [](const CustomOp* op, size_t i) -> int {
            return static_cast<const Operator*>(op)->inputs_taken[i] == ort::BOOL ? ort::OPTIONAL : 0;
        };
        made.output_characteristic = [](const CustomOp*, size_t) -> int { return 0; };
        made.input_memory = [](const CustomOp*, size_t) -> int { return 0; };
        made.create_v2 = [](const CustomOp*, const ort::Function*, const ort::KernelInfo* info, void** kernel) {
            return guarded([&] {
                auto one = std::make_unique<Kernel>(info);
                if (ATTENTION) {
                    one->requantize = real(info, "requantize");
                    one->value_scale = real(info, "value_scale");
                    const int64_t layout = number(info, "heads_last");  // a bit for Q, K and V, a bit for the output
                    one->heads_last = layout & 1, one->out_heads_last = layout & 2;
                    if (!(one->requantize <= 256 && one->requantize >= -256)) refuse("requantize must be within 256");
                }
                *kernel = one.release();
            });
        };
        made.compute_v2 = [](void* kernel, ort::KernelContext* context) {
            return guarded([&] { COMPUTE(*static_cast<const Kernel*>(kernel), context); });
        };
        made.destroy = [](void* kernel) { delete static_cast<Kernel*>(kernel); };
        return made;
    }
};

}  // namespace

extern "C" __attribute__((visibility("default"))) ort::Status* RegisterCustomOps(ort::SessionOptions* options,
                                                                               const ort::Base* base) {
    api.table = base->api(ort::API_VERSION);
    if (!api.table) return ort::Api{base->api(1)}.status(ort::INVALID_ARGUMENT, "needs onnxruntime 1.17 or later");
    return guarded([&] {
        static const Operator operators[] = {
            Operator::make<rows, false>("Softermax", {ort::FLOAT, ort::BOOL}),
            Operator::make<attend, true>("SoftermaxAttention", {ort::INT8, ort::INT8, ort::INT8, ort::BOOL}),
        };
        // Sessions refer to it as long as they live.
        static ort::Domain* const domain = [] {
            ort::Domain* made = nullptr;
            check(api.create_domain("softermax", &made));
            for (const Operator& one : operators) check(api.add_op(made, &one));
            return made;
        }();
        check(api.add_domain(options, domain));
    });
}
