// Stages 2 and 3 in a run: faults inside of a unit.
#include <array>

#include <fmt/format.h>
#include <signal.h>

#include "tests/train/checkpoint_rig.h"

namespace lockstep::train {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using torch::Tensor;

// What happens to a rank inside of its second unit.
struct Trouble {
  int rank = 1;
  std::int64_t step = 0;  // that are done before
  bool in_backward = false;
  bool in_evaluation = false;
  std::function<void(std::int64_t samples)> act;
};

// A model of three units, one of which has the trouble.
class Troubled : public models::Model {
 public:
  Troubled(const models::Shape& shape, const Trouble* trouble) : trouble_(trouble) {
    std::int64_t features = 1;
    for (const auto size : shape.input) features *= size;
    in_ = register_module("in", torch::nn::Linear(features, kHidden));
    for (int i = 0; i < 3; ++i) {
      torch::nn::Linear layer(kHidden, kHidden);
      register_module(str("layer", i), layer);
      add_block(layer.ptr(), [this, layer, i](const Tensor& x) mutable {
        return run_unit(layer, i, x);
      });
    }
    out_ = register_module("out", torch::nn::Linear(kHidden, shape.num_classes));
  }

  Tensor forward(const Tensor& input) override {
    return out_(run_blocks(torch::relu(in_(input.flatten(1)))));
  }

  void begin_step(std::int64_t step) { step_ = step; }

 private:
  static constexpr std::int64_t kHidden = 13;  // nothing divides evenly

  Tensor run_unit(torch::nn::Linear& layer, int unit, const Tensor& x) const {
    const auto y = torch::tanh(layer->forward(x));
    if (unit != 1 || trouble_ == nullptr) return y;
    const auto samples = x.size(0);
    if (trouble_->in_evaluation) {
      if (!is_training()) trouble_->act(samples);
    } else if (is_training() && step_ == trouble_->step) {
      if (!trouble_->in_backward) trouble_->act(samples);
      if (trouble_->in_backward && y.requires_grad()) {
        y.register_hook([act = trouble_->act, samples](const Tensor& gradient) {
          act(samples);
          return gradient;
        });
      }
    }
    return y;
  }

  const Trouble* trouble_;
  std::int64_t step_ = -1;
  torch::nn::Linear in_{nullptr}, out_{nullptr};
};

config::Config staged(int stage) {
  auto config = test::quick_config();
  config.comm.deterministic = true;
  config.batch.global = 16;
  config.batch.micro = 8;
  config.optim.lr = 0.01;
  config.train.steps = 5;
  config.eval.every = 0;
  config.parallel.strategy =
      stage == 0 ? config::Strategy::ddp : config::Strategy::zero;
  config.parallel.shard_update = config::ShardUpdate::off;
  if (stage > 0) config.parallel.zero_stage = stage;
  config.parallel.persist_below = 0;
  config.parallel.bucket_bytes = 4000;
  return config;
}

// Tells the model which step it is in.
struct CountsSteps : Callback {
  void on_step_begin(const RunContext& at, const data::Batch&) override {
    dynamic_cast<Troubled&>(at.model).begin_step(at.step);
  }
};

RunHooks hooks_of(const Trouble* trouble, int rank, CallbackList more = {}) {
  const auto* const own =
      trouble != nullptr && trouble->rank == rank ? trouble : nullptr;
  more.insert(more.begin(), std::make_shared<CountsSteps>());
  return {.callbacks = std::move(more),
          .build_model = [own](const models::Shape& shape) {
            return std::make_shared<Troubled>(shape, own);
          }};
}

// What rank 0 has seen, and the weights that it has written.
struct StagedRun {
  test::Ran ran;
  std::string weights;
  std::vector<std::string> short_of_memory;  // the ranks that events name, "rank=1"
};

// Trains in this rank's process; every rank calls it.
StagedRun train_staged(comm::World& world, const files::Path& folder,
                       const config::Config& config, const RunHooks& hooks) {
  StagedRun seen{.ran = test::run_in(folder, config, world, hooks)};
  if (world.rank() != 0) return seen;
  const auto run = run::RunDirectory::open(folder / "runs" / "r");
  seen.weights = test::read_file(run.path() / "model.safetensors");
  for (const auto& event : run::last_events(run.events(), 100)) {
    if (event.kind != "out_of_memory") continue;
    for (const auto& field : event.fields) {
      if (field.name != "rank") continue;
      seen.short_of_memory.push_back(str("rank=", std::get<std::int64_t>(field.value)));
    }
  }
  return seen;
}

void throw_out_of_memory(std::int64_t samples, std::int64_t most) {
  if (samples > most) throw std::bad_alloc();
}

struct OomCell {
  bool in_backward = false;
  std::int64_t step = 0;
};

// All stages with the same trouble; the same step is done again on every rank.
void expect_agreed_retry(comm::World& world, const files::Path& folder,
                         const OomCell& cell) {
  const Trouble trouble{.step = cell.step,
                        .in_backward = cell.in_backward,
                        .act = [](std::int64_t n) { throw_out_of_memory(n, 4); }};
  const auto what = str(cell.in_backward ? "backward" : "forward", cell.step);
  std::array<StagedRun, 4> seen;
  for (const int stage : {0, 2, 3}) {
    seen[static_cast<std::size_t>(stage)] =
        train_staged(world, folder / str(what, "_", stage), staged(stage),
                     hooks_of(&trouble, world.rank()));
  }
  if (world.rank() != 0) return;
  for (const int stage : {0, 2, 3}) {
    const auto& one = seen[static_cast<std::size_t>(stage)];
    EXPECT_THAT(one.ran.events, Contains("out_of_memory")) << what << stage;
    EXPECT_THAT(one.short_of_memory, ::testing::Each("rank=1")) << what << stage;
    EXPECT_FALSE(one.short_of_memory.empty()) << what << stage;
    EXPECT_EQ(one.ran.result.steps, 5) << what << stage;
    for (const auto& [step, loss] : seen[0].ran.losses) {
      // Sums of passes in another order, grown by five updates.
      EXPECT_NEAR(one.ran.losses.at(step), loss, 1e-5 * loss) << what << stage;
    }
  }
  EXPECT_FALSE(seen[3].weights.empty());
  EXPECT_TRUE(seen[3].weights == seen[2].weights) << what;
}

TEST(ZeroRun, ARankWithoutMemoryInsideAUnitTakesTheOthersAlong) {
  const files::TemporaryDirectory folder;
  const int port = test::free_port();
  test::as_processes(2, [&](int rank) {
    auto world = comm::join(test::environment_of(rank, 2, port), {});
    for (const bool in_backward : {false, true}) {
      for (const std::int64_t step : {0, 2}) {
        expect_agreed_retry(world, folder.path(), {in_backward, step});
      }
    }
    world.close();
  });
}

TEST(ZeroRun, AnEvaluationWithoutMemoryOnOneRankIsDoneInSmallerPiecesByAll) {
  const files::TemporaryDirectory folder;
  const int port = test::free_port();
  const Trouble trouble{.in_evaluation = true,
                        .act = [](std::int64_t n) { throw_out_of_memory(n, 4); }};
  test::as_processes(2, [&](int rank) {
    auto world = comm::join(test::environment_of(rank, 2, port), {});
    const auto plain =
        train_staged(world, folder.path() / "plain", staged(3), hooks_of({}, rank));
    const auto small = train_staged(world, folder.path() / "small", staged(3),
                                    hooks_of(&trouble, rank));
    EXPECT_EQ(small.ran.result.eval->count, 50);
    EXPECT_EQ(small.ran.result.eval->find("accuracy"),
              plain.ran.result.eval->find("accuracy"));
    EXPECT_TRUE(small.weights == plain.weights);
    world.close();
  });
}

struct SignalCell {
  config::CommBackend backend = config::CommBackend::shm;
  int signal = SIGKILL;
  bool in_backward = false;
  std::int64_t step = 0;

  std::string text() const {
    return fmt::format("{} {} in {} of step {}", config::name_of(backend), signal,
                       in_backward ? "backward" : "forward", step);
  }
};

// Rank 1 of three is gone, or does nothing any more, inside of a unit; returns what the
// others say.
std::vector<std::string> errors_after(const SignalCell& cell) {
  const files::TemporaryDirectory folder;
  const int port = test::free_port();
  const auto pid_file = folder.path() / "pid";
  const Trouble trouble{
      .step = cell.step, .in_backward = cell.in_backward, .act = [&](std::int64_t) {
        test::write_file(pid_file, str(::getpid()));
        ::kill(::getpid(), cell.signal);
      }};
  const auto ends = test::as_processes(3, [&](int rank) {
    auto config = staged(3);
    config.comm.backend = cell.backend;
    config.comm.timeout = std::chrono::seconds(2);
    config.train.steps = 1'000;
    auto world =
        comm::join(test::environment_of(rank, 3, port), {.config = config.comm});
    const auto text = test::error_text(Fault::comm, [&] {
      train_staged(world, folder.path(), config, hooks_of(&trouble, rank));
    });
    test::write_file(folder.path() / str("error", rank), text);
    // A process that is stopped ends by nothing else.
    ::kill(std::stoi(test::read_file(pid_file)), SIGKILL);
  });
  EXPECT_EQ(ends[1].signal, SIGKILL);
  return {test::read_file(folder.path() / "error0"),
          test::read_file(folder.path() / "error2")};
}

TEST(ZeroRun, ARankThatDiesOrStopsInsideAUnitEndsTheOthers) {
  std::vector<SignalCell> cells;
  for (const auto backend : {config::CommBackend::shm, config::CommBackend::gloo}) {
    for (const bool in_backward : {false, true}) {
      for (const std::int64_t step : {0, 2}) {
        cells.push_back({backend, SIGKILL, in_backward, step});
      }
      cells.push_back({backend, SIGSTOP, in_backward, in_backward ? 2 : 0});
    }
  }
  for (const auto& cell : cells) {
    SCOPED_TRACE(cell.text());
    for (const auto& text : errors_after(cell)) {
      EXPECT_THAT(text, HasSubstr(" of ")) << "what was under way";
      if (cell.backend != config::CommBackend::shm) continue;  // Gloo knows no names
      EXPECT_THAT(
          text, HasSubstr(cell.signal == SIGKILL ? "rank 1 (pid "
                                                 : "rank 1 did not take part within"));
    }
  }
}

}  // namespace
}  // namespace lockstep::train
