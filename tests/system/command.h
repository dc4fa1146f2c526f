#pragma once

#include <string>
#include <vector>

#include "lockstep/monitor/metrics.h"
#include "lockstep/run/run_directory.h"
#include "tests/support/support.h"

namespace lockstep::test {

inline std::string quick_recipe() {
  return (source_root() / "recipes" / "fashion_mnist_quick.yaml").string();
}

// The `lockstep` command; a training run is given a minute.
inline process::Output lockstep_command(std::vector<std::string> arguments,
                                        const Path& directory = {}) {
  arguments.insert(arguments.begin(), binary("lockstep").string());
  return process::run({.arguments = std::move(arguments), .directory = directory},
                      std::chrono::minutes(2));
}

inline std::vector<double> losses_in(const Path& run) {
  std::vector<double> losses;
  for (const auto& metrics : monitor::read_metrics(run / "metrics.jsonl")) {
    losses.push_back(metrics.loss);
  }
  return losses;
}

inline int count_of(const std::string& text, const std::string& part) {
  int count = 0;
  for (auto at = text.find(part); at != std::string::npos;
       at = text.find(part, at + 1)) {
    ++count;
  }
  return count;
}

}  // namespace lockstep::test
