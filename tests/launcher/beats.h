#pragma once

#include <functional>

#include "lockstep/launcher/hang.h"
#include "tests/launcher/job_rig.h"

namespace lockstep::test {

// Ranks whose heartbeats are written by hand, looked at every 100 ms.
class Beats : public ::testing::Test {
 protected:
  void watch(int ranks, bool several_nodes = false) {
    looks_.assign(static_cast<std::size_t>(ranks), {});
    judge_.emplace(limits_, launcher::HangJudge::Group{ranks, several_nodes}, clock_);
  }

  void beat(int rank, std::int64_t step, run::Phase phase = run::Phase::training) {
    looks_[static_cast<std::size_t>(rank)].beat =
        run::Beat{.step = step,
                  .phase = phase,
                  .time = unix_seconds(clock_.wall()),
                  .pid = 100 + rank};
  }
  void beat_all(std::int64_t step, run::Phase phase = run::Phase::training) {
    for (std::size_t i = 0; i < looks_.size(); ++i) {
      beat(static_cast<int>(i), step, phase);
    }
  }

  std::optional<launcher::Hang> look() {
    auto verdict = judge_->look(looks_);
    if (verdict.slow) slow_.push_back(*verdict.slow);
    return verdict.hang;
  }

  // How long it takes until a hang is seen, if within `limit`.
  std::optional<std::chrono::milliseconds> quiet_until_hang(
      std::chrono::milliseconds limit, const std::function<void()>& meanwhile = {}) {
    for (std::chrono::milliseconds passed{0}; passed <= limit;
         passed += std::chrono::milliseconds(100)) {
      hang_ = look();
      if (hang_) return passed;
      if (meanwhile) meanwhile();
      clock_.advance(std::chrono::milliseconds(100));
    }
    return std::nullopt;
  }

  // Steps of all ranks; no look may see a hang.
  void train(int steps, std::chrono::milliseconds each) {
    for (int i = 0; i < steps; ++i) {
      beat_all(++step_);
      EXPECT_EQ(quiet_until_hang(each - std::chrono::milliseconds(100)), std::nullopt);
    }
    beat_all(step_);
  }

  launcher::HangLimits limits_;
  ManualClock clock_;
  std::optional<launcher::HangJudge> judge_;
  std::vector<launcher::RankLook> looks_;
  std::optional<launcher::Hang> hang_;
  std::vector<launcher::SlowRank> slow_;
  std::int64_t step_ = 0;
};

}  // namespace lockstep::test
