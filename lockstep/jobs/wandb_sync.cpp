// Uploads the offline runs of W&B during a run and after it, by W&B's own program,
// where that is wanted and possible. Whatever happens here, the run goes on, and has
// ended as it has.
#include "lockstep/jobs/wandb_sync.h"

#include <algorithm>
#include <condition_variable>
#include <mutex>

#include <unistd.h>

#include "lockstep/base/error.h"
#include "lockstep/base/process.h"
#include "lockstep/base/text.h"

namespace lockstep::jobs {
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

bool is_on_path(const std::string& program, const Caller& caller) {
  const auto folders = text::split(caller.variable("PATH").value_or(""), ':');
  return std::any_of(folders.begin(), folders.end(), [&](const std::string& folder) {
    return ::access((Path(folder) / program).c_str(), X_OK) == 0;
  });
}

constexpr std::chrono::minutes kLimit{5};

bool wants_online(const Caller& caller) {
  return !caller.variable("WANDB_API_KEY").value_or("").empty();
}

std::string outcome_of(const std::vector<std::string>& folders) {
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

// It runs at the lowest priority: the cores are the ranks'.
process::ProcessOptions sync_command(const std::vector<std::string>& folders) {
  process::ProcessOptions command{.arguments = {"nice", "-n", "19", "wandb", "sync"},
                                  .environment = {},
                                  .directory = {},
                                  .out = process::StreamMode::discard,
                                  .err = process::StreamMode::discard,
                                  .own_group = true};
  command.arguments.insert(command.arguments.end(), folders.begin(), folders.end());
  return command;
}

// Waits until it has ended, or is stopped.
void await(process::Child& child, const std::stop_token& stop) {
  const auto deadline = std::chrono::steady_clock::now() + kLimit;
  constexpr std::chrono::milliseconds kLook{100};
  while (!stop.stop_requested() && std::chrono::steady_clock::now() < deadline) {
    if (child.wait_for(kLook)) return;
  }
}

}  // namespace

WandbSync::WandbSync(const Path& run, const config::MonitorConfig& config,
                     const Caller& caller)
    : run_(run), every_(config.wandb_sync_every) {
  const bool has_sink = std::find(config.sinks.begin(), config.sinks.end(),
                                  config::Sink::wandb) != config.sinks.end();
  if (!has_sink || every_.count() <= 0 || !wants_online(caller) ||
      !is_on_path("wandb", caller)) {
    return;
  }
  thread_ = std::jthread([this](const std::stop_token& stop) { loop(stop); });
}

void WandbSync::loop(const std::stop_token& stop) const {
  std::mutex mutex;
  std::condition_variable_any wake;
  std::unique_lock lock(mutex);
  while (true) {
    wake.wait_for(lock, stop, every_, [] { return false; });
    if (stop.stop_requested()) return;
    try {
      const auto folders = offline_runs(run_);
      if (folders.empty()) continue;
      auto child = process::Child::start(sync_command(folders));
      await(child, stop);
    } catch (const std::exception&) {
      // The sync after the run says what is wrong.
    }
  }
}

std::string sync_wandb(const Path& run, const Caller& caller) {
  const auto folders = offline_runs(run);
  if (folders.empty() || !wants_online(caller)) return "";
  return is_on_path("wandb", caller) ? outcome_of(folders)
                                     : str("WANDB_API_KEY is set, but there is no "
                                           "program wandb; install it, then "
                                           "`wandb sync ",
                                           text::join(folders, " "), "`");
}

}  // namespace lockstep::jobs
