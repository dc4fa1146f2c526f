#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "lockstep/config/enums.h"
#include "lockstep/config/field.h"

namespace lockstep::config {

enum class Schedule { constant, linear, cosine };

constexpr std::array<std::string_view, 3> names_of(Schedule) {
  return {"constant", "linear", "cosine"};
}

struct ScheduleConfig {
  Schedule name = Schedule::constant;
  std::int64_t warmup_steps = 0;
  double final_ratio = 0.0;
};

template <typename Visitor>
void describe(ScheduleConfig& c, Visitor& v) {
  v.field("name", c.name,
          {.help = "How the learning rate goes from optim.lr to its end."});
  v.field("warmup_steps", c.warmup_steps,
          {.help = "Steps in which the rate first rises from 0 to optim.lr.",
           .range = count_from(0),
           .unit = Unit::steps});
  v.field("final_ratio", c.final_ratio,
          {.help = "Learning rate at the end, relative to optim.lr (linear, cosine).",
           .range = between(0, 1)});
}

}  // namespace lockstep::config
