#include "lockstep/train/step.h"

#include <algorithm>
#include <bit>
#include <exception>
#include <limits>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/precision/without_memory.h"

namespace lockstep::train {
namespace {

// LibTorch divides a GPU tensor by a host number in this way: it multiplies by the
// reciprocal, in the precision of the loss.
double factor_of(double divisor, torch::Dtype dtype) {
  if (dtype == torch::kFloat64) return 1 / divisor;
  return 1.0F / static_cast<float>(divisor);
}

}  // namespace

Forward::Forward(models::Model& model, const precision::Policy& policy)
    : model_(model), policy_(policy), names_(model_.inputs()) {}

const Named& Forward::inputs_of(const Named& staged) {
  for (const auto& name : names_) {
    const auto& x = staged.at(name);
    inputs_.set(name, x.is_floating_point() ? x.to(policy_.dtype()) : x);
  }
  return inputs_;
}

Named Forward::operator()(const Named& staged) {
  const precision::AutocastScope autocast(policy_);
  return model_.forward_named(inputs_of(staged));
}

Named Forward::kept(const Named& staged) {
  Named leaves;
  const torch::NoGradGuard no_grad;
  for (const auto& [name, tensor] :
       model_.own_backward()->forward_kept(inputs_of(staged))) {
    leaves.set(name, tensor.detach().requires_grad_());
  }
  return leaves;
}

torch::Tensor Forward::loss(const Named& staged,
                            const models::OwnBackward::ClassLoss& loss) {
  const torch::NoGradGuard no_grad;
  return model_.own_backward()->forward_loss(inputs_of(staged), loss);
}

void use_layout(models::Model& model) {
  for (auto& parameter : model.parameters()) {
    if (parameter.dim() != 4) continue;
    if (precision::has_memory(parameter)) {
      parameter.set_data(parameter.detach().contiguous(model.memory_format()));
      continue;
    }
    const auto like = torch::empty(
        parameter.sizes(),
        torch::TensorOptions(torch::kMeta).memory_format(model.memory_format()));
    parameter.set_data(precision::without_memory(like, parameter.options()));
  }
}

Step::Step(Parts parts)
    : parts_(std::move(parts)),
      largest_(parts_.micro_batch),
      by_hand_(parts_.model->own_backward() != nullptr),
      has_loss_(by_hand_ && parts_.model->own_backward()->has_loss() &&
                parts_.task->losses().size() == 1 &&
                parts_.task->num_training_sums() == 0),
      task_fields_(parts_.task->fields()),
      forward_(*parts_.model, parts_.policy),
      stage_({.spec = parts_.spec,
              .wanted = data::wanted_by(parts_.model->inputs(), task_fields_),
              .format = parts_.model->memory_format(),
              .device = parts_.policy.device}) {}

const Named& Step::fields_of(const data::Batch& batch, std::int64_t count) {
  for (const auto& name : task_fields_) {
    fields_.set(name, batch.at(name).narrow(0, 0, count).to(parts_.policy.device));
  }
  return fields_;
}

void Step::weigh(const data::Batch& batch) {
  weights_.zero_();
  if (batch.size == 0) return;
  const auto own =
      parts_.task->weights(fields_of(batch, batch.size), {true, torch::kFloat32});
  for (std::size_t i = 0; i < weighs_.size(); ++i) {
    if (weighs_[i]) weights_.select(0, static_cast<std::int64_t>(i)).copy_(own[i]);
  }
}

// A rank that has no memory for it takes part all the same, so that no other waits.
void Step::sum_weights(const data::Batch& batch) {
  std::exception_ptr failure;
  try {
    weigh(batch);
  } catch (const std::exception&) {
    failure = std::current_exception();
  }
  if (parts_.data != nullptr && parts_.data->size() > 1) {
    // Added up in the order of the ranks, as those that travel with ballots are.
    const auto own = weights_.clone();
    const auto all = torch::empty({parts_.data->size() * own.numel()}, own.options());
    parts_.data->all_gather(all, own).wait();
    weights_.zero_();
    for (const auto& rank : all.view({parts_.data->size(), -1}).unbind()) {
      weights_.add_(rank);
    }
  }
  if (failure) std::rethrow_exception(failure);
}

bool Step::weighs() const {
  return std::find(weighs_.begin(), weighs_.end(), true) != weighs_.end();
}

bool Step::sums_weights() const {
  return weighs() && weighs_.size() > comm::kMostWeights;
}

std::optional<comm::Weights> Step::weights_of(const data::Batch& batch) const {
  if (!weighs() || sums_weights()) return std::nullopt;
  comm::Weights weights{};
  if (batch.size == 0) return weights;
  Named fields;
  for (const auto& name : task_fields_) fields.set(name, batch.at(name));
  const torch::NoGradGuard no_grad;
  const auto own = parts_.task->weights(fields, {true, torch::kFloat32});
  for (std::size_t i = 0; i < own.size(); ++i) {
    if (own[i].defined()) weights[i] = own[i].item<double>();
  }
  return weights;
}

Step::Divisors Step::divisors_of(const data::Batch& batch,
                                 const std::optional<comm::Weights>& weights) {
  const auto& losses = parts_.task->losses();
  const torch::NoGradGuard no_grad;
  if (weighs_.empty()) {
    // Which losses weigh their targets depends on the kind of the tensors only.
    for (const auto& weight :
         parts_.task->weights(fields_of(batch, 0), {true, torch::kFloat32})) {
      weighs_.push_back(weight.defined());
    }
    weights_ = torch::zeros({static_cast<std::int64_t>(losses.size())},
                            torch::dtype(torch::kFloat64).device(parts_.policy.device));
  }
  Divisors divisors;
  for (const auto& loss : losses) {
    divisors.push_back({static_cast<double>(batch.global_size * loss.per_sample), {}});
  }
  if (!weighs()) return divisors;
  if (numbers_.defined()) {
    const auto num_losses = static_cast<std::int64_t>(losses.size());
    weights_.copy_(numbers_.narrow(0, 1 + num_losses, num_losses));
  } else if (weights) {
    for (std::size_t i = 0; i < losses.size(); ++i) {
      weights_.select(0, static_cast<std::int64_t>(i)).fill_((*weights)[i]);
    }
  } else {
    sum_weights(batch);
  }
  for (std::size_t i = 0; i < losses.size(); ++i) {
    if (!weighs_[i]) continue;
    // Targets that all weigh nothing have no loss; PyTorch's would be 0 / 0.
    const auto sum = weights_.select(0, static_cast<std::int64_t>(i));
    divisors[i].weight =
        sum.masked_fill(sum <= 0, std::numeric_limits<double>::infinity());
  }
  return divisors;
}

torch::Tensor Step::weighed(const torch::Tensor& sum, std::size_t loss,
                            const Divisors& divisors) const {
  const auto count = divisors[0].count;
  const auto& own = divisors[loss];
  if (own.weight.defined()) return sum * (count / own.weight).to(sum.scalar_type());
  return own.count == count ? sum : sum * (count / own.count);
}

torch::Tensor Step::total_of(const task::Sums& losses, std::int64_t step) const {
  torch::Tensor total;
  for (std::size_t i = 0; i < losses.size(); ++i) {
    const auto coefficient = parts_.task->coefficient(i, step);
    auto part = losses[i];
    if (numbers_.defined()) {
      const auto own = numbers_.select(0, 1 + static_cast<std::int64_t>(i));
      part = part * own.to(part.scalar_type());
    } else if (coefficient != 1) {
      part = part * coefficient;
    }
    total = total.defined() ? total + part : part;
  }
  return total;
}

torch::Tensor Step::mean_of(const torch::Tensor& total, double count,
                            double loss_scale) const {
  if (!numbers_.defined()) return total / (count / loss_scale);
  return total * numbers_.select(0, 0).to(total.scalar_type());
}

torch::Tensor Step::scale_of(const Divisors& divisors, const Numbers& numbers) const {
  const torch::NoGradGuard no_grad;
  const auto one =
      torch::ones({}, torch::dtype(torch::kFloat32).device(parts_.policy.device));
  const auto total = total_of({weighed(one, 0, divisors)}, numbers.step);
  return mean_of(total, divisors[0].count, numbers.loss_scale);
}

std::optional<std::vector<std::uint64_t>> Step::words_of(const data::Batch& batch,
                                                         const Numbers& numbers) const {
  const auto& [loss_scale, step, weights] = numbers;
  const auto& losses = parts_.task->losses();
  if (weighs_.empty() || (weighs() && !weights)) return std::nullopt;
  const auto count = static_cast<double>(batch.global_size * losses[0].per_sample);
  std::vector<std::uint64_t> words;
  const auto add = [&](double number) {
    words.push_back(std::bit_cast<std::uint64_t>(number));
  };
  add(factor_of(count / loss_scale, parts_.policy.loss_dtype()));
  for (std::size_t i = 0; i < losses.size(); ++i) {
    add(parts_.task->coefficient(i, step));
  }
  for (std::size_t i = 0; i < losses.size(); ++i) add(weights ? (*weights)[i] : 1);
  std::int64_t begin = 0;
  for (auto left = parts_.pass ? num_passes(batch) : 0; left > 0; --left) {
    const auto place = parts_.pass->place_of(
        batch.begin.epoch, batch.begin.consumed + batch.first + begin);
    words.push_back(place.key);
    words.push_back(static_cast<std::uint64_t>(place.first_sample));
    begin += (batch.size - begin + left - 1) / left;
  }
  return words;
}

void Step::use_words(const torch::Tensor& words) {
  numbers_.reset();
  if (parts_.pass) parts_.pass->use_places(nullptr);
  if (!words.defined()) return;
  stage_.reserve(largest_);  // it never has to grow under a graph
  const auto count = 1 + 2 * static_cast<std::int64_t>(parts_.task->losses().size());
  numbers_ = words.view(torch::kFloat64).narrow(0, 0, count);
  if (!parts_.pass) return;
  const auto* places = words.const_data_ptr<std::int64_t>() + count;
  parts_.pass->use_places(reinterpret_cast<const kernels::PassPlace*>(places));
}

bool Step::passes_match() const {
  const auto& strategy = parts_.strategy;
  return strategy.passes_must_match() || strategy.sums_every_pass();
}

std::int64_t Step::num_passes(const data::Batch& batch) const {
  const auto samples = passes_match() ? batch.largest_size : batch.size;
  return (samples + parts_.micro_batch - 1) / parts_.micro_batch;
}

Step::MicroBatch Step::compute(const Named& staged, const torch::Tensor& scale) {
  const auto& task = *parts_.task;
  MicroBatch micro{.staged = staged, .scale = scale};
  if (scale.defined()) micro.targets = task.plain_targets(staged);
  const auto run = [&] {
    const memory::Offload::Scope offloaded(parts_.offload.get());
    if (micro.targets.defined()) {
      micro.losses = {forward_.loss(staged, {micro.targets, scale})};
      return;
    }
    micro.outputs = by_hand_ ? forward_.kept(staged) : forward_(staged);
    micro.losses = task.sums(micro.outputs, staged, {true, parts_.policy.loss_dtype()});
  };
  parts_.strategy.forward(std::ref(run));  // by reference: nothing on the heap
  return micro;
}

void Step::propagate(const torch::Tensor& loss, const MicroBatch& micro, bool last) {
  auto& strategy = parts_.strategy;
  if (!by_hand_) return strategy.backward(loss, last);
  auto& own = *parts_.model->own_backward();
  if (micro.targets.defined()) {
    return strategy.backward_by([&](GradientSink& sink) { own.backward_loss(sink); },
                                last);
  }
  const auto& outputs = micro.outputs;
  std::vector<torch::Tensor> leaves;
  for (const auto& output : outputs) leaves.push_back(output.tensor);
  const auto from_loss = torch::autograd::grad({loss}, leaves, /*grad_outputs=*/{},
                                               /*retain_graph=*/false,
                                               /*create_graph=*/false,
                                               /*allow_unused=*/true);
  Named gradients;
  std::size_t i = 0;
  for (const auto& [name, tensor] : outputs) {
    const auto& gradient = from_loss[i++];
    gradients.set(name, gradient.defined() ? gradient : torch::zeros_like(tensor));
  }
  strategy.backward_by([&](GradientSink& sink) { own.backward(gradients, sink); },
                       last);
}

void Step::set_micro_batch(std::int64_t size) {
  LOCKSTEP_CHECK(size >= 1 && size <= largest_, size, " of ", largest_);
  parts_.micro_batch = size;
}

void Step::backward(const data::Batch& batch, task::Tally& tally,
                    const Numbers& numbers) {
  const auto& [loss_scale, step, weights] = numbers;
  auto& strategy = parts_.strategy;
  const auto divisors = divisors_of(batch, weights);
  const auto& task = *parts_.task;
  const auto scale = has_loss_ ? scale_of(divisors, numbers) : torch::Tensor();
  std::int64_t begin = 0;
  const bool match = strategy.passes_must_match();
  stage_.reserve(std::min(parts_.micro_batch, match ? batch.largest_size : batch.size));
  for (auto left = num_passes(batch); left > 0; --left) {
    const auto count = (batch.size - begin + left - 1) / left;  // passes of one size
    if (count == 0 && !match) {
      strategy.empty_pass();
      continue;
    }
    const auto& staged = stage_.stage(batch, begin, count);
    tell(profile::PassEvent::forward_begins);
    if (parts_.pass) {
      parts_.pass->begin(batch.begin.epoch, batch.begin.consumed + batch.first + begin,
                         count);
    }
    auto micro = compute(staged, scale);
    auto& losses = micro.losses;
    for (std::size_t i = 0; i < losses.size(); ++i) {
      losses[i] = weighed(losses[i], i, divisors);
    }
    const auto total = total_of(losses, step);
    {
      const torch::NoGradGuard no_grad;
      tally.add(total, losses, count * task.losses()[0].per_sample);
      task.add_training_sums(micro.outputs, staged, tally.metrics());
    }
    begin += count;
    const bool last = left == 1;
    tell(profile::PassEvent::backward_begins);
    propagate(mean_of(total, divisors[0].count, loss_scale), micro, last);
    tell(profile::PassEvent::ends);
  }
}

}  // namespace lockstep::train
