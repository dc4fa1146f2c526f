#pragma once

#include <cstdlib>
#include <string>
#include <vector>

#include "tests/support/support.h"

namespace lockstep::test {

// The Python of the oracle environment (PyTorch, numpy, scikit-learn), or "".
inline std::string oracle_python() {
  const char* python = std::getenv("LOCKSTEP_ORACLE_PYTHON");
  return python != nullptr ? python : "";
}

// Runs tests/oracle/<script> with the arguments; it fails (non-zero) where PyTorch and
// we disagree, and says by how much.
inline void expect_oracle_agrees(const std::string& script,
                                 std::vector<std::string> arguments) {
  std::vector<std::string> command{oracle_python(),
                                   fixture("oracle/" + script).string()};
  command.insert(command.end(), arguments.begin(), arguments.end());
  const auto output = process::run({.arguments = command}, std::chrono::minutes(2));
  EXPECT_TRUE(output.end.ok()) << process::describe(output.end) << "\n"
                               << output.out << output.err;
}

}  // namespace lockstep::test

// First line of a test that asks PyTorch.
#define LOCKSTEP_NEEDS_ORACLE()                                                    \
  if (::lockstep::test::oracle_python().empty()) {                                 \
    GTEST_SKIP()                                                                   \
        << "no Python oracle: LOCKSTEP_ORACLE=off, or not run by scripts/test.sh"; \
  }
