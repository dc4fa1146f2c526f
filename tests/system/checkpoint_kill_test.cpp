// Training that saves every step, killed at any moment: what was published stays, and
// the run goes on as if nothing had been.
//
// LOCKSTEP_SOAK_CHECKPOINT_KILLS=1000 for a long run, LOCKSTEP_SOAK_SEED to repeat one.
#include <map>
#include <memory>
#include <random>
#include <thread>

#include <nlohmann/json.hpp>

#include "tests/system/soak.h"
#include "tests/system/training.h"

namespace lockstep {
namespace {

constexpr std::int64_t kStepsOfARun = 40;
constexpr std::uint32_t kKillsOfARun = 20;

// A step is not done before the checkpoint of the step before is there.
constexpr std::int64_t kStepsLost = 1;

using SavedLines = std::vector<monitor::Metrics>;
using LossOfStep = std::map<std::pair<monitor::Split, std::int64_t>, double>;

// A run whose ranks are started again and again.
class KilledRun {
 public:
  explicit KilledRun(int ranks) : ranks_(ranks) {
    test::prepare_run(run_, ranks,
                      {"model.name=mlp", "model.hidden=16", "checkpoint.every=1",
                       "checkpoint.keep=2", str("train.steps=", kStepsOfARun),
                       // Who is killed before they have met is waited for.
                       "comm.join_timeout=15s"});
  }

  void start() {
    jobs_.clear();
    before_ = last_attempt();
    const auto port = std::to_string(test::free_port());
    const auto ranks = std::to_string(ranks_);
    for (int rank = 0; rank < ranks_; ++rank) {
      const auto number = std::to_string(rank);
      std::vector<std::pair<std::string, std::string>> variables;
      if (ranks_ > 1) {
        variables = {{"RANK", number},      {"LOCAL_RANK", number},
                     {"WORLD_SIZE", ranks}, {"LOCAL_WORLD_SIZE", ranks},
                     {"MASTER_PORT", port}, {"MASTER_ADDR", "127.0.0.1"}};
      }
      jobs_.push_back(std::make_unique<test::Job>(
          std::vector<std::string>{test::worker(), "--run-dir", run_.string()},
          variables));
    }
  }

  // All at once, as far as one can.
  void kill() {
    for (const auto& job : jobs_) ::kill(job->pid(), SIGKILL);
    for (const auto& job : jobs_) ASSERT_TRUE(job->wait_for(test::kPatience));
  }

  // One of them; the others learn it and end by themselves.
  void kill_one(int rank) {
    ::kill(jobs_[static_cast<std::size_t>(rank)]->pid(), SIGKILL);
    for (const auto& job : jobs_) {
      ASSERT_TRUE(job->wait_for(test::kJobPatience)) << job->text();
    }
  }

  // It has ended, or written lines since it was started.
  bool has_moved() { return has_ended() || last_attempt() > before_; }
  bool has_ended() { return jobs_[0]->wait_for({}).has_value(); }

  // Whether it ended well.
  bool wait() {
    for (const auto& job : jobs_) {
      const auto end = job->wait_for(test::kJobPatience);
      if (!end || !end->ok()) {
        ADD_FAILURE() << (end ? process::describe(*end) : "it hangs") << "\n"
                      << job->text();
        return false;
      }
    }
    return true;
  }

  std::int64_t last_attempt() const {
    std::int64_t last = 0;
    for (const auto& line : lines()) last = std::max(last, line.attempt);
    return last;
  }
  SavedLines lines() const { return monitor::read_metrics(run_ / "metrics.jsonl"); }

  // Every line of a step, however often it was done, has the loss of the unbroken run.
  void expect_losses(const LossOfStep& unbroken) const {
    LossOfStep seen;
    for (const auto& line : lines()) {
      const std::pair key(line.split, line.step);
      seen[key] = line.loss;
      ASSERT_TRUE(unbroken.contains(key)) << line.step;
      EXPECT_EQ(line.loss, unbroken.at(key)) << "step " << line.step;
    }
    EXPECT_EQ(seen, unbroken);
  }
  LossOfStep losses() const {
    LossOfStep seen;
    for (const auto& line : lines()) seen[{line.split, line.step}] = line.loss;
    return seen;
  }

  // What is on disk right after a kill.
  void expect_usable() {
    const auto all = lines();
    const auto first = std::find_if(all.begin(), all.end(), [&](const auto& line) {
      return line.attempt > before_ && line.split == monitor::Split::train;
    });
    if (first != all.end()) {
      EXPECT_EQ(first->step, newest_ + 1) << "it went on elsewhere";
    }
    std::int64_t last = 0;
    for (const auto& line : all) last = std::max(last, line.step);
    const auto found = newest();
    EXPECT_GE(found, newest_) << "one that was there is gone";
    EXPECT_GE(found, last - kStepsLost) << "more is lost than was not published";
    newest_ = found;
    most_lost_ = std::max(most_lost_, last - found);
    in_a_save_ += has_partial() ? 1 : 0;
  }
  std::int64_t most_lost() const { return most_lost_; }
  std::uint32_t in_a_save() const { return in_a_save_; }

  std::string text() const {
    std::string all;
    for (const auto& job : jobs_) all += job->text();
    return all;
  }

 private:
  // The step of the newest checkpoint, 0 if there is none yet. Every byte of all is
  // read.
  std::int64_t newest() const {
    if (!std::filesystem::exists(run_ / "checkpoints")) return 0;
    const auto command = [&](const char* action) {
      const auto output =
          test::lockstep_command({"checkpoint", action, run_.string(), "--json"});
      EXPECT_EQ(output.end.shell_status(), 0) << output.out << output.err;
      return nlohmann::json::parse(output.out)["checkpoints"];
    };
    std::int64_t step = 0;
    for (const auto& one : command("verify")) {
      EXPECT_EQ(one["good"], true) << one;
      step = std::max(step, one["step"].get<std::int64_t>());
    }
    const auto listed = command("list");
    EXPECT_EQ(listed.empty() ? 0 : listed.back()["step"].get<std::int64_t>(), step);
    return step;
  }

  bool has_partial() const {
    if (!std::filesystem::exists(run_ / "checkpoints")) return false;
    const auto names = test::names_in(run_ / "checkpoints");
    return std::any_of(names.begin(), names.end(),
                       [](const auto& name) { return name[0] == '.'; });
  }

  const int ranks_;
  files::TemporaryDirectory folder_;
  test::Path run_ = folder_.path() / "run";
  std::vector<std::unique_ptr<test::Job>> jobs_;
  std::int64_t before_ = 0;  // attempt that has written lines before the last start
  std::int64_t newest_ = 0;  // checkpoint after the last kill
  std::int64_t most_lost_ = 0;
  std::uint32_t in_a_save_ = 0;
};

LossOfStep unbroken_losses(int ranks) {
  KilledRun run(ranks);
  run.start();
  EXPECT_TRUE(run.wait());
  return run.losses();
}

// Half of the kills hit the start, the others training.
void wait_for_a_moment(KilledRun& run, std::mt19937& random) {
  std::chrono::milliseconds after(random() % 1'500);
  if (random() % 2 == 0) {
    ASSERT_TRUE(test::eventually([&] { return run.has_moved(); })) << run.text();
    after = std::chrono::milliseconds(random() % 250);
  }
  std::this_thread::sleep_for(after);
}

struct KillTally {
  std::uint32_t kills = 0;
  std::uint32_t in_a_save = 0;  // which left something of it behind
  std::int64_t most_lost = 0;   // steps of which there was a line, but no checkpoint
};

void run_with_kills(int ranks, std::uint32_t wanted, std::mt19937& random,
                    const LossOfStep& unbroken, KillTally& tally) {
  KilledRun run(ranks);
  std::uint32_t kills = 0;
  run.start();
  while (kills < wanted && !testing::Test::HasFailure()) {
    wait_for_a_moment(run, random);
    if (run.has_ended()) break;
    const auto one = random() % 2 == 0;
    const auto rank = static_cast<int>(random() % static_cast<unsigned>(ranks));
    one ? run.kill_one(rank) : run.kill();
    ++kills;
    SCOPED_TRACE(str("kill ", kills, " of ", ranks, " ranks"));
    run.expect_usable();
    run.start();
  }
  if (run.wait()) run.expect_losses(unbroken);
  tally.kills += kills;
  tally.in_a_save += run.in_a_save();
  tally.most_lost = std::max(tally.most_lost, run.most_lost());
}

TEST(CheckpointSoak, ARunThatIsKilledAtAnyTimeLosesNothingThatWasPublished) {
  const auto wanted = test::soak_number("LOCKSTEP_SOAK_CHECKPOINT_KILLS", 10);
  const auto seed = test::soak_number("LOCKSTEP_SOAK_SEED", std::random_device()());
  std::printf("seed %u, %u kills\n", seed, wanted);
  std::mt19937 random(seed);
  const std::array unbroken{unbroken_losses(1), unbroken_losses(2)};
  ASSERT_EQ(unbroken[0].size(), kStepsOfARun + 1U) << "of every step, and the last";
  const auto at_once = std::min((wanted + 1) / 2, kKillsOfARun);
  KillTally tally;
  std::uint32_t runs = 0;
  while (tally.kills < wanted && !HasFailure()) {
    SCOPED_TRACE(str("seed ", seed, ", run ", runs, ", after ", tally.kills, " kills"));
    const int ranks = runs % 2 == 0 ? 1 : 2;
    run_with_kills(ranks, std::min(at_once, wanted - tally.kills), random,
                   unbroken[static_cast<std::size_t>(ranks - 1)], tally);
    std::printf("%u kills in %u runs, %u of them in a save; at most %ld steps lost\n",
                tally.kills, ++runs, tally.in_a_save, tally.most_lost);
    std::fflush(stdout);
  }
}

}  // namespace
}  // namespace lockstep
