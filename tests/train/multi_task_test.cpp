// Several inputs, several losses, answers that are missing: whatever the shares and the
// micro-batches are, it is one computation.
#include "lockstep/task/multi_task.h"

#include <cmath>
#include <cstring>
#include <limits>

#include <signal.h>
#include <unistd.h>

#include "lockstep/base/text.h"
#include "lockstep/monitor/console.h"
#include "lockstep/task/classification.h"
#include "lockstep/task/multi_label.h"
#include "lockstep/task/regression.h"
#include "lockstep/train/callbacks.h"
#include "lockstep/train/trainer.h"
#include "tests/comm/ranks.h"
#include "tests/train/small_data.h"

namespace lockstep::train {
namespace {

using torch::Tensor;

constexpr std::int64_t kOrgans = 4;
constexpr std::int64_t kFindings = 3;

// A scan and a laboratory's numbers; the organ, which one in three lacks, and findings,
// each of which one in four lacks.
class Patients : public data::Dataset {
 public:
  explicit Patients(std::int64_t size) : size_(size) {
    spec_.shape = {6};
    spec_.dtype = torch::kFloat32;
    spec_.num_classes = kOrgans;
    spec_.ignore_index = -100;
    spec_.fields = {{.name = "lab", .shape = {5}},
                    {.name = "findings", .shape = {kFindings}},
                    {.name = "unread", .shape = {64}}};
  }
  std::int64_t size() const noexcept override { return size_; }
  const data::SampleSpec& spec() const noexcept override { return spec_; }
  void read_sample(const data::Visit& visit,
                   const data::SampleBuffer& room) const override {
    std::minstd_rand random(static_cast<unsigned>(7 * visit.index + 1));
    const auto number = [&] { return static_cast<float>(random() % 1000) / 500 - 1; };
    const auto fill = [&](std::span<std::byte> bytes) {
      auto* to = reinterpret_cast<float*>(bytes.data());
      for (std::size_t i = 0; i < bytes.size() / sizeof(float); ++i) to[i] = number();
      return to;
    };
    const auto* scan = fill(room.input);
    const auto* lab = fill(room.fields[0]);
    room.target[0] = visit.index % 3 == 0 ? -100 : (scan[0] > 0) + 2 * (lab[0] > 0);
    auto* findings = fill(room.fields[1]);
    for (int i = 0; i < kFindings; ++i) {
      const bool missing = random() % 4 == 0;
      findings[i] = missing ? std::nanf("") : scan[1 + i] > lab[1 + i] ? 1.0F : 0.0F;
    }
    fill(room.fields[2]);
  }

 private:
  std::int64_t size_;
  data::SampleSpec spec_;
};

struct TwoHeads : models::Model {
  TwoHeads() {
    scan = register_module("scan", torch::nn::Linear(6, 16));
    lab = register_module("lab", torch::nn::Linear(5, 16));
    organ = register_module("organ", torch::nn::Linear(16, kOrgans));
    findings = register_module("findings", torch::nn::Linear(16, kFindings));
  }
  std::vector<std::string> inputs() const override { return {"input", "lab"}; }
  Named forward_named(const Named& in) override {
    const auto h = (scan(in.at("input")) + lab(in.at("lab"))).tanh();
    return {{"organ", organ(h)}, {"findings", findings(h)}};
  }
  torch::nn::Linear scan{nullptr}, lab{nullptr}, organ{nullptr}, findings{nullptr};
};

std::shared_ptr<task::Task> both_tasks(const std::string& primary = "") {
  return task::make_multi_task(
      {.parts = {{.name = "organ",
                  .task = task::make_classification({.fields = {.output = "organ"},
                                                     .loss = {.ignore_index = -100},
                                                     .num_classes = kOrgans})},
                 {.name = "findings",
                  .task = task::make_multi_label(
                      {.fields = {.output = "findings", .target = "findings"},
                       .num_labels = kFindings,
                       .per_sample = kFindings}),
                  .coefficient = 0.5,
                  .final_coefficient = 2.0}},
       .ramp_steps = 10,
       .primary = primary});
}

RunHooks patients_extras(CallbackList callbacks = {}) {
  return {
      .callbacks = std::move(callbacks),
      .train_data = std::make_shared<Patients>(90),
      .eval_data = std::make_shared<Patients>(41),
      .build_model = [](const models::Shape&) { return std::make_shared<TwoHeads>(); },
      .task = both_tasks()};
}

config::Config patients_config() {
  auto config = test::small_config();
  config.batch.global = 16;  // five full steps and one of ten samples an epoch
  config.batch.micro = 5;
  config.train.epochs = 0;
  config.train.steps = 20;
  config.train.log_every = 1;
  config.eval.every = 5;
  config.optim.lr = 0.01;
  config.checkpoint.every = 4;
  return config;
}

struct PatientsRun {
  Result result;
  std::vector<monitor::Metrics> metrics;
};

PatientsRun run_patients_in(const files::Path& folder, const config::Config& config,
                            comm::World& world, const RunHooks& hooks) {
  if (world.rank() == 0 && !std::filesystem::exists(folder / "r")) {
    run::RunDirectory::create(folder, {.name = "r"});
  }
  if (world.size() > 1) world.cpu().barrier();
  const auto run = run::RunDirectory::open(folder / "r");
  monitor::Console console({.write = [](std::string_view) {}});
  const StopRequest stop;
  Reporter reporter({run, console}, config.monitor,
                    {.rank = world.rank(), .ranks = world.size()});
  PatientsRun ran;
  try {
    ran.result = train(test::resolved(config), {run, reporter, stop, world}, hooks);
  } catch (const std::runtime_error& error) {
    if (std::string(error.what()) != "crash") throw;
  }
  ran.metrics = monitor::read_metrics(run.metrics());
  return ran;
}

// What rank 0, which is another process, tells of how it ended.
void keep_result(const files::Path& folder, const Result& result) {
  test::write_file(folder / "best", text::from_double(result.best.value_or(-1)));
  test::write_file(folder / "ended_early", result.ended_early);
  test::write_file(folder / "resumed_at", str(result.resumed_at.value_or(-1)));
}

Result kept_result(const files::Path& folder) {
  Result result;
  result.best = std::stod(test::read_file(folder / "best"));
  result.ended_early = test::read_file(folder / "ended_early");
  result.resumed_at = std::stoll(test::read_file(folder / "resumed_at"));
  return result;
}

PatientsRun run_patients(int ranks, const files::Path& folder, config::Config config,
                         const CallbackList& callbacks = {}) {
  if (ranks == 1) {
    auto world = comm::join({}, {});
    return run_patients_in(folder, config, world, patients_extras(callbacks));
  }
  config.parallel.strategy = config::Strategy::ddp;
  config.parallel.ranks = ranks;
  const int port = test::free_port();
  test::as_processes(ranks, [&](int rank) {
    auto world = comm::join(test::environment_of(rank, ranks, port), {});
    const auto ran = run_patients_in(folder, config, world, patients_extras(callbacks));
    if (rank == 0) keep_result(folder, ran.result);
    world.close();
  });
  return {kept_result(folder), monitor::read_metrics(folder / "r" / "metrics.jsonl")};
}

void expect_near_metrics(const std::vector<monitor::Metrics>& a,
                         const std::vector<monitor::Metrics>& b, double tolerance) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    EXPECT_NEAR(a[i].loss, b[i].loss, tolerance) << "step " << a[i].step;
    for (const auto* name : {"loss_organ", "loss_findings"}) {
      ASSERT_TRUE(a[i].find(name).has_value()) << name;
      EXPECT_NEAR(*a[i].find(name), b[i].find(name).value_or(-1), tolerance) << name;
    }
  }
}

// Ranks first: they are forked from a process that has not computed anything.
TEST(MultiTask, IsTheSameAtAnyNumberOfRanksAndMicroBatches) {
  auto config = patients_config();
  std::vector<std::vector<monitor::Metrics>> all;
  for (const int ranks : {3, 2}) {
    const files::TemporaryDirectory folder;
    all.push_back(run_patients(ranks, folder.path(), config).metrics);
  }
  for (const std::int64_t micro : {16, 5, 1}) {
    const files::TemporaryDirectory folder;
    config.batch.micro = micro;
    all.push_back(run_patients(1, folder.path(), config).metrics);
  }
  ASSERT_GE(all[0].size(), 20U);
  for (std::size_t i = 1; i < all.size(); ++i) {
    // Sums in another order, over twenty updates.
    expect_near_metrics(all[i], all[0], 2e-5);
  }
}

// Against plain LibTorch over the whole batch: sums over what is there, divided by how
// much that is.
TEST(MultiTask, GradientsAreThoseOfPyTorchsMeans) {
  const Patients data(16);
  torch::manual_seed(4);
  const auto model = std::make_shared<TwoHeads>();
  auto config = patients_config();
  auto world = comm::join({}, {});
  const auto strategy = parallel::make_strategy(config, *model, world);
  const auto task = both_tasks();
  Step step({.model = model,
             .task = task,
             .strategy = *strategy,
             .policy = {config::Precision::fp32, torch::kCPU},
             .spec = data.spec(),
             .micro_batch = 5});
  task::Tally tally(task, torch::kCPU);
  data::Loader loader(data, {.batch = 16});
  const auto* batch = loader.next();
  strategy->begin_step();
  step.backward(*batch, tally, {.step = 5});
  strategy->finish();
  std::vector<Tensor> ours;
  for (const auto& p : model->parameters()) ours.push_back(p.grad().clone());

  const auto outputs =
      model->forward_named({{"input", batch->inputs}, {"lab", batch->at("lab")}});
  const auto organ =
      torch::cross_entropy_loss(outputs.at("organ"), batch->targets, {},
                                at::Reduction::Mean, /*ignore_index=*/-100);
  const auto& answers = batch->at("findings");
  const auto there = answers.isnan().logical_not();
  const auto findings = torch::binary_cross_entropy_with_logits(
      outputs.at("findings").masked_select(there), answers.masked_select(there));
  const auto loss = organ + 1.25 * findings;  // halfway from 0.5 to 2
  const auto theirs = torch::autograd::grad({loss}, model->parameters());
  for (std::size_t i = 0; i < ours.size(); ++i) {
    EXPECT_TRUE(ours[i].allclose(theirs[i], 1e-5, 1e-6)) << i;
  }
  const auto means = tally.means();
  EXPECT_NEAR(means.loss, loss.item<double>(), 1e-5);
  EXPECT_NEAR(means.find("loss_organ").value(), organ.item<double>(), 1e-5);
  EXPECT_NEAR(means.find("loss_findings").value(), findings.item<double>(), 1e-5);
}

struct PatientsCrash : Callback {
  void on_step_begin(const RunContext& m, const data::Batch& batch) override {
    EXPECT_EQ(batch.fields.size(), 3U) << "on a CPU nothing is copied";
    if (m.step == 11) throw std::runtime_error("crash");
  }
};

TEST(MultiTask, StopsAtItsPrimaryMetricAndGoesOnToTheBit) {
  auto config = patients_config();
  config.early_stop.patience = 3;
  config.eval.every = 1;
  config.train.steps = 200;
  config.checkpoint.every = 4;
  const files::TemporaryDirectory one, other;
  const auto unbroken = run_patients(1, one.path(), config);
  EXPECT_EQ(unbroken.result.primary, "organ_accuracy");
  EXPECT_THAT(unbroken.result.ended_early,
              testing::HasSubstr("organ_accuracy has not"));
  ASSERT_GT(unbroken.result.steps, 12);
  ASSERT_LT(unbroken.result.steps, 200);
  double best = 0;
  for (const auto& line : unbroken.metrics) {
    if (line.split == monitor::Split::eval) {
      best = std::max(best, line.find("organ_accuracy").value());
    }
  }
  EXPECT_EQ(unbroken.result.best, best);
  run_patients(1, other.path(), config, {std::make_shared<PatientsCrash>()});
  const auto last = run_patients(1, other.path(), config);
  EXPECT_GE(last.result.resumed_at.value_or(0), 4);
  EXPECT_EQ(last.result.ended_early, unbroken.result.ended_early);
  ASSERT_EQ(last.metrics.size(), unbroken.metrics.size());
  for (std::size_t i = 0; i < last.metrics.size(); ++i) {
    EXPECT_EQ(last.metrics[i].loss, unbroken.metrics[i].loss)
        << "step " << last.metrics[i].step;
  }
}

// Found where it is reported, two levels below: by the best and by early_stop.
TEST(MultiTask, TheLossOfAPartMayBeThePrimaryMetric) {
  auto config = patients_config();
  config.early_stop.patience = 2;
  config.early_stop.min_delta = 10;  // nothing improves by so much
  config.eval.every = 1;
  auto hooks = patients_extras();
  hooks.task = task::make_multi_task(
      {.parts = {task::TaskPart{.name = "both", .task = both_tasks("loss_findings")}}});
  auto world = comm::join({}, {});
  const files::TemporaryDirectory folder;
  const auto run = run_patients_in(folder.path(), config, world, hooks);
  EXPECT_EQ(run.result.primary, "loss_both_findings");
  EXPECT_THAT(
      run.result.ended_early,
      testing::HasSubstr("loss_both_findings has not improved by more than 10"));
  EXPECT_EQ(run.result.steps, 3);
  double best = std::numeric_limits<double>::infinity();
  for (const auto& line : run.metrics) {
    if (line.split == monitor::Split::eval) {
      best = std::min(best, line.find("loss_both_findings").value());
    }
  }
  EXPECT_EQ(run.result.best, best);
}

config::Config ends_early_config() {
  auto config = patients_config();
  config.early_stop.patience = 3;
  config.eval.every = 1;
  config.train.steps = 200;
  return config;
}

// It goes on, and ends, as if it had never been cut and had had one rank.
void expect_end_of_unbroken(const PatientsRun& last, const PatientsRun& unbroken) {
  EXPECT_GE(last.result.resumed_at.value_or(-1), 4);
  EXPECT_THAT(unbroken.result.ended_early,
              testing::HasSubstr("organ_accuracy has not"));
  EXPECT_EQ(last.result.ended_early, unbroken.result.ended_early);
  EXPECT_EQ(last.result.best, unbroken.result.best);
  ASSERT_GT(unbroken.result.steps, 12) << "it is cut after eleven";
  expect_near_metrics(last.metrics, unbroken.metrics, 2e-5);
}

TEST(MultiTask, GoesOnAtAnotherNumberOfRanksAndStopsAtItsPrimaryMetric) {
  const auto config = ends_early_config();
  const files::TemporaryDirectory one, other;
  run_patients(2, other.path(), config, {std::make_shared<PatientsCrash>()});
  const auto last = run_patients(3, other.path(), config);
  expect_end_of_unbroken(last, run_patients(1, one.path(), config));
}

// One process is gone at once, as when the kernel kills it for its memory.
struct PatientsKill : Callback {
  void on_step_begin(const RunContext& m, const data::Batch&) override {
    if (m.step == 11 && m.world.rank() == 1) ::kill(::getpid(), SIGKILL);
  }
};

TEST(MultiTask, AProcessIsKilledAndItGoesOnAtAnotherNumberOfRanks) {
  const auto config = ends_early_config();
  const files::TemporaryDirectory one, other;
  const int port = test::free_port();
  const auto ends = test::as_processes(2, [&](int rank) {
    auto own = config;
    own.parallel.strategy = config::Strategy::ddp;
    own.parallel.ranks = 2;
    own.comm.timeout = std::chrono::seconds(20);
    auto world = comm::join(test::environment_of(rank, 2, port), {.config = own.comm});
    const auto text = test::error_text(Fault::comm, [&] {
      run_patients_in(other.path(), own, world,
                      patients_extras({std::make_shared<PatientsKill>()}));
    });
    EXPECT_FALSE(text.empty());
  });
  EXPECT_EQ(ends[1].signal, SIGKILL);
  const auto last = run_patients(3, other.path(), config);
  expect_end_of_unbroken(last, run_patients(1, one.path(), config));
}

// The weight of a loss that changes for ten steps, and of labels that are missing, are
// read anew by every replay.
TEST(MultiTaskGpu, AGraphHoldsItsStepsWithTheSameBits) {
  if (!torch::cuda::is_available()) GTEST_SKIP() << "no GPU";
  auto config = patients_config();
  config.parallel.device = config::Device::cuda;
  config.data.pin_memory = true;
  config.train.deterministic = true;
  config.train.steps = 30;
  config.checkpoint.every = 0;
  std::vector<PatientsRun> runs;
  std::vector<std::string> weights;
  for (const auto graph : {config::Graph::off, config::Graph::on}) {
    config.train.graph = graph;
    const files::TemporaryDirectory folder;
    comm::JoinOptions options;
    options.device = torch::Device(torch::kCUDA, 0);
    auto world = comm::join({}, options);
    runs.push_back(run_patients_in(folder.path(), config, world, patients_extras()));
    weights.push_back(test::read_file(runs.back().result.weights));
  }
  ASSERT_EQ(runs[1].metrics.size(), runs[0].metrics.size());
  for (std::size_t i = 0; i < runs[0].metrics.size(); ++i) {
    EXPECT_EQ(runs[1].metrics[i].loss, runs[0].metrics[i].loss)
        << "step " << runs[0].metrics[i].step;
  }
  EXPECT_FALSE(weights[0].empty());
  EXPECT_TRUE(weights[1] == weights[0]);
}

TEST(MultiTask, WhatARecipeSaysBesideATaskOfTheProgramIsRefused) {
  auto config = patients_config();
  config.task.label_smoothing = 0.1;
  config.eval.metrics = {config::EvalMetric::f1};
  config.data.balanced_loss = true;
  auto world = comm::join({}, {});
  const files::TemporaryDirectory folder;
  const auto text = test::error_text(Fault::config, [&] {
    run_patients_in(folder.path(), config, world, patients_extras());
  });
  for (const auto* part : {"task.label_smoothing", "eval.metrics", "data.balanced_loss",
                           " are not used: the program gives a task of its own"}) {
    EXPECT_THAT(text, testing::HasSubstr(part));
  }
}

// A field that nobody declared is refused with the names there are.
TEST(MultiTask, AFieldThatSamplesDoNotHaveIsNamed) {
  auto hooks = patients_extras();
  hooks.task = task::make_regression({.fields = {.output = "organ", .target = "age"}});
  auto world = comm::join({}, {});
  const files::TemporaryDirectory folder;
  EXPECT_THAT(
      test::error_text(
          Fault::config,
          [&] { run_patients_in(folder.path(), patients_config(), world, hooks); }),
      testing::HasSubstr("wants 'age', but a sample has input, target, lab, "
                         "findings, unread"));
}

}  // namespace
}  // namespace lockstep::train
