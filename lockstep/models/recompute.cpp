#include "lockstep/models/recompute.h"

#include <optional>
#include <unordered_set>
#include <vector>

#include <ATen/Context.h>
#include <ATen/ThreadLocalState.h>

#include "lockstep/models/cast_cache.h"
#include "lockstep/models/draws.h"
#include "lockstep/models/dropout.h"

namespace lockstep::models {
namespace {

using torch::Tensor;
using torch::autograd::variable_list;

// Returns the generators that a block draws from. One whose dropouts draw by sample
// leaves the generators of the process alone: other ranks may be threads of this
// process and draw from them.
std::vector<at::Generator> generators_of(const torch::nn::Module& block,
                                         const torch::Device& device) {
  if (!find_dropouts(block).empty() && !draws_from_torch(block)) return {};
  std::vector<at::Generator> generators;
  generators.push_back(at::globalContext().defaultGenerator(torch::kCPU));
  if (!device.is_cpu()) {
    generators.push_back(at::globalContext().defaultGenerator(device));
  }
  return generators;
}

// The call counts of a block's dropouts.
class Calls {
 public:
  explicit Calls(const torch::nn::Module& block) {
    for (auto* dropout : find_dropouts(block))
      places_.emplace_back(dropout, dropout->calls());
  }
  void restore() const {
    for (const auto& [dropout, calls] : places_) dropout->set_calls(calls);
  }

 private:
  std::vector<std::pair<DropoutImpl*, std::int64_t>> places_;
};

// Returns each once: a tied one would get its gradient from every place.
variable_list trained(const torch::nn::Module& block) {
  variable_list parameters;
  std::unordered_set<const c10::TensorImpl*> seen;
  for (const auto& parameter : block.parameters()) {
    const bool is_new = seen.insert(parameter.unsafeGetTensorImpl()).second;
    if (is_new && parameter.requires_grad()) parameters.push_back(parameter);
  }
  return parameters;
}

// The state that is needed to compute a block once more.
struct Replay : torch::CustomClassHolder {
  Replay(torch::nn::Module& its_block, BlockFunction its_compute,
         const torch::Device& device)
      : block(its_block),
        compute(std::move(its_compute)),
        draws(generators_of(block, device)),
        calls(block) {}

  torch::nn::Module& block;
  const BlockFunction compute;
  const Draws draws;        // before the first time
  const Calls calls;        // likewise
  bool drew = false;        // the first time
  at::ThreadLocalState at;  // autocast, for example: backward has a thread of its own
};

using ReplayPtr = c10::intrusive_ptr<Replay>;

// Puts the buffers of a block back as they were, but not through the tensors
// themselves: their version counters would count a change.
class KeepsBuffers {
 public:
  explicit KeepsBuffers(const torch::nn::Module& block) {
    for (const auto& buffer : block.buffers()) {
      kept_.emplace_back(buffer, buffer.detach().clone());
    }
  }
  ~KeepsBuffers() {
    const torch::NoGradGuard no_grad;
    for (auto& [buffer, copy] : kept_) buffer.variable_data().copy_(copy);
  }
  KeepsBuffers(const KeepsBuffers&) = delete;
  KeepsBuffers& operator=(const KeepsBuffers&) = delete;

 private:
  std::vector<std::pair<Tensor, Tensor>> kept_;
};

Tensor compute_again(const Replay& replay, const Tensor& input) {
  const WithoutCastCache no_cache;
  const KeepsBuffers keeps(replay.block);
  const Calls calls_now(replay.block);
  replay.calls.restore();
  std::optional<Draws> draws_now;
  if (replay.drew) {
    draws_now.emplace(generators_of(replay.block, input.device()));
    replay.draws.restore();
  }
  auto output = replay.compute(input);
  if (draws_now) draws_now->restore();
  calls_now.restore();
  return output;
}

struct Recomputed : torch::autograd::Function<Recomputed> {
  // The parameters are inputs, so that their gradients are outputs of backward().
  static Tensor forward(torch::autograd::AutogradContext* context, const Tensor& input,
                        at::TensorList /*parameters*/, const ReplayPtr& replay) {
    context->save_for_backward({input});
    context->saved_data["replay"] = c10::IValue::make_capsule(replay);
    const WithoutCastCache no_cache;
    auto output = replay->compute(input);
    replay->drew = !replay->draws.are_current();
    return output;
  }

  static variable_list backward(torch::autograd::AutogradContext* context,
                                const variable_list& gradients) {
    const auto capsule = context->saved_data["replay"].toCapsule();
    const auto& replay = static_cast<const Replay&>(*capsule);
    const at::ThreadLocalStateGuard guard(replay.at);
    const torch::AutoGradMode with_gradients(true);
    const bool needs_input = context->needs_input_grad(0);
    const auto input =
        context->get_saved_variables()[0].detach().requires_grad_(needs_input);
    const auto output = compute_again(replay, input);
    auto wanted = trained(replay.block);
    // Nothing that has a gradient was used this time.
    if (!output.requires_grad()) return variable_list(wanted.size() + 2);
    if (needs_input) wanted.insert(wanted.begin(), input);
    auto found = torch::autograd::grad({output}, wanted, gradients,
                                       /*retain_graph=*/false, /*create_graph=*/false,
                                       /*allow_unused=*/true);
    if (!needs_input) found.insert(found.begin(), Tensor());
    found.emplace_back();  // the replay has none
    return found;
  }
};

}  // namespace

torch::Tensor recomputed(torch::nn::Module& block, const BlockFunction& compute,
                         const torch::Tensor& input) {
  if (!torch::GradMode::is_enabled()) return compute(input);
  const auto parameters = trained(block);
  const auto replay = c10::make_intrusive<Replay>(block, compute, input.device());
  return Recomputed::apply(input, at::TensorList(parameters), replay);
}

}  // namespace lockstep::models
