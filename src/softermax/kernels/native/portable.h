// The policy of plain C++: what the vector policies must equal, and the path of any other CPU.
#pragma once

#include "attention.h"
#include "encoder.h"
#include "values.h"

namespace smx {
namespace {

struct PortableDot {
    static constexpr int G = 1, LANES = 8, VECTORS = 1, ROWS = 4, OFFSET = 0, MOST = 0, BYTES = 0;
    using A = int16_t;
    using B = int16_t;
    struct Vector {
        int16_t v[LANES];
    };
    struct Acc {
        int32_t v[LANES];
    };
    static Acc zero() { return {}; }
    static Vector load(const B* p) {
        Vector r;
        std::memcpy(r.v, p, sizeof r);
        return r;
    }
    static Vector everywhere(const A* p) {
        Vector r;
        for (int16_t& v : r.v) v = *p;
        return r;
    }
    static Acc dot(Acc acc, const Vector& a, const Vector& b) {
        for (int i = 0; i < LANES; i++) acc.v[i] += a.v[i] * b.v[i];
        return acc;
    }
    static void flush(const Acc& acc, int32_t* c) {
        for (int i = 0; i < LANES; i++) c[i] += acc.v[i];
    }
};

struct Portable {
    using Scores = PortableDot;
    using Values = PortableDot;
    using Probabilities = PortableDot;
    using Linear = PlainLinearDot;
    static constexpr int W = 16;
    static constexpr bool BLOCKS = true;

    struct Bytes {
        uint8_t b[W];
    };
    struct Sums {
        uint32_t u[256];  // zero past the steps, so that hidden elements need no test
    };
    struct Words {
        uint8_t y[256];
    };
    using Total = uint64_t;
    struct F {
        float f[W / 4];
    };

    static Bytes set1(int v) {
        Bytes r;
        std::memset(r.b, uint8_t(v), W);
        return r;
    }
    static Bytes load(const void* p) {
        Bytes r;
        std::memcpy(r.b, p, W);
        return r;
    }
    static void store(void* p, const Bytes& v) { std::memcpy(p, v.b, W); }
    static Bytes load_first(const void* p, int n) {
        Bytes r{};
        std::memcpy(r.b, p, size_t(n < W ? n : W));
        return r;
    }
    static void stream(void* p, const Bytes& v) { store(p, v); }
    static void fence() {}
    static Bytes hidden(const uint8_t* keep) {
        Bytes r;
        for (int i = 0; i < W; i++) r.b[i] = keep[i] ? 0 : 255;
        return r;
    }
    static Bytes first(int n) {
        Bytes r;
        for (int i = 0; i < W; i++) r.b[i] = i < n ? 255 : 0;
        return r;
    }
    static Bytes join(Bytes a, const Bytes& b) {
        for (int i = 0; i < W; i++) a.b[i] = uint8_t(a.b[i] | b.b[i]);
        return a;
    }
    static Bytes sink(Bytes v, const Bytes& hidden) {
        for (int i = 0; i < W; i++) v.b[i] = hidden.b[i] ? 0x80 : v.b[i];
        return v;
    }
    static Bytes max(Bytes a, const Bytes& b) {
        for (int i = 0; i < W; i++)
            if (int8_t(b.b[i]) > int8_t(a.b[i])) a.b[i] = b.b[i];
        return a;
    }
    static int highest(const Bytes& v) {
        int r = -128;
        for (int i = 0; i < W; i++)
            if (int8_t(v.b[i]) > r) r = int8_t(v.b[i]);
        return r;
    }
    static Bytes sub(Bytes a, const Bytes& b) {
        for (int i = 0; i < W; i++) a.b[i] = uint8_t(a.b[i] - b.b[i]);
        return a;
    }

    static Sums sums(const uint32_t* u) {
        Sums t{};
        std::memcpy(t.u, u, SMX_STEPS * sizeof *u);
        return t;
    }
    static Total none() { return 0; }
    static void add(Total& acc, const Sums& t, const Bytes& step) {
        for (int i = 0; i < W; i++) acc += t.u[step.b[i]];
    }
    static uint64_t total(Total acc) { return acc; }
    static Words words(const uint8_t* entries) {
        Words t{};
        std::memcpy(t.y, entries, SMX_STEPS);
        return t;
    }
    static Bytes look(const Words& t, Bytes step) {
        for (int i = 0; i < W; i++) step.b[i] = t.y[step.b[i]];
        return step;
    }

    template <bool Masked, int Width>
    static void block(const Sums& t, const smx_spec& s, const int8_t* x, const uint8_t* keep, int& carry, Block& out) {
        block_in_order<Portable, Masked, Width>(t, s, x, keep, carry, out);
    }

    template <int Width>
    static int64_t flat(const Sums& t, const smx_spec& s, int c, const int8_t* x, int64_t n, uint64_t& d) {
        return flat_in_order<Portable, Width>(t, s, c, x, n, d);
    }

    static F set1f(float v) {
        F r;
        for (float& f : r.f) f = v;
        return r;
    }
    template <class T>
    static F load(const T* p) {
        F r;
        for (int i = 0; i < W / 4; i++) r.f[i] = to_float(p[i]);
        return r;
    }
    static Bytes load(const int8_t* p) { return load(static_cast<const void*>(p)); }
    static Bytes load(const uint8_t* p) { return load(static_cast<const void*>(p)); }
    template <class T>
    static void store(T* p, const F& v) {
        for (int i = 0; i < W / 4; i++) to_type(v.f[i], p + i);
    }
    static F integers(const int32_t* p, int32_t offset) {
        F r;
        for (int i = 0; i < W / 4; i++) r.f[i] = float(p[i] + offset);
        return r;
    }
    static F mul(F a, const F& b) {
        for (int i = 0; i < W / 4; i++) a.f[i] *= b.f[i];
        return a;
    }
    static F subf(F a, const F& b) {
        for (int i = 0; i < W / 4; i++) a.f[i] -= b.f[i];
        return a;
    }
    static F fma(const F& a, const F& b, F c) {
        for (int i = 0; i < W / 4; i++) c.f[i] += a.f[i] * b.f[i];
        return c;
    }
    static F clip(F v, float limit) {
        for (float& f : v.f) f = f > limit ? limit : f < -limit ? -limit : f;
        return v;
    }
    static float across(const F* v) {
        float r = 0;
        for (int j = 0; j < 4; j++)
            for (float f : v[j].f) r += f;
        return r;
    }
    static bool within(const F* v, float limit) {
        for (int j = 0; j < 4; j++)
            for (float f : v[j].f)
                if (!(std::fabs(f) <= limit)) return false;
        return true;
    }
    static Bytes narrow(const F* v, smx_rounding how) {
        Bytes r;
        for (int i = 0; i < W; i++) {
            const float f = rounded(v[i / (W / 4)].f[i % (W / 4)], how);
            r.b[i] = uint8_t(int8_t(f > 127.0f ? 127.0f : f < -128.0f ? -128.0f : f));
        }
        return r;
    }
    static void widen(const Bytes& v, F* out) {
        for (int i = 0; i < W; i++) out[i / (W / 4)].f[i % (W / 4)] = v.b[i];
    }
};

}  // namespace
}  // namespace smx
