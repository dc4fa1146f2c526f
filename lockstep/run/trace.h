#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

// A trace: the values that the steps of a run computed, to the last bit, for `lockstep
// parity`. docs/parity.md describes the files; they are read again by the process that
// asked for them, so they have no version.
namespace lockstep::run {

// Names in step_file() are these and the parameter's name, "gradient/conv1.weight".
inline constexpr std::string_view kTraceGradient = "gradient/";
inline constexpr std::string_view kTraceParameter = "parameter/";

// A mistake that is made on purpose: the gradient of one parameter is scaled on one
// rank, before it is exchanged. A check for mistakes must find it.
struct Injection {
  int rank = 0;
  double scale = 1;
  std::string parameter;  // "": the first one
};

// Parses "rank=1,scale=1.001" or "rank=1,scale=1.001,parameter=conv1.weight", in any
// order; throws Fault::config for anything else, and for a scale of 1.
Injection parse_injection(std::string_view text);
std::string to_text(const Injection& injection);

struct TraceRequest {
  std::filesystem::path directory;  // exists
  bool batches = false;             // the samples, too
  std::optional<Injection> injection;
};

// Step 0 is the start: the parameters alone. Rank 0 writes it.
std::string step_file(std::int64_t step);
// Holds a rank's share of the samples of a step, as the model sees them.
std::string batch_file(std::int64_t step, int rank);
// Holds a line for each step: a hash of the rank's parameters.
std::string hash_file(int rank);

}  // namespace lockstep::run
