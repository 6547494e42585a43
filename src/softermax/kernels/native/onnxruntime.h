// What this library uses of onnxruntime's C API, whose header comes with no wheel.
//
// The API is a table of functions to which later versions only append, so a function's place in it is part of the
// ABI. Places and signatures are facts of onnxruntime's include/onnxruntime/core/session/onnxruntime_c_api.h.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ort {

struct Status;  // null: success
struct SessionOptions;
struct Domain;
struct KernelInfo;
struct KernelContext;
struct Value;
struct Shape;

constexpr uint32_t API_VERSION = 17;  // onnxruntime 1.17: the first with parallel_for
constexpr uint32_t OP_VERSION = 16;   // of CustomOp below

constexpr int INVALID_ARGUMENT = 2;
constexpr int OPTIONAL = 1;

enum Element : int { FLOAT = 1, INT8 = 3, BOOL = 9 };

using Function = void (*)();

struct Base {
    const Function* (*api)(uint32_t version);
    const char* (*version)();
};

struct CustomOp {
    uint32_t version;
    void* (*create)(const CustomOp*, const Function* api, const KernelInfo*);  // used before version 16
    const char* (*name)(const CustomOp*);
    const char* (*provider)(const CustomOp*);
    int (*input_type)(const CustomOp*, size_t);
    size_t (*inputs)(const CustomOp*);
    int (*output_type)(const CustomOp*, size_t);
    size_t (*outputs)(const CustomOp*);
    void (*compute)(void* kernel, KernelContext*);  // used before version 16
    void (*destroy)(void* kernel);
    int (*input_characteristic)(const CustomOp*, size_t);
    int (*output_characteristic)(const CustomOp*, size_t);
    int (*input_memory)(const CustomOp*, size_t);
    int (*variadic_inputs_least)(const CustomOp*);
    int (*variadic_inputs_alike)(const CustomOp*);
    int (*variadic_outputs_least)(const CustomOp*);
    int (*variadic_outputs_alike)(const CustomOp*);
    Status* (*create_v2)(const CustomOp*, const Function* api, const KernelInfo*, void** kernel);
    Status* (*compute_v2)(void* kernel, KernelContext*);
};

// The functions that are used, by their place in the table.
struct Api {
    const Function* table = nullptr;

    Status* status(int code, const char* message) const { return at<0, Status*>(code, message); }
    Status* create_domain(const char* name, Domain** out) const { return at<26, Status*>(name, out); }
    Status* add_op(Domain* domain, const CustomOp* op) const { return at<27, Status*>(domain, op); }
    Status* add_domain(SessionOptions* options, Domain* domain) const { return at<28, Status*>(options, domain); }
    Status* data(Value* value, void** out) const { return at<51, Status*>(value, out); }
    Status* rank(const Shape* shape, size_t* out) const { return at<61, Status*>(shape, out); }
    Status* sizes(const Shape* shape, int64_t* out, size_t count) const { return at<62, Status*>(shape, out, count); }
    Status* shape(const Value* value, Shape** out) const { return at<65, Status*>(value, out); }
    Status* attribute(const KernelInfo* info, const char* name, float* out) const {
        return at<85, Status*>(info, name, out);
    }
    Status* attribute(const KernelInfo* info, const char* name, int64_t* out) const {
        return at<86, Status*>(info, name, out);
    }
    Status* input_count(const KernelContext* context, size_t* out) const { return at<88, Status*>(context, out); }
    Status* input(const KernelContext* context, size_t index, const Value** out) const {
        return at<90, Status*>(context, index, out);
    }
    Status* output(KernelContext* context, size_t index, const int64_t* sizes, size_t count, Value** out) const {
        return at<91, Status*>(context, index, sizes, count, out);
    }
    void release(Status* status) const { at<93, void>(status); }
    void release(Shape* shape) const { at<99, void>(shape); }
    Status* attribute(const KernelInfo* info, const char* name, int64_t* out, size_t* count) const {
        return at<163, Status*>(info, name, out, count);
    }
    Status* parallel_for(const KernelContext* context, void (*body)(void*, size_t), size_t count, size_t batches,
                         void* data) const {
        return at<274, Status*>(context, body, count, batches, data);
    }

private:
    template <int PLACE, class R, class... A>
    R at(A... arguments) const {
        return reinterpret_cast<R (*)(A...)>(table[PLACE])(arguments...);
    }
};

}  // namespace ort
