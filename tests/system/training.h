#pragma once

#include <string>
#include <vector>

#include <signal.h>

#include "lockstep/run/heartbeat.h"
#include "tests/system/command.h"
#include "tests/system/ranks.h"

// Training over several ranks, seen from outside.
namespace lockstep::test {

inline constexpr char kEndless[] = "train.steps=1000000";

// `lockstep train` with few and small steps; what `more` says wins. The last batch of
// an epoch is smaller, and not a multiple of the ranks.
inline std::vector<std::string> train_command(const Path& run, int ranks,
                                              const std::vector<std::string>& more) {
  return joined({binary("lockstep").string(), "train", quick_recipe(), "--ranks",
                 std::to_string(ranks), "--run-dir", run.string(), "parallel.threads=1",
                 "batch.global=48", "data.train_samples=250", "data.eval_samples=61"},
                more);
}

// Makes the directory of a run whose ranks others start; what the command prints.
inline process::Output prepare_run(const Path& run, int ranks,
                                   const std::vector<std::string>& more) {
  const auto output = test::run(train_command(run, ranks, joined({"--prepare"}, more)));
  EXPECT_EQ(output.end.shell_status(), 0) << output.err;
  return output;
}

// What a rank has said last; nothing before its first beat.
inline std::optional<run::Beat> beat_of(const Path& run, int rank) {
  try {
    return run::HeartbeatReader(run / "heartbeat").read(rank);
  } catch (const Error&) {
    return std::nullopt;
  }
}

// So many ranks, no more and no fewer, live and have some steps behind them.
inline bool is_trained_by(const Path& run, int ranks) {
  constexpr std::int64_t kSomeSteps = 3;
  for (int rank = 0; rank < ranks; ++rank) {
    const auto beat = beat_of(run, rank);
    if (!beat || beat->step < kSomeSteps || ::kill(beat->pid, 0) != 0) return false;
  }
  return !beat_of(run, ranks);
}

// Waits for it; false if kPatience has passed.
inline bool trains(const Path& run, int ranks) {
  return eventually([&] { return is_trained_by(run, ranks); });
}

inline run::RunRecord record_of(const Path& run) {
  return run::RunDirectory::open(run).read_record();
}

}  // namespace lockstep::test
