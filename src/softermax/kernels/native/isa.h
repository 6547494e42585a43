// What each instruction set provides, as functions over a range of rows. Its file defines SMX_TARGET, the
// attribute that compiles a function for that set, and instantiates the templates with its policy.
#pragma once

#include <cstddef>
#include <cstdint>

#include "abi.h"
#include "model.h"

#ifndef SMX_TARGET
#define SMX_TARGET
#endif

namespace smx {

struct Isa {
    void (*rows_int8)(const smx_spec&, const smx_rows&, const int8_t* in, uint8_t* out, int32_t* exponent,
                      int64_t first, int64_t last, bool stream);
    int64_t (*rows_float)(const smx_spec&, const smx_rows&, smx_float type, const void* in, void* out, uint8_t* words,
                          uint8_t* marks, int32_t* exponent, int64_t first, int64_t last);
    void (*backward)(const smx_spec&, smx_float type, int64_t columns, const void* grad, const uint8_t* words,
                     const uint8_t* marks, const int32_t* exponent, float factor, void* dx, int64_t first,
                     int64_t last);
    // One head of K and V; rows are the queries of all its query heads, one after another.
    void (*attend)(const smx_spec&, const smx_attention&, int64_t batch, int64_t kv_head, int64_t first, int64_t last);
    void (*quantize)(const float* in, int64_t count, float scale, int8_t* out);
    // Linear layers (linear.h) and the rows of an encoder (encoder.h).
    int weight_bits;
    int64_t (*linear_size)(int64_t outputs, int64_t inputs);
    void (*linear_pack)(const int8_t* weight, int64_t outputs, int64_t inputs, int8_t* packed);
    void (*linear)(const Linear&, const float* x, float inverse, int64_t rows, float* out);
    void (*to_bytes)(const float* x, int64_t count, float inverse, uint8_t* out);
    // Rows first ... last of all heads (values.h); returns whether a score is neither finite nor masked.
    bool (*weigh)(const smx_spec&, const FloatValues&, int64_t first, int64_t last);
    // One head's rows first ... last (float_attention.h), or null; returns as `weigh`.
    bool (*attend_floats)(const smx_spec&, const FloatAttention&, int64_t entry, int64_t head, int64_t first, int64_t last);
    void (*between)(const EncoderRun&, const EncoderLayer* done, const EncoderLayer* next, int64_t first, int64_t last);
};

const Isa* scalar();
const Isa* avx2();    // null where it was not compiled
const Isa* avx512();
const Isa* neon();
const Isa* isa_of(int32_t number);  // by its number in the C ABI

}  // namespace smx
