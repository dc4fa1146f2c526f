#include "lockstep/train/step.h"

#include <algorithm>
#include <exception>
#include <limits>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/kernels/normalize.h"

namespace lockstep::train {

Tally::Tally(const torch::Device& device)
    : sums_(torch::zeros({2}, torch::dtype(torch::kFloat64).device(device))) {}

void Tally::add(const torch::Tensor& loss_sum, const torch::Tensor& correct,
                std::int64_t count) {
  sums_.select(0, 0).add_(loss_sum);
  sums_.select(0, 1).add_(correct);
  count_ += count;
}

void Tally::remember() {
  if (!remembered_sums_.defined()) remembered_sums_ = torch::empty_like(sums_);
  remembered_sums_.copy_(sums_);
  remembered_count_ = count_;
}

void Tally::rewind() {
  sums_.copy_(remembered_sums_);
  count_ = remembered_count_;
}

void Tally::reset() {
  sums_.zero_();
  count_ = 0;
}

Tally::Means Tally::means() const {
  const auto host = sums_.cpu();
  const auto count = static_cast<double>(std::max<std::int64_t>(count_, 1));
  return {host[0].item<double>() / count, host[1].item<double>() / count, count_};
}

Tally::Means Tally::means(comm::Communicator& cpu) const {
  const auto sums = sums_.cpu();
  const auto all = torch::empty({3}, torch::kFloat64);
  all.narrow(0, 0, 2).copy_(sums);
  all[2] = static_cast<double>(count_);
  cpu.all_reduce(all).wait();
  const auto count = all[2].item<double>();
  const auto divisor = std::max(count, 1.0);
  return {all[0].item<double>() / divisor, all[1].item<double>() / divisor,
          static_cast<std::int64_t>(count)};
}

void normalize_into(torch::Tensor& out, const torch::Tensor& in,
                    const data::SampleSpec& spec) {
  if (out.is_meta()) return;                           // it has no values
  c10::SmallVector<kernels::ScaleShift, 16> channels;  // on the stack
  for (const auto& c : spec.channels) channels.push_back({c.scale, c.shift});
  if (channels.empty()) channels.push_back({spec.scale, spec.shift});
  if (in.scalar_type() == torch::kUInt8) return kernels::normalize(out, in, channels);
  out.copy_(in);
  for (std::size_t c = 0; c < channels.size(); ++c) {
    auto part = channels.size() == 1 ? out : out.select(1, static_cast<int>(c));
    if (channels[c].scale != 1) part.mul_(channels[c].scale);
    if (channels[c].shift != 0) part.add_(channels[c].shift);
  }
}

InputStage::InputStage(data::SampleSpec spec, std::int64_t batch,
                       torch::MemoryFormat format, const torch::Device& device)
    : spec_(std::move(spec)), format_(format), device_(device) {
  reserve(batch);
}

void InputStage::reserve(std::int64_t batch) {
  if (spec_.is_tokens()) return;
  if (inputs_.defined() && batch <= inputs_.size(0)) return;
  inputs_.reset();  // before there are two
  planes_.reset();
  std::vector<std::int64_t> shape{batch};
  shape.insert(shape.end(), spec_.shape.begin(), spec_.shape.end());
  const auto options = torch::dtype(torch::kFloat32).device(device_);
  const bool channels_last =
      format_ == torch::MemoryFormat::ChannelsLast && spec_.shape.size() == 3;
  inputs_ = torch::empty(
      shape, channels_last ? options.memory_format(torch::MemoryFormat::ChannelsLast)
                           : options);
  // With one channel both layouts have the same order in memory: no second buffer.
  if (channels_last && spec_.shape[0] > 1) planes_ = torch::empty(shape, options);
}

InputStage::Samples InputStage::stage(const torch::Tensor& inputs,
                                      const torch::Tensor& targets) {
  if (!inputs_.defined()) return {inputs.to(device_), targets.to(device_)};
  const auto count = inputs.size(0);
  LOCKSTEP_CHECK(count <= inputs_.size(0), count, " > ", inputs_.size(0));
  auto ready = inputs_.narrow(0, 0, count);
  auto target = planes_.defined() ? planes_.narrow(0, 0, count) : ready;
  normalize_into(target, inputs.to(device_), spec_);
  if (planes_.defined()) ready.copy_(target);
  return {ready, targets.to(device_)};
}

void use_layout(models::Model& model) {
  for (auto& parameter : model.parameters()) {
    if (parameter.dim() == 4) {
      parameter.set_data(parameter.detach().contiguous(model.memory_format()));
    }
  }
}

Outcome forward(models::Model& model, const InputStage::Samples& samples,
                const precision::Policy& policy, const torch::Tensor& class_weights) {
  torch::Tensor logits;  // (B, classes) or (B, T, classes)
  {
    const precision::AutocastScope autocast(policy);
    const auto& x = samples.inputs;
    logits = model.forward(x.is_floating_point() ? x.to(policy.dtype()) : x);
  }
  auto targets = samples.targets;
  const bool soft = targets.is_floating_point();
  if (logits.dim() == 3) {
    logits = logits.flatten(0, 1);
    targets = targets.flatten();
  }
  // The loss is summed in at least float32 whatever the model computed in.
  const auto dtype = policy.loss_dtype();
  const auto loss = torch::cross_entropy_loss(
      logits.to(dtype), soft ? targets.to(dtype) : targets,
      class_weights.defined() ? class_weights.to(dtype) : class_weights,
      at::Reduction::Sum);
  const auto answers = soft ? targets.argmax(1) : targets;
  const auto said = logits.detach();
  return {loss, said.argmax(1).eq(answers).sum(), answers.numel(), said, answers};
}

Step::Step(Parts parts)
    : parts_(std::move(parts)),
      largest_(parts_.micro_batch),
      stage_(parts_.spec, 1, parts_.model->memory_format(), parts_.policy.device) {
  if (!parts_.class_weights.defined()) return;
  weight_sum_ =
      torch::zeros({1}, torch::dtype(torch::kFloat64).device(parts_.policy.device));
}

// A rank that has no memory for it takes part all the same, so that no other waits.
Step::Divisor Step::divisor_of(const data::Batch& batch) {
  const auto count = static_cast<double>(batch.global_size * parts_.spec.num_targets());
  const auto& weights = parts_.class_weights;
  if (!weights.defined() || batch.targets.is_floating_point()) return {count, {}};
  std::exception_ptr failure;
  const torch::NoGradGuard no_grad;
  weight_sum_.zero_();
  try {
    if (batch.size > 0) {
      const auto targets = batch.targets.to(weights.device()).flatten();
      weight_sum_.copy_(weights.index_select(0, targets).sum(torch::kFloat64));
    }
  } catch (const std::exception&) {
    failure = std::current_exception();
  }
  if (parts_.data != nullptr && parts_.data->size() > 1) {
    parts_.data->all_reduce(weight_sum_).wait();
  }
  if (failure) std::rethrow_exception(failure);
  // Targets that all weigh nothing have no loss; PyTorch's would be 0 / 0.
  const auto sum = weight_sum_.select(0, 0);
  return {count, torch::where(sum > 0, sum, std::numeric_limits<double>::infinity())};
}

void Step::set_micro_batch(std::int64_t size) {
  LOCKSTEP_CHECK(size >= 1 && size <= largest_, size, " of ", largest_);
  parts_.micro_batch = size;
}

void Step::backward(const data::Batch& batch, Tally& tally, double loss_scale) {
  auto& strategy = parts_.strategy;
  const auto samples = strategy.passes_must_match() ? batch.largest_size : batch.size;
  const auto passes = (samples + parts_.micro_batch - 1) / parts_.micro_batch;
  const auto divisor = divisor_of(batch);
  // As if every target weighed what they weigh in the mean: sums are then divided by
  // their number, here and in the tally.
  const auto weighed = [&](const torch::Tensor& sum) {
    if (!divisor.weights.defined()) return sum;
    return sum * (divisor.count / divisor.weights).to(sum.scalar_type());
  };
  std::int64_t begin = 0;
  stage_.reserve(std::min(parts_.micro_batch, samples));
  for (auto left = passes; left > 0; --left) {
    const auto count = (batch.size - begin + left - 1) / left;  // passes of one size
    const auto staged = stage_.stage(batch.inputs.narrow(0, begin, count),
                                     batch.targets.narrow(0, begin, count));
    Outcome outcome;
    tell(Pass::forward_begins);
    if (parts_.pass) {
      parts_.pass->begin(batch.begin.epoch, batch.begin.consumed + batch.first + begin,
                         count);
    }
    const auto compute = [&] {
      const Offload::Scope offloaded(parts_.offload.get());
      outcome = forward(*parts_.model, staged, parts_.policy, parts_.class_weights);
    };
    strategy.forward(std::ref(compute));  // by reference: nothing on the heap
    tally.add(weighed(outcome.loss_sum.detach()), outcome.correct, outcome.count);
    begin += count;
    const bool last = left == 1;
    tell(Pass::backward_begins);
    strategy.backward(weighed(outcome.loss_sum) / (divisor.count / loss_scale), last);
    tell(Pass::ends);
  }
}

}  // namespace lockstep::train
