#include "lockstep/optim/detail/fused.h"

#include <algorithm>
#include <cmath>
#include <list>
#include <optional>

#include <c10/core/DeviceGuard.h>

#include "lockstep/base/error.h"
#include "lockstep/kernels/cuda.h"
#include "lockstep/kernels/workers.h"
#include "lockstep/optim/detail/parts.h"

namespace lockstep::optim::detail {
namespace {

template <typename Pieces>
void check_order(const Pieces& pieces, std::int64_t num_elements) {
  std::int64_t end = 0;
  for (const auto& piece : pieces) {
    LOCKSTEP_CHECK(piece.begin >= end && piece.end >= piece.begin, piece.begin, " to ",
                   piece.end, " after ", end);
    end = piece.end;
  }
  LOCKSTEP_CHECK(end <= num_elements, end, " of ", num_elements);
}

bool alike(const OptionRange& a, const OptionRange& b) {
  return a.end == b.begin && a.lr_scale == b.lr_scale &&
         a.weight_decay == b.weight_decay;
}

std::vector<OptionRange> merged(const std::vector<OptionRange>& ranges,
                                std::int64_t num_elements) {
  check_order(ranges, num_elements);
  std::vector<OptionRange> out;
  for (const auto& range : ranges) {
    if (range.begin == range.end) continue;
    if (!out.empty() && alike(out.back(), range)) {
      out.back().end = range.end;
    } else {
      out.push_back(range);
    }
  }
  return out;
}

std::vector<kernels::Chunk> chunks_of(const std::vector<OptionRange>& ranges,
                                      std::int64_t longest) {
  std::vector<kernels::Chunk> chunks;
  for (const auto& range : ranges) {
    for (auto begin = range.begin; begin < range.end;) {
      // Chunks end at multiples of `longest`, so that the next ones start aligned.
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

// Elements that have seen equally many steps, as the kernels take them.
struct Work {
  Work(Part from, const torch::Device& device)
      : behind(from.behind), ranges(std::move(from.ranges)) {
    const auto list = chunks_of(
        ranges, device.is_cpu() ? kernels::kHostChunk : kernels::kDeviceChunk);
    num_chunks = static_cast<std::int64_t>(list.size());
    chunks = bytes_on(list, device);
    if (device.is_cpu() && num_chunks > 0) workers.emplace(num_chunks, /*grain=*/1);
  }

  std::int64_t behind;
  std::vector<OptionRange> ranges;
  torch::Tensor chunks;  // their bytes, where the values are
  std::int64_t num_chunks = 0;
  std::optional<kernels::Workers> workers;  // of a CPU
};

torch::Tensor rows_of(const std::vector<Behind>& behind) {
  const auto rows =
      torch::empty({static_cast<std::int64_t>(behind.size()), 3}, torch::kInt64);
  auto* row = rows.mutable_data_ptr<std::int64_t>();
  for (const auto& one : behind) {
    for (const auto number : {one.begin, one.end, one.steps}) *row++ = number;
  }
  return rows;
}

std::vector<Behind> behind_of(const torch::Tensor& rows) {
  if (rows.dim() != 2 || rows.size(1) != 3 || rows.scalar_type() != torch::kInt64) {
    throw Error(Fault::config, "optim: the saved '", kBehind, "' has the shape ",
                rows.sizes(), "; it is of another version");
  }
  const auto host = rows.cpu().contiguous();
  const auto* row = host.const_data_ptr<std::int64_t>();
  std::vector<Behind> behind;
  for (std::int64_t i = 0; i < host.size(0); ++i, row += 3) {
    behind.push_back({row[0], row[1], row[2]});
  }
  return behind;
}

class Fused : public Optimizer {
 public:
  Fused(const FusedRule& rule, const torch::Tensor& values,
        std::vector<OptionRange> ranges)
      : rule_(rule), num_elements_(values.numel()), device_(values.device()) {
    const bool small = values.scalar_type() == torch::kBFloat16 ||
                       values.scalar_type() == torch::kFloat16;
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
    check(values, gradients);
    LOCKSTEP_CHECK(!arguments.factor.defined() ||
                   (arguments.factor.scalar_type() == torch::kFloat64 &&
                    arguments.factor.numel() == 1 &&
                    arguments.factor.device() == device_));
    check_order(arguments.unused, num_elements_);
    count_step();
    if (steps_.defined() && !arguments.unused.empty()) {
      behind_ = one_more(behind_, arguments.unused);
    }
    // Updated elements are as far behind as before, so that the same unused ones need
    // no new cut.
    if (arguments.unused != unused_) {
      unused_ = arguments.unused;
      cut();
    }
    for (auto& work : works_) {
      auto raw = this->raw(work, values, gradients);
      raw.hyper = hyper_of(work, arguments, /*later=*/0);
      raw.factor = arguments.factor.defined()
                       ? arguments.factor.const_data_ptr<double>()
                       : nullptr;
      update(work, raw, {values, gradients, arguments.factor});
    }
  }

  std::int64_t use_all() override {
    if (!unused_.empty()) {
      unused_.clear();
      cut();
    }
    return cuts_;
  }

  std::vector<kernels::Hyper> hypers(const StepArguments& arguments,
                                     int later) const override {
    LOCKSTEP_CHECK(arguments.unused.empty() && unused_.empty());
    std::vector<kernels::Hyper> all;
    for (const auto& work : works_) {
      all.push_back(hyper_of(work, arguments, 1 + later));
    }
    return all;
  }

  void launch(torch::Tensor& values, const torch::Tensor& gradients,
              const HeldArguments& arguments) override {
    const torch::NoGradGuard no_grad;
    check(values, gradients);
    const auto* hyper = arguments.hypers;
    for (auto& work : works_) {
      auto raw = this->raw(work, values, gradients);
      raw.hyper_at = hyper++;
      raw.factor = arguments.factor;
      raw.skip = arguments.skip;
      update(work, raw, {values, gradients, {}});
    }
  }

  void count_step() override {
    if (steps_.defined()) ++*steps_.data_ptr<std::int64_t>();
  }

  NamedTensors state() const override {
    NamedTensors all;
    if (first_.defined()) all.emplace_back(rule_.states[0], first_);
    if (second_.defined()) all.emplace_back(rule_.states[1], second_);
    if (steps_.defined()) all.emplace_back("step", steps_);
    if (master_.defined()) all.emplace_back("master", master_);
    if (!behind_.empty()) all.emplace_back(kBehind, rows_of(behind_));
    return all;
  }

  void load(const NamedTensors& from) override {
    const auto is_behind = [](const auto& item) { return item.first == kBehind; };
    auto own = state(), saved = from;
    std::erase_if(own, is_behind);
    std::erase_if(saved, is_behind);
    copy_state(own, saved, "optim");
    const auto found = std::find_if(from.begin(), from.end(), is_behind);
    set_behind(found == from.end() ? std::vector<Behind>{} : behind_of(found->second));
  }

  const std::vector<Behind>& behind() const override { return behind_; }

  void set_behind(std::vector<Behind> behind) override {
    check_order(behind, num_elements_);
    if (!steps_.defined()) return;
    behind_ = std::move(behind);
    cut();
  }

  void set_options(std::vector<OptionRange> ranges) override {
    ranges_ = merged(ranges, num_elements_);
    cut();
  }

  void refresh(const torch::Tensor& values) override {
    const torch::NoGradGuard no_grad;
    if (master_.defined()) master_.copy_(values);
  }

  torch::Tensor weights(const torch::Tensor& values) const override {
    return master_.defined() ? master_ : values;
  }

 private:
  void check(const torch::Tensor& values, const torch::Tensor& gradients) const {
    if (gradients.layout() != torch::kStrided) {
      throw Error(Fault::config,
                  "optim: the gradients are sparse, and this optimizer takes dense "
                  "ones; give gradients.to_dense(), or make the embedding with "
                  "sparse(false)");
    }
    LOCKSTEP_CHECK(values.numel() == num_elements_ && values.is_contiguous());
    LOCKSTEP_CHECK(gradients.numel() == num_elements_ && gradients.is_contiguous());
    LOCKSTEP_CHECK(values.device() == device_ && gradients.device() == device_);
    LOCKSTEP_CHECK(
        gradients.scalar_type() == values.scalar_type() ||
            (master_.defined() && gradients.scalar_type() == torch::kFloat32),
        gradients.scalar_type(), " for ", values.scalar_type());
  }

  void cut() {
    ++cuts_;
    works_.clear();
    for (auto& part : cut_by_steps(ranges_, unused_, behind_)) {
      works_.emplace_back(std::move(part), device_);
    }
  }

  // The operators' arguments, where there is no kernel.
  struct Tensors {
    torch::Tensor values, gradients, factor;
  };
  void update(Work& work, const kernels::UpdateArgs& raw, const Tensors& tensors) {
    if (device_.is_cpu()) {
      if (work.workers) kernels::update_cpu(raw, *work.workers);
    } else if (kernels::cuda_available()) {
      const c10::DeviceGuard guard(device_);
      kernels::update_cuda(raw, kernels::current_stream(device_.index()));
    } else {
      LOCKSTEP_CHECK(raw.hyper_at == nullptr);
      update_by_operators(
          {.rule = rule_.rule,
           .hyper = raw.hyper,
           .ranges = work.ranges,
           .factor = tensors.factor,
           .buffers = {.weights = weights(tensors.values),
                       .rounded = master_.defined() ? tensors.values : master_,
                       .gradients = tensors.gradients,
                       .first = first_,
                       .second = second_}});
    }
  }

  kernels::Hyper hyper_of(const Work& work, const StepArguments& arguments,
                          int later) const {
    kernels::Hyper hyper{.lr = arguments.lr,
                         .beta1 = rule_.beta1,
                         .beta2 = rule_.beta2,
                         .eps = rule_.eps,
                         .gradient_scale = arguments.gradient_scale,
                         .clip_value = arguments.clip_value};
    if (!steps_.defined()) return hyper;
    const auto count =
        static_cast<double>(*steps_.data_ptr<std::int64_t>() + later - work.behind);
    hyper.bias1 = 1 - std::pow(rule_.beta1, count);
    hyper.bias2 = 1 - std::pow(rule_.beta2, count);
    return hyper;
  }

  kernels::Storage storage(const torch::Tensor& values,
                           const torch::Tensor& gradients) const {
    if (values.scalar_type() == torch::kFloat64) return kernels::Storage::f64;
    if (!master_.defined()) return kernels::Storage::f32;
    const bool wide = gradients.scalar_type() == torch::kFloat32;
    if (values.scalar_type() == torch::kFloat16) {
      return wide ? kernels::Storage::f16_with_f32_gradients : kernels::Storage::f16;
    }
    return wide ? kernels::Storage::bf16_with_f32_gradients : kernels::Storage::bf16;
  }

  // Returns the arguments that do not change from step to step.
  kernels::UpdateArgs raw(const Work& work, const torch::Tensor& values,
                          const torch::Tensor& gradients) const {
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
            .chunks = static_cast<const kernels::Chunk*>(work.chunks.const_data_ptr()),
            .num_chunks = work.num_chunks};
  }

  FusedRule rule_;
  std::int64_t num_elements_;
  torch::Device device_;
  torch::Tensor master_, first_, second_;
  torch::Tensor steps_;  // on the host: the bias is corrected there
  std::vector<OptionRange> ranges_;
  std::vector<Elements> unused_;  // of the last step
  std::vector<Behind> behind_;
  std::int64_t cuts_ = 0;  // so often
  std::list<Work> works_;  // one, unless elements have been unused
};

}  // namespace

std::unique_ptr<Optimizer> make_fused(const FusedRule& rule,
                                      const torch::Tensor& values,
                                      std::vector<OptionRange> ranges) {
  return std::make_unique<Fused>(rule, values, std::move(ranges));
}

}  // namespace lockstep::optim::detail
