#pragma once

#include <cmath>
#include <cstdint>
#include <limits>

#include "lockstep/kernels/update.h"

// The formulas of the optimizers, once for host and device: constexpr functions may be
// called from both; C++17, the version that nvcc gets. The sources that include this
// are built without contraction into fused multiply-adds, so that every machine
// computes the same bits.
namespace lockstep::kernels::detail {

// The coefficients that the elements of a chunk share, computed in double and rounded
// once.
template <typename T>
struct Coefficients {
  T scale, clip;
  T rate;   // of the change
  T keep;   // decoupled decay: the factor of a weight
  T decay;  // coupled decay: the weight's part of the gradient
  T beta1, rest1, beta2, rest2;
  T inverse_root;  // 1 / sqrt(bias2)
  T eps;
};

template <typename T, typename Root>
constexpr Coefficients<T> coefficients(const Hyper& h, const Chunk& chunk,
                                       double factor, const Root& root) {
  const double lr = h.lr * chunk.lr_scale;
  Coefficients<T> c{};
  c.scale = static_cast<T>(h.gradient_scale * factor);
  c.clip = h.clip_value > 0 ? static_cast<T>(h.clip_value)
                            : std::numeric_limits<T>::infinity();
  c.rate = static_cast<T>(lr / h.bias1);
  c.keep = static_cast<T>(1 - lr * chunk.weight_decay);
  c.decay = static_cast<T>(chunk.weight_decay);
  c.beta1 = static_cast<T>(h.beta1);
  c.rest1 = static_cast<T>(1 - h.beta1);
  c.beta2 = static_cast<T>(h.beta2);
  c.rest2 = static_cast<T>(1 - h.beta2);
  c.inverse_root = static_cast<T>(1 / root(h.bias2));
  c.eps = static_cast<T>(h.eps);
  return c;
}

// This is not std::clamp: a NaN has to stay one.
template <typename T>
[[gnu::always_inline]] constexpr T limited(T g, T clip) {
  return g > clip ? clip : (g < -clip ? -clip : g);
}

struct Sgd {
  static constexpr int kStates = 0;
  template <typename T, typename Root>
  [[gnu::always_inline]] static constexpr void apply(T& w, T&, T&, T g,
                                                     const Coefficients<T>& c,
                                                     const Root&) {
    w -= c.rate * (g + c.decay * w);
  }
};

struct Momentum {
  static constexpr int kStates = 1;
  template <typename T, typename Root>
  [[gnu::always_inline]] static constexpr void apply(T& w, T& m, T&, T g,
                                                     const Coefficients<T>& c,
                                                     const Root&) {
    m = c.beta1 * m + (g + c.decay * w);
    w -= c.rate * m;
  }
};

struct Nesterov {
  static constexpr int kStates = 1;
  template <typename T, typename Root>
  [[gnu::always_inline]] static constexpr void apply(T& w, T& m, T&, T g,
                                                     const Coefficients<T>& c,
                                                     const Root&) {
    const T d = g + c.decay * w;
    m = c.beta1 * m + d;
    w -= c.rate * (d + c.beta1 * m);
  }
};

struct Adam {
  static constexpr int kStates = 2;
  template <typename T, typename Root>
  [[gnu::always_inline]] static constexpr void apply(T& w, T& m, T& v, T g,
                                                     const Coefficients<T>& c,
                                                     const Root& root) {
    const T d = g + c.decay * w;
    m += c.rest1 * (d - m);
    v = c.beta2 * v + c.rest2 * (d * d);
    w -= c.rate * (m / (root(v) * c.inverse_root + c.eps));
  }
};

struct AdamW {
  static constexpr int kStates = 2;
  template <typename T, typename Root>
  [[gnu::always_inline]] static constexpr void apply(T& w, T& m, T& v, T g,
                                                     const Coefficients<T>& c,
                                                     const Root& root) {
    m += c.rest1 * (g - m);
    v = c.beta2 * v + c.rest2 * (g * g);
    w = c.keep * w - c.rate * (m / (root(v) * c.inverse_root + c.eps));
  }
};

struct Lion {
  static constexpr int kStates = 1;
  template <typename T, typename Root>
  [[gnu::always_inline]] static constexpr void apply(T& w, T& m, T&, T g,
                                                     const Coefficients<T>& c,
                                                     const Root&) {
    const T d = c.beta1 * m + c.rest1 * g;
    const T sign = d > 0 ? T(1) : (d < 0 ? T(-1) : d);
    w = c.keep * w - c.rate * sign;
    m = c.beta2 * m + c.rest2 * g;
  }
};

}  // namespace lockstep::kernels::detail
