#include "lockstep/run/trace.h"

#include <cmath>
#include <limits>

#include <fmt/format.h>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"

namespace lockstep::run {
namespace {

[[noreturn]] void refuse(std::string_view text, const std::string& why) {
  throw Error(Fault::config, "--inject: '", text, "' ", why,
              "; write rank=1,scale=1.001 or rank=1,scale=1.001,parameter=NAME");
}

int rank_of(std::string_view text, std::string_view value) {
  const auto rank = text::to_integer(value);
  if (!rank || *rank < 0 || *rank > std::numeric_limits<int>::max()) {
    refuse(text, str("has the rank '", value, "'"));
  }
  return static_cast<int>(*rank);
}

double scale_of(std::string_view text, std::string_view value) {
  const auto scale = text::to_double(value);
  if (!scale || !std::isfinite(*scale)) {
    refuse(text, str("has the scale '", value, "', which is not a number"));
  }
  if (*scale == 1) refuse(text, "changes nothing: its scale is 1");
  return *scale;
}

}  // namespace

Injection parse_injection(std::string_view text) {
  std::optional<int> rank;
  std::optional<double> scale;
  std::optional<std::string> parameter;
  for (const auto& part : text::split(text, ',')) {
    const auto equals = part.find('=');
    const auto key = part.substr(0, equals);
    const auto value = equals == std::string::npos ? "" : part.substr(equals + 1);
    if (key == "rank" && !rank) {
      rank = rank_of(text, value);
    } else if (key == "scale" && !scale) {
      scale = scale_of(text, value);
    } else if (key == "parameter" && !parameter && !value.empty()) {
      parameter = value;
    } else {
      refuse(text, str("has '", part, "', which is not expected there"));
    }
  }
  if (!rank) refuse(text, "names no rank");
  if (!scale) refuse(text, "names no scale");
  return {*rank, *scale, parameter.value_or("")};
}

std::string to_text(const Injection& injection) {
  return str("rank=", injection.rank, ",scale=", text::from_double(injection.scale),
             injection.parameter.empty() ? "" : ",parameter=", injection.parameter);
}

std::string step_file(std::int64_t step) {
  return fmt::format("step_{:06}.safetensors", step);
}

std::string batch_file(std::int64_t step, int rank) {
  return fmt::format("batch_{:06}_rank_{}.safetensors", step, rank);
}

std::string hash_file(int rank) {
  return fmt::format("hashes_rank_{}.jsonl", rank);
}

}  // namespace lockstep::run
