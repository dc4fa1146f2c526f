#pragma once

#include <chrono>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/cli/command.h"
#include "lockstep/hardware/machine.h"

// What the worker measures and tests for `lockstep hardware bench` and `lockstep gpus
// test`, a process for each part: a GPU that hangs takes only that one with it.
namespace lockstep::cli {

// A process: what it measures, with its options.
struct Part {
  std::vector<std::string> words;
  std::vector<std::pair<std::string, std::string>> environment = {};
};

struct PartEnd {
  std::string json;     // what it printed
  std::string problem;  // why there is none, else ""
  bool late = false;    // because of the time limit
};

class Parts {
 public:
  // Fault::hardware if there is no worker.
  Parts(const Context& context, std::chrono::seconds limit);

  std::chrono::seconds limit() const noexcept { return limit_; }

  PartEnd run(const Part& part) const;
  // All at the same time.
  std::vector<PartEnd> run(const std::vector<Part>& parts) const;
  // The parts as ranks of one job.
  std::vector<PartEnd> run_ranks(std::vector<Part> ranks) const;

 private:
  std::filesystem::path worker_;
  std::chrono::seconds limit_;
};

// --time-limit S, or the default.
std::chrono::seconds time_limit(const Arguments& arguments);

// "lockstep: warning: ..." on context.err.
void warn(Context& context, const std::string& sentence);

int bench_hardware(const Arguments& arguments, Context& context);
int test_gpus(const Arguments& arguments, Context& context);

// What was measured, for people.
std::string measured_text(const hardware::Machine& machine,
                          const hardware::Measured& measured);

}  // namespace lockstep::cli
