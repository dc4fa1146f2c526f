// Finds what a run that has diverged leaves to resume from.
#include <algorithm>
#include <cmath>
#include <limits>
#include <ostream>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/cli/detail/checkpoint.h"
#include "lockstep/cli/detail/finished_run.h"
#include "lockstep/cli/detail/output.h"
#include "lockstep/monitor/metrics.h"
#include "lockstep/storage/numbers.h"

namespace lockstep::cli {
namespace {

namespace fs = std::filesystem;

// Returns the last step with a written loss that is a number; nothing if none was.
std::optional<std::int64_t> last_number(const run::RunDirectory& run) {
  std::optional<std::int64_t> step;
  for (const auto& line : monitor::read_metrics(run.metrics())) {
    if (line.split == monitor::Split::train && std::isfinite(line.loss)) {
      step = line.step;
    }
  }
  return step;
}

bool is_all_numbers(const storage::Reader& reader, const std::string& name) {
  const auto& tensor = reader.tensor(name);
  const auto step = chunk_elements(tensor, !tensor.order.empty());
  for (std::int64_t at = 0; at < tensor.num_elements(); at += step) {
    const auto count = std::min(step, tensor.num_elements() - at);
    std::vector<std::byte> bytes(
        static_cast<std::size_t>(storage::num_bytes(tensor.dtype, count).value_or(0)));
    reader.read(name, {at, count, {}}, bytes);
    std::vector<double> numbers(static_cast<std::size_t>(count));
    if (!storage::to_numbers(tensor.dtype, bytes, numbers)) continue;
    const auto is_number = [](double value) { return std::isfinite(value); };
    if (!std::all_of(numbers.begin(), numbers.end(), is_number)) return false;
  }
  return true;
}

// Returns whether its weights are finite; one that can not be read is no place to
// resume from, either. A step with a finite loss may have made weights that are not.
bool has_good_weights(const fs::path& checkpoint) {
  try {
    const storage::Reader reader(checkpoint);
    const auto& tensors = reader.manifest().tensors;
    return std::all_of(tensors.begin(), tensors.end(), [&](const auto& tensor) {
      return !text::starts_with(tensor.name, "model.") ||
             is_all_numbers(reader, tensor.name);
    });
  } catch (const Error&) {
    return false;
  }
}

std::optional<fs::path> newest_before(const run::RunDirectory& run, std::int64_t step) {
  auto entries = storage::list_steps(run.checkpoints());
  std::reverse(entries.begin(), entries.end());
  for (const auto& entry : entries) {
    if (entry.step <= step && has_good_weights(entry.path)) return entry.path;
  }
  return std::nullopt;
}

}  // namespace

void say_how_it_diverged(const config::Config& config, const run::RunDirectory& run,
                         Context& context) {
  const auto number = last_number(run);
  // Without metrics (monitor.sinks) only the weights can tell.
  const auto good =
      newest_before(run, number.value_or(std::numeric_limits<std::int64_t>::max()));
  context.err << "lockstep: the loss was last finite "
              << (number ? str("at step ", *number) : "before anything was written")
              << "; checkpoints of later steps may hold NaN\n"
              << "lockstep: the same command would diverge again: it needs a lower "
                 "optim.lr (it was "
              << config.optim.lr << ") or another recipe\n";
  if (!good) {
    context.err << "lockstep: there is no checkpoint from before it diverged\n";
    return;
  }
  context.err << "lockstep: its newest checkpoint from before that is "
              << printable(good->string())
              << "; resume from it with another --run-dir and --resume "
              << printable(shell_word(good->string())) << "\n";
}

}  // namespace lockstep::cli
