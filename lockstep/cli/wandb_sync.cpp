// After a run: its offline runs of W&B go online by W&B's own program, where that is
// wanted and possible. Whatever happens here, the run has ended as it has.
#include <algorithm>
#include <ostream>

#include <unistd.h>

#include "lockstep/base/error.h"
#include "lockstep/base/process.h"
#include "lockstep/base/text.h"
#include "lockstep/cli/detail/output.h"
#include "lockstep/cli/detail/train.h"

namespace lockstep::cli {
namespace {

using Path = std::filesystem::path;

std::vector<std::string> offline_runs(const Path& run) {
  std::vector<std::string> folders;
  std::error_code error;
  for (std::filesystem::directory_iterator at(run / "wandb", error), end;
       !error && at != end; at.increment(error)) {
    const auto name = at->path().filename().string();
    if (text::starts_with(name, "offline-run-")) folders.push_back(at->path().string());
  }
  std::sort(folders.begin(), folders.end());
  return folders;
}

bool is_on_path(const std::string& program, const Context& context) {
  const auto folders = text::split(context.variable("PATH").value_or(""), ':');
  return std::any_of(folders.begin(), folders.end(), [&](const std::string& folder) {
    return ::access((Path(folder) / program).c_str(), X_OK) == 0;
  });
}

std::string outcome_of(const std::vector<std::string>& folders) {
  constexpr std::chrono::minutes kLimit{5};
  std::vector<std::string> command{"wandb", "sync"};
  command.insert(command.end(), folders.begin(), folders.end());
  try {
    const auto output = process::run({.arguments = command}, kLimit);
    if (output.end.ok()) return "the run is online";
    const auto lines = text::split(text::trim(output.err + output.out), '\n');
    return str("`wandb sync` ended with ", process::describe(output.end), ": ",
               lines.empty() ? "" : lines.back());
  } catch (const Error& error) {
    return error.what();
  }
}

}  // namespace

void sync_wandb(const Path& run, Context& context) {
  const auto folders = offline_runs(run);
  if (folders.empty() || context.variable("WANDB_API_KEY").value_or("").empty()) return;
  const auto outcome =
      is_on_path("wandb", context)
          ? outcome_of(folders)
          : str("WANDB_API_KEY is set, but there is no program wandb; install it, then "
                "`wandb sync ",
                text::join(folders, " "), "`");
  context.err << "wandb: " << printable(outcome) << "\n";
}

}  // namespace lockstep::cli
