#pragma once

#include <optional>

#include <c10/core/ScalarType.h>

#include "lockstep/kernels/dropout.h"

namespace lockstep::kernels::detail {

// Returns nothing for a type without kernels.
inline std::optional<Number> number_of(c10::ScalarType type) {
  switch (type) {
    case c10::kFloat:
      return Number::f32;
    case c10::kDouble:
      return Number::f64;
    case c10::kBFloat16:
      return Number::bf16;
    case c10::kHalf:
      return Number::f16;
    default:
      return std::nullopt;
  }
}

}  // namespace lockstep::kernels::detail
