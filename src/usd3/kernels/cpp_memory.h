// How rows lie in the memory of torch: the arguments of the library, and numbers of any type.

#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

enum Type : int64_t { FLOAT32, FLOAT64, BFLOAT16, FLOAT16 };

// The arguments of `usd3_loss_rows`, in the words of usd3.kernels.loss.Problem. All fields have eight bytes.
struct Arguments {
    const void *logits;          // (rows, classes), rows `logits_stride` apart
    void *gradient;              // the same type; may be the logits; null: no gradient
    void *terms;                 // (4, rows): vlb, ce, l2 and their weighted sum; float64 where the logits are
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

// Write `count` numbers to the gradient of a row, from category `first` on.
template <class Real> void store(const Arguments &p, int64_t row, const Real *in, int64_t first, int64_t count) {
    const int64_t start = row * p.gradient_stride + first;
    if (p.type == BFLOAT16) {
        const auto out = static_cast<uint16_t *>(p.gradient) + start;
        for (int64_t i = 0; i < count; ++i) out[i] = to_bfloat16(in[i]);
    } else if (p.type == FLOAT16) {
        const auto out = static_cast<_Float16 *>(p.gradient) + start;
        for (int64_t i = 0; i < count; ++i) out[i] = _Float16(in[i]);
    } else {
        std::memcpy(static_cast<Real *>(p.gradient) + start, in, count * sizeof(Real));
    }
}

}  // namespace
