#include "lockstep/api/fit.h"

#include <optional>
#include <utility>

#include <fmt/format.h>

#include "lockstep/base/error.h"
#include "lockstep/base/hash.h"
#include "lockstep/base/log.h"
#include "lockstep/base/units.h"
#include "lockstep/comm/broadcast_text.h"
#include "lockstep/comm/join.h"
#include "lockstep/config/load.h"
#include "lockstep/config/print.h"
#include "lockstep/hardware/machine.h"
#include "lockstep/jobs/open_run.h"
#include "lockstep/monitor/console.h"
#include "lockstep/planner/plan.h"
#include "lockstep/run/proposed.h"
#include "lockstep/run/rank_environment.h"
#include "lockstep/run/run_lock.h"
#include "lockstep/train/device.h"
#include "lockstep/train/stop.h"
#include "lockstep/train/trainer.h"

namespace lockstep {
namespace {

// Notes down what the loop reports.
class Notes : public train::Callback {
 public:
  explicit Notes(History& history) : history_(history) {}

  void on_report(const train::RunContext& context,
                 const train::TrainReport& report) override {
    history_.train.push_back({context.step, context.epoch, report.means});
  }
  void on_eval_end(const train::RunContext& context,
                   const train::EvalReport& report) override {
    history_.eval.push_back({context.step, context.epoch, report.means});
  }
  bool watches_passes() const override { return false; }
  bool watches_skips() const override { return false; }

 private:
  History& history_;
};

config::Loaded wanted_config(const FitOptions& options, int ranks) {
  std::vector<config::Override> overrides;
  for (const auto& knob : options.knobs) {
    overrides.push_back(config::parse_override(knob));
  }
  // The launcher of this process has decided how many ranks there are.
  overrides.push_back({"parallel.ranks", str(ranks)});
  overrides.push_back({"parallel.strategy", ranks == 1 ? "single" : "ddp"});
  const auto variables = run::process_variables();
  const config::Environment environment(variables.begin(), variables.end());
  return options.recipe.empty() ? config::defaults(overrides, environment)
                                : config::load(options.recipe, overrides, environment);
}

}  // namespace

std::string History::summary() const {
  auto text = to_table(result);
  for (std::size_t r = 0; r < result.memory.size(); ++r) {
    const auto& memory = result.memory[r];
    if (memory.total_bytes <= 0) continue;
    const auto share = [&](std::int64_t bytes) {
      return 100 * static_cast<double>(bytes) / static_cast<double>(memory.total_bytes);
    };
    text +=
        fmt::format("rank {} took at most {} of {} ({:.0f} %)\n", r,
                    units::format_bytes(memory.peak_bytes),
                    units::format_bytes(memory.total_bytes), share(memory.peak_bytes));
  }
  return text;
}

class Trainer::Impl {
 public:
  Impl(std::shared_ptr<models::Model> model, const FitData& data,
       const FitOptions& options)
      : environment_(run::detect(run::process_variables())),
        plan_(planner::resolve(wanted_config(options, environment_.world_size),
                               hardware::detect())),
        model_(std::move(model)),
        console_(monitor::standard_error_options(
            [variables = run::process_variables()](std::string_view name) {
              const auto found = variables.find(std::string(name));
              return found == variables.end() ? std::string() : found->second;
            })),
        world_(comm::join(environment_, join_options())),
        run_(open_run()) {
    train::RunHooks hooks{
        .callbacks = options.callbacks,
        .train_data = data.train,
        .eval_data = data.eval ? data.eval : data.train,
        .build_model = [this](const models::Shape&) { return model_; },
        .task = options.task,
        .restarts = environment_.restart_count};
    hooks.callbacks.push_back(std::make_shared<Notes>(history_));
    shared_ = train::open_shared(config(), hooks);
    reporter_.emplace(
        train::Reporter::Outputs{run_, console_}, config().monitor,
        train::Reporter::Who{.rank = world_.rank(), .ranks = world_.size()});
    try {
      loop_ = train::make_loop(config_, {run_, *reporter_, stop_, world_}, *shared_);
    } catch (const std::exception&) {
      if (rank() == 0) run::take_back_proposed(run_);
      throw;
    }
    history_.run = run_.path();
    if (rank() == 0) run_.claim();
    try {
      loop_->begin();
    } catch (const std::exception& error) {
      if (rank() == 0) {
        run_.update_record({run::RunStatus::failed, std::nullopt, error.what()});
      }
      throw;
    }
  }

  ~Impl() {
    loop_.reset();
    try {
      if (!finished_ && rank() == 0) {
        run_.update_record(
            {run::RunStatus::failed, std::nullopt, "the program ended before the run"});
      }
      world_.close();
    } catch (...) {  // NOLINT: whoever waits for this rank will say so
    }
  }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  train::Loop& loop() { return *loop_; }
  const train::Loop& loop() const { return *loop_; }
  History& history() { return history_; }
  models::Model& model() { return *model_; }
  int rank() const { return environment_.rank; }

  void finish() {
    history_.result = loop_->finish();
    finished_ = true;
    if (rank() != 0) return;
    const bool stopped = history_.result.stopped_by != 0;
    run_.update_record(
        {stopped ? run::RunStatus::stopped : run::RunStatus::done, std::nullopt, ""});
  }

 private:
  const config::Config& config() const { return *config_; }

  comm::JoinOptions join_options() const {
    const auto text = config::to_yaml(plan_.config, true);
    return {.config = config().comm,
            .device = train::choose_device(config().parallel, environment_.local_rank),
            .facts = {{"config", fmt::format("{:016x}", hash_of(text))}}};
  }

  // Rank 0 makes the directory, or takes up the one of this name.
  run::RunDirectory open_run() {
    std::string path;
    if (environment_.rank == 0) path = make_or_take_up().string();
    return run::RunDirectory::open(comm::broadcast_text(path, world_.cpu()));
  }

  std::filesystem::path make_or_take_up() {
    const auto variables = run::process_variables();
    jobs::Caller caller;
    caller.environment.assign(variables.begin(), variables.end());
    caller.say = [](std::string_view sentence) {
      log::warning("fit", std::string(sentence));
    };
    caller.warn = caller.say;
    auto lock = jobs::lock_existing_run(config(), /*take_over=*/false, caller);
    auto opened = jobs::open_run(plan_, {.lock = std::move(lock)}, caller);
    lock_.emplace(std::move(opened.lock));
    return opened.directory.path();
  }

  const run::RankEnvironment environment_;
  const planner::Plan plan_;
  const config::Resolved config_{plan_.config.config};
  std::shared_ptr<models::Model> model_;
  const train::StopRequest stop_;  // Ctrl-C, SIGTERM
  monitor::Console console_;
  comm::World world_;
  std::optional<run::RunLock> lock_;
  run::RunDirectory run_;
  History history_;
  std::unique_ptr<train::Shared> shared_;
  std::optional<train::Reporter> reporter_;
  std::unique_ptr<train::Loop> loop_;
  bool finished_ = false;
};

Trainer::Trainer(std::shared_ptr<models::Model> model, const FitData& data,
                 const FitOptions& options)
    : impl_(std::make_unique<Impl>(std::move(model), data, options)) {}

Trainer::~Trainer() = default;

bool Trainer::is_over() const {
  return impl_->loop().is_over();
}

void Trainer::train_epoch() {
  while (!is_over() && !impl_->loop().step()) continue;
}

void Trainer::train_steps(std::int64_t number) {
  for (; number > 0 && !is_over(); --number) impl_->loop().step();
}

task::Means Trainer::validate() {
  return impl_->loop().validate();
}

std::string Trainer::save_checkpoint() {
  return impl_->loop().save();
}

History Trainer::finish() {
  impl_->finish();
  return impl_->history();
}

const History& Trainer::history() const {
  return impl_->history();
}

models::Model& Trainer::model() {
  return impl_->model();
}

int Trainer::rank() const {
  return impl_->rank();
}

History fit(std::shared_ptr<models::Model> model, const FitData& data,
            const FitOptions& options) {
  Trainer trainer(std::move(model), data, options);
  while (!trainer.is_over()) trainer.train_epoch();
  return trainer.finish();
}

}  // namespace lockstep
