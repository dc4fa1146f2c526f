#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/base/clock.h"
#include "lockstep/checkpoint/pieces.h"
#include "lockstep/checkpoint/saver.h"
#include "lockstep/comm/join.h"
#include "lockstep/config/config.h"
#include "lockstep/parallel/strategy.h"
#include "lockstep/run/run_directory.h"
#include "lockstep/train/report.h"
#include "lockstep/train/run_state.h"
#include "lockstep/train/stop.h"

namespace lockstep::train {

// The checkpoints of a run: which one it resumes from, when the next is due, and
// whether that was saved.
//
// Collective: everything but flags() and the getters.
class Checkpoints {
 public:
  struct Parts {
    const config::CheckpointConfig& config;
    const run::RunDirectory& run;
    comm::World& world;
    Reporter& reporter;
    const StopRequest& stop;
    int restarts = 0;  // of this run, by the launcher
  };
  // Finds the checkpoint to resume from (checkpoint.resume); rank 0 looks, and logs
  // which it left out and why. Nothing is changed. Fault::config if there is none where
  // one was requested.
  explicit Checkpoints(const Parts& parts);

  // Call it before the first step. Removes what crashed saves have left, and sets aside
  // checkpoints of later steps than the one it resumes from.
  void begin();

  // Returns the state that the run resumes from; none: it begins.
  const std::optional<RunState>& resumed() const noexcept { return resumed_; }
  // Returns whether the run had come to its end there, with all that belongs to it.
  bool had_ended() const noexcept { return had_ended_; }
  // Fills the strategy, and `own` with what this rank has saved, if the number of ranks
  // is the same as then.
  void load(parallel::Strategy& strategy, const checkpoint::Pieces& own);

  // Returns whether one is to be saved after this step, all ranks alike.
  bool is_due(std::int64_t step) const;
  // Returns what this rank tells the others: that it wants one, and its progress.
  comm::Flags flags() const;
  // Takes the ballots of all ranks. Throws Fault::io if a save failed and
  // checkpoint.on_failure says so.
  void on_ballots(const std::vector<comm::Ballot>& ballots);

  // Returns whether to save the end of a run that has done so many steps: one that is
  // cut short can be resumed from it, one that is over can be extended.
  bool wants_last(std::int64_t steps, bool cut_short) const;

  struct Save {
    RunState state;
    std::optional<storage::WatchedMetric> metric;  // of an evaluation of just this step
    checkpoint::Pieces own;  // of this rank, beside the strategy's
  };
  void save(parallel::Strategy& strategy, const Save& save);
  // Call it before the weights change.
  void fence() { saver_.fence(); }
  // Call it before a step. Waits until the checkpoint before that step's own is
  // complete, so that a crash loses one interval of work and no more.
  void make_way(std::int64_t step);
  // Waits for what is being written.
  void finish();

  // Returns the last checkpoint that was saved; empty: none.
  const std::string& last() const noexcept { return last_; }
  const std::filesystem::path& resumed_from() const noexcept { return from_; }
  std::int64_t last_step() const noexcept { return last_step_; }
  // Returns the most seconds that a save kept this rank's thread and disk busy.
  double longest() const noexcept { return longest_; }

  // Loads the weights of the best one, unless that is of this step. Returns whether
  // there is one; one that is damaged counts as none.
  bool load_best(parallel::Strategy& strategy, std::int64_t step);

 private:
  void find();
  std::filesystem::path look(std::string& said) const;
  std::filesystem::path look_elsewhere(std::string& said) const;
  std::string from_first(const std::function<std::string()>& text) const;
  void conclude(const checkpoint::Saver::SaveOutcome& outcome);
  void say_what_differs(const storage::Manifest& manifest) const;

  Parts parts_;
  checkpoint::Saver saver_;
  std::string config_text_;  // of rank 0
  std::optional<RunState> resumed_;
  std::filesystem::path from_;
  bool had_ended_ = false;
  bool asked_ = false;          // by a rank, in the last ballots
  mutable bool wants_ = false;  // this rank, until one is begun
  SteadyTime last_time_ = Clock::system().now();
  std::string last_;
  std::int64_t last_step_ = -1;
  double longest_ = 0;
};

}  // namespace lockstep::train
