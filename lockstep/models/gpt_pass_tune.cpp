#include <algorithm>
#include <chrono>
#include <utility>

#include <c10/core/impl/VirtualGuardImpl.h>

#include "lockstep/base/str.h"
#include "lockstep/models/gpt_pass.h"

namespace lockstep::models {
namespace {

using torch::Tensor;

// Takes gradients and throws them away.
class NoSink : public GradientSink {
 public:
  Destination destination_of(const Tensor& parameter) override {
    if (!place_.defined() || place_.sizes() != parameter.sizes()) {
      place_ = torch::zeros_like(parameter);
    }
    return {place_, false};
  }
  void ready(const Tensor&) override {}

 private:
  Tensor place_;
};

// Tokens in no order; without a generator, whose state is part of a run.
Tensor spread_tokens(std::int64_t count, std::int64_t vocabulary, const Tensor& like) {
  constexpr std::int64_t kStep = 1000003;
  return torch::arange(count, like.options().dtype(torch::kInt64))
      .mul_(kStep)
      .remainder_(vocabulary);
}

// Points at what is tuned while it lives.
class Tuning {
 public:
  Tuning(GptPass::Tuned*& at, GptPass::Tuned& tuned) : at_(at) { at_ = &tuned; }
  ~Tuning() { at_ = nullptr; }
  Tuning(const Tuning&) = delete;
  Tuning& operator=(const Tuning&) = delete;

 private:
  GptPass::Tuned*& at_;
};

constexpr int kAttentionRuns = 10;
constexpr std::size_t kMostPrepared = 8;  // shapes; data that has more varies

std::string name_of(CausalAttention::Kind kind) {
  switch (kind) {
    case CausalAttention::Kind::cpu:
      return "cpu";
    case CausalAttention::Kind::packed:
      return "cudnn, the same bits every time";
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
  const auto by_qkv = torch::empty_like(qkv);
  CausalAttention::Kept kept;
  std::chrono::steady_clock::time_point begin;
  for (int i = -1; i < kAttentionRuns; ++i) {
    if (i == 0) {
      device.synchronizeDevice(qkv.device().index());
      begin = std::chrono::steady_clock::now();
    }
    attention.forward(qkv, kept);
    attention.backward(qkv, {kept, gradient, by_qkv});
  }
  device.synchronizeDevice(qkv.device().index());
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  return took.count() / kAttentionRuns;
}

}  // namespace

// One that repeats its bits is taken as it is.
void GptPass::tune_attention(Tuned& tuned) {
  const auto options = parameters_.wte.options();
  const auto matrix = [&](std::int64_t columns) {
    return torch::linspace(-1, 1, plan_->count * columns, options)
        .view({plan_->count, columns});
  };
  const auto qkv = matrix(3 * hidden_), gradient = matrix(hidden_);
  const auto measure = [&](const CausalAttention& attention) {
    const auto ms = 1e3 * seconds_of(attention, qkv, gradient);
    tuned.attention.push_back(str(name_of(attention.kind()), " ", ms, " ms"));
    return ms;
  };
  tuned.attention_ms = measure(*plan_->attention);
  if (plan_->attention->kind() == CausalAttention::Kind::packed) return;
  const CausalAttention::Sizes sizes{plan_->batch, plan_->length, heads_,
                                     hidden_ / heads_};
  for (const auto kind : CausalAttention::kinds_for(parameters_.wte)) {
    if (kind == CausalAttention::Kind::packed || kind == plan_->attention->kind()) {
      continue;
    }
    const CausalAttention other(sizes, kind);
    const auto ms = measure(other);
    if (ms >= tuned.attention_ms) continue;
    tuned.attention_ms = ms;
    kind_ = kind;
    plan_->attention = other;
  }
}

GptPass::Tuned GptPass::tune(std::int64_t batch, std::int64_t length) {
  const torch::NoGradGuard no_grad;
  Tuned tuned;
  if (run_.device().is_cpu()) return tuned;
  const c10::DeviceGuard guard(run_.device());
  take_plan(batch, length);
  tune_attention(tuned);
  const Tuning tuning(tuning_, tuned);
  const auto tokens =
      spread_tokens(batch * length, vocabulary_, parameters_.wte).view({batch, length});
  NoSink sink;
  forward(tokens, {});
  cross_entropy(tokens.flatten(), {.scale = 1.0 / static_cast<double>(plan_->count)});
  backward(sink);
  return tuned;
}

void GptPass::prepare(std::int64_t batch, std::int64_t length) {
  const std::pair shape{batch, length};
  if (run_.device().is_cpu() || prepared_.size() >= kMostPrepared ||
      std::find(prepared_.begin(), prepared_.end(), shape) != prepared_.end() ||
      run_.is_capturing()) {
    return;
  }
  tune(batch, length);
  prepared_.push_back(shape);
}

std::string GptPass::choices() const {
  return gemms_ ? gemms_->choices() : "";
}

void GptPass::use_choices(const std::string& text) {
  if (gemms_) gemms_->use_choices(text);
}

}  // namespace lockstep::models
