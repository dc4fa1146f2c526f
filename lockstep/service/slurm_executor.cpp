#include <algorithm>
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

// What Slurm calls an attempt: by this name it is found again, whoever submitted it.
std::string slurm_name(const JobFolder& folder, int attempt) {
  return str(folder.path().filename().string(), ".", attempt);
}

// A job of Slurm that has not ended.
struct QueuedJob {
  std::string number;
  std::string state;  // "PENDING", "RUNNING", ...

  bool waits() const { return state == "PENDING" || state == "CONFIGURING"; }
};

// Jobs become batch scripts of our supervisor; Slurm decides where and when. The
// folders of jobs have to be on a file system that its nodes share.
//
// A server may be killed between sbatch and writing down the number that it printed.
// The attempt is in the queue under its name all the same; should it be there twice,
// one of the two supervisors begins it, the other one leaves, and as long as any is
// there the attempt is.
class SlurmExecutor : public Executor {
 public:
  SlurmExecutor(const config::QueueConfig& queue, const jobs::Caller& caller)
      : partition_(queue.slurm_partition),
        interval_(queue.slurm_interval.count()),
        program_(caller.executable),
        environment_(clean_environment(caller.environment)) {}

  void start(const Start& start, const Pool&) override {
    if (number_of(start.folder, start.attempt)) return;
    std::filesystem::create_directories(start.folder.path() / "attempts");
    write_order(start.folder, start.order);
    const auto name = slurm_name(start.folder, start.attempt);
    is_known_ = false;
    const auto there = queued_as(name);
    const auto number = there.empty() ? submit(start, name) : there.front().number;
    files::write_atomically(slurm_file(start.folder, start.attempt), number);
    is_known_ = false;  // what is known is older than this job
  }

  AttemptView look(const JobFolder& folder, int attempt) override {
    auto view = look_at_attempt(folder, attempt);
    if (view.status == AttemptStatus::ended) return view;
    const auto there = queued_as(slurm_name(folder, attempt));
    if (!there.empty()) {
      const bool waits = std::all_of(there.begin(), there.end(),
                                     [](const auto& job) { return job.waits(); });
      view.status =
          view.supervisor && !waits ? AttemptStatus::alive : AttemptStatus::starting;
      return view;
    }
    // Gone from the queue; its end may have been written since we looked.
    view = look_at_attempt(folder, attempt);
    if (view.status == AttemptStatus::ended) return view;
    const auto number = number_of(folder, attempt);
    if (!number && !view.supervisor) return {};
    view.status = AttemptStatus::killed;
    view.reason = number ? reason_for(*number) : "ended by Slurm";
    return view;
  }

  void stop(const JobFolder& folder, int attempt, bool now) override {
    const auto there = queued_as(slurm_name(folder, attempt));
    if (there.empty() && !number_of(folder, attempt)) end_unbegun(folder, attempt);
    for (const auto& job : there) {
      if (job.waits() || now) {
        run_slurm({"scancel", job.number});
      } else {
        run_slurm({"scancel", "--batch", "--signal=TERM", job.number});
      }
      is_known_ = false;
    }
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

  std::string submit(const Start& start, const std::string& name) const {
    const auto script = start.folder.path() / "attempts" / str(start.attempt, ".sh");
    files::write_atomically(script, script_of(start));
    std::vector<std::string> words{
        "sbatch",
        "--parsable",
        "--no-requeue",
        "--job-name=" + name,
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
    return text::split(run_slurm(words), ';').at(0);
  }

  // Returns the jobs of this name that have not ended. One question is about all jobs,
  // and its answer holds for a while.
  std::vector<QueuedJob> queued_as(const std::string& name) {
    const auto now = Clock::system().now();
    if (!is_known_ || now - asked_ > interval_) {
      queued_ = ask_for_queue();
      asked_ = now;
      is_known_ = true;
    }
    const auto found = queued_.find(name);
    return found == queued_.end() ? std::vector<QueuedJob>{} : found->second;
  }

  static std::map<std::string, std::vector<QueuedJob>> ask_for_queue() {
    std::map<std::string, std::vector<QueuedJob>> queued;
    for (const auto& line : text::split(
             run_slurm({"squeue", "--me", "--noheader", "--format=%i %T %j"}), '\n')) {
      const auto words = text::split(std::string(text::trim(line)), ' ');
      if (words.size() < 3) continue;
      // A job that has ended is in the queue for some time.
      const auto& state = words[1];
      const bool lives = state == "PENDING" || state == "CONFIGURING" ||
                         state == "RUNNING" || state == "COMPLETING" ||
                         state == "SUSPENDED" || state == "STOPPED" ||
                         state == "REQUEUED" || state == "SIGNALING";
      if (lives) queued[words[2]].push_back({words[0], state});
    }
    return queued;
  }

  // From the accounting of Slurm, which not every cluster has.
  static std::string reason_for(const std::string& number) {
    try {
      const auto answer =
          run_slurm({"sacct", "--noheader", "--parsable2", "--allocations",
                     "--format=State", "--jobs", number});
      const auto state = text::split(answer, '\n').at(0);
      if (!state.empty()) return str("ended by Slurm: ", state);
    } catch (const Error&) {  // there is no accounting
    }
    return "ended by Slurm";
  }

  const std::string partition_;
  const std::chrono::milliseconds interval_;
  const std::string program_;
  const jobs::Environment environment_;

  // What squeue has said last, about all jobs.
  std::map<std::string, std::vector<QueuedJob>> queued_;  // by name
  SteadyTime asked_{};
  bool is_known_ = false;
};

}  // namespace

std::unique_ptr<Executor> make_slurm_executor(const config::QueueConfig& queue,
                                              const jobs::Caller& caller) {
  return std::make_unique<SlurmExecutor>(queue, caller);
}

}  // namespace lockstep::service
