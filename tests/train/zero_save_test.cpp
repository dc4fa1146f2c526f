// Checkpoints that are asked for in the middle of a step, between two micro-batches:
// the step ends first, and what is saved goes on to the bit, at every stage.
#include <csignal>

#include "lockstep/base/text.h"
#include "lockstep/storage/publish.h"
#include "tests/train/checkpoint_rig.h"

namespace lockstep::train {
namespace {

using ::testing::HasSubstr;

constexpr std::int64_t kAskedIn = 2;  // steps that are done before
constexpr std::int64_t kSaved = kAskedIn + 1;
constexpr int kRanks = 2;

enum class Way { none, every, signal, stop_signal, callback };

config::Config staged(int stage, Way way) {
  auto config = test::rich_config();
  config.model.name = "cnn";
  config.comm.deterministic = true;
  config.batch.global = 20;
  config.batch.micro = 4;  // ten samples a rank: three micro-batches
  config.train.steps = 6;
  config.eval.every = 0;
  config.checkpoint.every = way == Way::every ? kSaved : 0;
  config.checkpoint.save_last = false;
  config.parallel.persist_below = 0;
  config.parallel.bucket_bytes = 20'000;
  config.parallel.strategy =
      stage == 0 ? config::Strategy::ddp : config::Strategy::zero;
  if (stage > 0) config.parallel.zero_stage = stage;
  return config;
}

// Asks on the last rank only, before its second micro-batch is computed.
struct AsksInStep : Callback {
  explicit AsksInStep(Way its_way) : way(its_way) {}

  void on_step_begin(const RunContext&, const data::Batch&) override { passes = 0; }
  void on_pass(const RunContext& at, profile::PassEvent event) override {
    if (event != profile::PassEvent::forward_begins) return;
    passes += 1;
    if (at.step != kAskedIn || at.world.rank() != kRanks - 1 || passes != 2) return;
    if (way == Way::signal) ::raise(SIGUSR2);
    if (way == Way::stop_signal) ::raise(SIGTERM);
    stops = way == Way::callback;
    asked = true;
  }
  bool should_stop() const override { return stops; }

  const Way way;
  std::int64_t passes = 0;
  bool asked = false, stops = false;
};

struct SavedRun {
  std::string weights;  // the file
  test::Losses losses;
  std::int64_t resumed_at = 0;
};

// Trains in processes; `from` is a checkpoint, or "".
SavedRun train_in(const files::Path& folder, config::Config config, Way way,
                  const files::Path& from = {}) {
  if (!from.empty()) config.checkpoint.resume = from.string();
  const int port = test::free_port();
  test::as_processes(kRanks, [&](int rank) {
    auto world = comm::join(test::environment_of(rank, kRanks, port), {});
    const auto asks = std::make_shared<AsksInStep>(way);
    const auto ran = test::run_in(folder, config, world, {.callbacks = {asks}});
    EXPECT_EQ(asks->asked,
              rank == kRanks - 1 && from.empty() && !ran.result.resumed_at);
    EXPECT_EQ(asks->passes, 3) << "micro-batches of a step";
    std::string lines;
    for (const auto& [step, loss] : ran.losses) {
      lines += str(step, " ", text::from_double(loss), "\n");
    }
    if (rank == 0) {
      test::write_file(folder / "losses", lines);
      test::write_file(folder / "resumed", str(ran.result.resumed_at.value_or(0)));
    }
    world.close();
  });
  SavedRun run{.weights = test::read_file(folder / "runs" / "r" / "model.safetensors"),
               .resumed_at = std::stoi(test::read_file(folder / "resumed"))};
  std::istringstream text(test::read_file(folder / "losses"));
  std::int64_t step = 0;
  for (double loss = 0; text >> step >> loss;) run.losses[step] = loss;
  return run;
}

void expect_goes_on(const SavedRun& resumed, const SavedRun& unbroken) {
  EXPECT_EQ(resumed.resumed_at, kSaved);
  ASSERT_EQ(resumed.losses.size() >= 6 - kSaved, true);
  for (const auto& [step, loss] : resumed.losses) {
    EXPECT_EQ(loss, unbroken.losses.at(step)) << "step " << step;
  }
  EXPECT_TRUE(resumed.weights == unbroken.weights) << "other weights";
}

class ZeroSave : public ::testing::TestWithParam<int> {
 protected:
  files::Path checkpoint_of(const std::string& name) const {
    return storage::step_directory(test::checkpoints_in(place(name)), kSaved);
  }
  files::Path place(const std::string& name) const { return folder_.path() / name; }

  files::TemporaryDirectory folder_;
};
INSTANTIATE_TEST_SUITE_P(Stages, ZeroSave, ::testing::Values(0, 1, 2, 3));

TEST_P(ZeroSave, AskedForBetweenMicroBatchesGoesOnToTheBit) {
  const int stage = GetParam();
  const auto unbroken =
      train_in(place("unbroken"), staged(stage, Way::none), Way::none);
  ASSERT_EQ(unbroken.losses.size(), 6);
  for (const auto way : {Way::every, Way::signal}) {
    SCOPED_TRACE(way == Way::every ? "checkpoint.every" : "SIGUSR2");
    const auto name = str("saved", static_cast<int>(way));
    const auto saved = train_in(place(name), staged(stage, way), way);
    EXPECT_TRUE(saved.weights == unbroken.weights) << "a save changes what is computed";
    expect_goes_on(train_in(place(name + "on"), staged(stage, Way::none), Way::none,
                            checkpoint_of(name)),
                   unbroken);
  }
  {
    SCOPED_TRACE("SIGTERM");
    const auto config = staged(stage, Way::stop_signal);
    EXPECT_EQ(
        train_in(place("stopped"), config, Way::stop_signal).losses.rbegin()->first,
        kSaved);
    expect_goes_on(train_in(place("stopped"), config, Way::stop_signal), unbroken);
  }
  {
    // A callback ends the run for good: another run resumes from its checkpoint.
    SCOPED_TRACE("a callback");
    auto config = staged(stage, Way::callback);
    config.checkpoint.save_last = true;
    train_in(place("ended"), config, Way::callback);
    expect_goes_on(train_in(place("endedon"), staged(stage, Way::none), Way::none,
                            checkpoint_of("ended")),
                   unbroken);
  }
}

// A save that is made at once has nothing to say of half a step.
struct SavesInStep : Callback {
  void on_pass(const RunContext& at, profile::PassEvent event) override {
    if (at.step == 1 && event == profile::PassEvent::backward_begins) loop->save();
  }
  void on_step_end(const RunContext& at, const StepEnd&) override {
    if (at.step == 1) saved = loop->save();
  }
  ::lockstep::train::Loop* loop = nullptr;
  std::string saved;
};

TEST(SaveInStep, OfAProgramIsRefusedWithTheRemedy) {
  const files::TemporaryDirectory folder;
  auto world = comm::join({}, {});
  auto config = staged(0, Way::none);
  config.parallel.strategy = config::Strategy::single;
  const auto run = run::RunDirectory::create(folder.path() / "runs", {.name = "r"});
  monitor::Console console({.write = [](std::string_view) {}});
  const StopRequest stop;
  Reporter reporter({run, console}, config.monitor, {});
  const auto saves = std::make_shared<SavesInStep>();
  const auto resolved = test::resolved(config);
  const RunHooks hooks{.callbacks = {saves}};
  const auto shared = open_shared(*resolved, hooks);
  const auto loop = make_loop(resolved, {run, reporter, stop, world}, *shared);
  saves->loop = loop.get();
  loop->begin();
  loop->step();
  EXPECT_EQ(saves->saved, storage::step_directory(run.checkpoints(), 1).string());
  const auto text = test::error_text(Fault::config, [&] { loop->step(); });
  EXPECT_THAT(text, HasSubstr("in the middle of step 2"));
  EXPECT_THAT(text, HasSubstr("on_step_end"));
}

}  // namespace
}  // namespace lockstep::train
