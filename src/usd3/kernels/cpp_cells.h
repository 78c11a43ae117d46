// The loops over the cells of one row, with the letters of docs/kernels.md. The others are all categories but x and
// x_0.

#pragma once

#include "cpp_vectors.h"

namespace {

constexpr int64_t VECTORS = 32;  // whose sum is formed in `Real`; sums of such blocks are float64

// One number per category of a row; rows are padded to whole vectors.
template <class Real> struct Cells {
    int64_t width;  // with the padding
    Real *logits;   // -inf where data cannot be, and in the padding
    Real *e;        // exp(logit - top) of the others; -1 at x, x_0 and in the padding
    Real *slopes;   // s = dL/dh
    Real *m;        // noise, 1 in the padding
};

// Blocks of cells: `of_vectors(z)` adds the cells from z on to vectors, `of_block()` adds these to float64 and clears
// them.
template <class Real, class OfVectors, class OfBlock>
inline void for_blocks(int64_t width, OfVectors of_vectors, OfBlock of_block) {
    constexpr int64_t BLOCK = VECTORS * LANES<Real>;
    for (int64_t start = 0; start < width; start += BLOCK) {
        const int64_t stop = start + BLOCK < width ? start + BLOCK : width;
        for (int64_t z = start; z < stop; z += LANES<Real>) of_vectors(z);
        of_block();
    }
}

template <class Real> inline void move(Vector<Real> &sum, double &total) {
    total += reduced<Real>(sum, [](Vector<Real> a, Vector<Real> b) { return a + b; });
    sum = Vector<Real>{};
}

template <class Real> inline Vector<Real> larger(Vector<Real> a, Vector<Real> b) { return a > b ? a : b; }

template <class Real> Real largest(const Cells<Real> &row) {
    Vector<Real> top = at(row.logits, 0);
    for (int64_t z = LANES<Real>; z < row.width; z += LANES<Real>) top = larger<Real>(at(row.logits, z), top);
    return reduced<Real>(top, larger<Real>);
}

// Fills e; the sum of it over the others.
template <class Real> double exponentiate(const Cells<Real> &row, Real top, int64_t x, int64_t x_0, int64_t K) {
    using Int = typename Float<Real>::Int;
    IntVector<Real> category = lanes<Real>();
    Vector<Real> sum{};
    double total = 0;
    for_blocks<Real>(
        row.width,
        [&](int64_t z) {
            const auto is_other = (category != Int(x)) & (category != Int(x_0)) & (category < Int(K));
            const Vector<Real> e = exp_of<Real>(at(row.logits, z) - top);
            sum += is_other ? e : all<Real>(0);
            at(row.e, z) = is_other ? e : all<Real>(-1);
            category += Int(LANES<Real>);
        },
        [&] { move<Real>(sum, total); });
    return total;
}

// Numbers of a row that its cells need: u = (h - k)/k = a e/m + g and v = 1 + u = a e/m + v_0. Uniform noise has its
// 1/m in a.
struct Ratio {
    double a, g, v_0;
};

// Sums over the others: m (u - log v), m s and e s for the slope s = u/v, and e where m = 0, whose slope is 1. Uniform
// noise leaves m out.
struct Sums {
    double value = 0, m_slope = 0, e_slope = 0, e_no_m = 0;
};

// The sums of a row; fills its slopes.
template <class Real, bool TABLE> Sums sum_cells(const Cells<Real> &row, const Ratio &ratio) {
    const Real a = ratio.a, g = ratio.g, v_0 = ratio.v_0;
    const Vector<Real> zero = all<Real>(0), one = all<Real>(1);
    Vector<Real> value{}, m_slope{}, e_slope{}, e_no_m{};
    Sums sums;
    for_blocks<Real>(
        row.width,
        [&](int64_t z) {
            const Vector<Real> e = at(row.e, z), m = TABLE ? at(row.m, z) : one;
            const auto is_other = e >= zero, is_noise = is_other & (m > zero);
            const Vector<Real> y = TABLE ? a * e / (is_noise ? m : one) : a * e;
            const Vector<Real> u = is_noise ? y + g : zero, v = is_noise ? y + v_0 : one;
            const auto [cell, slope] = bregman<Real>(u, v);
            value += TABLE ? m * cell : cell;
            m_slope += TABLE ? m * slope : slope;
            e_slope += e * slope;
            if (TABLE) e_no_m += is_other & (m == zero) ? e : zero;
            at(row.slopes, z) = TABLE ? (m == zero ? one : slope) : slope;
        },
        [&] {
            move<Real>(value, sums.value), move<Real>(m_slope, sums.m_slope), move<Real>(e_slope, sums.e_slope);
            if (TABLE) move<Real>(e_no_m, sums.e_no_m);
        });
    return sums;
}

// Sums of d d, d f and d m over the others, d = f - shift m.
struct Moments {
    double d_d = 0, d_f = 0, d_m = 0;
};

template <class Real, bool TABLE>
Moments sum_moments(const Cells<Real> &row, double inverse_total, double shift_of_row, double each) {
    const Real inverse = inverse_total, shift = shift_of_row;
    Vector<Real> d_d{}, d_f{}, d_m{};
    Moments sums;
    for_blocks<Real>(
        row.width,
        [&](int64_t z) {
            const Vector<Real> e = at(row.e, z), m = TABLE ? at(row.m, z) : all<Real>(each), f = e * inverse;
            const Vector<Real> d = e >= Real(0) ? f - shift * m : all<Real>(0);
            d_d += d * d, d_f += d * f, d_m += d * m;
        },
        [&] { move<Real>(d_d, sums.d_d), move<Real>(d_f, sums.d_f), move<Real>(d_m, sums.d_m); });
    return sums;
}

// e becomes its gradient, e (constant + of_slope s + of_d d), at the others; d belongs to l2.
template <class Real, bool TABLE, bool L2>
void form_gradient(const Cells<Real> &row, double constant_of_row, double of_slope_of_row, double of_d_of_row,
                   double inverse_total, double shift_of_row, double each) {
    const Real constant = constant_of_row, of_slope = of_slope_of_row, of_d = of_d_of_row;
    const Real inverse = inverse_total, shift = shift_of_row;
    for (int64_t z = 0; z < row.width; z += LANES<Real>) {
        const Vector<Real> e = at(row.e, z), m = TABLE ? at(row.m, z) : all<Real>(each);
        Vector<Real> sum = constant + of_slope * at(row.slopes, z);
        if (L2) sum += of_d * (e * inverse - shift * m);
        at(row.e, z) = e * sum;
    }
}

}  // namespace
