#include "lockstep/train/build.h"

#include <algorithm>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "lockstep/base/text.h"
#include "lockstep/checkpoint/adapters.h"
#include "lockstep/checkpoint/load.h"
#include "lockstep/comm/same.h"
#include "lockstep/config/decisions.h"
#include "lockstep/config/field.h"
#include "lockstep/data/loader.h"
#include "lockstep/data/open.h"
#include "lockstep/hf/base_digest.h"
#include "lockstep/hf/settle.h"
#include "lockstep/models/deferred_init.h"
#include "lockstep/models/lora.h"
#include "lockstep/task/build.h"
#include "lockstep/train/device.h"
#include "lockstep/train/own_passes.h"
#include "lockstep/train/step.h"

namespace lockstep::train {
namespace {

void check_recompute(const config::Config& config, const models::Model& model) {
  if (config.memory.recompute_every.value() == 0) return;
  if (model.num_blocks() == 0) {
    throw Error(Fault::config, "memory.recompute_every: ", config.model.name,
                " has no blocks that could be computed again; set it to 0");
  }
  // BatchNorm would exchange statistics once more, in the middle of a backward pass.
  if (config.parallel.sync_batch_norm) {
    throw Error(Fault::config,
                "memory.recompute_every: blocks with parallel.sync_batch_norm cannot "
                "be computed again; switch one of them off");
  }
}

// The layers inside of a script are not visible to us.
void check_torchscript(const config::Config& config) {
  if (config.model.name != "torchscript") return;
  const bool params = config::has_half_parameters(config.precision.mode);
  if (!config.parallel.sync_batch_norm && !params) return;
  throw Error(
      Fault::config,
      config.parallel.sync_batch_norm ? "parallel.sync_batch_norm" : "precision.mode",
      ": batch norms of a torchscript model cannot be told apart from its other "
      "layers; leave it at its default, or train a model of LibTorch's layers");
}

// Names the knobs of two sections that are not alike.
template <typename Section>
class Differences {
 public:
  Differences(Section& own, Section& other) {
    describe(own, *this);
    is_second_ = true;
    describe(other, *this);
  }

  template <typename T>
  void field(std::string_view name, T& value, const config::Field&) {
    if (!is_second_) {
      values_.push_back(&value);
    } else if (!(*static_cast<T*>(values_[next_++]) == value)) {
      names.emplace_back(name);
    }
  }

  std::vector<std::string> names;

 private:
  std::vector<void*> values_;  // of the first, in the order in which they are described
  std::size_t next_ = 0;
  bool is_second_ = false;
};

// A task of the program's own has its losses, metrics and weights of classes: what a
// recipe says of them would do nothing.
void check_own_task(const config::Config& config) {
  config::Config own = config, standard;
  std::vector<std::string> unused;
  for (const auto& name : Differences(own.task, standard.task).names) {
    unused.push_back("task." + name);
  }
  const auto look = [&](const char* knob, bool is_set) {
    if (is_set) unused.emplace_back(knob);
  };
  look("data.class_weights", !config.data.class_weights.empty());
  look("data.balanced_loss", config.data.balanced_loss);
  look("train.metrics", config.train.metrics != standard.train.metrics);
  look("eval.metrics", config.eval.metrics != standard.eval.metrics);
  look("eval.top_k", config.eval.top_k != standard.eval.top_k);
  if (unused.empty()) return;
  throw Error(Fault::config, text::join(unused, ", "),
              unused.size() == 1 ? " is" : " are",
              " not used: the program gives a task of its own, which has its losses "
              "and metrics; leave out what the recipe says of them");
}

void add_adapters(const config::Config& config, models::Model& model) {
  const auto layers = models::add_lora(model, config.lora);
  log::info("train",
            str("adapters of rank ", config.lora.rank, " beside ", layers.size(),
                " layers; all other parameters stay as they "
                "are"));
}

void load_weights(const config::Config& config, const checkpoint::LoadTarget& target,
                  std::int64_t vocabulary) {
  if (config.model.weights.empty()) return;
  checkpoint::LoadRules rules{config.checkpoint.allow_missing, config.checkpoint.ignore,
                              config.model.pad_vocabulary, vocabulary};
  if (models::has_lora(target.model)) {
    rules.allow_missing +=
        str(rules.allow_missing.empty() ? "" : ",", models::kLoraNames);
  }
  checkpoint::load_weights(config.model.weights, target, rules);
}

void load_adapters(const config::Config& config, const checkpoint::LoadTarget& target) {
  if (config.lora.rank == 0 || config.lora.weights.empty()) return;
  checkpoint::load_adapters(config.lora.weights, target, config.lora);
}

// The parts that a model is made of.
struct ModelParts {
  const config::Config& config;
  const config::ModelConfig& model;  // with nothing left to decide
  const models::Shape& shape;
  Shared& shared;
};

// Their memory is given back when they have been used.
auto values_of(const models::Model& model) {
  using Value = std::pair<torch::Tensor, torch::Tensor>;
  const auto values = std::make_shared<std::vector<Value>>();
  for (const auto& parameter : model.parameters()) {
    values->emplace_back(parameter, parameter.detach());
  }
  return [values](const parallel::EngineOptions::Assign& assign) {
    for (const auto& [parameter, value] : std::exchange(*values, {})) {
      assign(parameter, value);
    }
  };
}

bool rounds(const precision::Policy& policy) {
  return torch::elementSize(policy.dtype()) == 2;
}

void build_whole(const ModelParts& parts, Built& built) {
  const auto& config = parts.config;
  const auto& own = parts.shared.hooks.build_model;
  built.model = own ? own(parts.shape) : models::build(parts.model, parts.shape);
  if (rounds(built.policy)) {
    load_weights(config, *built.model, parts.shape.num_classes);
    built.unrounded = values_of(*built.model);
  }
  precision::convert(*built.model, built.policy);
  // Weights are loaded after the conversion: those in the run's dtype are not rounded.
  if (!rounds(built.policy)) {
    load_weights(config, *built.model, parts.shape.num_classes);
  }
  if (config.lora.rank > 0) add_adapters(config, *built.model);
  load_adapters(config, *built.model);
}

// Values are drawn when the shards have their places, from the same random numbers.
void build_deferred(const ModelParts& parts, Built& built) {
  const auto& config = parts.config;
  const auto init = std::make_shared<models::DeferredInit>();
  auto generator = at::detail::getDefaultCPUGenerator();
  const auto before = generator.get_state();
  built.model = init->build([&] {
    auto model = models::build(parts.model, parts.shape);
    if (config.lora.rank > 0) add_adapters(config, *model);
    return model;
  });
  precision::convert(*built.model, built.policy);
  built.fill = [=, &model = *built.model, &lock = parts.shared.setting_up,
                classes = parts.shape.num_classes](const auto& assign) {
    const std::lock_guard one_at_a_time(lock);
    auto drawing = generator;
    drawing.set_state(before);
    init->replay(assign);
    load_weights(config, {model, assign}, classes);
    load_adapters(config, {model, assign});
  };
  if (rounds(built.policy)) built.unrounded = built.fill;
}

}  // namespace

Built build(const config::Config& config, comm::World& world, Shared& shared) {
  const std::lock_guard lock(shared.setting_up);
  Built built;
  if (shared.hooks.task) check_own_task(config);
  built.policy = set_up_process(config, world.data().device());
  const auto shape = shape_of(shared.train_data->spec());
  const bool is_ours = !shared.hooks.build_model;
  if (is_ours) hf::check_settled(config);
  const auto model = with_passes(config, {.shape = shape,
                                          .is_cuda = built.policy.device.is_cuda(),
                                          .tells = is_ours && world.rank() == 0});
  const ModelParts parts{config, model, shape, shared};
  if (is_ours && config.model.name != "torchscript" &&
      parallel::defers_memory(config.parallel, world)) {
    build_deferred(parts, built);
  } else {
    build_whole(parts, built);
  }
  use_layout(*built.model);
  check_own_passes(config, *built.model);
  check_torchscript(config);
  check_recompute(config, *built.model);
  built.model->recompute_every(config.memory.recompute_every.value());
  built.task = shared.hooks.task ? shared.hooks.task
                                 : build_task(config, *shared.train_data, built.policy);
  return built;
}

void give_unrounded(const Built& built, parallel::Strategy& strategy) {
  if (!built.unrounded) return;
  const torch::NoGradGuard no_grad;
  std::map<const c10::TensorImpl*, std::string> names;
  for (const auto& parameter : strategy.parameters()) {
    // Adapters begin as they are computed with, wherever they were drawn.
    if (parameter.tensor.element_size() != 2 || models::is_lora(parameter.name)) {
      continue;
    }
    names.emplace(parameter.tensor.unsafeGetTensorImpl(), parameter.name);
  }
  built.unrounded([&](const torch::Tensor& parameter, const torch::Tensor& value) {
    const auto found = names.find(parameter.unsafeGetTensorImpl());
    if (found == names.end()) return;
    strategy.full_tensors().set_parameter(found->second, value);
  });
}

std::string digest_of_base(const config::Config& config) {
  if (config::saves_frozen(config.lora, config.model)) return "";
  return hf::digest_of_weights(config.model.weights);
}

models::Shape shape_of(const data::SampleSpec& spec) {
  return {spec.shape, spec.num_classes, spec.tensors()};
}

std::shared_ptr<const task::Task> build_task(const config::Config& config,
                                             const data::Dataset& train,
                                             const precision::Policy& policy) {
  const auto weights = data::class_weights(config.data, train);
  torch::Tensor on_device;
  if (!weights.empty()) {
    on_device = torch::tensor(weights, policy.loss_dtype()).to(policy.device);
  }
  return task::make_task(config, train.spec(), on_device);
}

std::shared_ptr<memory::Offload> make_offload(const config::MemoryConfig& config,
                                              const parallel::Strategy& strategy,
                                              const torch::Device& device) {
  if (!config.offload.value()) return nullptr;
  memory::Offload::Options options{.device = device, .resident = {}};
  for (const auto& parameter : strategy.parameters()) {
    options.resident.push_back(parameter.tensor);
  }
  return std::make_shared<memory::Offload>(options);
}

void check_same_data(comm::World& world, const Shared& shared) {
  if (world.size() == 1) return;
  comm::check_same(world.cpu(), "split of the data",
                   {{"training samples", str(shared.train_data->size())},
                    {"test samples", str(shared.eval_data->size())}});
}

void seed_apart(const comm::World& world, std::uint64_t seed, const Shared& shared) {
  constexpr std::uint64_t kApart = 0x9E3779B97F4A7C15ULL;
  const auto own = seed + kApart * static_cast<std::uint64_t>(world.rank());
  if (world.size() > 1 && shared.ranks == 1) torch::manual_seed(own);
}

std::int64_t largest_micro_batch(const config::Config& config, const comm::World& world,
                                 std::int64_t samples) {
  const auto ranks = static_cast<std::int64_t>(world.size());
  const auto share = (config.batch.global.value() + ranks - 1) / ranks;
  const bool looks = config.memory.find_micro.value();
  return std::min(looks ? share : config.batch.micro.value(), samples);
}

config::ScheduleConfig with_goal(config::ScheduleConfig schedule,
                                 const task::Primary& primary) {
  if (schedule.goal == config::Goal::automatic) {
    schedule.goal =
        primary.better == task::Better::more ? config::Goal::max : config::Goal::min;
  }
  const bool falls = primary.better == task::Better::less;
  if (schedule.name == config::Schedule::plateau &&
      schedule.goal == config::Goal::max && falls) {
    throw Error(Fault::config, "schedule.goal: max waits for ", primary.name,
                " to rise, but it is better the lower it is: every improvement would "
                "lower the rate; leave it at auto");
  }
  return schedule;
}

bool may_capture(const config::Config& config) {
  return config.train.graph != config::Graph::off &&
         config.parallel.strategy != config::Strategy::data_parallel;
}

void log_start(const StartFacts& start) {
  const auto& [config, shared, built, strategy, last_step, seconds] = start;
  const auto& hooks = shared.hooks;
  const auto data =
      hooks.train_data ? "samples given by the program" : config.data.name;
  const auto model =
      hooks.build_model ? "a model given by the program" : config.model.name;
  const auto samples = shared.train_data->size();
  log::info("train", fmt::format("{}, {}, {}, {} threads, seed {}", strategy.name(),
                                 built.policy.device.str(),
                                 config::name_of(config.precision.mode),
                                 config.parallel.threads.value(), config.run.seed));
  log::info("data", fmt::format("{}: {} training and {} test samples, read in {:.2f} s",
                                data, samples, shared.eval_data->size(), seconds));
  log::info("train",
            fmt::format("{}: {} parameters; {} steps", model,
                        parallel::count_elements(strategy.parameters()), last_step));
  log::info("task", fmt::format("{}, primary metric: {}", built.task->name(),
                                built.task->primary().name));
  if (config.batch.global.value() > samples) {
    log::warning("train", fmt::format("batch.global is {}, but there are only {} "
                                      "samples: every step uses all of them",
                                      config.batch.global.value(), samples));
  }
}

}  // namespace lockstep::train
