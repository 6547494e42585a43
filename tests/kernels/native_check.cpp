// One instruction set against the scalar path, bit for bit, without Python: for CPUs that are emulated, and for
// sanitizers. Every buffer is exactly as long as its data, so that a sanitizer sees the first byte past it.
//
//   native_check ISA SPECS [LONGEST]    ISA by number, SPECS as written by native_build.py, rows to LONGEST (300)
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "abi.h"

namespace {

std::mt19937 random_bits(1);
int failures = 0;

int draw(int low, int high) { return low + int(random_bits() % unsigned(high - low + 1)); }

struct Spec {
    smx_spec c{};
    std::vector<uint32_t> reciprocal;
    std::vector<uint8_t> outputs;
    // A8
    std::vector<uint32_t> weight, row_reciprocal;
    int64_t weight_sum_bits, weight_sum_high, row_reciprocal_bits, row_reciprocal_fraction;
};

int64_t number(std::istream& in) {
    double value;
    if (!(in >> value)) throw std::runtime_error("specs end too early");
    return int64_t(value);
}

std::vector<uint32_t> list(std::istream& in) {
    std::vector<uint32_t> values(static_cast<size_t>(number(in)));
    for (uint32_t& v : values) v = uint32_t(number(in));
    return values;
}

std::vector<std::unique_ptr<Spec>> read(const char* path) {
    std::ifstream in(path);
    std::vector<std::unique_ptr<Spec>> specs(static_cast<size_t>(number(in)));
    for (auto& spec : specs) {
        spec = std::make_unique<Spec>();
        smx_spec& c = spec->c;
        const auto unnormed = list(in);
        std::copy(unnormed.begin(), unnormed.end(), c.unnormed);
        spec->reciprocal = list(in);
        c.reciprocal = spec->reciprocal.data();
        c.reciprocal_bits = int(number(in));
        c.max_ceil = int(number(in));
        c.slice_width = number(in);
        c.sum_shift = int(number(in));
        c.sum_bias = uint32_t(number(in));
        c.powsum_bits = int(number(in));
        c.powsum_fraction = int(number(in));
        c.powsum_high = uint64_t(number(in));
        c.row_products = int(number(in));
        const auto powers = list(in);
        std::copy(powers.begin(), powers.end(), c.powers);
        c.product_shift = int(number(in));
        c.product_high = uint64_t(number(in));
        c.output_shift = int(number(in));
        c.row_scaled = int(number(in));
        c.output_half_up = int(number(in));
        c.output_high = uint32_t(number(in));
        c.output_fraction = int(number(in));
        double scale;
        in >> scale;
        c.input_scale = float(scale);
        c.input_rounding = smx_rounding(number(in));
        const auto [low, high] = std::minmax_element(spec->reciprocal.begin(), spec->reciprocal.end());
        c.reciprocal_low = *low;
        c.outputs_stride = int64_t(*high) - *low + 1;
        spec->outputs.resize(size_t(smx_outputs_size(&c)));
        if (!spec->outputs.empty()) {
            smx_fill_outputs(&c, spec->outputs.data());
            c.outputs = spec->outputs.data();
        }
        spec->weight = list(in);
        spec->weight_sum_bits = number(in);
        spec->weight_sum_high = number(in);
        spec->row_reciprocal = list(in);
        spec->row_reciprocal_bits = number(in);
        spec->row_reciprocal_fraction = number(in);
    }
    return specs;
}

void expect(bool same, const char* what, size_t spec, long columns) {
    if (same) return;
    std::fprintf(stderr, "%s differs: spec %zu, %ld columns\n", what, spec, columns);
    failures++;
}

int8_t score(int kind) {
    const int spread[] = {127, 12, 40, 3};
    const int centre[] = {0, 0, 100, -120};
    return int8_t(std::clamp(centre[kind] + draw(-spread[kind], spread[kind]), -128, 127));
}

// Rows at odd strides and any alignment, with every kind of mask.
struct Batch {
    smx_rows rows{};
    std::vector<uint8_t> keep;
    std::vector<int32_t> lengths;

    Batch(int64_t outer, int64_t inner, int64_t columns, int64_t stride, int kind) {
        rows.dims = 2;
        rows.shape[0] = outer, rows.shape[1] = inner;
        rows.in_stride[0] = inner * stride, rows.in_stride[1] = stride;
        rows.columns = columns;
        if (kind & 1) {  // broadcast over the inner dimension
            keep.resize(size_t(outer * columns));
            for (uint8_t& k : keep) k = uint8_t(draw(0, 2) > 0);
            rows.keep = keep.data();
            rows.keep_stride[0] = columns;
        }
        if (kind & 2) {
            lengths.resize(size_t(outer * inner));
            for (int32_t& n : lengths) n = draw(0, int(columns));
            rows.lengths = lengths.data();
        }
        if (kind & 4) {
            rows.causal = 1;
            rows.offset = columns - inner;
        }
    }
};

void check_int8(const Spec& spec, size_t index, int isa, int64_t columns, int kind, int threads, int64_t outer) {
    const int64_t inner = 3, stride = columns + draw(0, 3), count = outer * inner;
    const size_t shift = size_t(draw(0, 5));
    std::vector<int8_t> x(shift + size_t((count - 1) * stride + columns));
    for (int8_t& v : x) v = score(kind % 4);
    Batch batch(outer, inner, columns, stride, kind / 4 % 8);
    std::vector<uint8_t> want(size_t(count * columns)), got(shift + want.size());
    std::vector<int32_t> e1(static_cast<size_t>(count)), e2(e1);
    smx_rows_int8(&spec.c, &batch.rows, x.data() + shift, want.data(), e1.data(), SMX_SCALAR, 1);
    smx_rows_int8(&spec.c, &batch.rows, x.data() + shift, got.data() + shift, e2.data(), isa, threads);
    expect(std::equal(want.begin(), want.end(), got.begin() + long(shift)) && e1 == e2, "int8 rows", index, columns);
}

uint16_t bf16(float v) {
    uint32_t bits;
    std::memcpy(&bits, &v, 4);
    return uint16_t(bits >> 16);
}

float single(uint16_t bits, smx_float type) {
    if (type == SMX_BF16) {
        const uint32_t wide = uint32_t(bits) << 16;
        float v;
        std::memcpy(&v, &wide, 4);
        return v;
    }
    const int exponent = bits >> 10 & 31;
    const float size = exponent ? std::ldexp(1024.0f + float(bits & 1023), exponent - 25) : std::ldexp(float(bits & 1023), -24);
    return bits & 0x8000 ? -size : size;
}

void check_float(const Spec& spec, size_t index, int isa, int64_t columns, int kind, smx_float type) {
    const int64_t count = 6;
    const size_t width = type == SMX_FP32 ? 4 : 2, n = size_t(count * columns);
    std::vector<uint8_t> x(n * width), g(n * width), y1(n * width), y2(n * width), dx1(n * width), dx2(n * width);
    for (size_t i = 0; i < n; i++) {
        float v = float(draw(-4000, 4000)) / (kind & 8 ? 70.0f : 400.0f);
        if (kind & 4) {  // ties, words, and the numbers beside them
            const int most = draw(0, 1) ? 3 : kind & 8 ? 264 : 240;
            v = float(draw(-most, most)) / 2 / spec.c.input_scale;
            for (int step = draw(-2, 2); step; step += step < 0 ? 1 : -1) v = std::nextafter(v, step < 0 ? -1e9f : 1e9f);
        }
        const float grad = float(draw(-1000, 1000)) / 512.0f;
        const uint16_t half = uint16_t(type == SMX_BF16 ? bf16(v) : draw(0, 1) << 15 | draw(0, 20 << 10));
        const uint16_t half_grad = uint16_t(type == SMX_BF16 ? bf16(grad) : draw(0, 1) << 15 | draw(0, 15 << 10));
        std::memcpy(&x[i * width], type == SMX_FP32 ? static_cast<const void*>(&v) : &half, width);
        std::memcpy(&g[i * width], type == SMX_FP32 ? static_cast<const void*>(&grad) : &half_grad, width);
    }
    if (kind & 16 && type == SMX_FP32) {
        const float nan = NAN;
        std::memcpy(&x[size_t(draw(0, int(n) - 1)) * width], &nan, width);
    }
    Batch batch(2, 3, columns, columns, kind % 8);
    const size_t marks = size_t(count * (1 + (columns + 7) / 8));
    std::vector<uint8_t> w1(n), w2(n), m1(marks), m2(marks);
    std::vector<int32_t> e1(static_cast<size_t>(count)), e2(e1);
    const int64_t a = smx_rows_float(&spec.c, &batch.rows, type, x.data(), y1.data(), w1.data(), m1.data(), e1.data(), SMX_SCALAR, 1);
    const int64_t b = smx_rows_float(&spec.c, &batch.rows, type, x.data(), y2.data(), w2.data(), m2.data(), e2.data(), isa, 2);
    expect(a == b && y1 == y2 && w1 == w2 && m1 == m2 && e1 == e2, "float rows", index, columns);
    smx_rows_float(&spec.c, &batch.rows, type, x.data(), y2.data(), nullptr, nullptr, nullptr, isa, 1);
    expect(y1 == y2, "float rows without words", index, columns);
    smx_backward(&spec.c, type, count, columns, g.data(), w1.data(), m1.data(), e1.data(), 0.7f, dx1.data(), SMX_SCALAR, 1);
    smx_backward(&spec.c, type, count, columns, g.data(), w1.data(), m1.data(), e1.data(), 0.7f, dx2.data(), isa, 1);
    for (size_t i = 0; i < n; i++) {  // sums of floats depend on their order
        float u, v;
        if (type == SMX_FP32) {
            std::memcpy(&u, &dx1[i * 4], 4);
            std::memcpy(&v, &dx2[i * 4], 4);
        } else {
            uint16_t p, q;
            std::memcpy(&p, &dx1[i * 2], 2);
            std::memcpy(&q, &dx2[i * 2], 2);
            u = single(p, type), v = single(q, type);
        }
        const float unit = type == SMX_FP32 ? 1e-5f : type == SMX_BF16 ? 1.0f / 128 : 1.0f / 1024;
        if (!(std::fabs(u - v) <= unit * (std::fabs(u) + 1e-3f * unit + 1e-4f))) {
            expect(false, "gradient", index, columns);
            break;
        }
    }
}

void check_attention(const Spec& spec, size_t index, int isa, int64_t queries, int64_t keys, int64_t head, int kind) {
    const int64_t batch = 2, heads = 4, kv = kind & 1 ? 2 : 4;
    smx_attention t{};
    t.batch = batch, t.heads = heads, t.kv_heads = kv, t.queries = queries, t.keys = keys, t.head = head;
    std::vector<int8_t> q(size_t(batch * heads * queries * head)), k(size_t(batch * kv * keys * head)), v(k.size());
    for (auto* one : {&q, &k, &v})
        for (int8_t& x : *one) x = int8_t(draw(-128, 127));
    if (kind & 64)  // all scores alike: as many probabilities of one unit as there are keys
        for (auto* one : {&q, &k}) std::fill(one->begin(), one->end(), int8_t(1));
    if (kind & 128)  // small integers, times one half below: a hair less than a tie
        for (auto* one : {&q, &k})
            for (int8_t& x : *one) x = int8_t(draw(-3, 3));
    t.q = q.data(), t.k = k.data(), t.v = v.data();
    const int64_t lengths_of[3] = {queries, keys, keys}, heads_of[3] = {heads, kv, kv};
    int64_t* strides[3] = {t.q_stride, t.k_stride, t.v_stride};
    for (int i = 0; i < 3; i++) {
        strides[i][0] = heads_of[i] * lengths_of[i] * head;
        strides[i][1] = lengths_of[i] * head;
        strides[i][2] = head;
    }
    t.requantize = kind & 128 ? std::nextafter(0.5f, 0.0f) : 4.0f * float(draw(1, 30)) / 60000.0f;
    t.value_scale = 0.01;
    std::vector<uint8_t> keep;
    std::vector<int32_t> lengths;
    if (kind & 2) {
        keep.resize(size_t(batch * keys));
        for (uint8_t& one : keep) one = uint8_t(draw(0, 3) > 0);
        t.keep = keep.data();
        t.keep_stride[0] = keys;
    }
    if (kind & 4) {
        lengths = {draw(0, int(keys)), draw(0, int(keys))};
        t.lengths = lengths.data();
    }
    t.causal = kind & 8;
    t.offset = keys - queries;
    t.deferred = kind & 16;
    std::copy(spec.weight.begin(), spec.weight.end(), t.weight);
    t.weight_sum_bits = int(spec.weight_sum_bits);
    t.weight_sum_high = uint64_t(spec.weight_sum_high);
    t.row_reciprocal = spec.row_reciprocal.data();
    t.row_reciprocal_bits = int(spec.row_reciprocal_bits);
    t.row_reciprocal_fraction = int(spec.row_reciprocal_fraction);
    std::vector<float> want(q.size()), got(q.size());
    t.out = want.data();
    smx_attend(&spec.c, &t, SMX_SCALAR, 1);
    t.out = got.data();
    smx_attend(&spec.c, &t, isa, kind & 32 ? 2 : 1);
    expect(want == got, "attention", index, keys);
}

}  // namespace

int main(int argc, char** argv) {
    if (argc < 3) return 2;
    const int isa = std::atoi(argv[1]), longest = argc > 3 ? std::atoi(argv[3]) : 300;
    const auto specs = read(argv[2]);
    long cases = 0;
    for (size_t i = 0; i < specs.size(); i++) {
        const Spec& spec = *specs[i];
        for (int64_t n = 1; n <= longest; n++, cases += 2) {
            check_int8(spec, i, isa, n, int(n), 1, 2);
            check_int8(spec, i, isa, n, int(n) * 7 + 4, 1, 1);
        }
        for (int kind = 0; kind < 32; kind++, cases++)
            check_int8(spec, i, isa, draw(301, 2500), kind, kind % 2 + 1, kind % 8 ? 1 : 40);
        for (int64_t n = 1; n <= longest; n += draw(1, 9), cases++)
            check_float(spec, i, isa, n, int(n), smx_float(n % 3));
        const int64_t shapes[][3] = {{1, 1, 1}, {5, 7, 3}, {3, 300, 64}, {27, 130, 33}, {2, 1030, 16}, {1, 40, 256}, {50, 64, 80}};
        for (const auto& s : shapes)
            for (int kind = 0; kind < 64; kind += draw(1, 7), cases++)
                if (!(kind & 16) || spec.c.slice_width % 4 == 0) check_attention(spec, i, isa, s[0], s[1], s[2], kind);
        check_attention(spec, i, isa, 30, 256, 16, 64);
        check_attention(spec, i, isa, 30, 130, 4, 128);
        // Sums that saturate, and an empty batch.
        std::vector<int8_t> high(70000, 127);
        std::vector<uint8_t> want(high.size()), got(high.size());
        smx_rows rows{};
        rows.dims = 1, rows.shape[0] = 1, rows.columns = int64_t(high.size());
        smx_rows_int8(&spec.c, &rows, high.data(), want.data(), nullptr, SMX_SCALAR, 1);
        smx_rows_int8(&spec.c, &rows, high.data(), got.data(), nullptr, isa, 1);
        expect(want == got, "saturating row", i, rows.columns);
        rows.shape[0] = 0;
        smx_rows_int8(&spec.c, &rows, nullptr, nullptr, nullptr, isa, 2);
    }
    // Several callers at once share one pool.
    std::vector<std::thread> callers;
    for (int c = 0; c < 3; c++)
        callers.emplace_back([&specs, isa] {
            std::vector<int8_t> x(1 << 19, 5);
            std::vector<uint8_t> first(x.size()), again(x.size());
            smx_rows rows{};
            rows.dims = 1, rows.shape[0] = 1 << 10, rows.in_stride[0] = 1 << 9, rows.columns = 1 << 9;
            for (int turn = 0; turn < 5; turn++) {
                smx_rows_int8(&specs[0]->c, &rows, x.data(), turn ? again.data() : first.data(), nullptr, isa, 2);
                if (turn) expect(first == again, "concurrent rows", 0, rows.columns);
            }
        });
    for (std::thread& caller : callers) caller.join();
    std::printf("%ld cases, %d failures\n", cases, failures);
    return failures ? 1 : 0;
}
