#pragma once

#include <array>
#include <string_view>

#include "lockstep/config/enums.h"
#include "lockstep/config/field.h"

namespace lockstep::config {

enum class Precision { automatic, fp32, tf32, bf16 };

constexpr std::array<std::string_view, 4> names_of(Precision) {
  return {"auto", "fp32", "tf32", "bf16"};
}

struct PrecisionConfig {
  Precision mode = Precision::automatic;
};

template <typename Visitor>
void describe(PrecisionConfig& c, Visitor& v) {
  v.field("mode", c.mode,
          {.help = "Arithmetic of the model; the weights stay in fp32."});
}

}  // namespace lockstep::config
