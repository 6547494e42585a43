// Integer matrix products of 8-bit operands, exact, in tiles that stay in registers.
//
// A policy D brings the dot product: groups of D::G products per lane, D::LANES columns per vector, D::VECTORS vectors
// per panel, D::ROWS rows per tile. The left operand is rows of D::A; the right one is packed in panels: group after
// group, in each the panel's columns, in each the group's elements as D::B.
#pragma once

#include "floats.h"

namespace smx {
namespace {

template <class D>
constexpr int panel_width() {
    return D::LANES * D::VECTORS;
}

inline int64_t round_up(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

// Packs `columns` by `depth` elements of `from`; what lies beyond is zero, or D::OFFSET of it.
template <class D>
SMX_TARGET void pack(const int8_t* from, int64_t columns, int64_t column_stride, int64_t depth, int64_t depth_stride,
                     typename D::B* to) {
    constexpr int WIDTH = panel_width<D>();
    const int64_t groups = round_up(depth, D::G) / D::G, full = depth / D::G;
    for (int64_t at = 0; at < columns; at += WIDTH, to += groups * WIDTH * D::G) {
        const int count = columns - at < WIDTH ? int(columns - at) : WIDTH;
        if (count < WIDTH || full < groups)
            for (int64_t i = 0; i < groups * WIDTH * D::G; i++) to[i] = typename D::B(D::OFFSET);
        if (depth_stride == 1) {
            for (int c = 0; c < count; c++) {
                const int8_t* column = from + (at + c) * column_stride;
                for (int64_t g = 0; g < full; g++)
                    for (int e = 0; e < D::G; e++)
                        to[(g * WIDTH + c) * D::G + e] = typename D::B(column[g * D::G + e] + D::OFFSET);
            }
        } else {
            for (int64_t g = 0; g < full; g++)
                for (int c = 0; c < count; c++)
                    for (int e = 0; e < D::G; e++)
                        to[(g * WIDTH + c) * D::G + e] =
                            typename D::B(from[(at + c) * column_stride + (g * D::G + e) * depth_stride] + D::OFFSET);
        }
        for (int64_t d = full * D::G; d < depth; d++)
            for (int c = 0; c < count; c++)
                to[((d / D::G) * WIDTH + c) * D::G + d % D::G] =
                    typename D::B(from[(at + c) * column_stride + d * depth_stride] + D::OFFSET);
    }
}

// R rows of a, `groups` deep, times one panel, added to c.
template <class D, int R>
SMX_TARGET inline void tile(const typename D::A* a, int64_t a_stride, const typename D::B* panel, int64_t groups,
                            int32_t* c, int64_t c_stride) {
    if (groups <= 0) return;
    // Unrolled by order, and a loop that runs at least once: only then do the accumulators stay in registers.
    typename D::Acc acc[R][D::VECTORS];
#pragma GCC unroll 16
    for (int r = 0; r < R; r++)
#pragma GCC unroll 16
        for (int v = 0; v < D::VECTORS; v++) acc[r][v] = D::zero();
    int64_t g = 0;
    do {
        typename D::Vector b[D::VECTORS];
#pragma GCC unroll 16
        for (int v = 0; v < D::VECTORS; v++) b[v] = D::load(panel + (g * D::VECTORS + v) * D::LANES * D::G);
#pragma GCC unroll 16
        for (int r = 0; r < R; r++) {
            const typename D::Vector one = D::everywhere(a + r * a_stride + g * D::G);
#pragma GCC unroll 16
            for (int v = 0; v < D::VECTORS; v++) acc[r][v] = D::dot(acc[r][v], one, b[v]);
        }
    } while (++g < groups);
#pragma GCC unroll 16
    for (int r = 0; r < R; r++)
#pragma GCC unroll 16
        for (int v = 0; v < D::VECTORS; v++) D::flush(acc[r][v], c + r * c_stride + v * D::LANES);
}

// c += a·b for `rows` rows and a range of panels, over `groups` from group `first` on, of `depth` groups in all.
template <class D>
SMX_TARGET void multiply(const typename D::A* a, int64_t a_stride, int64_t rows, const typename D::B* b, int64_t depth,
                         int64_t panels, int64_t first, int64_t groups, int32_t* c, int64_t c_stride) {
    constexpr int WIDTH = panel_width<D>();
    for (int64_t p = 0; p < panels; p++) {
        const typename D::B* panel = b + (p * depth + first) * WIDTH * D::G;
        const typename D::A* from = a + first * D::G;
        int64_t r = 0;
        for (; r + D::ROWS <= rows; r += D::ROWS)
            tile<D, D::ROWS>(from + r * a_stride, a_stride, panel, groups, c + r * c_stride + p * WIDTH, c_stride);
        for (; r < rows; r++)
            tile<D, 1>(from + r * a_stride, a_stride, panel, groups, c + r * c_stride + p * WIDTH, c_stride);
    }
}

}  // namespace
}  // namespace smx
