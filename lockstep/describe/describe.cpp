#include "lockstep/describe/describe.h"

#include <algorithm>
#include <functional>
#include <optional>

#include <ATen/record_function.h>

#include "lockstep/base/error.h"
#include "lockstep/describe/detail/counts.h"
#include "lockstep/describe/detail/own_passes.h"
#include "lockstep/describe/detail/samples.h"
#include "lockstep/describe/detail/subject.h"
#include "lockstep/hardware/machine.h"
#include "lockstep/memory/memory_meter.h"
#include "lockstep/models/deferred.h"
#include "lockstep/models/lora.h"
#include "lockstep/task/build.h"
#include "lockstep/train/build.h"
#include "lockstep/train/step.h"

namespace lockstep::describe {
namespace {

using detail::count_buffers, detail::count_frozen, detail::count_parameters;
using detail::stage_of;
using detail::Subject;
using run::Footprint;
using run::ModelUnit;

// Batch normalisation needs more than one sample.
constexpr std::int64_t kLeast = 2;
constexpr std::int64_t kMost = 64;
// Gradients of weights are larger than those of a few activations: passes over so many
// bytes show what grows.
constexpr std::int64_t kEnoughBytes = 32 << 20;

double numel_of(const at::IValue& value) {
  return value.isTensor() && value.toTensor().defined()
             ? static_cast<double>(value.toTensor().numel())
             : 0;
}

// Counts what operators of this thread do while it lives.
class OperatorCount {
 public:
  OperatorCount() {
    handle_ = at::addThreadLocalCallback(
        at::RecordFunctionCallback(&OperatorCount::begin, &OperatorCount::end)
            .needsInputs(true)
            .needsOutputs(true)
            .scopes({at::RecordScope::FUNCTION}));
    current() = this;
  }
  ~OperatorCount() {
    at::removeCallback(handle_);
    current() = nullptr;
  }
  OperatorCount(const OperatorCount&) = delete;
  OperatorCount& operator=(const OperatorCount&) = delete;

  double flops() const noexcept { return flops_; }
  std::int64_t operators() const noexcept { return operators_; }

 private:
  // A callback has no place for data of the caller.
  static OperatorCount*& current() {
    thread_local OperatorCount* one = nullptr;  // NOLINT: see above
    return one;
  }

  // The number of products in each element of the result: inputs are there only when an
  // operator begins, outputs only when it ends.
  struct Length : at::ObserverContext {
    explicit Length(double its_products) : products(its_products) {}
    double products;
  };

  static std::unique_ptr<at::ObserverContext> begin(
      const at::RecordFunction& function) {
    auto* count = current();
    if (count == nullptr) return nullptr;
    count->operators_ += count->depth_++ == 0 ? 1 : 0;
    return std::make_unique<Length>(products_of(function));
  }
  static void end(const at::RecordFunction& function, at::ObserverContext* context) {
    auto* count = current();
    const auto* length = dynamic_cast<const Length*>(context);
    if (count == nullptr || length == nullptr) return;
    --count->depth_;
    if (length->products == 0 || function.outputs().empty()) return;
    count->flops_ += 2 * length->products * numel_of(function.outputs()[0]);
  }

  // Returns 0 for an operator that is no product: it is counted by the bytes it moves.
  static double products_of(const at::RecordFunction& function) {
    const std::string_view name = function.name();
    const auto inputs = function.inputs();
    const auto tensor = [&](std::size_t i) {
      return i < inputs.size() && inputs[i].isTensor() ? inputs[i].toTensor()
                                                       : torch::Tensor();
    };
    if (name == "aten::convolution") {
      const auto weight = tensor(1);
      return weight.defined() ? static_cast<double>(weight.numel() / weight.size(0))
                              : 0;
    }
    // Attention in one operator makes a product with every key, and one with its value.
    // Where it is made of other operators, these are counted.
    const bool fused = name.starts_with("aten::_scaled_dot_product_") &&
                       name.find("math") == name.npos &&
                       name.find("backward") == name.npos;
    if (fused) {
      const auto keys = tensor(1);
      return keys.defined() ? 2.0 * static_cast<double>(keys.size(-2)) : 0;
    }
    const bool adds = name == "aten::addmm" || name == "aten::baddbmm";
    if (!adds && name != "aten::mm" && name != "aten::bmm") return 0;
    const auto left = tensor(adds ? 1 : 0);
    return left.defined() ? static_cast<double>(left.size(-1)) : 0;
  }

  at::CallbackHandle handle_ = 0;
  int depth_ = 0;
  double flops_ = 0;
  std::int64_t operators_ = 0;
};

// The counts when a block began; the last one is the end of all blocks.
struct PassMark {
  std::int64_t bytes = 0;
  double flops = 0;
  std::int64_t operators = 0;
  std::int64_t elements = 0;  // of the inputs
};

// A forward and a backward pass.
struct Passes {
  std::vector<PassMark> marks;
  PassMark end;                    // of the forward pass
  std::int64_t backward_peak = 0;  // beyond what was kept
  std::int64_t forward_peak = 0;   // without gradients
  std::int64_t outputs = 0;        // elements of a sample
};

void evaluate(const Subject& subject, const precision::Policy& policy,
              const data::Batch& batch) {
  const torch::NoGradGuard no_gradients;
  subject.model.eval();
  auto stage = stage_of(subject, batch.size, policy.device);
  const auto& staged = stage.stage(batch, 0, batch.size);
  const auto outputs = train::Forward(subject.model, policy)(staged);
  subject.task.sums(outputs, staged, {false, policy.loss_dtype()});
  subject.model.train();
}

Passes run_passes(const Subject& subject, const precision::Policy& policy,
                  std::int64_t batch) {
  auto& model = subject.model;
  const auto samples = data::made_up_batch(subject.spec, batch, policy.device);
  Passes passes;
  model.train();
  const auto step = [&](memory::MemoryMeter* memory) {
    std::optional<data::BatchStage> stage;
    const auto before = memory == nullptr ? 0 : memory->used_bytes();
    const OperatorCount operators;
    const auto mark = [&](std::int64_t elements) -> PassMark {
      if (memory == nullptr) return {};
      return {memory->used_bytes() - before, operators.flops(), operators.operators(),
              elements / batch};
    };
    model.watch_blocks([&](std::size_t, const torch::Tensor& x) {
      passes.marks.push_back(mark(x.numel()));
    });
    stage.emplace(stage_of(subject, batch, policy.device));
    const auto& staged = stage->stage(samples, 0, batch);
    const auto outputs = train::Forward(model, policy)(staged);
    const auto losses = subject.task.sums(outputs, staged, {true, policy.loss_dtype()});
    passes.end = mark(0);
    passes.outputs = 0;
    for (const auto& output : outputs) passes.outputs += output.tensor.numel() / batch;
    auto total = losses[0];
    for (std::size_t i = 1; i < losses.size(); ++i) total = total + losses[i];
    total.backward();
    if (memory != nullptr) {
      passes.backward_peak = memory->peak_bytes() - before - passes.end.bytes;
    }
  };
  if (!model.parameters()[0].grad().defined()) {
    step(nullptr);  // gradients have their memory from now on
    passes.marks.clear();
  }
  memory::MemoryMeter memory(policy.device);
  step(&memory);
  model.watch_blocks({});
  memory.restart_peak();
  const auto before = memory.used_bytes();
  evaluate(subject, policy, samples);
  passes.forward_peak = memory.peak_bytes() - before;
  return passes;
}

// Passes of two sizes, so that memory that grows can be told from memory that does not.
struct Pair {
  std::int64_t size = kLeast;  // of `few`; `more` has twice as many samples
  Passes few, more;

  // Returns the line through some number of both.
  Footprint line(const std::function<std::int64_t(const Passes&)>& bytes) const {
    const auto less = bytes(few);
    const auto per_sample = std::max<std::int64_t>(0, (bytes(more) - less) / size);
    return {per_sample, std::max<std::int64_t>(0, less - size * per_sample)};
  }
};

torch::Device device_of(const models::Model& model) {
  return model.parameters()[0].device();
}

std::int64_t size_for(const Subject& subject) {
  const precision::Policy policy{config::Precision::fp32, device_of(subject.model)};
  const auto bytes = run_passes(subject, policy, kLeast).end.bytes / kLeast;
  return std::clamp(kEnoughBytes / std::max<std::int64_t>(1, bytes), kLeast, kMost);
}

Pair run_pair(const Subject& subject, config::Precision precision, std::int64_t size) {
  const precision::Policy policy{precision, device_of(subject.model)};
  return {size, run_passes(subject, policy, size),
          run_passes(subject, policy, 2 * size)};
}

// The same passes in both precisions.
struct Pairs {
  const Pair &fp32, &half;
};

ModelUnit unit_of_block(const models::Model& model, std::size_t i, const Pairs& pairs) {
  const auto& [fp32, half] = pairs;
  const auto between = [i](const Passes& p) {
    return p.marks[i + 1].bytes - p.marks[i].bytes;
  };
  const auto& module = model.block(i);
  const auto& begin = fp32.few.marks[i];
  const auto& end = fp32.few.marks[i + 1];
  ModelUnit unit;
  unit.name = str("block", i);
  unit.num_parameters = count_parameters(module);
  unit.buffer_bytes = count_buffers(module);
  unit.forward_flops = (end.flops - begin.flops) / static_cast<double>(fp32.size);
  unit.operators = end.operators - begin.operators;
  unit.kept = {fp32.line(between), half.line(between)};
  unit.num_inputs = begin.elements;
  unit.num_outputs = end.elements;
  unit.recomputable = true;
  return unit;
}

// Returns the part of a model before, after and besides the blocks.
ModelUnit outside_of_blocks(const models::Model& model,
                            const std::vector<ModelUnit>& blocks, const Pairs& pairs) {
  const auto& [fp32, half] = pairs;
  const auto outside = [&](const Passes& p) {
    if (blocks.empty()) return p.end.bytes;
    return p.end.bytes - (p.marks.back().bytes - p.marks.front().bytes);
  };
  const auto& end = fp32.few.end;
  ModelUnit unit;
  unit.name = blocks.empty() ? "model" : "rest";
  unit.num_parameters = count_parameters(model);
  unit.buffer_bytes = count_buffers(model);
  unit.forward_flops = end.flops / static_cast<double>(fp32.size);
  unit.operators = end.operators;
  for (const auto& block : blocks) {
    unit.num_parameters -= block.num_parameters;
    unit.buffer_bytes -= block.buffer_bytes;
    unit.forward_flops -= block.forward_flops;
    unit.operators -= block.operators;
  }
  unit.kept = {fp32.line(outside), half.line(outside)};
  unit.num_outputs = fp32.few.outputs;
  return unit;
}

// Tensors without memory are not cast: in 16 bits a sample takes half of it, and every
// weight a copy.
void halve(Footprint& half, std::int64_t num_parameters) {
  half.per_sample_bytes /= 2;
  half.fixed_bytes += 2 * num_parameters;
}

// The bytes per parameter of the passes that measure a model: weights, gradients,
// copies in 16 bits and some activations.
constexpr double kBytesToTry = 12;

// A description should take seconds, and not the memory that others need.
std::int64_t bytes_to_spare() {
  constexpr std::int64_t kMostBytes = 768 << 20;
  constexpr std::int64_t kShare = 4;
  const auto available = hardware::host_memory().available_bytes;
  return available > 0 ? std::min(kMostBytes, available / kShare) : kMostBytes;
}

}  // namespace

data::BatchStage detail::stage_of(const Subject& subject, std::int64_t batch,
                                  const torch::Device& device) {
  data::BatchStage stage(
      {.spec = subject.spec,
       .wanted = data::wanted_by(subject.model.inputs(), subject.task.fields()),
       .format = subject.model.memory_format(),
       .device = device});
  stage.reserve(batch);
  return stage;
}

run::ModelDescription describe_model(models::Model& model, const data::SampleSpec& spec,
                                     const task::Task& task) {
  if (model.parameters().empty()) {
    throw Error(Fault::config,
                "model: it has no parameter, so that there is nothing to train");
  }
  const Subject subject{model, spec, task};
  model.recompute_every(0);
  train::use_layout(model);
  const bool deferred = device_of(model).is_meta();
  const auto size = size_for(subject);
  const auto fp32 = run_pair(subject, config::Precision::fp32, size);
  const auto half = deferred ? fp32 : run_pair(subject, config::Precision::bf16, size);
  run::ModelDescription described;
  described.source =
      deferred ? "lockstep_worker --describe: counted, too large to be tried here"
               : "lockstep_worker --describe: measured on a CPU";
  for (const auto& tensor : spec.tensors()) {
    described.sample_bytes += tensor.num_bytes();
  }
  const auto backward = [](const Passes& p) { return p.backward_peak; };
  const auto evaluation = [](const Passes& p) { return p.forward_peak; };
  described.backward = {fp32.line(backward), half.line(backward)};
  described.forward = {fp32.line(evaluation), half.line(evaluation)};
  for (std::size_t i = 0; i < model.num_blocks(); ++i) {
    described.units.push_back(unit_of_block(model, i, {fp32, half}));
  }
  described.units.push_back(outside_of_blocks(model, described.units, {fp32, half}));
  model.zero_grad(/*set_to_none=*/true);
  if (!deferred) return described;
  for (auto& unit : described.units) halve(unit.kept.half, unit.num_parameters);
  halve(described.backward.half, 0);
  halve(described.forward.half, described.num_parameters());
  return described;
}

run::ModelDescription describe_model(const config::Config& config) {
  const auto samples = detail::samples_of(config);
  const auto& spec = samples.spec;
  const auto shape = train::shape_of(spec);
  const auto build = [&] {
    auto built = models::build(config.model, shape);
    if (config.lora.rank > 0) models::add_lora(*built, config.lora);
    return built;
  };
  auto model = [&] {
    const models::DeferredMemory deferred;
    return build();
  }();
  const auto parameters = static_cast<double>(count_parameters(*model));
  if (kBytesToTry * parameters <= static_cast<double>(bytes_to_spare())) {
    model = build();
  }
  const auto task = task::make_task(config, spec, {});
  auto described = describe_model(*model, spec, *task);
  if (!device_of(*model).is_meta()) {
    const Subject subject{.model = *model, .spec = spec, .task = *task};
    detail::add_trials(described, subject, 2 * size_for(subject));
  }
  described.name = config.model.name;
  described.frozen_parameters = count_frozen(*model);
  described.train_samples = samples.train_samples;
  described.assumed_data = samples.assumed;
  described.own_passes = detail::describe_own_passes(config, *model, shape);
  if (!spec.target_shape.empty()) described.sequence = spec.target_shape[0];
  return described;
}

}  // namespace lockstep::describe
