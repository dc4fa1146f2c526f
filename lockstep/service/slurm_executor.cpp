#include <cerrno>
#include <cstdio>
#include <map>

#include <unistd.h>

#include "lockstep/base/clock.h"
#include "lockstep/base/error.h"
#include "lockstep/base/process.h"
#include "lockstep/base/str.h"
#include "lockstep/base/text.h"
#include "lockstep/service/detached.h"
#include "lockstep/service/executor.h"

namespace lockstep::service {
namespace {

constexpr std::chrono::milliseconds kSlurmPatience{30'000};

// Between single quotes a shell changes nothing; a quote itself is written outside.
std::string quoted_word(const std::string& word) {
  std::string text = "'";
  for (const char c : word) text += c == '\'' ? "'\\''" : std::string(1, c);
  return text + "'";
}

std::string run_slurm(const std::vector<std::string>& words) {
  const auto output = process::run({.arguments = words,
                                    .out = process::StreamMode::pipe,
                                    .err = process::StreamMode::pipe},
                                   kSlurmPatience);
  if (output.end.ok()) return std::string(text::trim(output.out));
  throw Error(Fault::io, words.at(0), ": ", process::describe(output.end), ": ",
              text::trim(output.err));
}

files::Path slurm_file(const JobFolder& folder, int attempt) {
  return folder.path() / "attempts" / str(attempt, ".slurm");
}

// Jobs become batch scripts of our supervisor; Slurm decides where and when. The
// folders of jobs have to be on a file system that its nodes share.
class SlurmExecutor : public Executor {
 public:
  SlurmExecutor(const config::QueueConfig& queue, const jobs::Caller& caller)
      : partition_(queue.slurm_partition),
        interval_(queue.slurm_interval.count()),
        program_(caller.executable),
        environment_(clean_environment(caller.environment)) {}

  void start(const Start& start, const Pool&) override {
    if (number_of(start.folder, start.attempt)) return;
    const auto script = start.folder.path() / "attempts" / str(start.attempt, ".sh");
    files::write_atomically(script, script_of(start));
    std::vector<std::string> words{
        "sbatch",
        "--parsable",
        "--no-requeue",
        "--job-name=" + start.job.id,
        "--output=" + start.folder.log(start.attempt).string(),
        "--ntasks=1",
        str("--cpus-per-task=", start.job.resources.cores),
        "--export=NONE"};
    if (!partition_.empty()) words.push_back("--partition=" + partition_);
    if (start.job.resources.gpus > 0) {
      words.push_back(str("--gpus-per-node=", start.job.resources.gpus));
    }
    if (start.job.time_limit > 0) {
      constexpr Milliseconds kMinute = 60'000;
      words.push_back(str("--time=", start.job.time_limit / kMinute + 2));
    }
    words.push_back(script.string());
    const auto answer = run_slurm(words);
    files::write_atomically(slurm_file(start.folder, start.attempt),
                            text::split(answer, ';').at(0));
    is_known_ = false;  // what is known is older than this job
  }

  AttemptView look(const JobFolder& folder, int attempt) override {
    auto view = look_at_attempt(folder, attempt);
    if (view.status == AttemptStatus::ended) return view;
    const auto number = number_of(folder, attempt);
    if (!number) return {};
    const auto state = state_of(*number);
    if (state == "PENDING" || state == "CONFIGURING") {
      view.status = AttemptStatus::starting;
    } else if (!state.empty()) {
      view.status = view.supervisor ? AttemptStatus::alive : AttemptStatus::starting;
    } else {
      // Gone from the queue; its end may have been written since we looked.
      view = look_at_attempt(folder, attempt);
      if (view.status != AttemptStatus::ended) {
        view.status = AttemptStatus::killed;
        view.reason = reason_for(*number);
      }
    }
    return view;
  }

  void stop(const JobFolder& folder, int attempt, bool now) override {
    const auto number = number_of(folder, attempt);
    if (!number) return;
    const auto state = state_of(*number);
    if (state.empty()) return;
    if (state == "PENDING" || now) {
      run_slurm({"scancel", *number});
    } else {
      run_slurm({"scancel", "--batch", "--signal=TERM", *number});
    }
    is_known_ = false;
  }

  bool uses_pool() const override { return false; }

 private:
  std::string script_of(const Start& start) const {
    std::string script = "#!/bin/sh\n";
    for (const auto& [name, value] : environment_) {
      // Slurm sets its own for this job.
      if (text::starts_with(name, "SLURM_") && name != "SLURM_CONF") continue;
      script += "export " + name + "=" + quoted_word(value) + "\n";
    }
    return script + "exec " + quoted_word(program_) + " supervise " +
           quoted_word(start.folder.path().string()) +
           str(" --attempt ", start.attempt) + "\n";
  }

  static std::optional<std::string> number_of(const JobFolder& folder, int attempt) {
    const auto path = slurm_file(folder, attempt);
    std::error_code ignored;
    if (!std::filesystem::exists(path, ignored)) return std::nullopt;
    constexpr std::int64_t kMost = 64;
    return std::string(text::trim(files::read(path, kMost)));
  }

  // Returns "PENDING", "RUNNING", ...; "" for one that has left the queue.
  std::string state_of(const std::string& number) {
    const auto now = Clock::system().now();
    if (!is_known_ || now - asked_ > interval_) {
      states_.clear();
      for (const auto& line : text::split(
               run_slurm({"squeue", "--me", "--noheader", "--format=%i %T"}), '\n')) {
        const auto words = text::split(std::string(text::trim(line)), ' ');
        if (words.size() >= 2) states_[words.front()] = words.back();
      }
      asked_ = now;
      is_known_ = true;
    }
    const auto found = states_.find(number);
    if (found == states_.end()) return "";
    // A job that has ended is in the queue for some time.
    const auto& state = found->second;
    const bool lives = state == "PENDING" || state == "CONFIGURING" ||
                       state == "RUNNING" || state == "COMPLETING" ||
                       state == "SUSPENDED" || state == "STOPPED" ||
                       state == "REQUEUED" || state == "SIGNALING";
    return lives ? state : "";
  }

  // From the accounting of Slurm, which not every cluster has.
  static std::string reason_for(const std::string& number) {
    try {
      const auto answer =
          run_slurm({"sacct", "--noheader", "--parsable2", "--allocations",
                     "--format=State", "--jobs", number});
      const auto state = text::split(answer, '\n').at(0);
      if (!state.empty()) return str("Slurm has ended it: ", state);
    } catch (const Error&) {  // there is no accounting
    }
    return "Slurm has ended it";
  }

  const std::string partition_;
  const std::chrono::milliseconds interval_;
  const std::string program_;
  const jobs::Environment environment_;

  // What squeue has said last, about all jobs.
  std::map<std::string, std::string> states_;
  SteadyTime asked_{};
  bool is_known_ = false;
};

}  // namespace

std::unique_ptr<Executor> make_slurm_executor(const config::QueueConfig& queue,
                                              const jobs::Caller& caller) {
  return std::make_unique<SlurmExecutor>(queue, caller);
}

}  // namespace lockstep::service
