#pragma once

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/cli/command.h"

namespace lockstep::cli {

enum class Verdict { ok, warn, fail };
std::string_view name_of(Verdict verdict) noexcept;

// One line of the doctor's report.
struct Check {
  std::string name;
  Verdict verdict = Verdict::ok;
  std::string detail;
  std::string remedy = {};  // the action for a warn or a fail
};

// Checks everything that training needs of this machine. `run_dir` is where runs would
// be made.
std::vector<Check> check_all(const Context& context, const std::string& run_dir);

// Checks whether the files of Fashion-MNIST are there, packed (.gz) or not.
Check check_data(const std::filesystem::path& directory);

// Returns the variables that affect training; values of secrets are not shown.
std::vector<std::pair<std::string, std::string>> relevant_environment(
    const Context& context);

}  // namespace lockstep::cli
