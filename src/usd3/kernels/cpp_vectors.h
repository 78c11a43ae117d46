// Vectors of cells: as many numbers as a register of the processor has, and the special functions of them.

#pragma once

#include <cstdint>
#include <utility>

namespace {

#if defined(__AVX512F__)
constexpr int BYTES = 64;
#elif defined(__AVX__)
constexpr int BYTES = 32;
#else
constexpr int BYTES = 16;
#endif

template <class Real> struct Float;
template <> struct Float<float> {
    using Int = int32_t;
    typedef float Vector __attribute__((vector_size(BYTES)));
    typedef Int IntVector __attribute__((vector_size(BYTES)));
    static constexpr int FRACTION = 23, EXP_TERMS = 7, LOG_TERMS = 5;
    static constexpr float ROUND = 12582912.0f, LOWEST = -87.0f;
    static constexpr float LN_2_HIGH = 0.693145751953125f, LN_2_LOW = 1.42860677e-6f;
};
template <> struct Float<double> {
    using Int = int64_t;
    typedef double Vector __attribute__((vector_size(BYTES)));
    typedef Int IntVector __attribute__((vector_size(BYTES)));
    static constexpr int FRACTION = 52, EXP_TERMS = 13, LOG_TERMS = 12;
    static constexpr double ROUND = 6755399441055744.0, LOWEST = -708.0;
    static constexpr double LN_2_HIGH = 0.693147180369123816490, LN_2_LOW = 1.90821492927058770002e-10;
};
template <class Real> using Vector = typename Float<Real>::Vector;
template <class Real> using IntVector = typename Float<Real>::IntVector;
template <class Real> constexpr int64_t LANES = BYTES / sizeof(Real);

template <class Real> inline Vector<Real> all(Real value) { return Vector<Real>{} + value; }

// The numbers 0, 1, 2, ... of the lanes.
template <class Real> inline IntVector<Real> lanes() {
    IntVector<Real> numbers;
    for (int64_t i = 0; i < LANES<Real>; ++i) numbers[i] = i;
    return numbers;
}

template <class Real> inline Vector<Real> &at(Real *cells, int64_t z) {
    return *reinterpret_cast<Vector<Real> *>(cells + z);
}

template <class Real> inline const Vector<Real> &at(const Real *cells, int64_t z) {
    return *reinterpret_cast<const Vector<Real> *>(cells + z);
}

// The vector with lane i in the place of lane i ^ DISTANCE.
template <class Real, int DISTANCE, size_t... I>
inline Vector<Real> exchanged(Vector<Real> vector, std::index_sequence<I...>) {
    return __builtin_shufflevector(vector, vector, (I ^ DISTANCE)...);
}

// A number of all lanes, that of two lanes being `both`.
template <class Real, int DISTANCE = LANES<Real> / 2, class Both>
inline Real reduced(Vector<Real> vector, Both both) {
    if constexpr (DISTANCE == 0) return vector[0];
    const auto other = exchanged<Real, DISTANCE>(vector, std::make_index_sequence<LANES<Real>>());
    if constexpr (DISTANCE > 0) return reduced<Real, DISTANCE / 2>(both(vector, other), both);
}

constexpr double FACTORIAL[] = {1,     1,      2,       6,        24,        120,       720,
                                5040,  40320,  362880,  3628800,  39916800,  479001600, 6227020800};

// exp(t) for t <= 0: 2^n times a Taylor polynomial; 0 where t is below LOWEST.
template <class Real> inline Vector<Real> exp_of(Vector<Real> t) {
    using F = Float<Real>;
    const Vector<Real> rounded = t * Real(1.4426950408889634) + F::ROUND;  // its last bits are the integer n
    const Vector<Real> n = rounded - F::ROUND;
    const Vector<Real> rest = (t - n * F::LN_2_HIGH) - n * F::LN_2_LOW;
    Vector<Real> sum = all<Real>(1 / FACTORIAL[F::EXP_TERMS]);
#pragma GCC unroll 16
    for (int i = F::EXP_TERMS - 1; i >= 0; --i) sum = sum * rest + Real(1 / FACTORIAL[i]);
    const IntVector<Real> one = (IntVector<Real>)all<Real>(1), bits = (IntVector<Real>)rounded;
    const auto power = (Vector<Real>)((bits << F::FRACTION) + one);
    return t < F::LOWEST ? all<Real>(0) : sum * power;
}

template <class Real> struct Bregman {
    Vector<Real> value, slope;
};

// u - log(v) and its derivative u/v, v = 1 + u > 0. With v = 2^n (1 + s) and w = s/(2 + s), log(1 + s) is
// 2 w + 2 w^3/3 + ...; where n = 0, u - 2 w = u w, so that nothing cancels near u = 0. One division serves both.
template <class Real> inline Bregman<Real> bregman(Vector<Real> u, Vector<Real> v) {
    using F = Float<Real>;
    using Int = typename F::Int;
    const IntVector<Real> bits = (IntVector<Real>)v;
    const IntVector<Real> n = (bits - __builtin_bit_cast(Int, Real(0.70710678))) >> F::FRACTION;
    const IntVector<Real> shift = n << F::FRACTION;
    const auto is_near = n == 0;
    const auto reduced = (Vector<Real>)(bits - shift);  // 1 + s
    const Vector<Real> s = is_near ? u : reduced - Real(1), s_2 = s + Real(2);
    const Vector<Real> inverse = Real(1) / (s_2 * reduced), w = s * reduced * inverse, w_2 = w * w;
    Vector<Real> sum = all<Real>(2.0 / (2 * F::LOG_TERMS + 1));
#pragma GCC unroll 16
    for (int i = F::LOG_TERMS - 1; i > 0; --i) sum = sum * w_2 + Real(2.0 / (2 * i + 1));
    const Vector<Real> cubic = w * w_2 * sum;
    const Vector<Real> log_power = __builtin_convertvector(n, Vector<Real>) * Real(0.69314718055994531);
    const auto power = (Vector<Real>)((IntVector<Real>)all<Real>(1) - shift);  // 2^-n
    return {is_near ? u * w - cubic : u - log_power - (w + w + cubic), u * (s_2 * inverse) * power};
}

}  // namespace
