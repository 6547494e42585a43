// What int8 models are made of, for all instruction sets: linear layers and the layers of an encoder.
#pragma once

#include <cstdint>

namespace smx {

// out = sums * scale + bias. The weights are packed for one instruction set; scale and bias are padded to its stripes, and
// the bias holds what the activations' offset of 128 adds to the sums.
struct Linear {
    int64_t inputs, outputs;
    const int8_t* packed;
    const float *scale, *bias;
};

// Phi(x) = 1/2 + t p(t^2) with t = x clipped to +-reach.
struct Gelu {
    float reach, coefficient[6];
};

// Layer norm, with the factor from its output to the bytes of the layer that follows.
struct Norm {
    const float *weight, *bias;
    float epsilon, inverse;
};

// An encoder's layer: attention, its output layer and a feed-forward network, each with its sum and norm after it. What
// becomes of one layer's attention and of the next one's queries, keys and values is row by row, and one call.
struct EncoderLayer {
    Linear qkv, out, up, down;
    Norm after_attention, after_network;  // the last norm's factor is that of the next layer's qkv
    float qkv_inverse;                    // from the layer's input to the bytes of qkv
    float context_inverse, inner_inverse;
    float requantize;  // from an integer score to the input word
    double value_scale;
};

// The tensors of a run: rows of all sequences, one after another.
struct EncoderRun {
    int64_t hidden, inner, heads;
    const Gelu* gelu;
    float* x;          // rows by hidden: the residual stream
    int8_t* qkv;       // rows by 3 hidden
    uint8_t* context;  // rows by hidden
};

// Rows of scores, (heads, queries, keys) and dense, to words, times V: attention's second half in floating point.
struct FloatValues {
    int64_t queries, keys, head;
    const float* scores;
    float factor;  // what a score is still to be multiplied by
    const uint8_t* keep;  // nonzero where a key takes part, or null; a row's keys are dense
    int64_t keep_stride[2];
    const float* v;
    int64_t v_stride[2];  // of a head and of a key
    float* out;
    int64_t out_stride[2];  // of a head and of a query
};

// Attention of floats. Tensors are (batch, heads, length, size) with strides in elements; a head's elements are dense.
struct FloatAttention {
    int64_t heads, kv_heads, queries, keys, head, value_head;
    const float *q, *k, *v;
    int64_t q_stride[3], k_stride[3], v_stride[3];
    float factor;  // what a score is still to be multiplied by
    const uint8_t* keep;  // nonzero where a key takes part, or null; a row's keys are dense
    int64_t keep_stride[3];
    float* out;  // dense, (batch, queries, heads, value size)
};

}  // namespace smx
