#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/base/clock.h"
#include "lockstep/checkpoint/pieces.h"
#include "lockstep/checkpoint/saver.h"
#include "lockstep/comm/join.h"
#include "lockstep/config/config.h"
#include "lockstep/monitor/run_directory.h"
#include "lockstep/parallel/strategy.h"
#include "lockstep/train/report.h"
#include "lockstep/train/run_state.h"
#include "lockstep/train/stop.h"

namespace lockstep::train {

// The checkpoints of a run: from which one it goes on, when the next is due, and what
// became of it.
//
// Collective: everything but tell() and the getters.
class Checkpoints {
 public:
  struct Parts {
    const config::Config& config;
    const monitor::RunDirectory& run;
    comm::World& world;
    Reporter& reporter;
    const StopRequest& stop;
    int restarts = 0;  // of this run, by the launcher
  };
  // Finds the one to go on from, by checkpoint.resume; rank 0 looks, and says which it
  // left out and why. What the run has of later steps is set aside. Fault::config if
  // there is none where one was asked for.
  explicit Checkpoints(const Parts& parts);

  // Where the run goes on; none: it begins.
  const std::optional<RunState>& resumed() const noexcept { return resumed_; }
  // Whether the run had come to its end there, with all that belongs to it.
  bool had_ended() const noexcept { return had_ended_; }
  // Fills the strategy, and of `own` what this rank has saved, if there are as many
  // ranks as then.
  void load(parallel::Strategy& strategy, const checkpoint::Pieces& own);

  // Whether one is to be saved after this step, all ranks alike.
  bool is_due(std::int64_t step) const;
  // What this rank tells the others: that it wants one, and how far it is with one.
  comm::Flags tell() const;
  // What all have told. Throws Fault::io if a save failed and checkpoint.on_failure
  // says so.
  void observe(const std::vector<comm::Ballot>& ballots);

  struct Save {
    RunState state;
    std::optional<storage::Metric> metric;  // of an evaluation of just this step
    checkpoint::Pieces own;                 // of this rank, beside the strategy's
  };
  void save(const parallel::Strategy& strategy, const Save& save);
  // Before the weights change.
  void fence() { saver_.fence(); }
  // Before a step is done: the checkpoint before its own is there then, so that a crash
  // loses one interval of work and no more.
  void make_way(std::int64_t step);
  // Waits for what is being written.
  void finish();

  // The last one that was saved; empty: none.
  const std::string& last() const noexcept { return last_; }
  const std::filesystem::path& resumed_from() const noexcept { return from_; }
  std::int64_t last_step() const noexcept { return last_step_; }
  // Seconds that a save has kept this rank's thread and disk busy at most.
  double longest() const noexcept { return longest_; }

  // The weights of the best one, unless that is of this step. Whether there is one; one
  // that is damaged counts as none.
  bool load_best(parallel::Strategy& strategy, std::int64_t step);

 private:
  void find();
  std::filesystem::path look(std::string& said) const;
  std::filesystem::path look_elsewhere(std::string& said) const;
  void conclude(const checkpoint::Saver::Outcome& outcome);
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
