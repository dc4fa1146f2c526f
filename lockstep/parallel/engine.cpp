#include "lockstep/parallel/engine.h"

#include <algorithm>
#include <optional>
#include <unordered_map>

#include "lockstep/base/error.h"
#include "lockstep/comm/same.h"
#include "lockstep/parallel/detail/broadcast.h"
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
        parameters_(trainable_parameters(module)),
        tensors_(tensors_of(parameters_)),
        shards_(data.size() > 1 && options.stage.shards_update()),
        collects_(!data.device().is_cpu() && options.gradient_as_bucket_view),
        peers_share_autograd_(data.size() > 1 && data.traits().peers_are_threads &&
                              !data.device().is_cpu()) {
    refuse_what_is_not_there();
    if (data.size() > 1) {
      comm::check_same(cpu, "parameter", comm::facts_of(module));
    }
    used_.assign(parameters_.size(), 0);
    for (std::size_t i = 0; i < tensors_.size(); ++i) {
      index_of_[tensors_[i].unsafeGetTensorImpl()] = i;
    }
    lay_out(reversed_order(parameters_.size()));
    for (std::size_t g = 0; g < buffers_->groups().size(); ++g) {
      if (data.size() > 1) data.broadcast(buffers_->values(g), 0).wait();
    }
    broadcast_frozen();
    broadcast_buffers();
    hooks_.emplace(
        tensors_, [this](std::size_t i) { before(i); },
        [this](std::size_t i) { after(i); });
  }

  detail::FlatBuffers& buffers() { return *buffers_; }
  const std::vector<Parameter>& parameters() const { return parameters_; }
  const ExchangeTimes& times() const { return times_; }
  const ExchangeTimes& device_times() const { return device_times_; }
  const std::vector<std::size_t>& globally_unused() const { return globally_unused_; }
  const std::vector<std::size_t>& captured_unused() const { return captured_unused_; }
  const std::vector<Shard>& owned() const { return owned_; }

  const std::vector<std::size_t>& order() const { return laid_out_; }

  void use_order(const std::vector<std::size_t>& order);
  void updated(std::size_t index);
  void wait_for_values();
  void gather_gradients();

  void on_relayout(std::function<void()> callback) {
    on_relayout_ = std::move(callback);
  }

  void observe(ExchangeObserver* observer) {
    observer_ = observer;
    exchange_->observe(observer);
  }

  void set_captured(bool captured) {
    captured_ = captured;
    exchange_->stamps().pause(captured);
    exchange_->tell_absences(!captured && !(options_.static_graph && checked_));
  }

  void forget_captured() {
    running_ = false;
    finished_ = true;
    travelling_.clear();
    set_captured(false);
  }

  bool set_sync(bool sync) { return std::exchange(sync_, sync); }

  // Leaves the memory alone: the first gradient of a step is copied over it, which is
  // cheaper than to fill it with zeros and to add to them.
  void zero_gradients() {
    if (running_) {
      throw Error(Fault::internal,
                  "parallel: gradients were zeroed in the middle of a backward pass; "
                  "call finish() first, also after one that failed");
    }
    for (const auto& tensor : tensors_) tensor.mutable_grad().reset();
    std::fill(used_.begin(), used_.end(), 0);
    exchange_->forget_sums();
    finished_ = false;
    exchange_->stamps().begin_step();
  }

  void finish(bool failed);
  void broadcast_buffers();

  void backward(const std::function<void(GradientSink&)>& compute) {
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

 private:
  // The producer that is not autograd.
  class Sink : public GradientSink {
   public:
    explicit Sink(Impl& engine) : engine_(engine) {}
    Place place_of(const torch::Tensor& parameter) override {
      const auto i = engine_.index_of(parameter);
      if (i == kNotTrained) return {};
      engine_.make_way(i);
      // One of autograd's may not be in the bucket yet.
      if (engine_.used_[i] && engine_.options_.gradient_as_bucket_view) {
        engine_.keep_view(i);
      }
      return {engine_.buffers_->gradient_of(i), engine_.used_[i] != 0};
    }
    void ready(const torch::Tensor& parameter) override {
      const auto i = engine_.index_of(parameter);
      if (i != kNotTrained) engine_.arrived_by_hand(i);
    }

   private:
    Impl& engine_;
  };

  static constexpr auto kNotTrained = static_cast<std::size_t>(-1);
  std::size_t index_of(const torch::Tensor& parameter) const {
    const auto found = index_of_.find(parameter.unsafeGetTensorImpl());
    return found == index_of_.end() ? kNotTrained : found->second;
  }

  void arrived_by_hand(std::size_t parameter) {
    if (options_.gradient_as_bucket_view) {
      tensors_[parameter].mutable_grad() = buffers_->gradient_of(parameter);
    }
    arrived(parameter);
  }
  // Lives as long as autograd knows what to call at the end of the pass.
  struct Pass {};

  void refuse_what_is_not_there() const;
  void lay_out(const std::vector<std::size_t>& order);
  comm::Pending gather(const torch::Tensor& flat, const Shard& shard);
  void rebuild_once(bool failed);
  void settle() {
    settled_ = true;
    exchange_->wait_for_counts(false);
  }
  void broadcast_frozen();
  void complete(bool excused, bool failed);
  void check_use(bool excused);

  // A pass begins with the first gradient, or with finish() on a rank that has none.
  void begin() {
    running_ = true;
    ended_ = false;
    order_.clear();
    exchange_->begin();
  }

  void begin_by_gradient() {
    begin();
    auto pass = std::make_shared<Pass>();
    pass_ = pass;
    detail::at_the_end_of_backward([this, pass] { end_of_backward(); });
  }

  // Two passes that overlap would be two different sums in one bucket.
  void refuse_second_pass() const {
    const std::string why =
        ended_ ? "a backward pass began before finish() of the one before; ranks that "
                 "are threads and share a GPU call it after each"
               : "the backward pass before this one failed; call finish(), which lets "
                 "the other ranks go on, and zero_gradients()";
    throw Error(Fault::internal, "parallel: ", why);
  }

  // It may be on its way already.
  [[noreturn]] void refuse_second_gradient(std::size_t parameter) const {
    throw Error(Fault::config, "parallel: the gradient of '",
                parameters_[parameter].name,
                "' was ready twice in one backward pass; a layer that runs backward() "
                "inside of backward (activation checkpointing of a shared layer) does "
                "that: compute its gradients with autograd::grad() instead");
  }

  void before(std::size_t parameter) {
    if (running_ && (ended_ || pass_.expired())) refuse_second_pass();
    if (sync_ && !running_) begin_by_gradient();
    make_way(parameter);
  }

  // What is computed now is added to this pass's, not to what was summed before.
  void make_way(std::size_t parameter) {
    exchange_->set_aside_sum_of(parameter);
    // Somebody wants to begin anew with this one: zero_grad(), which sets it to none.
    if (!tensors_[parameter].grad().defined()) exchange_->forget_aside_of(parameter);
  }

  void after(std::size_t parameter) {
    const bool later = collects_ && tensors_[parameter].grad().defined();
    if (!later) keep_view(parameter);
    arrived(parameter);
  }

  // Whoever has computed it.
  void arrived(std::size_t parameter) {
    used_[parameter] = 1;
    if (!sync_) return;
    if (exchange_->has_arrived(parameter)) refuse_second_gradient(parameter);
    if (!settled_) order_.push_back(parameter);
    exchange_->ready(parameter, used_);
  }

  // On autograd's thread. Everything is on its way then, so that this rank's finish()
  // needs nobody's backward pass any more.
  void end_of_backward() {
    ended_ = true;
    exchange_->start_rest(used_, /*as_if_used=*/false);
    if (options_.waits_in_backward && !peers_share_autograd_)
      complete(/*excused=*/false, /*failed=*/false);
  }

  // The first gradient of a step, or one that somebody has replaced: what was computed
  // goes into the bucket, and the view is put back.
  void keep_view(std::size_t parameter) {
    auto& grad = tensors_[parameter].mutable_grad();
    const auto& view = buffers_->gradient_of(parameter);
    if (grad.is_same(view)) return;
    const torch::NoGradGuard no_grad;
    // One of its own memory is dense, too: the sum over the ranks will be.
    if (grad.defined() && grad.layout() != torch::kStrided) grad = grad.to_dense();
    if (!options_.gradient_as_bucket_view) {
      if (grad.defined()) view.copy_(grad - exchange_->set_aside_of(parameter));
      return;
    }
    if (!grad.defined()) {
      if (!used_[parameter]) view.zero_();
    } else if (grad.numel() == 0 || grad.data_ptr() != view.data_ptr()) {
      buffers_->fill_gradient(parameter, grad);
    }
    grad = view;
  }

  // A bucket is about to be sent. What somebody has dropped since an earlier pass of
  // this step (zero_grad() sets gradients to none) is not added again. On a GPU
  // starting a copy costs more than the copy: there those of a bucket start together,
  // now.
  void collect(const std::vector<std::size_t>& parameters) {
    for (const auto i : parameters) {
      const bool dropped = !tensors_[i].grad().defined();
      if (dropped && exchange_->forget_aside_of(i)) used_[i] = 0;
    }
    if (!collects_) return;
    std::vector<std::size_t> there;
    std::vector<torch::Tensor> from;
    for (const auto i : parameters) {
      auto& grad = tensors_[i].mutable_grad();
      const auto& view = buffers_->gradient_of(i);
      if (!grad.defined() || grad.is_same(view)) continue;
      const bool dense = grad.layout() == torch::kStrided;
      if (!dense || grad.numel() == 0 || grad.data_ptr() != view.data_ptr()) {
        there.push_back(i);
        from.push_back(grad);
      }
      grad = view;
    }
    buffers_->fill_gradients(there, from);
  }

  // What the optimizer, or the user, sees: every gradient is there.
  void put_gradients_back() {
    const torch::NoGradGuard no_grad;
    for (std::size_t i = 0; i < tensors_.size(); ++i) {
      auto& grad = tensors_[i].mutable_grad();
      const auto& view = buffers_->gradient_of(i);
      if (options_.gradient_as_bucket_view) {
        if (!grad.is_same(view)) grad = view;
      } else if (grad.defined()) {
        grad.copy_(view);
      } else {
        grad = view.clone();
      }
    }
  }

  torch::nn::Module& module_;
  comm::Communicator& data_;
  comm::Communicator& cpu_;
  const EngineOptions options_;
  const std::vector<Parameter> parameters_;
  const std::vector<torch::Tensor> tensors_;  // of the parameters
  std::unordered_map<const c10::TensorImpl*, std::size_t> index_of_;  // of tensors_
  const bool shards_;    // of gradients, each rank has the sums of its own
  const bool collects_;  // gradients come into the bucket when it is sent
  // Waiting in a backward pass could keep another rank's from running.
  const bool peers_share_autograd_;
  std::unique_ptr<detail::FlatBuffers> buffers_;
  std::unique_ptr<detail::Exchange> exchange_;
  std::vector<Shard> owned_;
  std::vector<comm::Pending> travelling_;  // values
  std::function<void()> on_relayout_;
  ExchangeObserver* observer_ = nullptr;

  bool sync_ = true;
  bool running_ = false;      // between the first gradient of a pass and its finish()
  bool ended_ = false;        // the backward pass itself is over
  bool finished_ = false;     // since zero_gradients()
  std::weak_ptr<Pass> pass_;  // gone, and not ended_: it failed
  bool settled_ = false;      // buckets stay as they are
  bool checked_ = false;      // a first pass has shown what is used
  bool captured_ = false;     // by a CUDA graph
  detail::Flags used_;        // since zero_gradients()
  detail::Flags told_;        // of a pass whose counts have not come yet
  detail::Flags now_told_;
  std::vector<std::size_t> order_;  // of the gradients of the first pass
  std::vector<std::size_t> laid_out_;
  std::vector<std::size_t> globally_unused_;
  std::vector<std::size_t> captured_unused_;
  ExchangeTimes times_, device_times_;
  std::optional<detail::GradientHooks> hooks_;  // last: nobody calls back any more
};

void Engine::Impl::refuse_what_is_not_there() const {
  const bool known =
      options_.stage.gradients == Held::whole && options_.stage.values == Held::whole;
  if (!known) {
    throw Error(Fault::config,
                "parallel: this engine shards the optimizer's state only (stages 0 and "
                "1), not gradients or parameters");
  }
  if (shards_ && !options_.gradient_as_bucket_view) {
    throw Error(Fault::config,
                "parallel: gradients of their own memory (gradient_as_bucket_view "
                "off) are whole, but each rank sums its shard of them only; leave "
                "one of both out");
  }
}

void Engine::Impl::lay_out(const std::vector<std::size_t>& order) {
  laid_out_ = order;
  auto layout = options_.layout;
  layout.shards = shards_ ? data_.size() : 1;
  buffers_ = std::make_unique<detail::FlatBuffers>(
      parameters_, plan_layout(parameters_, order, layout), data_, shards_);
  owned_ = owned_shards(buffers_->groups(), options_.stage, data_.rank(), data_.size());
  exchange_ = std::make_unique<detail::Exchange>(
      *buffers_, data_, order, options_,
      [this](const std::vector<std::size_t>& parameters) { collect(parameters); });
  exchange_->observe(observer_);
  exchange_->wait_for_counts(!settled_);
  exchange_->tell_absences(!(options_.static_graph && checked_));
}

// The bucket of which `shard` is this rank's part.
comm::Pending Engine::Impl::gather(const torch::Tensor& flat, const Shard& shard) {
  const auto begin = shard.offset - data_.rank() * shard.size;
  const auto bucket = flat.narrow(0, begin, data_.size() * shard.size);
  return data_.all_gather(bucket, shard.of(flat));
}

void Engine::Impl::updated(std::size_t index) {
  if (!shards_) return;
  const auto& shard = owned_[index];
  if (observer_ != nullptr) observer_->started({Parcel::Of::parameters, index});
  travelling_.push_back(gather(buffers_->values(shard.group), shard));
}

void Engine::Impl::wait_for_values() {
  for (std::size_t i = 0; i < travelling_.size(); ++i) {
    travelling_[i].wait();
    if (observer_ != nullptr) observer_->arrived({Parcel::Of::parameters, i});
  }
  travelling_.clear();
}

void Engine::Impl::gather_gradients() {
  if (!shards_) return;
  std::vector<comm::Pending> pending;
  for (const auto& shard : owned_) {
    pending.push_back(gather(buffers_->gradients(shard.group), shard));
  }
  for (auto& one : pending) one.wait();
}

void Engine::Impl::finish(bool failed) {
  if (!sync_ || (finished_ && !running_)) return;
  // Nothing of this step was computed here: the rank has no samples, and that is fine.
  // Neither does a pass that failed show what is unused.
  const bool idle = std::none_of(used_.begin(), used_.end(), [](char u) { return u; });
  failed |= running_ && !ended_;
  if (!running_) begin();
  complete((idle || failed) && !options_.find_unused_parameters, failed);
}

void Engine::Impl::complete(bool excused, bool failed) {
  running_ = false;  // whatever comes: a communicator that failed ends every pass
  exchange_->start_rest(used_, excused);
  exchange_->complete();
  times_ = exchange_->stamps().host();
  device_times_ = exchange_->stamps().device();
  put_gradients_back();
  finished_ = true;
  check_use(excused);
  rebuild_once(failed);
}

void Engine::Impl::check_use(bool excused) {
  if (captured_) {
    captured_unused_.clear();
    for (std::size_t i = 0; i < used_.size(); ++i) {
      if (!used_[i]) captured_unused_.push_back(i);
    }
    return;
  }
  if (options_.static_graph && checked_) return;  // as in the first step
  globally_unused_.clear();
  const auto& absences = exchange_->absences(used_, excused);
  // Of several GPUs they come one step later, and are of that step.
  const bool late = absences.empty() || !told_.empty();
  auto& told = now_told_;
  told.assign(used_.begin(), used_.end());
  if (excused) std::fill(told.begin(), told.end(), 1);
  if (late) std::swap(told, told_);
  if (absences.empty()) return;
  checked_ = true;
  if (options_.static_graph) exchange_->tell_absences(false);
  const bool complete =
      std::all_of(absences.begin(), absences.end(), [](int n) { return n == 0; });
  if (complete) return;
  if (!options_.find_unused_parameters) {
    throw Error(Fault::config, detail::describe_unused(parameters_, told, cpu_));
  }
  for (std::size_t i = 0; i < absences.size(); ++i) {
    if (absences[i] >= exchange_->voters()) globally_unused_.push_back(i);
  }
}

// The order in which rank 0 has seen its gradients becomes that of the buckets.
void Engine::Impl::rebuild_once(bool failed) {
  // Alone nothing travels, and new buffers beside the old would only take memory.
  if (settled_ || cpu_.size() == 1) return;
  const auto count = static_cast<std::int64_t>(parameters_.size());
  const auto word = torch::full({count}, -1, torch::kInt64);
  const auto against =
      torch::tensor({failed ? 1 : 0, on_relayout_ ? 0 : 1}, torch::kInt32);
  cpu_.all_reduce(against, comm::Reduce::max).wait();
  // Somebody would go on with what an optimizer remembers of the old places.
  if (against[1].item<int>() != 0) return settle();
  // A rank that has no memory has none for new buffers: the next step will show.
  if (against[0].item<int>() != 0) return;
  auto* agreed = word.mutable_data_ptr<std::int64_t>();
  if (!order_.empty()) {
    auto order = order_;
    for (const auto i : reversed_order(parameters_.size())) {
      if (std::find(order_.begin(), order_.end(), i) == order_.end())
        order.push_back(i);
    }
    LOCKSTEP_CHECK(order.size() == parameters_.size());
    std::copy(order.begin(), order.end(), agreed);
  }
  cpu_.broadcast(word, 0).wait();
  if (agreed[0] < 0) return;  // rank 0 had no samples: the next step will show
  settled_ = true;
  gather_gradients();  // the shards will be others
  lay_out({agreed, agreed + count});
  put_gradients_back();
  exchange_->remember_sums();
  if (on_relayout_) on_relayout_();
}

void Engine::Impl::use_order(const std::vector<std::size_t>& order) {
  LOCKSTEP_CHECK(!settled_ && order.size() == parameters_.size(), order.size(), " of ",
                 parameters_.size());
  settled_ = true;
  lay_out(order);
  if (on_relayout_) on_relayout_();
}

void Engine::Impl::broadcast_buffers() {
  detail::broadcast_all(module_.buffers(), data_, cpu_);
}

// Parameters that are not trained are not in the flat buffers.
void Engine::Impl::broadcast_frozen() {
  std::vector<torch::Tensor> frozen;
  for (const auto& parameter : module_.parameters()) {
    if (!parameter.requires_grad()) frozen.push_back(parameter);
  }
  detail::broadcast_all(frozen, data_, cpu_);
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
const std::vector<Shard>& Engine::owned() const noexcept {
  return impl_->owned();
}
void Engine::updated(std::size_t index) {
  impl_->updated(index);
}
void Engine::wait_for_values() {
  impl_->wait_for_values();
}
void Engine::gather_gradients() {
  impl_->gather_gradients();
}
const std::vector<std::size_t>& Engine::order() const noexcept {
  return impl_->order();
}
void Engine::use_order(const std::vector<std::size_t>& order) {
  impl_->use_order(order);
}
void Engine::on_relayout(std::function<void()> callback) {
  impl_->on_relayout(std::move(callback));
}
void Engine::backward(const std::function<void(GradientSink&)>& compute) {
  impl_->backward(compute);
}
void Engine::finish(bool failed) {
  impl_->finish(failed);
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
const ExchangeTimes& Engine::device_times() const noexcept {
  return impl_->device_times();
}
void Engine::set_captured(bool captured) noexcept {
  impl_->set_captured(captured);
}
const std::vector<std::size_t>& Engine::captured_unused() const noexcept {
  return impl_->captured_unused();
}
void Engine::forget_captured() noexcept {
  impl_->forget_captured();
}
void Engine::observe(ExchangeObserver* observer) noexcept {
  impl_->observe(observer);
}

Engine::NoSync::NoSync(Engine& engine) noexcept
    : engine_(engine), before_(engine.impl_->set_sync(false)) {}
Engine::NoSync::~NoSync() {
  engine_.impl_->set_sync(before_);
}

}  // namespace lockstep::parallel
