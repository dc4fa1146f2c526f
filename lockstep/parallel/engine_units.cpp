// Stage 3 of the engine: parameters are whole while a unit of them computes.
#include <algorithm>
#include <cstdint>
#include <unordered_map>

#include <ATen/autocast_mode.h>

#include "lockstep/base/error.h"
#include "lockstep/parallel/detail/exchange.h"
#include "lockstep/parallel/detail/sharded_values.h"
#include "lockstep/parallel/detail/unit_gathers.h"
#include "lockstep/parallel/detail/use_tracker.h"
#include "lockstep/parallel/engine.h"

namespace lockstep::parallel {
namespace {

using torch::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr std::size_t kRoot = 0;

// Carries a unit into the graph of a forward pass, which may outlive the engine.
struct UnitHandle : torch::CustomClassHolder {
  UnitHandle(const std::shared_ptr<detail::UnitGathers>& its_gathers,
             std::size_t its_unit)
      : gathers(its_gathers), unit(its_unit), pass(its_gathers->pass()) {}
  const std::weak_ptr<detail::UnitGathers> gathers;
  const std::size_t unit;
  const std::uint64_t pass;  // of the forward pass

  // Returns the gathers while they are in the pass of this graph.
  std::shared_ptr<detail::UnitGathers> of_this_pass() const {
    auto found = gathers.lock();
    if (found && found->is_open() && found->pass() == pass) return found;
    throw Error(Fault::config,
                "parallel: a backward pass of a forward pass that is over; at stage 3 "
                "each forward pass is followed by its backward pass, before the next");
  }
};

Tensor keep(AutogradContext* context, const Tensor& x,
            const c10::intrusive_ptr<UnitHandle>& handle) {
  context->saved_data["unit"] = c10::IValue::make_capsule(handle);
  return x;
}

const UnitHandle& kept(AutogradContext* context) {
  const auto capsule = context->saved_data["unit"].toCapsule();
  return static_cast<const UnitHandle&>(*capsule);
}

// Stands behind a unit: its backward pass is the first of the unit's.
struct BehindUnit : torch::autograd::Function<BehindUnit> {
  static Tensor forward(AutogradContext* context, const Tensor& x,
                        const c10::intrusive_ptr<UnitHandle>& handle) {
    return keep(context, x, handle);
  }
  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const auto& handle = kept(context);
    handle.of_this_pass()->acquire_backward(handle.unit);
    return {gradients[0], Tensor()};
  }
};

// Stands before a unit: its backward pass is the last of the unit's.
struct BeforeUnit : torch::autograd::Function<BeforeUnit> {
  static Tensor forward(AutogradContext* context, const Tensor& x,
                        const c10::intrusive_ptr<UnitHandle>& handle) {
    return keep(context, x, handle);
  }
  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const auto& handle = kept(context);
    handle.of_this_pass()->release_backward(handle.unit);
    return {gradients[0], Tensor()};
  }
};

// Autocast keeps casted copies of weights, which would outlive them.
class WithoutCastCache {
 public:
  WithoutCastCache() : before_(at::autocast::is_autocast_cache_enabled()) {
    at::autocast::set_autocast_cache_enabled(false);
  }
  ~WithoutCastCache() { at::autocast::set_autocast_cache_enabled(before_); }
  WithoutCastCache(const WithoutCastCache&) = delete;
  WithoutCastCache& operator=(const WithoutCastCache&) = delete;

 private:
  const bool before_;
};

class ForwardLease {
 public:
  ForwardLease(detail::UnitGathers& gathers, std::size_t unit)
      : gathers_(gathers), unit_(unit) {
    gathers_.acquire_forward(unit_);
  }
  ~ForwardLease() { gathers_.release_forward(unit_); }
  ForwardLease(const ForwardLease&) = delete;
  ForwardLease& operator=(const ForwardLease&) = delete;

 private:
  detail::UnitGathers& gathers_;
  const std::size_t unit_;
};

std::int64_t bytes_of(const torch::nn::Module& module) {
  std::int64_t bytes = 0;
  for (const auto& parameter : module.parameters()) {
    bytes += static_cast<std::int64_t>(parameter.nbytes());
  }
  return bytes;
}

}  // namespace

// Gives every parameter its unit, and puts the order of gradients into that of the
// units: from the last to the first, then the root.
void Engine::assign_units() {
  if (!gathers_values_) return;
  std::unordered_map<const c10::TensorImpl*, std::size_t> unit_of;
  for (std::size_t u = 0; u < options_.units.size(); ++u) {
    const auto& module = *options_.units[u];
    if (bytes_of(module) < options_.persist_below) continue;
    for (const auto& parameter : module.parameters()) {
      const auto [at, is_new] = unit_of.emplace(parameter.unsafeGetTensorImpl(), u + 1);
      if (!is_new && at->second != u + 1) at->second = kRoot;  // of several
    }
  }
  for (auto& parameter : parameters_) {
    const auto found = unit_of.find(parameter.tensor.unsafeGetTensorImpl());
    parameter.unit = found == unit_of.end() ? kRoot : found->second;
  }
  const auto turn = [&](std::size_t i) {
    const auto unit = parameters_[i].unit;
    return unit == kRoot ? options_.units.size() + 1 : options_.units.size() - unit;
  };
  std::stable_sort(order_.begin(), order_.end(),
                   [&](std::size_t a, std::size_t b) { return turn(a) < turn(b); });
}

void Engine::make_units(const std::vector<Group>& groups) {
  gathers_ = data_.split(0);
  values_ = std::make_unique<detail::ShardedValues>(parameters_, groups, *gathers_);
  detail::UnitGathers::Options options{
      .names = {"parameters of no unit"},
      .buckets = std::vector<std::vector<std::size_t>>(options_.units.size() + 1),
      .prefetch = options_.prefetch_units,
      .frees_after_forward = options_.reshard_after_forward,
      .on_backward_done = [this](std::size_t unit) { start_sums_of(unit); }};
  last_of_unit_.assign(options_.units.size() + 1, std::nullopt);
  for (std::size_t u = 0; u < options_.units.size(); ++u) {
    options.names.push_back(str(u, " (", options_.units[u]->name(), ")"));
  }
  std::size_t bucket = 0;
  for (const auto& group : groups) {
    for (const auto& one : group.buckets) {
      const auto first = group.slots[one.first_slot].parameter;
      options.buckets[parameters_[first].unit].push_back(bucket++);
    }
  }
  for (const auto i : order_) last_of_unit_[parameters_[i].unit] = i;
  units_ = std::make_shared<detail::UnitGathers>(*values_, std::move(options));
}

// The unit's gradients are all there: sums start in the order of units, so that no rank
// waits in a unit for a sum that another starts after it.
void Engine::start_sums_of(std::size_t unit) {
  if (!sync_ || !last_of_unit_[unit]) return;
  if (!running_) begin_by_gradient();  // none of its own has come on this rank
  exchange_->start_through(*last_of_unit_[unit], use_->used());
}

void Engine::forward(const std::function<void()>& compute) {
  if (!units_) return compute();
  end_pass();
  if (units_->is_open()) {  // the pass before had no backward pass here
    begin();
    ended_ = true;
    end_pass();
  }
  free_full_bucket();
  const bool with_backward = torch::GradMode::is_enabled();
  units_->begin_pass(with_backward);
  if (with_backward) return compute();
  try {
    compute();
  } catch (...) {
    units_->end_pass();  // the other ranks go on
    throw;
  }
  units_->end_pass();
}

void Engine::empty_forward() {
  if (!units_) return;
  free_full_bucket();
  units_->begin_pass(/*with_backward=*/false);
  units_->end_pass();
}

void Engine::begin_units() {
  if (!units_ || units_->is_open()) return;
  free_full_bucket();
  units_->begin_pass(/*with_backward=*/true);
}

void Engine::end_units() {
  if (units_) units_->end_pass();
}

Tensor Engine::run_unit(std::size_t unit, const Compute& compute, const Tensor& input) {
  if (!units_) return compute(input);
  const WithoutCastCache no_cache;
  const ForwardLease lease(*units_, unit + 1);
  const auto handle = c10::make_intrusive<UnitHandle>(units_, unit + 1);
  const bool traces = torch::GradMode::is_enabled();
  const bool before = traces && input.requires_grad();
  auto output = compute(before ? BeforeUnit::apply(input, handle) : input);
  return traces && output.requires_grad() ? BehindUnit::apply(output, handle) : output;
}

Tensor Engine::full_parameter(std::size_t parameter) {
  if (!units_) return tensors_[parameter].detach();
  const auto bucket = values_->bucket_of(parameter);
  if (full_bucket_ != bucket) free_full_bucket();
  if (!full_bucket_) values_->gather(bucket).wait();
  full_bucket_ = bucket;
  return tensors_[parameter].detach();
}

void Engine::free_full_bucket() {
  if (full_bucket_) values_->free(*full_bucket_);
  full_bucket_.reset();
}

Engine::FullParameters::FullParameters(Engine& engine) : engine_(engine) {
  if (!engine_.units_) return;
  engine_.free_full_bucket();
  engine_.units_->gather_all();
}

Engine::FullParameters::~FullParameters() {
  if (engine_.units_) engine_.units_->free_all();
}

std::int64_t Engine::peak_gathered_bytes() const noexcept {
  return units_ ? units_->peak_bytes() : 0;
}

}  // namespace lockstep::parallel
