// Stage 3 of the engine: parameters are whole while a unit of them computes.
#include <algorithm>
#include <cstdint>
#include <numeric>

#include "lockstep/base/error.h"
#include "lockstep/models/cast_cache.h"
#include "lockstep/parallel/detail/exchange.h"
#include "lockstep/parallel/detail/sharded_values.h"
#include "lockstep/parallel/detail/unit_gathers.h"
#include "lockstep/parallel/detail/unit_plan.h"
#include "lockstep/parallel/detail/use_tracker.h"
#include "lockstep/parallel/engine.h"
#include "lockstep/precision/without_memory.h"

namespace lockstep::parallel {
namespace {

using torch::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Carries a use of a unit into the graph of a forward pass, which may outlive the
// engine.
struct UnitHandle : torch::CustomClassHolder {
  UnitHandle(const std::shared_ptr<detail::UnitGathers>& its_gathers,
             std::size_t its_use)
      : gathers(its_gathers), use(its_use), pass(its_gathers->pass()) {}
  const std::weak_ptr<detail::UnitGathers> gathers;
  const std::size_t use;
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
    handle.of_this_pass()->acquire_backward(handle.use);
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
    handle.of_this_pass()->release_backward(handle.use);
    return {gradients[0], Tensor()};
  }
};

class ForwardLease {
 public:
  ForwardLease(detail::UnitGathers& gathers, std::size_t use)
      : gathers_(gathers), use_(use) {
    gathers_.acquire_forward(use_);
  }
  ~ForwardLease() { gathers_.release_forward(use_); }
  ForwardLease(const ForwardLease&) = delete;
  ForwardLease& operator=(const ForwardLease&) = delete;

 private:
  detail::UnitGathers& gathers_;
  const std::size_t use_;
};

}  // namespace

// Gives every parameter its unit, and puts the order of gradients into that of the
// units: from the last to the first, then the root.
void Engine::assign_units() {
  if (!gathers_values_) return;
  plan_ = std::make_unique<detail::UnitPlan>(
      detail::plan_units(options_.units, options_.persist_below));
  for (auto& parameter : parameters_) {
    parameter.unit = plan_->unit_of(parameter.tensor);
  }
  for (auto& parameter : frozen_parameters(module_)) {
    parameter.unit = plan_->unit_of(parameter.tensor);
    frozen_.push_back(std::move(parameter));
  }
  const auto turn = [&](std::size_t i) {
    const auto unit = parameters_[i].unit;
    return plan_->num_units() - (unit == 0 ? 0 : unit);
  };
  std::stable_sort(order_.begin(), order_.end(),
                   [&](std::size_t a, std::size_t b) { return turn(a) < turn(b); });
}

// Parameters that are not trained are sharded like the others, in buckets of their own.
void Engine::lay_out_frozen() {
  std::vector<std::size_t> order(frozen_.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return frozen_[a].unit < frozen_[b].unit;
  });
  auto layout = options_.layout;
  layout.shards = sharers().size();
  layout.first_bucket_bytes = layout.bucket_bytes;
  frozen_layout_ = plan_layout(frozen_, order, layout);
  frozen_owned_ = owned_shards(frozen_layout_, options_.stage, rank_index());
}

void Engine::make_units(const std::vector<Group>& groups) {
  gathers_ = sharers().split(0);
  values_ = std::make_unique<detail::ShardedValues>(
      detail::ShardedValues::Ranks{.sharers = *gathers_, .all = data_});
  detail::UnitGathers::Options options{
      .names = {"parameters of no unit"},
      .buckets = std::vector<std::vector<std::size_t>>(plan_->num_units()),
      .unit_of_use = plan_->unit_of_use,
      .outer_use = plan_->outer_use,
      .prefetch = options_.prefetch_units,
      .frees_after_forward = options_.reshard_after_forward,
      .on_backward_done = [this](std::size_t unit) { start_sums_of(unit); }};
  for (std::size_t u = 1; u < plan_->num_units(); ++u) {
    options.names.push_back(str(u - 1, " (", plan_->modules[u]->name(), ")"));
  }
  const auto add = [&](const std::vector<Parameter>& parameters,
                       const std::vector<Group>& all) {
    auto bucket = values_->add(parameters, all);
    for (const auto& group : all) {
      for (const auto& one : group.buckets) {
        const auto first = group.slots[one.first_slot].parameter;
        options.buckets[parameters[first].unit].push_back(bucket++);
      }
    }
  };
  add(parameters_, groups);
  first_frozen_bucket_ = values_->num_buckets();
  lay_out_frozen();
  add(frozen_, frozen_layout_);
  last_of_unit_.assign(plan_->num_units(), std::nullopt);
  for (const auto i : order_) last_of_unit_[parameters_[i].unit] = i;
  units_ = std::make_shared<detail::UnitGathers>(*values_, std::move(options));
}

// What lies in no flat buffer (the module's buffers) gets memory of its own.
void Engine::fill() {
  const torch::NoGradGuard no_grad;
  options_.fill([this](const Tensor& tensor, const Tensor& value) {
    if (values_ && values_->has(tensor)) {
      values_->set(tensor, value);
    } else if (precision::has_memory(tensor)) {
      tensor.detach().copy_(value);
    } else {
      auto own = tensor;
      own.set_data(value.to(tensor.options()).clone());
    }
  });
}

torch::Tensor Engine::frozen_values(std::size_t index) {
  return values_->shard(first_frozen_bucket_ + index);
}

// The unit's gradients are all there: sums start in the order of units, so that no rank
// waits in a unit for a sum that another starts after it.
void Engine::start_sums_of(std::size_t unit) {
  if (!sync_ || !last_of_unit_[unit]) return;
  if (!running_) begin_by_gradient();  // none of its own has come on this rank
  exchange_->start_through(*last_of_unit_[unit], use_->used());
}

void Engine::forward(const std::function<void()>& compute) {
  if (!values_of_use_.empty()) wait_for_values_of(values_of_use_.size() - 1);
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

Tensor Engine::run_unit(std::size_t use, const Compute& compute, const Tensor& input) {
  if (!values_of_use_.empty()) wait_for_values_of(use);
  if (!units_) return compute(input);
  const models::WithoutCastCache no_cache;
  const ForwardLease lease(*units_, use + 1);
  const auto handle = c10::make_intrusive<UnitHandle>(units_, use + 1);
  const bool traces = torch::GradMode::is_enabled();
  const bool before = traces && input.requires_grad();
  auto output = compute(before ? BeforeUnit::apply(input, handle) : input);
  return traces && output.requires_grad() ? BehindUnit::apply(output, handle) : output;
}

Tensor Engine::full_parameter(const Tensor& parameter) {
  wait_for_values();
  if (!units_ || !values_->has(parameter)) return parameter.detach();
  const auto bucket = values_->bucket_of(parameter);
  if (full_bucket_ != bucket) free_full_bucket();
  if (!full_bucket_) values_->gather(bucket).wait();
  full_bucket_ = bucket;
  return parameter.detach();
}

void Engine::set_parameter(const Tensor& parameter, const Tensor& value) {
  const torch::NoGradGuard no_grad;
  wait_for_values();
  if (!units_ || !values_->has(parameter)) {
    parameter.detach().copy_(value);
    return;
  }
  if (full_bucket_ == values_->bucket_of(parameter)) free_full_bucket();
  values_->set(parameter, value);
}

void Engine::free_full_bucket() {
  if (full_bucket_) values_->free(*full_bucket_);
  full_bucket_.reset();
}

std::int64_t Engine::peak_gathered_bytes() const noexcept {
  return units_ ? units_->peak_bytes() : 0;
}

}  // namespace lockstep::parallel
