#include "lockstep/parallel/engine.h"

#include <algorithm>
#include <optional>

#include "lockstep/base/clock.h"
#include "lockstep/base/error.h"
#include "lockstep/comm/same.h"
#include "lockstep/parallel/detail/exchange.h"
#include "lockstep/parallel/detail/flat_buffers.h"
#include "lockstep/parallel/detail/hooks.h"
#include "lockstep/parallel/detail/unused.h"

namespace lockstep::parallel {
namespace {

std::vector<torch::Tensor> tensors_of(const std::vector<Parameter>& parameters) {
  std::vector<torch::Tensor> tensors;
  tensors.reserve(parameters.size());
  for (const auto& parameter : parameters) tensors.push_back(parameter.tensor);
  return tensors;
}

}  // namespace

class Engine::Impl {
 public:
  Impl(torch::nn::Module& module, comm::Communicator& data, comm::Communicator& cpu,
       const EngineOptions& options)
      : module_(module),
        data_(data),
        cpu_(cpu),
        options_(options),
        parameters_(trainable_parameters(module)) {
    if (data.size() > 1) {
      comm::check_same(cpu, "parameter", comm::facts_of(module));
    }
    used_.assign(parameters_.size(), false);
    lay_out(reversed_order(parameters_.size()));
    for (std::size_t g = 0; g < buffers_->groups().size(); ++g) {
      if (data.size() > 1) data.broadcast(buffers_->values(g), 0).wait();
    }
    broadcast_frozen();
    broadcast_buffers();
    hooks_.emplace(
        tensors_of(parameters_), [this](std::size_t i) { before(i); },
        [this](std::size_t i) { after(i); });
  }

  detail::FlatBuffers& buffers() { return *buffers_; }
  const std::vector<Parameter>& parameters() const { return parameters_; }
  const ExchangeTimes& times() const { return times_; }
  const std::vector<std::size_t>& globally_unused() const { return globally_unused_; }

  void on_relayout(std::function<void()> callback) {
    on_relayout_ = std::move(callback);
  }

  bool set_sync(bool sync) { return std::exchange(sync_, sync); }

  void zero_gradients() {
    LOCKSTEP_CHECK(!running_, "a backward pass has not been finished");
    for (std::size_t g = 0; g < buffers_->groups().size(); ++g) {
      buffers_->gradients(g).zero_();
    }
    if (!options_.gradient_as_bucket_view) {
      for (auto& parameter : parameters_) {
        if (auto& grad = parameter.tensor.mutable_grad(); grad.defined()) grad.zero_();
      }
    }
    used_.assign(parameters_.size(), false);
    exchange_->forget_sums();
    finished_ = false;
  }

  void finish();
  void broadcast_buffers();

 private:
  void lay_out(const std::vector<std::size_t>& order);
  void rebuild_once();
  void broadcast_frozen();
  void broadcast(const std::vector<torch::Tensor>& tensors);

  // A pass begins with the first gradient, or with finish() on a rank that has none.
  void begin() {
    running_ = true;
    begin_ = Clock::system().now();
    times_ = {};
    order_.clear();
    exchange_->begin();
  }

  void before(std::size_t parameter) {
    if (!sync_) return;
    if (!running_) {
      begin();
      detail::at_the_end_of_backward([this] { finish(); });
    }
    exchange_->set_aside_sum_of(parameter);
  }

  void after(std::size_t parameter) {
    keep_view(parameter);
    used_[parameter] = true;
    if (!sync_) return;
    const double now = seconds_between(begin_, Clock::system().now());
    if (order_.empty()) times_.first_ready = now;
    times_.last_ready = now;
    order_.push_back(parameter);
    exchange_->ready(parameter, used_);
  }

  // Somebody may have replaced the gradient (zero_grad(set_to_none)): what was computed
  // goes into the bucket, and the view is put back.
  void keep_view(std::size_t parameter) {
    auto& grad = parameters_[parameter].tensor.mutable_grad();
    const auto& view = buffers_->gradient_of(parameter);
    if (grad.is_same(view)) return;
    const torch::NoGradGuard no_grad;
    if (grad.data_ptr() != view.data_ptr()) {
      view.copy_(options_.gradient_as_bucket_view
                     ? grad
                     : grad - exchange_->set_aside_of(parameter));
    }
    if (options_.gradient_as_bucket_view) grad = view;
  }

  void copy_out() {
    if (options_.gradient_as_bucket_view) return;
    const torch::NoGradGuard no_grad;
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      auto& grad = parameters_[i].tensor.mutable_grad();
      if (grad.defined()) grad.copy_(buffers_->gradient_of(i));
    }
  }

  void check_use();

  torch::nn::Module& module_;
  comm::Communicator& data_;
  comm::Communicator& cpu_;
  const EngineOptions options_;
  const std::vector<Parameter> parameters_;
  std::unique_ptr<detail::FlatBuffers> buffers_;
  std::unique_ptr<detail::Exchange> exchange_;
  std::function<void()> on_relayout_;

  bool sync_ = true;
  bool running_ = false;   // between the first gradient of a pass and its finish()
  bool finished_ = false;  // since zero_gradients()
  bool rebuilt_ = false;
  bool checked_ = false;            // a first pass has shown what is used
  std::vector<bool> used_;          // since zero_gradients()
  std::vector<std::size_t> order_;  // of the gradients of this pass
  std::vector<std::size_t> globally_unused_;
  SteadyTime begin_;
  ExchangeTimes times_;
  std::optional<detail::GradientHooks> hooks_;  // last: nobody calls back any more
};

void Engine::Impl::lay_out(const std::vector<std::size_t>& order) {
  buffers_ = std::make_unique<detail::FlatBuffers>(
      parameters_, plan_layout(parameters_, order, options_.layout));
  if (options_.gradient_as_bucket_view) {
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      auto tensor = parameters_[i].tensor;
      tensor.mutable_grad() = buffers_->gradient_of(i);
    }
  }
  exchange_ = std::make_unique<detail::Exchange>(*buffers_, data_, order, options_);
}

void Engine::Impl::finish() {
  if (!sync_ || (finished_ && !running_)) return;
  if (!running_) begin();
  const auto wait_begin = Clock::system().now();
  // Nothing of this step was computed here: the rank has no samples, and that is fine.
  const bool idle = std::none_of(used_.begin(), used_.end(), [](bool b) { return b; });
  const bool counts_as_used = idle && !options_.find_unused_parameters;
  exchange_->finish(counts_as_used ? std::vector<bool>(used_.size(), true) : used_);
  times_.waited = seconds_between(wait_begin, Clock::system().now());
  copy_out();
  running_ = false;
  finished_ = true;
  check_use();
  rebuild_once();
}

void Engine::Impl::check_use() {
  globally_unused_.clear();
  if (options_.static_graph && checked_) return;
  const auto counts = exchange_->users();
  if (counts.empty()) return;  // a GPU's come one step later
  checked_ = true;
  bool partly = false;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    if (counts[i] == 0) globally_unused_.push_back(i);
    partly |= counts[i] < data_.size();
  }
  if (!partly || options_.find_unused_parameters) return;
  globally_unused_.clear();
  throw Error(Fault::config, detail::describe_unused(parameters_, used_, cpu_));
}

// The order in which rank 0 has seen its gradients becomes that of the buckets.
void Engine::Impl::rebuild_once() {
  if (rebuilt_) return;
  const auto count = static_cast<std::int64_t>(parameters_.size());
  const auto word = torch::full({count}, -1, torch::kInt64);
  auto* agreed = word.mutable_data_ptr<std::int64_t>();
  if (!order_.empty()) {
    auto order = order_;
    for (const auto i : reversed_order(parameters_.size())) {
      if (std::find(order_.begin(), order_.end(), i) == order_.end())
        order.push_back(i);
    }
    std::copy(order.begin(), order.end(), agreed);
  }
  if (cpu_.size() > 1) cpu_.broadcast(word, 0).wait();
  if (agreed[0] < 0) return;  // rank 0 had no samples: the next step will show
  rebuilt_ = true;
  lay_out({agreed, agreed + count});
  exchange_->remember_sums();
  if (on_relayout_) on_relayout_();
}

void Engine::Impl::broadcast_buffers() {
  broadcast(module_.buffers());
}

// Parameters that are not trained are not in the flat buffers.
void Engine::Impl::broadcast_frozen() {
  std::vector<torch::Tensor> frozen;
  for (const auto& parameter : module_.parameters()) {
    if (!parameter.requires_grad()) frozen.push_back(parameter);
  }
  broadcast(frozen);
}

void Engine::Impl::broadcast(const std::vector<torch::Tensor>& tensors) {
  if (data_.size() == 1) return;
  const torch::NoGradGuard no_grad;
  std::vector<comm::Pending> pending;
  std::vector<std::pair<torch::Tensor, torch::Tensor>> copies;  // whole, contiguous
  for (const auto& tensor : tensors) {
    const auto whole = tensor.contiguous();
    pending.push_back(data_.broadcast(whole, 0));
    if (!whole.is_same(tensor)) copies.emplace_back(tensor, whole);
  }
  for (auto& one : pending) one.wait();
  for (auto& [tensor, whole] : copies) tensor.copy_(whole);
}

Engine::Engine(torch::nn::Module& module, comm::Communicator& data,
               comm::Communicator& cpu, const EngineOptions& options)
    : impl_(std::make_unique<Impl>(module, data, cpu, options)) {}

Engine::~Engine() = default;

std::size_t Engine::num_groups() const noexcept {
  return impl_->buffers().groups().size();
}
torch::Tensor& Engine::values(std::size_t group) {
  return impl_->buffers().values(group);
}
torch::Tensor& Engine::gradients(std::size_t group) {
  return impl_->buffers().gradients(group);
}
std::vector<torch::Tensor>& Engine::values() {
  return impl_->buffers().all_values();
}
std::vector<torch::Tensor>& Engine::gradients() {
  return impl_->buffers().all_gradients();
}
const std::vector<Group>& Engine::layout() const noexcept {
  return impl_->buffers().groups();
}
const std::vector<Parameter>& Engine::parameters() const noexcept {
  return impl_->parameters();
}
void Engine::on_relayout(std::function<void()> callback) {
  impl_->on_relayout(std::move(callback));
}
void Engine::finish() {
  impl_->finish();
}
void Engine::zero_gradients() {
  impl_->zero_gradients();
}
const std::vector<std::size_t>& Engine::globally_unused() const noexcept {
  return impl_->globally_unused();
}
void Engine::broadcast_buffers() {
  impl_->broadcast_buffers();
}
const ExchangeTimes& Engine::times() const noexcept {
  return impl_->times();
}

Engine::NoSync::NoSync(Engine& engine) noexcept
    : engine_(engine), before_(engine.impl_->set_sync(false)) {}
Engine::NoSync::~NoSync() {
  engine_.impl_->set_sync(before_);
}

}  // namespace lockstep::parallel
