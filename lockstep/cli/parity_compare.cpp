// Computes what two traces differ by, and whether that is too much.
#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/files.h"
#include "lockstep/base/text.h"
#include "lockstep/cli/detail/parity.h"

namespace lockstep::cli {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// A tensor far below the largest of its kind is held against a share of that one: its
// own size may be nothing but rounding (the bias before a normalisation).
constexpr double kSmallestScale = 1e-6;

std::string without(std::string_view prefix, const std::string& name) {
  return name.substr(prefix.size());
}

std::set<std::string> names_of(const TensorFile& file, std::string_view prefix) {
  std::set<std::string> names;
  for (const auto& [name, entry] : file.entries()) {
    if (text::starts_with(name, prefix)) names.insert(name);
  }
  return names;
}

double largest_magnitude(const std::vector<double>& values) {
  double largest = 0;
  for (const auto value : values) largest = std::max(largest, std::abs(value));
  return largest;
}

double largest_magnitude(const TensorFile& file, const std::set<std::string>& names) {
  double largest = 0;
  for (const auto& name : names) {
    largest = std::max(largest, largest_magnitude(file.values(name)));
  }
  return largest;
}

double largest_difference(const std::vector<double>& a, const std::vector<double>& b) {
  double largest = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double one = std::abs(a[i] - b[i]);
    // This includes equal infinities, whose difference is NaN.
    if (!std::isfinite(one)) return kInfinity;
    largest = std::max(largest, one);
  }
  return largest;
}

double relative(double difference, double scale) {
  if (difference == 0) return 0;
  // An infinity over an infinity would be NaN, which compares as not larger.
  return scale == 0 || !std::isfinite(difference) ? kInfinity : difference / scale;
}

// Returns a line for each step, the start included.
std::vector<std::string> read_hashes(const std::filesystem::path& path,
                                     std::int64_t steps) {
  constexpr std::int64_t kLongest = 1 << 30;
  std::vector<std::string> hashes;
  for (const auto& line : text::split(files::read(path, kLongest), '\n')) {
    if (line.empty()) continue;
    const auto json = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
    const auto here = static_cast<std::int64_t>(hashes.size());
    if (!json.is_object() || json.value("step", std::int64_t{-1}) != here) {
      throw Error(Fault::io, "parity: line ", here + 1, " of ", path.string(),
                  " is not that of step ", here, "; run it again");
    }
    hashes.push_back(json.value("hash", ""));
  }
  if (static_cast<std::int64_t>(hashes.size()) != steps + 1) {
    throw Error(Fault::io, "parity: ", path.string(), " has ", hashes.size(),
                " lines, not ", steps + 1, "; run it again");
  }
  return hashes;
}

Difference loss_difference(double reference, double other) {
  const double absolute = std::abs(reference - other);
  if (!std::isfinite(absolute)) return {kInfinity, kInfinity, ""};
  return {absolute, relative(absolute, std::abs(reference)), ""};
}

StepDifference compare_step(const TensorFile& reference, const TensorFile& other,
                            std::int64_t step) {
  StepDifference result;
  result.step = step;
  result.parameter = difference(reference, other, run::kTraceParameter);
  if (step == 0) return result;
  result.gradient = difference(reference, other, run::kTraceGradient);
  result.loss_reference = reference.values("loss").at(0);
  result.loss_other = other.values("loss").at(0);
  result.loss = loss_difference(result.loss_reference, result.loss_other);
  return result;
}

}  // namespace

Difference difference(const TensorFile& reference, const TensorFile& other,
                      std::string_view prefix) {
  const auto names = names_of(reference, prefix);
  auto all = names_of(other, prefix);
  all.insert(names.begin(), names.end());
  if (all.empty()) return {kInfinity, kInfinity, "no tensors"};
  const double floor = kSmallestScale * largest_magnitude(reference, names);
  Difference result;
  for (const auto& name : all) {
    Difference one{kInfinity, kInfinity, without(prefix, name)};
    if (!reference.has(name) || !other.has(name)) {
      one.where += " (only in one of them)";
    } else if (reference.entries().at(name).shape != other.entries().at(name).shape) {
      one.where += " (of another shape)";
    } else {
      const auto a = reference.values(name);
      one.absolute = largest_difference(a, other.values(name));
      one.relative = relative(one.absolute, std::max(floor, largest_magnitude(a)));
    }
    result.absolute = std::max(result.absolute, one.absolute);
    if (one.relative <= result.relative) continue;
    result.relative = one.relative;
    result.where = one.where;
  }
  return result;
}

std::string disagreement(const ParityRun& run, std::int64_t steps) {
  std::vector<std::string> first;
  for (int rank = 0; rank < run.ranks; ++rank) {
    auto hashes = read_hashes(run.trace / run::hash_file(rank), steps);
    if (rank == 0) {
      first = std::move(hashes);
      continue;
    }
    const auto [one, other] = std::mismatch(first.begin(), first.end(), hashes.begin());
    if (one == first.end()) continue;
    return str("after step ", one - first.begin(), " rank ", rank,
               " has other parameters than rank 0");
  }
  return "";
}

Comparison compare(const ParityRun& reference, const ParityRun& other,
                   std::int64_t steps) {
  Comparison result{.name = other.name,
                    .reference = reference.name,
                    .steps = {},
                    .ranks = other.ranks,
                    .ranks_differ = disagreement(other, steps)};
  if (const auto own = disagreement(reference, steps); !own.empty()) {
    result.ranks_differ = str("with ", reference.name, ", ", own);
  }
  for (std::int64_t step = 0; step <= steps; ++step) {
    result.steps.push_back(
        compare_step(TensorFile::read(reference.trace / run::step_file(step)),
                     TensorFile::read(other.trace / run::step_file(step)), step));
  }
  return result;
}

double StepDifference::largest() const {
  return std::max({loss.relative, gradient.relative, parameter.relative});
}

const StepDifference& Comparison::worst() const {
  return *std::max_element(
      steps.begin(), steps.end(),
      [](const auto& a, const auto& b) { return a.largest() < b.largest(); });
}

bool Comparison::passes() const {
  return ranks_differ.empty() && worst().largest() <= kAllowed;
}

}  // namespace lockstep::cli
