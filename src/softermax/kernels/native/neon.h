// The policy of AArch64's NEON: 16 bytes, a table of 64 entries in four registers and one `tbl`, which gives zero for
// every index past it.
#pragma once

#include "attention.h"
#include "encoder.h"
#include "values.h"

namespace smx {
namespace {

struct NeonDot {
    static constexpr int G = 1, LANES = 8, VECTORS = 2, ROWS = 4, OFFSET = 0, MOST = 0, BYTES = 0;
    using A = int16_t;
    using B = int16_t;
    using Vector = int16x8_t;
    struct Acc {
        int32x4_t low, high;
    };
    static Acc zero() { return {vdupq_n_s32(0), vdupq_n_s32(0)}; }
    static Vector load(const B* p) { return vld1q_s16(p); }
    static Vector everywhere(const A* p) { return vdupq_n_s16(*p); }
    static Acc dot(Acc acc, Vector a, Vector b) {
        return {vmlal_s16(acc.low, vget_low_s16(a), vget_low_s16(b)), vmlal_high_s16(acc.high, a, b)};
    }
    static void flush(Acc acc, int32_t* c) {
        vst1q_s32(c, vaddq_s32(vld1q_s32(c), acc.low));
        vst1q_s32(c + 4, vaddq_s32(vld1q_s32(c + 4), acc.high));
    }
};

struct Neon {
    using Scores = NeonDot;
    using Values = NeonDot;
    using Probabilities = NeonDot;
    using Linear = PlainLinearDot;
    static constexpr int W = 16;
    static constexpr bool BLOCKS = true;

    using Bytes = uint8x16_t;
    using F = float32x4_t;
    struct Sums {
        uint8x16x4_t low;
        uint8x16x2_t high;  // u has a high byte only within the first 32 steps
    };
    using Words = uint8x16x4_t;
    struct Total {
        uint32x4_t low, high;
    };

    static Bytes set1(int v) { return vdupq_n_u8(uint8_t(v)); }
    static Bytes load(const uint8_t* p) { return vld1q_u8(p); }
    static Bytes load(const int8_t* p) { return vreinterpretq_u8_s8(vld1q_s8(p)); }
    static void store(void* p, Bytes v) { vst1q_u8(static_cast<uint8_t*>(p), v); }
    static Bytes load_first(const void* p, int n) {
        alignas(16) uint8_t some[W] = {};
        std::memcpy(some, p, size_t(n < W ? n : W));
        return load(some);
    }
    static void stream(void* p, Bytes v) { store(p, v); }
    static void fence() {}
    static Bytes hidden(const uint8_t* keep) { return vceqq_u8(load(keep), vdupq_n_u8(0)); }
    static Bytes first(int n) {
        alignas(16) static constexpr uint8_t at[W] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
        return vcltq_u8(vld1q_u8(at), vdupq_n_u8(uint8_t(n < W ? n : W)));
    }
    static Bytes join(Bytes a, Bytes b) { return vorrq_u8(a, b); }
    static Bytes sink(Bytes v, Bytes hidden) { return vbslq_u8(hidden, vdupq_n_u8(0x80), v); }
    static Bytes max(Bytes a, Bytes b) {
        return vreinterpretq_u8_s8(vmaxq_s8(vreinterpretq_s8_u8(a), vreinterpretq_s8_u8(b)));
    }
    static int highest(Bytes v) { return vmaxvq_s8(vreinterpretq_s8_u8(v)); }
    static Bytes sub(Bytes a, Bytes b) { return vsubq_u8(a, b); }

    static Sums sums(const uint32_t* u) {
        alignas(16) uint8_t low[SMX_STEPS], high[SMX_STEPS];
        for (int i = 0; i < SMX_STEPS; i++) {
            low[i] = uint8_t(u[i]);
            high[i] = uint8_t(u[i] >> 8);
        }
        return {words(low), {{vld1q_u8(high), vld1q_u8(high + 16)}}};
    }
    static Total none() { return {vdupq_n_u32(0), vdupq_n_u32(0)}; }
    static void add(Total& acc, const Sums& t, Bytes step) {
        acc.low = vpadalq_u16(acc.low, vpaddlq_u8(vqtbl4q_u8(t.low, step)));
        acc.high = vpadalq_u16(acc.high, vpaddlq_u8(vqtbl2q_u8(t.high, step)));
    }
    static uint64_t total(const Total& acc) { return vaddlvq_u32(acc.low) + (vaddlvq_u32(acc.high) << 8); }
    static Words words(const uint8_t* entries) {
        return {{vld1q_u8(entries), vld1q_u8(entries + 16), vld1q_u8(entries + 32), vld1q_u8(entries + 48)}};
    }
    static Bytes look(const Words& t, Bytes step) { return vqtbl4q_u8(t, step); }

    template <bool Masked, int Width>
    static void block(const Sums& t, const smx_spec& s, const int8_t* x, const uint8_t* keep, int& carry, Block& out) {
        block_in_order<Neon, Masked, Width>(t, s, x, keep, carry, out);
    }

    template <int Width>
    static int64_t flat(const Sums& t, const smx_spec& s, int c, const int8_t* x, int64_t n, uint64_t& d) {
        return flat_in_order<Neon, Width>(t, s, c, x, n, d);
    }

    static F set1f(float v) { return vdupq_n_f32(v); }
    static F load(const float* p) { return vld1q_f32(p); }
    static F load(const Bf16* p) {
        return vreinterpretq_f32_u32(vshll_n_u16(vld1_u16(reinterpret_cast<const uint16_t*>(p)), 16));
    }
    static F load(const Fp16* p) {
        return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(reinterpret_cast<const uint16_t*>(p))));
    }
    static void store(float* p, F v) { vst1q_f32(p, v); }
    static void store(Bf16* p, F v) {
        const uint32x4_t bits = vreinterpretq_u32_f32(v), top = vshrq_n_u32(bits, 16);
        const uint32x4_t odd = vandq_u32(top, vdupq_n_u32(1));
        const uint32x4_t up = vshrq_n_u32(vaddq_u32(bits, vaddq_u32(odd, vdupq_n_u32(0x7fff))), 16);
        const uint32x4_t quiet = vorrq_u32(top, vdupq_n_u32(0x40));
        vst1_u16(reinterpret_cast<uint16_t*>(p), vmovn_u32(vbslq_u32(vceqq_f32(v, v), up, quiet)));
    }
    static void store(Fp16* p, F v) {
        vst1_u16(reinterpret_cast<uint16_t*>(p), vreinterpret_u16_f16(vcvt_f16_f32(v)));
    }
    static F integers(const int32_t* p, int32_t offset) {
        return vcvtq_f32_s32(vaddq_s32(vld1q_s32(p), vdupq_n_s32(offset)));
    }
    static F mul(F a, F b) { return vmulq_f32(a, b); }
    static F subf(F a, F b) { return vsubq_f32(a, b); }
    static F fma(F a, F b, F c) { return vfmaq_f32(c, a, b); }
    static F clip(F v, float limit) { return vmaxnmq_f32(vminnmq_f32(v, vdupq_n_f32(limit)), vdupq_n_f32(-limit)); }
    static float across(const F* v) { return vaddvq_f32(vaddq_f32(vaddq_f32(v[0], v[1]), vaddq_f32(v[2], v[3]))); }
    static bool within(const F* v, float limit) {
        const float32x4_t top = vdupq_n_f32(limit);
        const uint32x4_t a = vandq_u32(vcaleq_f32(v[0], top), vcaleq_f32(v[1], top));
        const uint32x4_t b = vandq_u32(vcaleq_f32(v[2], top), vcaleq_f32(v[3], top));
        return vminvq_u32(vandq_u32(a, b)) != 0;
    }
    static int16x4_t whole(F v, smx_rounding how) {
        if (how == SMX_HALF_EVEN) return vqmovn_s32(vcvtnq_s32_f32(v));
        int32x4_t down = vcvtmq_s32_f32(v);
        if (how == SMX_HALF_UP) {
            const uint32x4_t up = vcgeq_f32(vsubq_f32(v, vrndmq_f32(v)), vdupq_n_f32(0.5f));
            down = vqsubq_s32(down, vreinterpretq_s32_u32(up));  // a set lane is -1
        }
        return vqmovn_s32(down);
    }
    static Bytes narrow(const F* v, smx_rounding how) {
        const int16x8_t a = vcombine_s16(whole(v[0], how), whole(v[1], how));
        const int16x8_t b = vcombine_s16(whole(v[2], how), whole(v[3], how));
        return vreinterpretq_u8_s8(vcombine_s8(vqmovn_s16(a), vqmovn_s16(b)));
    }
    static void widen(Bytes v, F* out) {
        const uint16x8_t low = vmovl_u8(vget_low_u8(v)), high = vmovl_high_u8(v);
        out[0] = vcvtq_f32_u32(vmovl_u16(vget_low_u16(low)));
        out[1] = vcvtq_f32_u32(vmovl_high_u16(low));
        out[2] = vcvtq_f32_u32(vmovl_u16(vget_low_u16(high)));
        out[3] = vcvtq_f32_u32(vmovl_high_u16(high));
    }
};

}  // namespace
}  // namespace smx
