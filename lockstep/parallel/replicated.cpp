// Strategies single, ddp, data_parallel and zero: gradients summed by the engine, which
// knows who holds what. For one rank nothing travels; the
// engine's way of collecting gradients is faster than autograd's adding to zeros there,
// too.
#include <optional>

#include "lockstep/base/error.h"
#include "lockstep/config/decisions.h"
#include "lockstep/models/model.h"
#include "lockstep/parallel/backward_order.h"
#include "lockstep/parallel/detail/flat_optimizers.h"
#include "lockstep/parallel/detail/replicated_state.h"
#include "lockstep/parallel/detail/replicated_tensors.h"
#include "lockstep/parallel/detail/strategies.h"
#include "lockstep/parallel/sync_batch_norm.h"

namespace lockstep::parallel::detail {
namespace {

Compression compression_of(config::Compression compression) {
  switch (compression) {
    case config::Compression::fp16:
      return Compression::fp16;
    case config::Compression::bf16:
      return Compression::bf16;
    default:
      return Compression::none;
  }
}

std::size_t stage_of(const config::ParallelConfig& parallel, comm::Communicator& data) {
  if (parallel.strategy == config::Strategy::zero) {
    return static_cast<std::size_t>(parallel.zero_stage.value());
  }
  return config::shards_update(parallel, data.traits().shares_memory) ? 1 : 0;
}

bool shards_values(const config::ParallelConfig& parallel) {
  return parallel.strategy == config::Strategy::zero &&
         parallel.zero_stage.value() == 3;
}

std::string name_of(const config::ParallelConfig& parallel) {
  const auto name = config::name_of(parallel.strategy);
  return parallel.strategy == config::Strategy::zero
             ? str(name, parallel.zero_stage.value())
             : str(name);
}

EngineOptions engine_options(const StrategyParts& parts) {
  const auto& config = parts.config;
  const auto& parallel = config.parallel;
  EngineOptions options;
  options.stage = kStages[stage_of(parallel, parts.world.data())];
  options.order = order_by_name(trainable_parameters(parts.module), parts.order);
  options.live_buckets = static_cast<std::size_t>(parallel.live_buckets);
  // A run may be started with fewer ranks than it was planned for: they are one group.
  const int group = parallel.shard_group.value_or(0);
  if (parallel.strategy == config::Strategy::zero && group < parts.world.size()) {
    options.shard_group = group;
  }
  if (const auto* model = dynamic_cast<const models::Model*>(&parts.module)) {
    for (std::size_t i = 0; i < model->num_blocks(); ++i) {
      options.units.push_back(&model->block(i));
    }
  }
  options.fill = parts.fill;
  options.prefetch_units = static_cast<std::size_t>(parallel.prefetch_units);
  options.persist_below = parallel.persist_below;
  options.reshard_after_forward = parallel.reshard_after_forward;
  options.layout.first_bucket_bytes = parallel.first_bucket_bytes;
  options.layout.bucket_bytes =
      parallel.bucket_bytes.value_or(options.layout.bucket_bytes);
  options.find_unused_parameters = config::finds_unused(parallel);
  options.static_graph = parallel.static_graph;
  options.gradient_as_bucket_view = parallel.gradient_as_bucket_view;
  options.compression = compression_of(parallel.compression);
  options.deterministic = config.comm.deterministic;
  options.waits_in_backward = false;  // the loop says when it waits for others
  return options;
}

// Returns why a graph can not hold steps: a graph holds work of the GPU only.
std::string capture_obstacle(const config::Config& config, comm::World& world) {
  if (!world.data().device().is_cuda()) return "the model is not on a GPU";
  if (config.parallel.strategy == config::Strategy::data_parallel) {
    return "replicas share autograd's thread (parallel.strategy=data_parallel)";
  }
  if (!config.parallel.gradient_as_bucket_view) {
    return "gradients have memory of their own (parallel.gradient_as_bucket_view)";
  }
  if (world.data().size() == 1) return "";
  if (!world.data().traits().can_be_captured) {
    return str("sums over ", world.data().backend(), " pass through the host");
  }
  if (config.parallel.sync_batch_norm) {
    return "layers of the model talk to other ranks (parallel.sync_batch_norm)";
  }
  if (config.parallel.balance) return "shares change (parallel.balance)";
  if (shards_values(config.parallel)) {
    return "parameters are gathered unit by unit (parallel.zero_stage=3)";
  }
  return "";
}

class Replicated : public Strategy, private HeldSteps {
 public:
  explicit Replicated(const StrategyParts& parts)
      : name_(name_of(parts.config.parallel)),
        is_zero_(parts.config.parallel.strategy == config::Strategy::zero),
        broadcasts_(parts.config.parallel.broadcast_buffers &&
                    !parts.module.buffers().empty()),
        capture_obstacle_(capture_obstacle(parts.config, parts.world)),
        engine_(parts.module, parts.world, engine_options(parts)),
        optimizers_({parts.config.optim, parts.config.ema}, engine_,
                    parts.world.data()),
        state_({.module = parts.module,
                .engine = engine_,
                .optimizers = optimizers_,
                .rank = static_cast<std::size_t>(parts.world.rank()),
                .ranks = static_cast<std::size_t>(parts.world.size()),
                .saves_frozen =
                    config::saves_frozen(parts.config.lora, parts.config.model)}) {
    if (parts.config.parallel.sync_batch_norm && parts.world.size() > 1 &&
        has_batch_norm(parts.module)) {
      sync_batch_norm_.emplace(parts.module, parts.world.data());
    }
    auto* const model = dynamic_cast<models::Model*>(&parts.module);
    if (model != nullptr && is_zero_) {
      model->run_blocks_by(
          [this](std::size_t block, const auto& compute, const torch::Tensor& input) {
            return engine_.run_unit(block, compute, input);
          });
      runs_blocks_of_ = model;
    }
    reads_all_values_ = model != nullptr && model->own_backward() != nullptr;
  }
  ~Replicated() override {
    if (runs_blocks_of_ != nullptr) runs_blocks_of_->run_blocks_by({});
  }
  Replicated(const Replicated&) = delete;
  Replicated& operator=(const Replicated&) = delete;

  std::string_view name() const noexcept override { return name_; }

  void begin_step(std::int64_t passes) override {
    // This comes first: a rank that waits for rank 0 here does not compute.
    if (broadcasts_) engine_.broadcast_buffers();
    engine_.zero_gradients(passes);
  }

  void forward(const std::function<void()>& compute) override {
    std::optional<SyncBatchNorm::Scope> scope;
    if (sync_batch_norm_) scope.emplace(*sync_batch_norm_);
    if (reads_all_values_) engine_.wait_for_values();
    engine_.forward(compute);
  }
  void empty_forward() override { engine_.empty_forward(); }
  bool forwards_must_match() const noexcept override {
    return engine_.gathers_parameters();
  }
  torch::Tensor full_parameter(const torch::Tensor& parameter) override {
    return engine_.full_parameter(parameter);
  }
  torch::Tensor run_block(std::size_t block, const Compute& compute,
                          const torch::Tensor& input) override {
    return runs_blocks_of_ != nullptr ? engine_.run_unit(block, compute, input)
                                      : compute(input);
  }

  // The sums of the pass before travel while this one's forward pass computes.
  void backward(const torch::Tensor& loss, bool last) override {
    engine_.end_pass();
    std::optional<Engine::NoSync> accumulating;
    if (!last && !sums_every_pass()) accumulating.emplace(engine_);
    loss.backward();
  }

  void backward_by(const std::function<void(GradientSink&)>& compute,
                   bool last) override {
    engine_.end_pass();
    std::optional<Engine::NoSync> accumulating;
    if (!last && !sums_every_pass()) accumulating.emplace(engine_);
    const torch::NoGradGuard no_grad;
    engine_.backward(compute);
  }

  void finish(bool failed) override { engine_.finish(failed); }

  // A graph that holds steps knows nothing of values that travel when it begins. Ranks
  // of ddp have shards where they share memory, and nothing to wait for then.
  Updated update(const Update& wanted) override {
    auto own = wanted;
    own.values_may_travel &= is_zero_ && !capture_obstacle_.empty();
    return optimizers_.step(own);
  }
  void settle() override { engine_.wait_for_values(); }

  void empty_pass() override {
    if (sums_every_pass()) engine_.empty_pass();
  }
  bool sums_every_pass() const noexcept override { return engine_.sums_every_pass(); }
  void visit_gradients(const Visit& visit) override {
    engine_.visit_gradients([&](std::size_t i, const torch::Tensor& gradient) {
      visit(engine_.parameters()[i], gradient);
    });
  }
  void share_buffers() override { engine_.broadcast_buffers(); }
  HeldSteps* held() noexcept override { return this; }
  bool passes_must_match() const noexcept override {
    return sync_batch_norm_.has_value();
  }
  StrategyState& state() noexcept override { return state_; }
  FullTensors& full_tensors() noexcept override { return tensors_; }
  WeightAverage* average() noexcept override {
    return optimizers_.has_average() ? &average_ : nullptr;
  }
  ExchangeMonitor* exchange() noexcept override { return &engine_; }
  const std::vector<Parameter>& parameters() const noexcept override {
    return engine_.parameters();
  }

 private:
  std::string obstacle() const override { return capture_obstacle_; }
  void launch_passes(const std::function<void()>& passes,
                     std::int64_t number) override {
    engine_.wait_for_values();
    engine_.set_captured(true);
    try {
      begin_step(number);
      passes();
      engine_.finish();
      if (const auto& unused = engine_.captured_unused(); !unused.empty()) {
        throw Error(Fault::config, "parameter '", parameters()[unused[0]].name,
                    "' takes no part in the loss");
      }
      engine_.set_captured(false);
    } catch (...) {
      engine_.forget_captured();
      throw;
    }
  }
  std::int64_t prepare_update() override { return optimizers_.prepare_held(); }
  std::vector<double> numbers(const Update& wanted, int later) const override {
    return optimizers_.held_numbers(wanted, later);
  }
  torch::Tensor launch_update(const torch::Tensor& numbers,
                              const torch::Tensor& skipped) override {
    return optimizers_.launch_held(numbers, skipped);
  }
  void count_update() override { optimizers_.count_held(); }
  torch::Tensor norm(const Update& wanted) override { return optimizers_.norm(wanted); }

  // The average that the optimizers keep.
  class Average : public WeightAverage {
   public:
    explicit Average(FlatOptimizers& optimizers) : optimizers_(optimizers) {}
    void use(bool on) override { optimizers_.use_average(on); }

   private:
    FlatOptimizers& optimizers_;
  };

  const std::string name_;
  const bool is_zero_;
  const bool broadcasts_;
  const std::string capture_obstacle_;  // "" if there is none
  Engine engine_;
  std::optional<SyncBatchNorm> sync_batch_norm_;
  FlatOptimizers optimizers_;
  ReplicatedState state_;
  ReplicatedTensors tensors_{engine_, optimizers_};
  Average average_{optimizers_};
  models::Model* runs_blocks_of_ = nullptr;
  // A pass that a model writes out does not come to its blocks one by one.
  bool reads_all_values_ = false;
};

}  // namespace

std::unique_ptr<Strategy> make_replicated(const StrategyParts& parts) {
  return std::make_unique<Replicated>(parts);
}

}  // namespace lockstep::parallel::detail
