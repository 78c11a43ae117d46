// The losses of every row and their gradient, one visit to a row: it stays in the first cache meanwhile.
//
// cpp_loss.py calls `usd3_loss_rows`. The arithmetic and its letters are those of docs/kernels.md: numbers of a row are
// float64; cells, one per row and category, are in `Real`, float32 (float64 where the logits are). A thread takes some
// rows through each step together, since the steps of one row wait for each other.

#include <cmath>
#include <cstdint>
#include <cstdlib>

#include "cpp_cells.h"
#include "cpp_memory.h"

namespace {

constexpr int64_t TEAM_ROWS = 64;    // rows that a thread takes from the others
constexpr int64_t ROWS = 4;          // rows that go through each step together,
constexpr int64_t CELLS = 4096;      // unless they have more cells than this
constexpr double FAR = 1e30;         // -log f is at most this
constexpr double LEAST = 1e-290;     // a denominator is at least this
constexpr double NO_NOISE = 1e-25;   // a k below this part of h counts as 0

// One row and its numbers. f_0, m_0 and G_0 are 0 where x = x_0: that cell is x's.
template <class Real> struct Row {
    Cells<Real> cells;
    int64_t table = -1;  // the row of `tables` that `cells.m` holds
    int64_t row, x, x_0, of;
    bool same, has_noise;
    double m_x, m_0, each;                      // each: m of all but the mask, where there is no table
    double below_top_x, below_top_0, others;    // logits at x and x_0 less the largest; sum of e over the others
    double inverse;                             // 1 / total, f = e / total
    double f_x, not_f_x, f_0, not_f_0, gap, ce;  // gap = f_x - [x = x_0], ce = -log f_x0
    double A, N, r, q, c_h, c_k, N_k;
    Ratio ratio;
    Sums sums;
    double constant, of_slope, of_d, shift;  // of the gradient of the others, as `form_gradient` takes them
    double g_x, g_0;                         // gradient at x and x_0
};

// ---- steps of a row ------------------------------------------------------------------------------------------------

template <class Real> void fill_terms(const Arguments &p, int64_t row, double vlb, double ce, double l2, double loss) {
    Real *terms = static_cast<Real *>(p.terms) + row;
    terms[0] = vlb, terms[p.rows] = ce, terms[2 * p.rows] = l2, terms[3 * p.rows] = loss;
}

// Begin with a row; false where it is not read, and its terms and gradient are 0.
template <class Real, bool TABLE> bool begin(const Arguments &p, int64_t row, Row<Real> &v) {
    v.row = row, v.x = p.x[row], v.x_0 = p.x_0[row], v.of = (p.first + row) / p.elements;
    v.same = v.x == v.x_0;
    v.each = p.absorbing ? 0 : 1.0 / p.classes;
    const double *m = TABLE ? p.tables + (p.first + row) % p.num_tables * p.classes : nullptr;
    v.m_x = TABLE ? m[v.x] : p.absorbing ? v.x == p.mask : v.each;
    v.m_0 = v.same ? 0 : TABLE ? m[v.x_0] : v.each;
    if (v.m_x > 0 && (p.free == nullptr || p.free[row])) return true;
    fill_terms<Real>(p, row, 0, 0, 0, 0);
    if (p.gradient != nullptr) {
        for (int64_t z = 0; z < p.classes; ++z) v.cells.e[z] = 0;
        store(p, row, v.cells.e, 0, p.classes);
    }
    return false;
}

// The logits of a row, -inf where data cannot be.
template <class Real> void load_data_logits(const Arguments &p, int64_t row, Real *logits) {
    load(p, row, logits);
    if (p.supports != nullptr) {
        const uint8_t *support = p.supports + (p.first + row) % p.num_supports * p.classes;
        for (int64_t z = 0; z < p.classes; ++z) logits[z] = support[z] ? logits[z] : Real(-INFINITY);
    } else if (p.mask >= 0) {
        logits[p.mask] = -INFINITY;
    }
}

// Load what the row needs, and form e and its sum.
template <class Real, bool TABLE> void read(const Arguments &p, Row<Real> &v) {
    load_data_logits(p, v.row, v.cells.logits);
    const int64_t table = TABLE ? (p.first + v.row) % p.num_tables : -1;
    if (table != v.table) {
        for (int64_t z = 0; z < p.classes; ++z) v.cells.m[z] = p.tables[table * p.classes + z];
        v.table = table;
    }
    const Real top = largest<Real>(v.cells);
    v.others = exponentiate<Real>(v.cells, top, v.x, v.x_0, p.classes);
    v.below_top_x = double(v.cells.logits[v.x]) - top, v.below_top_0 = double(v.cells.logits[v.x_0]) - top;
}

// The prediction f, and what the cells need of it. Sums of positive numbers throughout, as a difference would lose the
// digits of a model that is nearly sure.
template <class Real, bool TABLE> void predict(const Arguments &p, Row<Real> &v) {
    const double e_x = std::exp(v.below_top_x), e_truth = v.same ? e_x : std::exp(v.below_top_0);
    const double rest_x = v.same ? v.others : v.others + e_truth, rest_0 = v.same ? v.others : v.others + e_x;
    const double total = rest_x + e_x;
    v.inverse = 1 / total;
    v.f_x = e_x * v.inverse, v.not_f_x = rest_x * v.inverse;
    v.f_0 = v.same ? 0 : e_truth * v.inverse, v.not_f_0 = rest_0 * v.inverse;
    v.ce = v.below_top_0 < -1 ? std::log(total) - v.below_top_0 : std::log1p(rest_0 / e_truth);
    v.ce = v.ce > FAR ? FAR : v.ce;  // NaN stays NaN
    v.gap = v.same ? -v.not_f_x : v.f_x;

    const double *numbers = p.coefficients + v.of;
    const double alpha_bar = numbers[3 * p.objects], back = numbers[4 * p.objects] * v.m_x;
    v.A = numbers[0], v.N = numbers[p.objects];
    v.r = alpha_bar / (alpha_bar + back), v.q = back / (alpha_bar + back);
    v.c_h = std::fmax(v.not_f_x + v.q * v.f_x, LEAST), v.c_k = std::fmax(v.same ? v.q : 1.0, LEAST);
    v.N_k = v.N * v.c_k;
    v.has_noise = !p.absorbing && v.N_k > NO_NOISE * v.A;  // else k = 0 at the others: the cell is h, its slope 1
    if (!v.has_noise) return;
    const double v_0 = std::fmin(v.c_h / v.c_k, FAR);
    v.ratio.a = v.A / v.N_k * v.inverse / (TABLE ? 1 : v.each);
    v.ratio.g = std::fmin(-v.r * v.gap / v.c_k, FAR), v.ratio.v_0 = std::fmax(v_0, 1 / FAR);
}

// h - k - k log(h/k) of one cell, diff = h - k. h/k is at least exp(-ce), also where that underflows.
inline double cell_of(double k, double h, double diff, double ce) {
    const double safe = std::fmax(k, LEAST), u = diff / safe;
    if (std::fabs(u) < 0.5) return k * (u - std::log1p(u));  // never negative, as diff - k log1p(u) could be rounded
    return diff - k * (u > 0 ? std::log1p(u) : std::fmax(std::log(h / safe), -ce));
}

// The terms of the row, and the numbers of its gradient.
template <class Real, bool TABLE> void finish(const Arguments &p, Row<Real> &v) {
    const double A = v.A, N = v.N, r = v.r, f_x = v.f_x, m_others = p.absorbing ? 0 : 1 - v.m_x - v.m_0;
    const double f_others = v.others * v.inverse, each = TABLE ? 1 : v.each;
    double vlb = A * f_others + N * v.c_h * m_others, f_slope = f_others, m_slope = m_others;
    if (v.has_noise) {
        vlb = v.N_k * each * v.sums.value + A * v.inverse * v.sums.e_no_m;
        f_slope = (v.sums.e_slope + v.sums.e_no_m) * v.inverse, m_slope = each * v.sums.m_slope;
    }
    double G_x = -r * f_x * N * m_slope, G_0 = 0;
    if (!v.same) {  // the cell at x_0: k = A + N m_0, h = A f_0 + N c_h m_0
        const double N_m = N * v.m_0, h_0 = A * v.f_0 + N_m * v.c_h, diff_0 = -(A * v.not_f_0 + N_m * r * f_x);
        const double safe = std::fmax(h_0, LEAST);
        vlb += cell_of(A + N_m, h_0, diff_0, v.ce);
        G_0 = diff_0 * (1 - N_m * v.c_h / safe);
        G_x -= r * f_x * N_m * diff_0 / safe;
    }
    if (p.is_step) {  // the cell at x: h = base + f_x dh/df_x
        const double dh_df = A + N * r * (1 - v.m_x), base = p.coefficients[2 * p.objects + v.of] + N * v.m_x;
        const double h_x = base + f_x * dh_df, diff_x = v.gap * dh_df;
        vlb += cell_of(v.same ? base + dh_df : base, h_x, diff_x, v.ce);
        G_x += diff_x * (1 - base / std::fmax(h_x, LEAST));
    }
    const double *weights = p.weights + (p.weights_by_row ? v.row : v.of);
    const double w_vlb = weights[0], w_ce = weights[p.num_weights], w_l2 = weights[2 * p.num_weights];
    double loss = w_vlb * vlb + w_ce * v.ce, l2 = 0, E = w_vlb * A * f_slope;
    G_x *= w_vlb, G_0 *= w_vlb;
    if (p.with_l2) {  // d = f - e_x0 + shift (e_x - m)
        const double phi = std::fmin(N * r / std::fmax(A, LEAST), 1.0), of_d = 2 * w_l2;
        v.shift = phi * v.gap;
        const Moments sums = sum_moments<Real, TABLE>(v.cells, v.inverse, v.shift, v.each);
        const double d_x = v.gap + v.shift * (1 - v.m_x), d_0 = v.same ? 0 : -v.not_f_0 - v.shift * v.m_0;
        l2 = sums.d_d + d_x * d_x + d_0 * d_0;
        loss += w_l2 * l2;
        G_x += of_d * f_x * (d_x * (1 + phi * (1 - v.m_x)) - phi * (sums.d_m + v.m_0 * d_0));
        G_0 += of_d * d_0 * v.f_0;
        E += of_d * sums.d_f;
        v.of_d = of_d * v.inverse;
    }
    fill_terms<Real>(p, v.row, vlb, v.ce, l2, loss);
    E += G_0;
    v.constant = (w_ce - G_x - E) * v.inverse, v.of_slope = w_vlb * A * v.inverse;
    v.g_0 = G_0 - v.f_0 * (G_x + E) - w_ce * v.not_f_0;
    v.g_x = v.not_f_x * G_x - f_x * E + w_ce * v.gap;
}

template <class Real, bool TABLE> void write_gradient(const Arguments &p, Row<Real> &v) {
    if (!v.has_noise)
        for (int64_t z = 0; z < v.cells.width; ++z) v.cells.slopes[z] = 1;
    const auto form = p.with_l2 ? form_gradient<Real, TABLE, true> : form_gradient<Real, TABLE, false>;
    form(v.cells, v.constant, v.of_slope, v.of_d, v.inverse, v.shift, v.each);
    const Real g_0 = v.g_0, g_x = v.g_x;
    store(p, v.row, v.cells.e, 0, p.classes);
    store(p, v.row, &g_0, v.x_0, 1);
    store(p, v.row, &g_x, v.x, 1);  // the later one, where x = x_0
}

// ---- all rows ------------------------------------------------------------------------------------------------------

// Rows, and their memory, that go through each step together.
template <class Real> class Group {
  public:
    Row<Real> rows[ROWS];
    int64_t size;

    explicit Group(int64_t K) {
        const int64_t width = (K + LANES<Real> - 1) / LANES<Real> * LANES<Real>;
        size = width * ROWS <= CELLS ? ROWS : 1;
        memory = static_cast<Real *>(std::aligned_alloc(64, (4 * size * width * sizeof(Real) + 63) / 64 * 64));
        if (memory == nullptr) std::abort();
        for (int64_t i = 0; i < size; ++i) {
            Real *own = memory + 4 * i * width;
            rows[i].cells = {width, own, own + width, own + 2 * width, own + 3 * width};
            for (int64_t z = K; z < width; ++z) rows[i].cells.logits[z] = -INFINITY, rows[i].cells.m[z] = 1;
        }
    }
    ~Group() { std::free(memory); }
    Group(const Group &) = delete;

  private:
    Real *memory;
};

// Whether x and x_0 of the row are categories.
inline bool is_in_range(const Arguments &p, int64_t row) {
    const auto x = static_cast<uint64_t>(p.x[row]), x_0 = static_cast<uint64_t>(p.x_0[row]);
    return x < uint64_t(p.classes) && x_0 < uint64_t(p.classes);
}

// The rows from `start` to `stop`; false where an x or x_0 is no category.
template <class Real, bool TABLE> bool do_rows(const Arguments &p, int64_t start, int64_t stop, Group<Real> &group) {
    while (start < stop) {
        int64_t count = 0;
        for (; start < stop && count < group.size; ++start) {
            if (!is_in_range(p, start)) return false;
            count += begin<Real, TABLE>(p, start, group.rows[count]);
        }
        for (int64_t i = 0; i < count; ++i) read<Real, TABLE>(p, group.rows[i]);
        for (int64_t i = 0; i < count; ++i) predict<Real, TABLE>(p, group.rows[i]);
        for (int64_t i = 0; i < count; ++i) {
            Row<Real> &v = group.rows[i];
            if (v.has_noise) v.sums = sum_cells<Real, TABLE>(v.cells, v.ratio);
        }
        for (int64_t i = 0; i < count; ++i) finish<Real, TABLE>(p, group.rows[i]);
        for (int64_t i = 0; i < count && p.gradient != nullptr; ++i) write_gradient<Real, TABLE>(p, group.rows[i]);
    }
    return true;
}

// What the threads share.
struct Team {
    const Arguments &p;
    int64_t next = 0;
    bool in_range = true;
};

template <class Real> void work(Team &team) {
    const Arguments &p = team.p;
    const auto some = p.tables == nullptr ? do_rows<Real, false> : do_rows<Real, true>;
    Group<Real> group(p.classes);
    while (true) {
        const int64_t start = __atomic_fetch_add(&team.next, TEAM_ROWS, __ATOMIC_RELAXED);
        if (start >= p.rows) return;
        const int64_t stop = start + TEAM_ROWS < p.rows ? start + TEAM_ROWS : p.rows;
        if (!some(p, start, stop, group)) __atomic_store_n(&team.in_range, false, __ATOMIC_RELAXED);
    }
}

void work_of_any_type(void *shared) {
    Team &team = *static_cast<Team *>(shared);
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
