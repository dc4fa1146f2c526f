#include "lockstep/parallel/engine.h"

#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/comm/same.h"
#include "lockstep/config/decisions.h"
#include "lockstep/parallel/detail/broadcast.h"
#include "lockstep/parallel/detail/exchange.h"
#include "lockstep/parallel/detail/flat_buffers.h"
#include "lockstep/parallel/detail/hooks.h"
#include "lockstep/parallel/detail/sharded_values.h"
#include "lockstep/parallel/detail/unit_gathers.h"
#include "lockstep/parallel/detail/unit_plan.h"
#include "lockstep/parallel/detail/use_tracker.h"

namespace lockstep::parallel {
namespace {

std::vector<torch::Tensor> to_tensors(const std::vector<Parameter>& parameters) {
  std::vector<torch::Tensor> tensors;
  tensors.reserve(parameters.size());
  for (const auto& parameter : parameters) tensors.push_back(parameter.tensor);
  return tensors;
}

std::vector<std::size_t> checked_order(std::vector<std::size_t> order,
                                       std::size_t parameters) {
  if (order.empty()) return reversed_order(parameters);
  auto sorted = order;
  std::sort(sorted.begin(), sorted.end());
  for (std::size_t i = 0; i < parameters; ++i) {
    LOCKSTEP_CHECK(sorted.size() == parameters && sorted[i] == i,
                   "the order is of other parameters");
  }
  return order;
}

enum class Part { within_group, across_groups };

// Returns null where all ranks are one group.
std::unique_ptr<comm::Communicator> part_of(comm::Communicator& data,
                                            const EngineOptions& options, Part part) {
  const auto size = options.shard_group;
  if (!options.stage.shards_update() || size == 0 || data.size() == 1) return nullptr;
  if (const auto lack = config::lack_of_shard_group(size, data.size()); !lack.empty()) {
    throw Error(Fault::config, "parallel.shard_group: ", lack);
  }
  if (size == data.size()) return nullptr;
  return data.split(part == Part::within_group ? data.rank() / size
                                               : data.rank() % size);
}

}  // namespace

Engine::Engine(torch::nn::Module& module, const Communicators& ranks,
               const EngineOptions& options)
    : module_(module),
      data_(ranks.data),
      cpu_(ranks.cpu),
      options_(options),
      within_(part_of(data_, options, Part::within_group)),
      across_(part_of(data_, options, Part::across_groups)),
      parameters_(trainable_parameters(module)),
      tensors_(to_tensors(parameters_)),
      order_(checked_order(options.order, parameters_.size())),
      shards_(data_.size() > 1 && options.stage.shards_update()),
      pools_(data_.size() > 1 && options.stage.shards_gradients()),
      gathers_values_(data_.size() > 1 && options.stage.shards_values()),
      collects_(pools_ ||
                (!data_.device().is_cpu() && options.gradient_as_bucket_view)),
      peers_share_autograd_(data_.size() > 1 && data_.traits().peers_are_threads &&
                            !data_.device().is_cpu()),
      use_(std::make_unique<detail::UseTracker>(
          parameters_, cpu_,
          detail::UseTracker::Options{options.find_unused_parameters,
                                      options.static_graph})) {
  check_stage_supported();
  if (data_.size() > 1) {
    comm::check_same(cpu_, "parameter", comm::facts_of(module));
  }
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    index_of_[tensors_[i].unsafeGetTensorImpl()] = i;
  }
  assign_units();
  lay_out();
  for (std::size_t g = 0; g < buffers_->groups().size() && !gathers_values_; ++g) {
    if (data_.size() > 1) data_.broadcast(buffers_->values(g), 0).wait();
  }
  if (options_.fill) fill();
  broadcast_frozen();
  broadcast_buffers();
  hooks_ = std::make_unique<detail::GradientHooks>(
      tensors_, [this](std::size_t i) { before(i); },
      [this](std::size_t i) { after(i); });
}

Engine::~Engine() = default;

torch::Tensor& Engine::values(std::size_t group) {
  LOCKSTEP_CHECK(!gathers_values_, "values are whole on no rank at stage 3");
  return buffers_->values(group);
}
torch::Tensor& Engine::gradients(std::size_t group) {
  return buffers_->gradients(group);
}
std::vector<torch::Tensor>& Engine::values() {
  return buffers_->all_values();
}
std::vector<torch::Tensor>& Engine::gradients() {
  return buffers_->all_gradients();
}
const std::vector<Group>& Engine::layout() const noexcept {
  return buffers_->groups();
}
const std::vector<std::size_t>& Engine::globally_unused() const noexcept {
  return use_->globally_unused();
}
const std::vector<std::size_t>& Engine::captured_unused() const noexcept {
  return use_->captured_unused();
}

void Engine::check_stage_supported() const {
  if (pools_ && peers_share_autograd_) {
    throw Error(Fault::config,
                "parallel: ranks that are threads and share a GPU wait for each other "
                "between backward passes only, but sharded gradients need it within "
                "one; use processes, or stages 0 and 1");
  }
  if (shards_ && !options_.gradient_as_bucket_view) {
    throw Error(Fault::config,
                "parallel: gradients of their own memory (gradient_as_bucket_view "
                "off) are whole, but each rank sums its shard of them only; leave "
                "one of both out");
  }
}

void Engine::observe(ExchangeObserver* observer) noexcept {
  observer_ = observer;
  exchange_->observe(observer);
}

void Engine::set_captured(bool captured) noexcept {
  use_->set_captured(captured);
  exchange_->stamps().pause(captured);
  exchange_->tell_absences(use_->asks());
}

void Engine::forget_captured() noexcept {
  running_ = false;
  finished_ = true;
  std::fill(travels_.begin(), travels_.end(), 0);
  set_captured(false);
}

// Leaves the memory alone: the first gradient of a step is copied over it, which is
// cheaper than to fill it with zeros and to add to them.
void Engine::zero_gradients(std::int64_t passes) {
  if (running_) {
    throw Error(Fault::internal,
                "parallel: gradients were zeroed in the middle of a backward pass; "
                "call finish() first, also after one that failed");
  }
  for (const auto& tensor : tensors_) tensor.mutable_grad().reset();
  use_->reset();
  exchange_->forget_sums();
  finished_ = false;
  passes_ = passes;
  passes_done_ = 0;
  exchange_->stamps().begin_step();
}

// The producer of gradients that is not autograd.
class Engine::Sink : public GradientSink {
 public:
  explicit Sink(Engine& engine) : engine_(engine) {}

  Destination destination_of(const torch::Tensor& parameter) override {
    const auto i = index_of(parameter);
    if (i == kNotTrained) return {};
    if (engine_.pools_) return destination_outside(i);
    engine_.make_way(i);
    const bool used = engine_.use_->is_used(i);
    // A gradient of autograd's may not be in the bucket yet.
    if (used && engine_.options_.gradient_as_bucket_view) engine_.keep_view(i);
    return {engine_.buffers_->gradient_of(i), used};
  }

  void ready(const torch::Tensor& parameter) override {
    const auto i = index_of(parameter);
    if (i == kNotTrained) return;
    if (engine_.options_.gradient_as_bucket_view && !engine_.pools_) {
      engine_.tensors_[i].mutable_grad() = engine_.buffers_->gradient_of(i);
    }
    engine_.arrived(i);
  }

 private:
  // There is no bucket before all of it is there.
  Destination destination_outside(std::size_t i) const {
    const auto& tensor = engine_.tensors_[i];
    auto& grad = tensor.mutable_grad();
    if (grad.defined()) return {grad, true};
    grad = at::empty_strided(tensor.sizes(), tensor.strides(), tensor.options());
    return {grad, false};
  }

  static constexpr auto kNotTrained = static_cast<std::size_t>(-1);
  std::size_t index_of(const torch::Tensor& parameter) const {
    const auto found = engine_.index_of_.find(parameter.unsafeGetTensorImpl());
    return found == engine_.index_of_.end() ? kNotTrained : found->second;
  }

  Engine& engine_;
};

void Engine::backward(const std::function<void(GradientSink&)>& compute) {
  const auto pass = std::make_shared<Pass>();
  if (running_) refuse_second_pass();
  if (sync_) {
    begin();
    pass_ = pass;
  }
  Sink sink(*this);
  compute(sink);
  if (sync_) end_of_backward();
}

// A pass begins with the first gradient, or with finish() on a rank that has none.
void Engine::begin() {
  running_ = true;
  ended_ = false;
  exchange_->begin();
}

void Engine::begin_by_gradient() {
  begin();
  auto pass = std::make_shared<Pass>();
  pass_ = pass;
  detail::at_the_end_of_backward([this, pass] { end_of_backward(); });
}

// Two passes that overlap would be two different sums in one bucket.
void Engine::refuse_second_pass() const {
  const std::string why =
      ended_ ? "a backward pass began before finish() of the one before; ranks that "
               "are threads and share a GPU call it after each"
             : "the backward pass before this one failed; call finish(), which lets "
               "the other ranks continue, and zero_gradients()";
  throw Error(Fault::internal, "parallel: ", why);
}

// The first gradient may be on its way already.
void Engine::refuse_second_gradient(std::size_t parameter) const {
  throw Error(Fault::config, "parallel: the gradient of '", parameters_[parameter].name,
              "' was ready twice in one backward pass; a layer that runs backward() "
              "inside of backward (activation checkpointing of a shared layer) does "
              "that: compute its gradients with autograd::grad() instead");
}

// A unit's sums start when its backward pass is over.
void Engine::refuse_late_gradient(std::size_t parameter) const {
  throw Error(Fault::config, "parallel: the gradient of '", parameters_[parameter].name,
              "' came after the backward pass of its unit was over; it is used outside "
              "of that unit: list the module that uses it as part of no unit");
}

void Engine::before(std::size_t parameter) {
  if (running_ && (ended_ || pass_.expired())) refuse_second_pass();
  if (sync_ && !running_) begin_by_gradient();
  make_way(parameter);
}

// A gradient that is computed now is added to this pass's, not to an earlier sum.
void Engine::make_way(std::size_t parameter) {
  if (pools_) return;
  exchange_->stash(parameter);
  // The user has begun anew with this one: zero_grad() sets it to none.
  if (!tensors_[parameter].grad().defined()) exchange_->drop_stash(parameter);
}

void Engine::after(std::size_t parameter) {
  const bool later = collects_ && tensors_[parameter].grad().defined();
  if (!later) keep_view(parameter);
  arrived(parameter);
}

// Called for every gradient, whether autograd or a sink has computed it.
void Engine::arrived(std::size_t parameter) {
  use_->set(parameter);
  if (!sync_) return;
  if (exchange_->has_arrived(parameter)) refuse_second_gradient(parameter);
  if (exchange_->has_left(parameter)) refuse_late_gradient(parameter);
  exchange_->ready(parameter, use_->used());
}

// Runs on autograd's thread. Everything is on its way then, so that this rank's
// finish() needs no other rank's backward pass any more.
void Engine::end_of_backward() {
  ended_ = true;
  end_units();
  exchange_->start_rest(use_->used(), /*as_if_used=*/false);
  if (!options_.waits_in_backward || peers_share_autograd_) return;
  if (pools_) return end_pass();
  complete(/*excused=*/false);
}

void Engine::finish(bool failed) {
  if (!sync_ || (finished_ && !running_)) return;
  if (pools_) return finish_passes(failed);
  // Nothing of this step was computed here: the rank has no samples, and that is fine.
  // Neither does a pass that failed show what is unused.
  failed |= running_ && !ended_;
  const bool excused = (use_->none() || failed) && !options_.find_unused_parameters;
  if (!running_) begin();
  complete(excused);
}

void Engine::end_pass() {
  if (!running_) return;
  // A rank that is alone has no shards, though its loop is written for them.
  if (!pools_ && ended_ && options_.stage.shards_gradients()) complete(false);
  if (!pools_) return;
  try {
    end_units();
  } catch (...) {  // a communicator that failed ends every pass
    running_ = false;
    throw;
  }
  running_ = false;  // set first, likewise
  exchange_->start_rest(use_->used(), /*as_if_used=*/false);
  exchange_->complete();
  passes_done_ += 1;
}

void Engine::empty_pass() {
  if (!pools_) return;
  end_pass();
  begin();
  ended_ = true;
  begin_units();
  end_units();
  exchange_->start_rest(use_->used(), /*as_if_used=*/false);
  if (options_.waits_in_backward) end_pass();
}

// Every rank takes part in all passes of a step: one that failed, or had no samples,
// with zeros.
void Engine::finish_passes(bool failed) {
  failed |= running_ && !ended_;
  const bool excused = (use_->none() || failed) && !options_.find_unused_parameters;
  end_pass();
  if (failed) {
    for (const auto& tensor : tensors_) tensor.mutable_grad().reset();
  }
  while (passes_done_ < passes_) {
    begin();
    begin_units();
    end_pass();
  }
  exchange_->start_counts(use_->used(), excused);
  exchange_->wait_for_counts();
  times_ = exchange_->stamps().host();
  device_times_ = exchange_->stamps().device();
  finished_ = true;
  use_->check(*exchange_, excused);
}

void Engine::complete(bool excused) {
  running_ = false;  // set first: a communicator that failed ends every pass
  exchange_->start_rest(use_->used(), excused);
  exchange_->complete();
  times_ = exchange_->stamps().host();
  device_times_ = exchange_->stamps().device();
  put_gradients_back();
  finished_ = true;
  use_->check(*exchange_, excused);
}

void Engine::broadcast_buffers() {
  detail::broadcast_all(module_.buffers(), data_, cpu_);
}

// Parameters that are not trained are not in the flat buffers, but at stage 3.
void Engine::broadcast_frozen() {
  std::vector<torch::Tensor> frozen;
  for (const auto& parameter : module_.parameters()) {
    const bool is_sharded = values_ && values_->has(parameter);
    if (!parameter.requires_grad() && !is_sharded) frozen.push_back(parameter);
  }
  detail::broadcast_all(frozen, data_, cpu_);
}

Engine::NoSync::NoSync(Engine& engine) noexcept
    : engine_(engine), before_(std::exchange(engine.sync_, false)) {}
Engine::NoSync::~NoSync() {
  engine_.sync_ = before_;
}

}  // namespace lockstep::parallel
