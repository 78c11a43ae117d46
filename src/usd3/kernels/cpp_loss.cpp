// The losses of every row and their gradient: one visit to a row, which stays in the first cache meanwhile.
//
// cpp_loss.py calls `usd3_loss_rows`. The arithmetic and its letters are those of docs/kernels.md: numbers of a row are
// float64; cells, one per row and category, are in `Real`, float32 (float64 where the logits are). Loops over cells run
// over whole vectors: rows are padded to a multiple of `WIDTH`, and a cell that does not count has e = NOT_COUNTED.

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>

namespace {

enum Type : int64_t { FLOAT32, FLOAT64, BFLOAT16, FLOAT16 };

constexpr int64_t WIDTH = 16;     // cells that loops take at once
constexpr int64_t BLOCK = 1024;   // cells whose sum is formed in `Real`; sums of blocks are float64
constexpr int64_t ROWS = 16;      // rows that a thread takes at once
constexpr int NOT_COUNTED = -1;   // in the place of e, which is not negative
constexpr double FAR = 1e30;      // -log f is at most this
constexpr double LEAST = 1e-290;  // a denominator is at least this
constexpr double NO_NOISE = 1e-25;  // a k below this part of h counts as 0

}  // namespace

// The arguments of `usd3_loss_rows`, in the words of usd3.kernels.loss.Problem. All fields have eight bytes.
struct Arguments {
    const void *logits;          // (rows, classes), rows `logits_stride` apart
    void *gradient;              // the same type; may be the logits; null: no gradient
    void *terms;                 // (4, rows): vlb, ce, l2 and their weighted sum, float64 where the logits are, else float32
    const int64_t *x, *x_0;      // (rows)
    const double *coefficients;  // (5, objects): to_data, to_noise, stay, alpha_bar, 1 - alpha_bar
    const double *weights;       // (3, num_weights): of vlb, ce and l2
    const double *tables;        // (num_tables, classes), the noise m; null: uniform or absorbing noise
    const uint8_t *supports;     // (num_supports, classes); null: all categories but the mask
    const uint8_t *free;         // (rows); null: all
    int64_t type, rows, classes, logits_stride, gradient_stride, objects, elements, first;
    int64_t num_weights, weights_by_row, num_tables, num_supports, mask, absorbing, is_step, with_l2;
};

namespace {

// ---- special functions, for loops over cells -----------------------------------------------------------------------

template <class Real> struct Float;
template <> struct Float<float> {
    using Int = int32_t;
    static constexpr int FRACTION = 23, EXP_TERMS = 7, LOG_TERMS = 5;
    static constexpr float ROUND = 12582912.0f, LOWEST = -87.0f, LN_2_HIGH = 0.693145751953125f, LN_2_LOW = 1.42860677e-6f;
};
template <> struct Float<double> {
    using Int = int64_t;
    static constexpr int FRACTION = 52, EXP_TERMS = 13, LOG_TERMS = 12;
    static constexpr double ROUND = 6755399441055744.0, LOWEST = -708.0;
    static constexpr double LN_2_HIGH = 0.693147180369123816490, LN_2_LOW = 1.90821492927058770002e-10;
};

// exp(t) for t <= 0: 2^n times a Taylor polynomial; 0 where t is below LOWEST.
template <class Real> inline Real exp_of(Real t) {
    using F = Float<Real>;
    using Int = typename F::Int;
    const Real rounded = t * Real(1.4426950408889634) + F::ROUND;  // its last bits are the integer n
    const Real n = rounded - F::ROUND;
    const Real rest = (t - n * F::LN_2_HIGH) - n * F::LN_2_LOW;
    Real sum = 1;
#pragma GCC unroll 16
    for (int i = F::EXP_TERMS; i > 0; --i) sum = sum * rest * Real(1.0 / i) + 1;
    const Int power = (__builtin_bit_cast(Int, rounded) << F::FRACTION) + __builtin_bit_cast(Int, Real(1));
    return t < F::LOWEST ? Real(0) : sum * __builtin_bit_cast(Real, power);
}

// u - log(v), v = 1 + u > 0. With v = 2^n (1 + s) and w = s/(2 + s), log(1 + s) = 2 w + 2 w^3/3 + ...; where n = 0
// u - 2 w = u w, so that nothing cancels near u = 0.
template <class Real> inline Real bregman(Real u, Real v) {
    using F = Float<Real>;
    using Int = typename F::Int;
    const Int bits = __builtin_bit_cast(Int, v);
    const Int n = (bits - __builtin_bit_cast(Int, Real(0.70710678))) >> F::FRACTION;
    const bool near = n == 0;
    const Real s = near ? u : __builtin_bit_cast(Real, Int(bits - (n << F::FRACTION))) - 1;
    const Real w = s / (2 + s), w_2 = w * w;
    Real sum = Real(2.0 / (2 * F::LOG_TERMS + 1));
#pragma GCC unroll 16
    for (int i = F::LOG_TERMS - 1; i > 0; --i) sum = sum * w_2 + Real(2.0 / (2 * i + 1));
    const Real cubic = w * w_2 * sum;
    const Real far = u - Real(n) * Real(0.69314718055994531) - (2 * w + cubic);
    return near ? u * w - cubic : far;
}

// ---- rows in memory ------------------------------------------------------------------------------------------------

inline float from_bfloat16(uint16_t bits) { return __builtin_bit_cast(float, uint32_t(bits) << 16); }

inline uint16_t to_bfloat16(float value) {  // to the nearest, ties to even
    const uint32_t bits = __builtin_bit_cast(uint32_t, value);
    return value == value ? (bits + 0x7fff + ((bits >> 16) & 1)) >> 16 : 0x7fc0;
}

template <class Real> void load(const Arguments &p, int64_t row, Real *out) {
    const int64_t start = row * p.logits_stride, K = p.classes;
    if (p.type == BFLOAT16) {
        const auto in = static_cast<const uint16_t *>(p.logits) + start;
        for (int64_t z = 0; z < K; ++z) out[z] = from_bfloat16(in[z]);
    } else if (p.type == FLOAT16) {
        const auto in = static_cast<const _Float16 *>(p.logits) + start;
        for (int64_t z = 0; z < K; ++z) out[z] = Real(in[z]);
    } else {
        std::memcpy(out, static_cast<const Real *>(p.logits) + start, K * sizeof(Real));
    }
}

template <class Real> void store(const Arguments &p, int64_t row, const Real *in) {
    const int64_t start = row * p.gradient_stride, K = p.classes;
    if (p.type == BFLOAT16) {
        const auto out = static_cast<uint16_t *>(p.gradient) + start;
        for (int64_t z = 0; z < K; ++z) out[z] = to_bfloat16(in[z]);
    } else if (p.type == FLOAT16) {
        const auto out = static_cast<_Float16 *>(p.gradient) + start;
        for (int64_t z = 0; z < K; ++z) out[z] = _Float16(in[z]);
    } else {
        std::memcpy(static_cast<Real *>(p.gradient) + start, in, K * sizeof(Real));
    }
}

// The buffers of a thread, each one row of cells.
template <class Real> struct Buffers {
    int64_t width;  // of a row, padded
    Real *e, *slopes, *m;
    int64_t table = -1;  // the row of `tables` that m holds

    explicit Buffers(int64_t K) : width((K + WIDTH - 1) / WIDTH * WIDTH) {
        e = static_cast<Real *>(std::aligned_alloc(64, 3 * width * sizeof(Real)));
        if (e == nullptr) std::abort();
        slopes = e + width;
        m = slopes + width;
    }
    ~Buffers() { std::free(e); }
};

// ---- loops over the cells of a row ---------------------------------------------------------------------------------

// e = exp(e - top), and the sum of it.
template <class Real> double exponentiate(Real *e, Real top, int64_t width) {
    double total = 0;
    for (int64_t start = 0; start < width; start += BLOCK) {
        const int64_t stop = start + BLOCK < width ? start + BLOCK : width;
        Real sum = 0;
#pragma omp simd reduction(+ : sum)
        for (int64_t z = start; z < stop; ++z) {
            e[z] = exp_of<Real>(e[z] - top);
            sum += e[z];
        }
        total += sum;
    }
    return total;
}

// Numbers of a row that its cells need: u = (h - k)/k = a e/m + g and v = 1 + u = a e/m + v_0. Uniform noise has its
// 1/m in a.
struct Ratio {
    double a, g, v_0;
};

// Sums over the cells that count: m (u - log v), m s and e s for the slope s = u/v, and e where m = 0, whose slope is 1.
// Uniform noise leaves m out.
struct Sums {
    double value = 0, m_slope = 0, e_slope = 0, e_no_m = 0;
};

// The sums of a row, and the slope of each cell.
template <class Real, bool TABLE> Sums sum_cells(const Buffers<Real> &row, const Ratio &ratio) {
    const Real a = ratio.a, g = ratio.g, v_0 = ratio.v_0;
    const Real *e = row.e, *m = row.m;
    Real *slopes = row.slopes;
    Sums sums;
    for (int64_t start = 0; start < row.width; start += BLOCK) {
        const int64_t stop = start + BLOCK < row.width ? start + BLOCK : row.width;
        Real value = 0, m_slope = 0, e_slope = 0, e_no_m = 0;
#pragma omp simd reduction(+ : value, m_slope, e_slope, e_no_m)
        for (int64_t z = start; z < stop; ++z) {
            const bool counts = e[z] >= 0, noisy = !TABLE || m[z] > 0;
            const Real y = TABLE ? a * e[z] / (noisy ? m[z] : Real(1)) : a * e[z];
            const Real u = counts ? y + g : Real(0), v = counts ? y + v_0 : Real(1);
            const Real cell = bregman<Real>(u, v), slope = u / v;
            if (TABLE) {
                value += noisy ? m[z] * cell : Real(0);
                m_slope += noisy ? m[z] * slope : Real(0);
                e_slope += noisy ? e[z] * slope : Real(0);
                e_no_m += counts && !noisy ? e[z] : Real(0);
                slopes[z] = noisy ? slope : Real(1);
            } else {
                value += cell;
                m_slope += slope;
                e_slope += e[z] * slope;
                slopes[z] = slope;
            }
        }
        sums.value += value, sums.m_slope += m_slope, sums.e_slope += e_slope, sums.e_no_m += e_no_m;
    }
    return sums;
}

// Sums of d d, d f and d m over the cells that count, d = f - shift m.
struct Moments {
    double d_d = 0, d_f = 0, d_m = 0;
};

template <class Real, bool TABLE>
Moments sum_moments(const Buffers<Real> &row, double inverse_total, double shift_of_row, double each) {
    const Real inverse = inverse_total, shift = shift_of_row;
    const Real *e = row.e, *m = row.m;
    Moments sums;
    for (int64_t start = 0; start < row.width; start += BLOCK) {
        const int64_t stop = start + BLOCK < row.width ? start + BLOCK : row.width;
        Real d_d = 0, d_f = 0, d_m = 0;
#pragma omp simd reduction(+ : d_d, d_f, d_m)
        for (int64_t z = start; z < stop; ++z) {
            const Real f = e[z] * inverse, m_z = TABLE ? m[z] : Real(each);
            const Real d = e[z] >= 0 ? f - shift * m_z : Real(0);
            d_d += d * d, d_f += d * f, d_m += d * m_z;
        }
        sums.d_d += d_d, sums.d_f += d_f, sums.d_m += d_m;
    }
    return sums;
}

// e becomes its gradient, e (constant + of_slope s + of_d d), at the cells that count; d belongs to l2.
template <class Real, bool TABLE, bool L2>
void form_gradient(const Buffers<Real> &row, double constant_of_row, double of_slope_of_row, double of_d_of_row,
                   double inverse_total, double shift_of_row, double each) {
    const Real constant = constant_of_row, of_slope = of_slope_of_row, of_d = of_d_of_row;
    const Real inverse = inverse_total, shift = shift_of_row;
    const Real *slopes = row.slopes, *m = row.m;
    Real *e = row.e;
#pragma omp simd
    for (int64_t z = 0; z < row.width; ++z) {
        Real sum = constant + of_slope * slopes[z];
        if (L2) sum += of_d * (e[z] * inverse - shift * (TABLE ? m[z] : Real(each)));
        e[z] *= sum;
    }
}

// ---- a row ---------------------------------------------------------------------------------------------------------

// h - k - k log(h/k) of one cell, diff = h - k. h/k is at least exp(-ce), also where that underflows.
double cell_of(double k, double h, double diff, double ce) {
    const double safe = std::fmax(k, LEAST), u = diff / safe;
    return diff - k * (u > -0.5 ? std::log1p(u) : std::fmax(std::log(h / safe), -ce));
}

template <class Real> void fill_terms(const Arguments &p, int64_t row, double vlb, double ce, double l2, double loss) {
    Real *terms = static_cast<Real *>(p.terms) + row;
    terms[0] = vlb, terms[p.rows] = ce, terms[2 * p.rows] = l2, terms[3 * p.rows] = loss;
}

// The logits of a row into e, -inf where data cannot be and in the padding.
template <class Real> void load_data_logits(const Arguments &p, int64_t row, Buffers<Real> &buffers) {
    Real *e = buffers.e;
    load(p, row, e);
    for (int64_t z = p.classes; z < buffers.width; ++z) e[z] = -INFINITY;
    if (p.supports != nullptr) {
        const uint8_t *support = p.supports + (p.first + row) % p.num_supports * p.classes;
        for (int64_t z = 0; z < p.classes; ++z) e[z] = support[z] ? e[z] : Real(-INFINITY);
    } else if (p.mask >= 0) {
        e[p.mask] = -INFINITY;
    }
}

// The noise of a row into m, 1 in the padding, unless it is there.
template <class Real> void load_noise(const Arguments &p, int64_t row, Buffers<Real> &buffers) {
    const int64_t table = (p.first + row) % p.num_tables;
    if (table == buffers.table) return;
    for (int64_t z = 0; z < p.classes; ++z) buffers.m[z] = p.tables[table * p.classes + z];
    for (int64_t z = p.classes; z < buffers.width; ++z) buffers.m[z] = 1;
    buffers.table = table;
}

// Terms and gradient of one row.
template <class Real, bool TABLE> void do_row(const Arguments &p, int64_t row, Buffers<Real> &buffers) {
    const int64_t x = p.x[row], x_0 = p.x_0[row], of = (p.first + row) / p.elements;
    const double *m = TABLE ? p.tables + (p.first + row) % p.num_tables * p.classes : nullptr;
    const bool same = x == x_0;
    const double uniform = p.absorbing ? 0 : 1.0 / p.classes;  // m of all but the mask, where there is no table
    const double m_x = TABLE ? m[x] : p.absorbing ? x == p.mask : uniform;
    Real *e = buffers.e;
    if (!(m_x > 0) || (p.free != nullptr && !p.free[row])) {
        fill_terms<Real>(p, row, 0, 0, 0, 0);
        if (p.gradient == nullptr) return;
        for (int64_t z = 0; z < p.classes; ++z) e[z] = 0;
        return store(p, row, e);
    }

    // the prediction: sums of positive numbers, as a difference would lose the digits of a model that is nearly sure
    load_data_logits(p, row, buffers);
    const double l_x = e[x], l_0 = e[x_0];
    Real top = e[0];
#pragma omp simd reduction(max : top)
    for (int64_t z = 0; z < buffers.width; ++z) top = e[z] > top ? e[z] : top;
    e[x] = e[x_0] = -INFINITY;
    const double others = exponentiate<Real>(e, top, buffers.width);
    e[x] = e[x_0] = NOT_COUNTED;
    for (int64_t z = p.classes; z < buffers.width; ++z) e[z] = NOT_COUNTED;
    const double e_x = std::exp(l_x - top), below_top = l_0 - top, e_truth = same ? e_x : std::exp(below_top);
    const double e_0 = same ? 0 : e_truth;  // e_0, m_0, f_0 and G_0 are 0 where x = x_0: that cell is x's
    const double rest_x = others + e_0, rest_0 = same ? others : others + e_x;
    const double total = rest_x + e_x, inverse = 1 / total;
    const double f_x = e_x * inverse, not_f_x = rest_x * inverse, f_0 = e_0 * inverse, not_f_0 = rest_0 * inverse;
    const double f_others = others * inverse;
    double ce = below_top < -600 ? std::log(total) - below_top : std::log1p(rest_0 / e_truth);  // e_truth underflows
    ce = ce > FAR ? FAR : ce;  // NaN stays NaN

    const double *numbers = p.coefficients + of;
    const double A = numbers[0], N = numbers[p.objects], stay = numbers[2 * p.objects];
    const double alpha_bar = numbers[3 * p.objects], back = numbers[4 * p.objects] * m_x;
    const double r = alpha_bar / (alpha_bar + back), q = back / (alpha_bar + back);
    const double *weights = p.weights + (p.weights_by_row ? row : of);
    const double w_vlb = weights[0], w_ce = weights[p.num_weights], w_l2 = weights[2 * p.num_weights];
    const double gap = same ? -not_f_x : f_x;  // f_x - [x = x_0]
    const double c_h = std::fmax(not_f_x + q * f_x, LEAST), c_k = std::fmax(same ? q : 1.0, LEAST);
    const double m_0 = same ? 0 : TABLE ? m[x_0] : uniform;

    // the cells other than x and x_0: k = N c_k m, h = A f + N c_h m
    const double N_k = N * c_k, m_others = p.absorbing ? 0 : 1 - m_x - m_0;
    const bool has_noise = !p.absorbing && N_k > NO_NOISE * A;  // else k = 0: the cell is h, its slope 1
    double value = A * f_others + N * c_h * m_others, f_slope = f_others, m_slope = m_others;
    if (TABLE) load_noise(p, row, buffers);
    if (has_noise) {
        const double each = TABLE ? 1 : uniform, v_0 = std::fmin(c_h / c_k, FAR);
        const Ratio ratio{A / N_k * inverse / each, std::fmin(-r * gap / c_k, FAR), std::fmax(v_0, 1 / FAR)};
        const Sums sums = sum_cells<Real, TABLE>(buffers, ratio);
        value = N_k * each * sums.value + A * inverse * sums.e_no_m;
        f_slope = (sums.e_slope + sums.e_no_m) * inverse, m_slope = each * sums.m_slope;
    } else {
        for (int64_t z = 0; z < buffers.width; ++z) buffers.slopes[z] = 1;
    }

    // the cell at x_0 != x: k = A + N m_0, h = A f_0 + N c_h m_0
    double vlb = value, G_x = -r * f_x * N * m_slope, G_0 = 0;
    if (!same) {
        const double N_m = N * m_0, h_0 = A * f_0 + N_m * c_h, diff_0 = -(A * not_f_0 + N_m * r * f_x);
        const double safe = std::fmax(h_0, LEAST);
        vlb += cell_of(A + N_m, h_0, diff_0, ce);
        G_0 = diff_0 * (1 - N_m * c_h / safe);
        G_x -= r * f_x * N_m * diff_0 / safe;
    }
    if (p.is_step) {  // the cell at x: h = base + f_x dh/df_x
        const double dh_df = A + N * r * (1 - m_x), base = stay + N * m_x;
        const double h_x = base + f_x * dh_df, diff_x = gap * dh_df;
        vlb += cell_of(same ? base + dh_df : base, h_x, diff_x, ce);
        G_x += diff_x * (1 - base / std::fmax(h_x, LEAST));
    }
    double loss = w_vlb * vlb + w_ce * ce, l2 = 0, shift = 0, E = w_vlb * A * f_slope;
    const double of_d = 2 * w_l2;
    G_x *= w_vlb, G_0 *= w_vlb;
    if (p.with_l2) {  // d = f - e_x0 + shift (e_x - m)
        const double phi = std::fmin(N * r / std::fmax(A, LEAST), 1.0);
        shift = phi * gap;
        const Moments sums = sum_moments<Real, TABLE>(buffers, inverse, shift, uniform);
        const double d_x = gap + shift * (1 - m_x), d_0 = same ? 0 : -not_f_0 - shift * m_0;
        l2 = sums.d_d + d_x * d_x + d_0 * d_0;
        loss += w_l2 * l2;
        G_x += of_d * f_x * (d_x * (1 + phi * (1 - m_x)) - phi * (sums.d_m + m_0 * d_0));
        G_0 += of_d * d_0 * f_0;
        E += of_d * sums.d_f;
    }
    fill_terms<Real>(p, row, vlb, ce, l2, loss);
    if (p.gradient == nullptr) return;

    E += G_0;
    const double constant = (w_ce - G_x - E) * inverse, of_slope = w_vlb * A * inverse;
    const auto form = p.with_l2 ? form_gradient<Real, TABLE, true> : form_gradient<Real, TABLE, false>;
    form(buffers, constant, of_slope, of_d * inverse, inverse, shift, uniform);
    e[x_0] = G_0 - f_0 * (G_x + E) - w_ce * not_f_0;
    e[x] = not_f_x * G_x - f_x * E + w_ce * gap;
    store(p, row, e);
}

// ---- all rows ------------------------------------------------------------------------------------------------------

struct Team {
    const Arguments &p;
    int64_t next = 0;
    bool in_range = true;  // no x or x_0 is another number than a category
};

template <class Real> void work(Team &team) {
    const Arguments &p = team.p;
    const auto one = p.tables == nullptr ? do_row<Real, false> : do_row<Real, true>;
    Buffers<Real> buffers(p.classes);
    while (true) {
        const int64_t start = __atomic_fetch_add(&team.next, ROWS, __ATOMIC_RELAXED);
        if (start >= p.rows) return;
        for (int64_t row = start; row < p.rows && row < start + ROWS; ++row) {
            const auto x = static_cast<uint64_t>(p.x[row]), x_0 = static_cast<uint64_t>(p.x_0[row]);
            const bool in_range = x < uint64_t(p.classes) && x_0 < uint64_t(p.classes);
            if (in_range)
                one(p, row, buffers);
            else
                __atomic_store_n(&team.in_range, false, __ATOMIC_RELAXED);
        }
    }
}

void work_of_any_type(void *team_of_caller) {
    Team &team = *static_cast<Team *>(team_of_caller);
    return team.p.type == FLOAT64 ? work<double>(team) : work<float>(team);
}

}  // namespace

// Start `function(data)` in this many threads, and wait: GOMP_parallel of the OpenMP runtime that torch uses.
using Parallel = void (*)(void (*function)(void *), void *data, unsigned threads, unsigned flags);

// Terms and gradient of all rows; whether all x and x_0 are in range. `parallel` may be null.
extern "C" bool usd3_loss_rows(const Arguments *p, Parallel parallel, int64_t threads) {
    Team team{*p};
    if (parallel == nullptr || threads < 2)
        work_of_any_type(&team);
    else
        parallel(work_of_any_type, &team, threads, 0);
    return team.in_range;
}
