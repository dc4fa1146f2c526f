#pragma once

#include "lockstep/base/error.h"
#include "lockstep/kernels/detail/halves.h"
#include "lockstep/kernels/dropout.h"

// Elements on the host for the kernels that compute in float.
namespace lockstep::kernels::detail {

inline void put(float& at, float value) {
  at = value;
}
inline void put(Bf16& at, float value) {
  at = rounded<Bf16>(value);
}

// Calls body with a value of the element's type.
template <typename Body>
void with_element(Number number, const Body& body) {
  switch (number) {
    case Number::f32:
      return body(float{});
    case Number::bf16:
      return body(Bf16{});
    default:
      throw Error(Fault::internal, "kernels: only float and bf16 have this kernel");
  }
}

template <typename T>
void put_sum(T& place, bool adds, double sum) {
  put(place, static_cast<float>(sum) + (adds ? widened(place) : 0));
}

}  // namespace lockstep::kernels::detail
