#include "lockstep/models/dropout.h"

#include "lockstep/base/hash.h"
#include "lockstep/kernels/dropout.h"

namespace lockstep::models {
namespace {

using torch::Tensor;

Tensor drop(const Tensor& input, at::MemoryFormat format, const kernels::Drawn& drawn) {
  const auto in = input.contiguous(format);
  auto out = torch::empty_like(in);
  kernels::dropout(out, in, drawn);
  return out;
}

// The backward pass drops the elements that the forward pass did: it draws the same
// again.
struct ByKey : torch::autograd::Function<ByKey> {
  static Tensor forward(torch::autograd::AutogradContext* context, const Tensor& input,
                        const kernels::Drawn& drawn) {
    const auto format = input.suggest_memory_format();
    auto& saved = context->saved_data;
    saved["key"] = static_cast<std::int64_t>(drawn.key);
    saved["first"] = drawn.first_sample;
    saved["size"] = drawn.num_samples;
    saved["probability"] = drawn.probability;
    saved["place"] = reinterpret_cast<std::int64_t>(drawn.place);
    saved["layer"] = static_cast<std::int64_t>(drawn.layer);
    saved["call"] = static_cast<std::int64_t>(drawn.call);
    saved["format"] = static_cast<std::int64_t>(format);
    return drop(input, format, drawn);
  }

  static torch::autograd::variable_list backward(
      torch::autograd::AutogradContext* context,
      const torch::autograd::variable_list& gradients) {
    auto& saved = context->saved_data;
    const kernels::Drawn drawn{
        .key = static_cast<std::uint64_t>(saved["key"].toInt()),
        .first_sample = saved["first"].toInt(),
        .num_samples = saved["size"].toInt(),
        .probability = saved["probability"].toDouble(),
        .place = reinterpret_cast<const kernels::PassPlace*>(saved["place"].toInt()),
        .layer = static_cast<std::uint64_t>(saved["layer"].toInt()),
        .call = static_cast<std::uint64_t>(saved["call"].toInt())};
    const auto format = static_cast<at::MemoryFormat>(saved["format"].toInt());
    return {drop(gradients[0], format, drawn), Tensor()};
  }
};

}  // namespace

kernels::PassPlace SamplePass::place_of(std::int64_t epoch,
                                        std::int64_t first) const noexcept {
  return {scramble(scramble(seed_) ^ static_cast<std::uint64_t>(epoch)), first};
}

void SamplePass::begin(std::int64_t epoch, std::int64_t first,
                       std::int64_t size) noexcept {
  place_ = place_of(epoch, first);
  size_ = size;
  number_ += 1;
  if (next_on_device_ != nullptr) on_device_ = next_on_device_++;
}

void SamplePass::use_places(const kernels::PassPlace* first) noexcept {
  next_on_device_ = first;
  on_device_ = nullptr;
}

void DropoutImpl::pretty_print(std::ostream& stream) const {
  stream << "lockstep::models::Dropout(p=" << probability_ << ")";
}

void DropoutImpl::follow(std::shared_ptr<const SamplePass> pass, std::uint64_t layer) {
  pass_ = std::move(pass);
  layer_ = layer;
}

std::int64_t DropoutImpl::calls() const noexcept {
  return pass_ && counted_ == pass_->number() ? calls_ : 0;
}

void DropoutImpl::set_calls(std::int64_t calls) noexcept {
  counted_ = pass_ ? pass_->number() : 0;
  calls_ = calls;
}

Tensor DropoutImpl::forward(const Tensor& input) {
  const bool drops = is_training() && probability_ > 0 && probability_ < 1;
  // A tensor without a part for each sample has no known samples.
  const bool by_sample = pass_ && pass_->size() > 0 && input.numel() > 0 &&
                         input.numel() % pass_->size() == 0;
  if (!drops || !by_sample) return torch::dropout(input, probability_, is_training());
  const auto call = static_cast<std::uint64_t>(calls());
  set_calls(calls() + 1);
  return ByKey::apply(
      input, kernels::Drawn{.key = kernels::key_of_call(pass_->key(), layer_, call),
                            .first_sample = pass_->first(),
                            .num_samples = pass_->size(),
                            .probability = probability_,
                            .place = pass_->on_device(),
                            .layer = layer_,
                            .call = call});
}

std::vector<DropoutImpl*> find_dropouts(const torch::nn::Module& module) {
  std::vector<DropoutImpl*> found;
  for (const auto& part : module.modules(/*include_self=*/false)) {
    if (auto* dropout = part->as<DropoutImpl>()) found.push_back(dropout);
  }
  return found;
}

bool draws_from_torch(const torch::nn::Module& module) {
  for (const auto& part : module.modules(/*include_self=*/false)) {
    const auto* own = part->as<DropoutImpl>();
    if (own != nullptr && own->follows()) continue;
    if (part->name().find("Dropout") != std::string::npos) return true;
  }
  return false;
}

std::shared_ptr<SamplePass> draw_by_sample(const torch::nn::Module& model,
                                           std::uint64_t seed) {
  auto pass = std::make_shared<SamplePass>(seed);
  std::uint64_t layer = 0;
  for (auto* dropout : find_dropouts(model)) dropout->follow(pass, layer++);
  return pass;
}

}  // namespace lockstep::models
