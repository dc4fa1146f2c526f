#include <chrono>

#include <c10/core/impl/VirtualGuardImpl.h>

#include "lockstep/base/str.h"
#include "lockstep/models/gpt_pass.h"

namespace lockstep::models {
namespace {

using torch::Tensor;

// Takes gradients and throws them away.
class NoSink : public GradientSink {
 public:
  explicit NoSink(bool adds) : adds_(adds) {}
  Destination destination_of(const Tensor& parameter) override {
    if (!place_.defined() || place_.sizes() != parameter.sizes()) {
      place_ = torch::zeros_like(parameter);
    }
    return {place_, adds_};
  }
  void ready(const Tensor&) override {}

 private:
  const bool adds_;
  Tensor place_;
};

constexpr int kAttentionRuns = 10;

std::string name_of(CausalAttention::Kind kind) {
  switch (kind) {
    case CausalAttention::Kind::cpu:
      return "cpu";
    case CausalAttention::Kind::cudnn:
      return "cudnn";
    case CausalAttention::Kind::flash:
      return "flash";
    case CausalAttention::Kind::efficient:
      return "efficient";
  }
  return "";
}

double seconds_of(const CausalAttention& attention, const Tensor& qkv,
                  const Tensor& gradient) {
  const c10::impl::VirtualGuardImpl device(qkv.device().type());
  std::chrono::steady_clock::time_point begin;
  for (int i = -1; i < kAttentionRuns; ++i) {
    if (i == 0) {
      device.synchronizeDevice(qkv.device().index());
      begin = std::chrono::steady_clock::now();
    }
    attention.backward(qkv, attention.forward(qkv), gradient);
  }
  device.synchronizeDevice(qkv.device().index());
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  return took.count() / kAttentionRuns;
}

}  // namespace

GptPass::Tuned GptPass::tune(std::int64_t batch, std::int64_t length) {
  const torch::NoGradGuard no_grad;
  Tuned tuned;
  if (run_.device().is_cpu()) return tuned;
  const c10::DeviceGuard guard(run_.device());
  plan(batch, length);
  const auto options = parameters_.wte.options();
  const CausalAttention::Sizes sizes{batch, length, heads_, hidden_ / heads_};
  const auto qkv = torch::randn({count_, 3 * hidden_}, options);
  const auto gradient = torch::randn({count_, hidden_}, options);
  kind_.reset();
  for (const auto kind : CausalAttention::kinds_for(parameters_.wte)) {
    const auto seconds = seconds_of(CausalAttention(sizes, kind), qkv, gradient);
    tuned.attention.push_back(str(name_of(kind), " ", seconds * 1e3, " ms"));
    if (kind_ && seconds * 1e3 >= tuned.attention_ms) continue;
    tuned.attention_ms = seconds * 1e3;
    kind_ = kind;
  }
  attention_.emplace(sizes, *kind_);
  tuning_ = &tuned;
  const auto tokens =
      torch::randint(vocabulary_, {batch, length}, options.dtype(torch::kInt64));
  for (const bool adds : {false, true}) {
    NoSink sink(adds);
    forward(tokens, {});
    cross_entropy(tokens.flatten(), {.scale = 1.0 / static_cast<double>(count_)});
    backward(sink);
  }
  tuning_ = nullptr;
  return tuned;
}

}  // namespace lockstep::models
