// Strategies ddp and data_parallel: the whole model on every rank, gradients summed by
// the engine.
#include <optional>

#include "lockstep/base/error.h"
#include "lockstep/parallel/detail/flat_optimizers.h"
#include "lockstep/parallel/detail/strategies.h"

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

EngineOptions engine_options(const config::Config& config) {
  const auto& parallel = config.parallel;
  EngineOptions options;
  options.layout.first_bucket_bytes = parallel.first_bucket_bytes;
  options.layout.bucket_bytes =
      parallel.bucket_bytes.value_or(options.layout.bucket_bytes);
  options.find_unused_parameters = parallel.find_unused_parameters;
  options.static_graph = parallel.static_graph;
  options.gradient_as_bucket_view = parallel.gradient_as_bucket_view;
  options.compression = compression_of(parallel.compression);
  options.deterministic = config.comm.deterministic;
  return options;
}

class Replicated : public Strategy {
 public:
  Replicated(const config::Config& config, torch::nn::Module& module,
             comm::World& world)
      : name_(name_of(config.parallel.strategy)),
        broadcasts_(config.parallel.broadcast_buffers && !module.buffers().empty()),
        engine_(module, world.data(), world.cpu(), engine_options(config)),
        optimizers_(config.optim, engine_.layout(), engine_.values()) {
    engine_.on_relayout([this] { optimizers_.follow(engine_.layout()); });
  }

  std::string_view name() const noexcept override { return name_; }

  void begin_step() override {
    engine_.zero_gradients();
    if (broadcasts_) engine_.broadcast_buffers();
  }

  void backward(const torch::Tensor& loss, bool last) override {
    std::optional<Engine::NoSync> accumulating;
    if (!last) accumulating.emplace(engine_);
    loss.backward();
  }

  void finish() override { engine_.finish(); }

  void update(double lr) override {
    optimizers_.step(engine_.values(), engine_.gradients(), lr,
                     engine_.globally_unused());
  }

  void share_buffers() override { engine_.broadcast_buffers(); }
  const ExchangeTimes* times() const noexcept override { return &engine_.times(); }
  const std::vector<Parameter>& parameters() const noexcept override {
    return engine_.parameters();
  }

 private:
  const std::string_view name_;
  const bool broadcasts_;
  Engine engine_;
  FlatOptimizers optimizers_;
};

}  // namespace

std::unique_ptr<Strategy> make_replicated(const config::Config& config,
                                          torch::nn::Module& module,
                                          comm::World& world) {
  return std::make_unique<Replicated>(config, module, world);
}

}  // namespace lockstep::parallel::detail
