#pragma once

#include <array>
#include <string_view>

#include "lockstep/config/enums.h"
#include "lockstep/config/field.h"

namespace lockstep::config {

enum class Precision { automatic, fp32, tf32, bf16, fp64 };

constexpr std::array<std::string_view, 5> names_of(Precision) {
  return {"auto", "fp32", "tf32", "bf16", "fp64"};
}

struct PrecisionConfig {
  Precision mode = Precision::automatic;
};

template <typename Visitor>
void describe(PrecisionConfig& c, Visitor& v) {
  v.field(
      "mode", c.mode,
      {.help = "Arithmetic of the model; the weights stay in fp32, but in fp64, which "
               "is slow: to tell mistakes from rounding."});
}

}  // namespace lockstep::config
