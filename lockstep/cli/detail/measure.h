#pragma once

#include <chrono>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/cli/command.h"
#include "lockstep/hardware/machine.h"

// The worker measures and tests for `lockstep hardware bench` and `lockstep gpus test`
// in a process for each part: a GPU that hangs takes only that one with it.
namespace lockstep::cli {

// The words of a process: what it measures, with its options.
struct Part {
  std::vector<std::string> words;
  std::vector<std::pair<std::string, std::string>> environment = {};
};

struct PartEnd {
  std::string json;     // its output
  std::string problem;  // why there is none, else ""
  bool late = false;    // because of the time limit
};

class Measurements {
 public:
  // Throws Fault::hardware if there is no worker.
  Measurements(const Context& context, std::chrono::seconds limit);

  std::chrono::seconds limit() const noexcept { return limit_; }

  PartEnd run(const Part& part) const;
  // Runs all at the same time.
  std::vector<PartEnd> run(const std::vector<Part>& parts) const;
  // Runs the parts as ranks of one job.
  std::vector<PartEnd> run_ranks(std::vector<Part> ranks) const;

 private:
  std::filesystem::path worker_;
  std::chrono::seconds limit_;
};

// Returns --time-limit S, or the default.
std::chrono::seconds time_limit(const Arguments& arguments);

// Prints "lockstep: warning: ..." on context.err.
void warn(Context& context, const std::string& sentence);

int bench_hardware(const Arguments& arguments, Context& context);
int test_gpus(const Arguments& arguments, Context& context);

// Returns what was measured, for users.
std::string measured_text(const hardware::Machine& machine,
                          const hardware::Measured& measured);

}  // namespace lockstep::cli
