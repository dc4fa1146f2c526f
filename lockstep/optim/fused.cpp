#include "lockstep/optim/detail/fused.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include <c10/core/DeviceGuard.h>

#include "lockstep/base/error.h"
#include "lockstep/kernels/cuda.h"
#include "lockstep/kernels/workers.h"

namespace lockstep::optim::detail {
namespace {

bool alike(const OptionRange& a, const OptionRange& b) {
  return a.end == b.begin && a.lr_scale == b.lr_scale &&
         a.weight_decay == b.weight_decay;
}

std::vector<OptionRange> merged(const std::vector<OptionRange>& ranges,
                                std::int64_t num_elements) {
  std::vector<OptionRange> out;
  std::int64_t end = 0;
  for (const auto& range : ranges) {
    LOCKSTEP_CHECK(range.begin >= end && range.end >= range.begin, range.begin, " to ",
                   range.end, " after ", end);
    end = range.end;
    if (range.begin == range.end) continue;
    if (!out.empty() && alike(out.back(), range)) {
      out.back().end = range.end;
    } else {
      out.push_back(range);
    }
  }
  LOCKSTEP_CHECK(end <= num_elements, end, " of ", num_elements);
  return out;
}

std::vector<kernels::Chunk> chunks_of(const std::vector<OptionRange>& ranges,
                                      std::int64_t longest) {
  std::vector<kernels::Chunk> chunks;
  for (const auto& range : ranges) {
    for (auto begin = range.begin; begin < range.end;) {
      // Cut where every buffer would be cut, so that chunks start aligned.
      const auto next = (begin / longest + 1) * longest;
      const auto end = std::min(next, range.end);
      chunks.push_back({begin, end, range.lr_scale, range.weight_decay});
      begin = end;
    }
  }
  return chunks;
}

torch::Tensor bytes_on(const std::vector<kernels::Chunk>& chunks,
                       const torch::Device& device) {
  const auto bytes = static_cast<std::int64_t>(chunks.size() * sizeof(kernels::Chunk));
  const auto host = torch::empty({bytes}, torch::kUInt8);
  std::copy_n(reinterpret_cast<const std::uint8_t*>(chunks.data()), bytes,
              host.data_ptr<std::uint8_t>());
  return host.to(device);
}

class Fused : public Optimizer {
 public:
  Fused(const FusedRule& rule, const torch::Tensor& values,
        std::vector<OptionRange> ranges)
      : rule_(rule), num_elements_(values.numel()), device_(values.device()) {
    const bool small = values.scalar_type() == torch::kBFloat16;
    LOCKSTEP_CHECK(small || values.scalar_type() == torch::kFloat32 ||
                       values.scalar_type() == torch::kFloat64,
                   values.scalar_type());
    LOCKSTEP_CHECK(values.dim() == 1 && values.is_contiguous());
    if (small) {
      master_ = torch::empty_like(values, torch::kFloat32);
      refresh(values);
    }
    const auto like = small ? master_ : values;
    if (rule.states.size() > 0) first_ = torch::zeros_like(like);
    if (rule.states.size() > 1) second_ = torch::zeros_like(like);
    if (rule.corrects_bias) steps_ = torch::zeros({}, torch::kInt64);
    set_options(std::move(ranges));
  }

  void step(torch::Tensor& values, const torch::Tensor& gradients,
            const StepArguments& arguments) override {
    const torch::NoGradGuard no_grad;
    check(values, gradients, arguments);
    const auto hyper = next_hyper(arguments);
    if (device_.is_cpu()) {
      if (workers_)
        kernels::update_cpu(raw(values, gradients, arguments, hyper), *workers_);
    } else if (kernels::cuda_available()) {
      const c10::DeviceGuard guard(device_);
      kernels::update_cuda(raw(values, gradients, arguments, hyper),
                           kernels::current_stream(device_.index()));
    } else {
      update_by_operators(rule_, hyper, ranges_, arguments.factor,
                          {.weights = weights(values),
                           .rounded = master_.defined() ? values : master_,
                           .gradients = gradients,
                           .first = first_,
                           .second = second_});
    }
  }

  NamedTensors state() const override {
    NamedTensors all;
    if (first_.defined()) all.emplace_back(rule_.states[0], first_);
    if (second_.defined()) all.emplace_back(rule_.states[1], second_);
    if (steps_.defined()) all.emplace_back("step", steps_);
    if (master_.defined()) all.emplace_back("master", master_);
    return all;
  }

  void set_options(std::vector<OptionRange> ranges) override {
    ranges_ = merged(ranges, num_elements_);
    const auto chunks = chunks_of(
        ranges_, device_.is_cpu() ? kernels::kHostChunk : kernels::kDeviceChunk);
    num_chunks_ = static_cast<std::int64_t>(chunks.size());
    chunks_ = bytes_on(chunks, device_);
    workers_.reset();
    if (device_.is_cpu() && num_chunks_ > 0) {
      workers_.emplace(num_chunks_, /*grain=*/1);
    }
  }

  void refresh(const torch::Tensor& values) override {
    const torch::NoGradGuard no_grad;
    if (master_.defined()) master_.copy_(values);
  }

  torch::Tensor weights(const torch::Tensor& values) const override {
    return master_.defined() ? master_ : values;
  }

 private:
  void check(const torch::Tensor& values, const torch::Tensor& gradients,
             const StepArguments& arguments) const {
    LOCKSTEP_CHECK(values.numel() == num_elements_ && values.is_contiguous());
    LOCKSTEP_CHECK(gradients.numel() == num_elements_ && gradients.is_contiguous());
    LOCKSTEP_CHECK(values.device() == device_ && gradients.device() == device_);
    LOCKSTEP_CHECK(
        gradients.scalar_type() == values.scalar_type() ||
            (master_.defined() && gradients.scalar_type() == torch::kFloat32),
        gradients.scalar_type(), " for ", values.scalar_type());
    LOCKSTEP_CHECK(!arguments.factor.defined() ||
                   (arguments.factor.scalar_type() == torch::kFloat64 &&
                    arguments.factor.numel() == 1 &&
                    arguments.factor.device() == device_));
  }

  kernels::Hyper next_hyper(const StepArguments& arguments) {
    kernels::Hyper hyper{.lr = arguments.lr,
                         .beta1 = rule_.beta1,
                         .beta2 = rule_.beta2,
                         .eps = rule_.eps,
                         .gradient_scale = arguments.gradient_scale,
                         .clip_value = arguments.clip_value};
    if (!steps_.defined()) return hyper;
    auto& count = *steps_.data_ptr<std::int64_t>();
    ++count;
    hyper.bias1 = 1 - std::pow(rule_.beta1, static_cast<double>(count));
    hyper.bias2 = 1 - std::pow(rule_.beta2, static_cast<double>(count));
    return hyper;
  }

  kernels::Storage storage(const torch::Tensor& values,
                           const torch::Tensor& gradients) const {
    if (values.scalar_type() == torch::kFloat64) return kernels::Storage::f64;
    if (!master_.defined()) return kernels::Storage::f32;
    return gradients.scalar_type() == torch::kFloat32
               ? kernels::Storage::bf16_with_f32_gradients
               : kernels::Storage::bf16;
  }

  kernels::Update raw(const torch::Tensor& values, const torch::Tensor& gradients,
                      const StepArguments& arguments, const kernels::Hyper& hyper) {
    const auto address = [](const torch::Tensor& tensor) {
      return tensor.defined() ? tensor.mutable_data_ptr() : nullptr;
    };
    return {.rule = rule_.rule,
            .storage = storage(values, gradients),
            .weights = address(weights(values)),
            .rounded = static_cast<std::uint16_t*>(master_.defined() ? address(values)
                                                                     : nullptr),
            .gradients = gradients.const_data_ptr(),
            .first = address(first_),
            .second = address(second_),
            .chunks = static_cast<const kernels::Chunk*>(chunks_.const_data_ptr()),
            .num_chunks = num_chunks_,
            .factor = static_cast<const double*>(address(arguments.factor)),
            .hyper = hyper};
  }

  FusedRule rule_;
  std::int64_t num_elements_;
  torch::Device device_;
  torch::Tensor master_, first_, second_;
  torch::Tensor steps_;  // on the host: the bias is corrected there
  std::vector<OptionRange> ranges_;
  torch::Tensor chunks_;  // their bytes, where the values are
  std::int64_t num_chunks_ = 0;
  std::optional<kernels::Workers> workers_;  // of a CPU
};

}  // namespace

std::unique_ptr<Optimizer> make_fused(const FusedRule& rule,
                                      const torch::Tensor& values,
                                      std::vector<OptionRange> ranges) {
  return std::make_unique<Fused>(rule, values, std::move(ranges));
}

}  // namespace lockstep::optim::detail
