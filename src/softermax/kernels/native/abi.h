// The C ABI of the native core. Everything that depends on a spec comes in as tables and numbers
// made by the Python side from the golden model's own tables; nothing here knows a preset.
#pragma once

#include <cstdint>

constexpr int SMX_STEPS = 64;    // u is zero beyond 60 raw steps under the max
constexpr int SMX_MAX_DIMS = 8;  // leading dimensions of a batch of rows

extern "C" {

enum smx_isa : int32_t { SMX_SCALAR = 0, SMX_AVX2 = 1, SMX_AVX512 = 2, SMX_NEON = 3, SMX_ISAS = 4 };

enum smx_float : int32_t { SMX_FP32 = 0, SMX_BF16 = 1, SMX_FP16 = 2 };

enum smx_rounding : int32_t { SMX_HALF_EVEN = 0, SMX_HALF_UP = 1, SMX_TRUNCATE = 2 };

// A Softermax with 8-bit input Q(6,2), max in -32 ... 31 and at most 8 output bits; with A5, A3 truncates.
struct smx_spec {
    uint32_t unnormed[SMX_STEPS];  // u of a score that lies i raw steps below 4m + 3
    const uint32_t* reciprocal;    // r by the top bits of the mantissa's fraction
    int32_t reciprocal_bits;       // how many of these bits there are
    uint32_t reciprocal_low;       // the smallest r
    const uint8_t* outputs;        // output tables by leading one and r - low, or null: made row by row
    int64_t outputs_stride;        // how many r there are
    int32_t max_ceil;              // A2 takes ceilings, else floors
    int64_t slice_width;           // 0: the whole row is one slice
    int32_t sum_shift;             // Fu - Fd
    uint32_t sum_bias;             // what A4's rounding adds before that shift
    int32_t powsum_bits;
    int32_t powsum_fraction;
    uint64_t powsum_high;
    int32_t row_products;    // A10: output words are made of the row's products, else of u (A5)
    uint32_t powers[4];      // 2^f by a score's two fraction bits; these three are A10's
    int32_t product_shift;   // Fu + Fr - Fp
    uint64_t product_high;
    int32_t output_shift;    // fraction bits of u times r (A5) or of a product (A10), - Fy, and - Fd for a fixed output
    int32_t row_scaled;      // A7: the shift leaves the leading one's position out
    int32_t output_half_up;  // A5's rounding, else truncate
    uint32_t output_high;
    int32_t output_fraction;
    float input_scale;  // A1, A9
    smx_rounding input_rounding;
};

// A batch of rows: leading dimensions, outermost first, with strides in elements; columns are dense.
struct smx_rows {
    int64_t dims;
    int64_t shape[SMX_MAX_DIMS];
    int64_t in_stride[SMX_MAX_DIMS];
    int64_t keep_stride[SMX_MAX_DIMS];
    int64_t columns;
    const uint8_t* keep;     // nonzero where an element takes part, or null
    const int32_t* lengths;  // elements that take part, one per row, or null
    int32_t causal;          // row i of the last leading dimension sees columns 0 ... i + offset
    int64_t offset;
};

// Fused attention. Tensors are (batch, heads, length, head size) with strides in elements; a head's
// elements are dense.
struct smx_attention {
    int64_t batch, heads, kv_heads, queries, keys, head;
    const int8_t *q, *k, *v;
    int64_t q_stride[3], k_stride[3], v_stride[3];
    float* out;  // dense
    float requantize;     // from the integer score to the input word
    double value_scale;
    const uint8_t* keep;  // nonzero where a key takes part, or null
    int64_t keep_stride[3];  // a row's keys are dense
    const int32_t* lengths;  // keys that take part, one per batch entry, or null
    int32_t causal;
    int64_t offset;
    // A8, deferred normalisation: used where `deferred` is set.
    int32_t deferred;
    uint32_t weight[SMX_STEPS];  // w of a score i raw steps below 4m + 3
    uint64_t weight_sum_high;
    int32_t weight_sum_bits;
    const uint32_t* row_reciprocal;
    int32_t row_reciprocal_bits;
    int32_t row_reciprocal_fraction;
    // Per head of K and V, in place of `requantize` and `value_scale`, or null.
    const float* requantizes;
    const double* value_scales;
    int32_t out_heads_last;  // the output is (batch, queries, heads, head size), else (batch, heads, queries, head size)
};

// What the core can run here; `smx_best` is the fastest of it.
int32_t smx_usable(int32_t isa);
int32_t smx_best();

// Where a spec has few reciprocals, its output tables are made once: how many bytes, zero for none, and their filling
// (`outputs_stride` and `reciprocal_low` are set).
int64_t smx_outputs_size(const smx_spec*);
void smx_fill_outputs(const smx_spec*, uint8_t* outputs);

// int8 rows to uint8 rows. `out` and `exponent` are dense; `exponent` may be null.
void smx_rows_int8(const smx_spec*, const smx_rows*, const int8_t* in, uint8_t* out, int32_t* exponent, int32_t isa,
                   int32_t threads);

// Float rows to float rows of the same type, both through the words. `words`, `marks` and `exponent` are what backward
// needs and may be null: the output words, per row one byte (any score saturated) and then a bit per element.
// Returns the first row that has a score that is neither finite nor masked, or -1.
int64_t smx_rows_float(const smx_spec*, const smx_rows*, smx_float type, const void* in, void* out, uint8_t* words,
                       uint8_t* marks, int32_t* exponent, int32_t isa, int32_t threads);

// dx = factor * y * (g - sum g*y), zero where marked. All dense, `rows` by `columns`.
void smx_backward(const smx_spec*, smx_float type, int64_t rows, int64_t columns, const void* grad,
                  const uint8_t* words, const uint8_t* marks, const int32_t* exponent, float factor, void* dx,
                  int32_t isa, int32_t threads);

void smx_attend(const smx_spec*, const smx_attention*, int32_t isa, int32_t threads);

// Symmetric int8: saturate(round half even(x * scale)) within -127 ... 127.
void smx_quantize(const float* in, int64_t count, float scale, int8_t* out, int32_t isa, int32_t threads);
}
