#include "lockstep/parallel/detail/sync_batch_norm_function.h"

#include "lockstep/base/error.h"

namespace lockstep::parallel::detail {
namespace {

using torch::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// The values that a graph keeps besides tensors.
struct Kept : torch::CustomClassHolder {
  Kept(const BatchNormArguments& of, const Tensor& of_bias)
      : ranks(of.ranks), eps(of.options.eps) {
    if (of_bias.defined()) bias = of_bias.scalar_type();
  }
  const std::shared_ptr<SyncedRanks> ranks;
  const double eps;
  std::optional<torch::Dtype> bias;  // its dtype, if there is one
};

// Statistics have their own precision, whatever is cast around them.
struct NoAutocast {
  c10::impl::ExcludeDispatchKeyGuard guard{c10::autocast_dispatch_keyset};
};

class SyncBatchNormFunction : public torch::autograd::Function<SyncBatchNormFunction> {
 public:
  static Tensor forward(AutogradContext* context, const Tensor& input,
                        const std::optional<Tensor>& with_weight,
                        const std::optional<Tensor>& with_bias,
                        const BatchNormArguments& arguments) {
    const NoAutocast no_autocast;
    const auto weight = with_weight.value_or(Tensor());
    const auto bias = with_bias.value_or(Tensor());
    const auto x = input.contiguous(input.suggest_memory_format());
    const auto all =
        arguments.ranks->gather(local_statistics(x, arguments.options.eps));
    const auto statistics = combined_statistics(x, all, arguments.options);
    context->save_for_backward(
        {x, weight, statistics.mean, statistics.spread, statistics.counts});
    context->saved_data["kept"] =
        c10::IValue::make_capsule(c10::make_intrusive<Kept>(arguments, bias));
    return normalised(x, {weight, bias}, statistics);
  }

  static variable_list backward(AutogradContext* context,
                                const variable_list& gradients) {
    if (torch::GradMode::is_enabled()) {
      throw Error(Fault::config,
                  "sync_batch_norm: it has no second derivative; call "
                  "backward() without create_graph");
    }
    const NoAutocast no_autocast;
    const auto saved = context->get_saved_variables();
    const auto& x = saved[0];
    const auto& weight = saved[1];
    const auto capsule = context->saved_data["kept"].toCapsule();
    const auto& kept = static_cast<const Kept&>(*capsule);
    const Statistics statistics{saved[2], saved[3], saved[4], kept.eps};

    const auto dy = gradients[0].contiguous(x.suggest_memory_format());
    const auto sums = gradient_sums(dy, x, statistics);
    variable_list results(4);
    if (context->needs_input_grad(0)) {
      kept.ranks->sum(sums.for_input);
      results[0] = input_gradient({dy, x, weight, sums.for_input}, statistics);
    }
    if (weight.defined()) results[1] = sums.weight.to(weight.scalar_type());
    if (kept.bias) results[2] = sums.bias.to(*kept.bias);
    return results;
  }
};

}  // namespace

SyncedRanks::SyncedRanks(const torch::nn::Module& module, comm::Communicator& data)
    : module_(module), communicator_(data.size() > 1 ? data.split(0) : nullptr) {}

Tensor SyncedRanks::gather(const Tensor& mine) const {
  const auto all = torch::empty({size() * mine.numel()}, mine.options());
  communicator_->all_gather(all, mine).wait();
  return all.view({size(), -1});
}

void SyncedRanks::sum(const Tensor& values) const {
  communicator_->all_reduce(values).wait();
}

Tensor synced_batch_norm(const Tensor& input, const Affine& affine,
                         const BatchNormArguments& arguments) {
  // To autograd an undefined tensor is no argument, but an error.
  const auto if_any = [](const Tensor& tensor) {
    return tensor.defined() ? std::optional(tensor) : std::nullopt;
  };
  return SyncBatchNormFunction::apply(input, if_any(affine.weight), if_any(affine.bias),
                                      arguments);
}

}  // namespace lockstep::parallel::detail
