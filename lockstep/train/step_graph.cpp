#include "lockstep/train/step_graph.h"

#include <algorithm>
#include <bit>
#include <utility>

#include <fmt/format.h>

#include <ATen/Context.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include "lockstep/base/error.h"
#include "lockstep/base/library_error.h"
#include "lockstep/base/log.h"
#include "lockstep/kernels/cuda.h"
#include "lockstep/memory/out_of_memory.h"

namespace lockstep::train {
namespace {

// Libraries have chosen and tuned their kernels for a shape by then, and buckets have
// their final layout.
constexpr int kFirstByHand = 2;
// A last, short batch of an epoch is a second shape; data that has more varies.
constexpr std::size_t kMostShapes = 4;

std::vector<std::uint64_t> words_of(const std::vector<double>& numbers) {
  std::vector<std::uint64_t> words;
  for (const auto number : numbers) {
    words.push_back(std::bit_cast<std::uint64_t>(number));
  }
  return words;
}

torch::Tensor room_for(std::size_t words, const torch::Device& device) {
  return torch::zeros({static_cast<std::int64_t>(words)},
                      torch::dtype(torch::kInt64).device(device));
}

at::Generator host_generator() {
  return at::globalContext().defaultGenerator(at::kCPU);
}

}  // namespace

bool skips_nonfinite(const config::TrainConfig& config,
                     const precision::LossScaler& scaler) {
  return scaler.active() || config.on_nonfinite == config::OnNonfinite::skip;
}

StepGraph::StepGraph(const Parts& parts)
    : parts_(parts), skips_(skips_nonfinite(parts.train, parts.scaler)) {
  const auto wanted = parts_.train.graph;
  const bool on_gpu = parts_.world.data().device().is_cuda();
  const bool asked = wanted == config::Graph::on;
  off_ = wanted == config::Graph::off || (!asked && !on_gpu);
  if (off_) return;
  const auto why = obstacle();
  if (!why.empty()) refuse(why);
  if (!off_ && skips_) {
    skipped_ = torch::zeros(
        {}, torch::dtype(torch::kFloat64).device(parts_.world.data().device()));
  }
}

StepGraph::~StepGraph() = default;

std::string StepGraph::obstacle() const {
  if (!parts_.world.data().device().is_cuda()) return "there is no GPU";
  if (!kernels::CudaGraph::is_available() || !kernels::cuda_available()) {
    return "this build has no CUDA kernels";
  }
  const auto specs = parts_.spec.tensors();
  const auto varies = std::find_if(specs.begin(), specs.end(),
                                   [](const auto& spec) { return spec.varies; });
  if (varies != specs.end())
    return str("samples vary in length ('", varies->name, "')");
  if (!parts_.watched_by.empty()) return parts_.watched_by;
  if (parts_.train.anomaly) return "train.anomaly looks at every operation";
  if (parts_.offloads) return "activations are moved to the host (memory.offload)";
  auto* held = parts_.strategy.held();
  return held == nullptr ? "its strategy cannot be captured" : held->obstacle();
}

void StepGraph::refuse(const std::string& why) {
  if (parts_.train.graph == config::Graph::on) {
    throw Error(Fault::config, "train.graph: on, but a graph cannot ",
                "hold the steps: ", why,
                "; leave it at auto to launch kernels eagerly");
  }
  release();
  off_ = true;
  if (parts_.world.rank() != 0) return;
  log::info("train",
            fmt::format("no CUDA graph, kernels are launched eagerly: {}", why));
}

StepGraph::Key StepGraph::key_of(const data::Batch& batch) const {
  Key key{.global_size = batch.global_size,
          .largest_size = batch.largest_size,
          .micro_batch = parts_.step.micro_batch(),
          .recompute = parts_.model.recompute_every()};
  for (const auto* tensor : batch.tensors()) {
    key.sizes.push_back(tensor->sizes().vec());
  }
  if (!parts_.may_change) return key;
  for (const auto& module : parts_.model.modules()) {
    key.switches.push_back(module->is_training());
  }
  for (const auto& parameter : parts_.model.parameters()) {
    key.switches.push_back(parameter.requires_grad());
  }
  return key;
}

StepGraph::HeldShape* StepGraph::find_shape(const data::Batch& batch) {
  auto key = key_of(batch);
  // A shape that was cut in another way does not come again soon, and holds memory.
  entries_.remove_if([&](const HeldShape& entry) {
    return entry.key.micro_batch != key.micro_batch ||
           entry.key.recompute != key.recompute;
  });
  for (auto& entry : entries_) {
    if (entry.key == key) return &entry;
  }
  if (entries_.size() == kMostShapes) {
    if (!std::exchange(told_of_shapes_, true) && parts_.world.rank() == 0) {
      log::info("train", fmt::format("batches have more than {} shapes: kernels of the "
                                     "others are launched eagerly",
                                     kMostShapes));
    }
    return nullptr;
  }
  entries_.push_back({.key = std::move(key)});
  return &entries_.back();
}

bool StepGraph::takes(const data::Batch& batch, std::int64_t steps,
                      const std::optional<comm::Weights>& weights) {
  if (off_) return false;
  auto* entry = find_shape(batch);
  if (entry == nullptr || entry->refused) return false;
  const auto words = parts_.step.words_of(batch, {1, steps, weights});
  if (!words) {
    if (parts_.step.sums_weights()) {
      refuse(str("there are more than ", comm::kMostWeights,
                 " losses whose targets weigh, which ranks sum in between"));
    }
    return false;
  }
  if (!entry->graph && entry->seen++ < kFirstByHand) return false;
  return entry->graph || capture(*entry, {batch, steps, *words});
}

const kernels::CudaGraph* StepGraph::first_graph() const {
  for (const auto& entry : entries_) {
    if (entry.graph) return entry.graph.get();
  }
  return nullptr;
}

StepGraph::Failure StepGraph::agreed(const Failure& own) {
  if (parts_.world.size() == 1) return own;
  const auto worst = torch::tensor({static_cast<int>(own.of)}, torch::kInt32);
  parts_.world.cpu().all_reduce(worst, comm::Reduce::max).wait();
  const auto of = static_cast<Failure::Of>(worst.item<int>());
  return {of, own.why.empty() && of != Failure::Of::nothing
                  ? "another rank could not capture it"
                  : own.why};
}

StepGraph::Failure StepGraph::try_capture(const std::function<void()>& capture) {
  try {
    capture();
    return {};
  } catch (const Error& error) {
    if (error.fault() == Fault::internal) throw;
    return {Failure::Of::shape, first_line_of(error)};
  } catch (const std::exception& error) {
    return {Failure::Of::all, memory::is_out_of_memory(error)
                                  ? "there is not enough memory for the graph"
                                  : first_line_of(error)};
  }
}

// Captures the graph of one shape into entry.graph.
void StepGraph::capture_passes(HeldShape& entry, const data::Batch& batch,
                               std::int64_t steps) {
  entry.batch = batch;
  for (auto* tensor : entry.batch.tensors()) *tensor = torch::empty_like(*tensor);
  entry.graph = std::make_unique<kernels::CudaGraph>(first_graph());
  parts_.step.use_words(entry.words);
  const auto drawn = host_generator().get_state();
  entry.graph->capture([&] {
    const auto passes = [&] {
      if (skips_) parts_.tally.remember();
      parts_.step.backward(entry.batch, parts_.tally,
                           {.step = steps, .weights = comm::Weights{}});
    };
    parts_.strategy.held()->launch_passes(passes, parts_.step.num_passes(batch));
  });
  if (host_generator().get_state().equal(drawn)) return;
  host_generator().set_state(drawn);
  throw Error(Fault::config, "the model draws random numbers on the host");
}

bool StepGraph::capture(HeldShape& entry, const Capture& what) {
  const auto& batch = what.batch;
  const auto steps = what.steps;
  const auto& words = what.words;
  const bool first = first_graph() == nullptr;
  const auto device = parts_.world.data().device();
  Failure failure;
  if (batch.size == 0) {
    failure = {Failure::Of::shape, "a rank has no samples in it"};
  } else if (words.size() > kernels::kMostWords) {
    failure = {Failure::Of::shape,
               fmt::format("it has {} numbers of its own, at most {} fit", words.size(),
                           kernels::kMostWords)};
  } else {
    if (parts_.before_capture) parts_.before_capture();
    memory::empty_cache(
        device);  // the graph needs memory that kernels have used one by one
    entry.words = room_for(words.size(), device);
    const auto count = parts_.tally.count();
    failure = try_capture([&] { capture_passes(entry, batch, steps); });
    parts_.step.use_words({});
    entry.targets = parts_.tally.count() - count;
    parts_.tally.count() = count;
  }
  failure = agreed(failure);
  if (failure.of == Failure::Of::nothing) {
    if (first && parts_.world.rank() == 0) {
      log::info("train", fmt::format("CUDA graphs replay whole steps from step {} on",
                                     steps + 1));
    }
    return true;
  }
  entry.graph.reset();
  entry.batch = {};
  entry.words.reset();
  entry.refused = true;
  if (first || failure.of == Failure::Of::all) {
    refuse(failure.why);
  } else if (parts_.world.rank() == 0) {
    log::info("train",
              fmt::format("kernels of batches of {} samples are launched eagerly: {}",
                          batch.global_size, failure.why));
  }
  return false;
}

std::pair<double, double> StepGraph::scales() const {
  const auto& scaler = parts_.scaler;
  if (pending_.empty()) return {scaler.scale(), scaler.scale()};
  auto done = scaler, skipped = scaler;
  done.update(false);
  try {
    skipped.update(true);
  } catch (const Error&) {  // then the caller of outcomes() ends the run
  }
  return {done.scale(), skipped.scale()};
}

void StepGraph::put(const torch::Tensor& where, const std::vector<std::uint64_t>& done,
                    const std::vector<std::uint64_t>& skipped) {
  LOCKSTEP_CHECK(
      done.size() == skipped.size() && done.size() * sizeof(done[0]) == where.nbytes(),
      done.size(), " words for ", where.nbytes(), " bytes");
  kernels::Words words{.out = static_cast<std::uint64_t*>(where.mutable_data_ptr()),
                       .count = static_cast<int>(done.size())};
  if (!pending_.empty()) words.takes_second = skipped_.const_data_ptr<double>();
  std::copy(done.begin(), done.end(), words.first);
  std::copy(skipped.begin(), skipped.end(), words.second);
  kernels::put_words_cuda(words, kernels::current_stream(where.device().index()));
}

void StepGraph::passes(const data::Batch& batch, std::int64_t steps,
                       const std::optional<comm::Weights>& weights) {
  LOCKSTEP_CHECK(pending_.size() <= 1, pending_.size());
  current_ = find_shape(batch);
  LOCKSTEP_CHECK(current_ != nullptr && current_->graph != nullptr);
  const auto held = current_->batch.tensors();
  const auto given = batch.tensors();
  for (std::size_t i = 0; i < held.size(); ++i) {
    held[i]->copy_(*given[i], /*non_blocking=*/true);
  }
  const auto [done, skipped] = scales();
  put(current_->words, *parts_.step.words_of(batch, {done, steps, weights}),
      *parts_.step.words_of(batch, {skipped, steps, weights}));
  current_->graph->replay();
  parts_.tally.count() += current_->targets;
}

bool StepGraph::capture_update(const std::vector<double>& numbers) {
  Failure failure;
  if (numbers.size() > kernels::kMostWords) {
    failure = {Failure::Of::all,
               fmt::format("its update has {} numbers of its own, at most {} fit",
                           numbers.size(), kernels::kMostWords)};
  } else {
    failure = try_capture([&] {
      numbers_ =
          room_for(numbers.size(), parts_.world.data().device()).view(torch::kFloat64);
      update_ = std::make_unique<kernels::CudaGraph>(first_graph());
      update_->capture([&] {
        norm_ = parts_.strategy.held()->launch_update(numbers_, skipped_);
        if (skips_) parts_.tally.rewind_if(skipped_);
      });
    });
  }
  failure = agreed(failure);
  if (failure.of == Failure::Of::nothing) return true;
  update_.reset();
  refuse(failure.why);
  return false;
}

torch::Tensor StepGraph::update(double lr, bool wants_norm, std::int64_t steps) {
  auto& held = *parts_.strategy.held();
  if (const auto places = held.prepare_update(); places != places_) {
    update_.reset();  // it would read where nothing is any more
    places_ = places;
  }
  const auto [if_done, if_skipped] = scales();
  const parallel::Update done{.lr = lr, .loss_scale = if_done};
  const parallel::Update skipped{.lr = lr, .loss_scale = if_skipped};
  const auto numbers = held.numbers(done, static_cast<int>(pending_.size()));
  Pending pending{.outcome = {.step = steps + 1, .targets = current_->targets}};
  if (!update_ && !capture_update(numbers)) {
    // No outcome is pending any more: steps are launched kernel by kernel from now on.
    LOCKSTEP_CHECK(pending_.empty());
    auto by_hand = done;
    by_hand.wants_norm = wants_norm;
    by_hand.skips_nonfinite = skips_;
    const auto updated = parts_.strategy.update(by_hand);
    if (updated.skipped) parts_.tally.rewind_if(torch::ones_like(skipped_));
    pending.outcome.skipped = updated.skipped;
    pending.is_counted = true;
    pending_.push_back(std::move(pending));
    return updated.norm;
  }
  torch::Tensor norm;
  if (wants_norm && !norm_.defined()) norm = held.norm(done);
  put(numbers_, words_of(numbers), words_of(held.numbers(skipped, 0)));
  update_->replay();
  if (skips_) {
    const auto device = skipped_.device();
    pending.flag = torch::empty({}, torch::dtype(torch::kFloat64).pinned_memory(true));
    pending.flag.copy_(skipped_, /*non_blocking=*/true);
    pending.copied.emplace(device.type());
    pending.copied->record(
        c10::impl::VirtualGuardImpl(device.type()).getStream(device));
  }
  pending_.push_back(std::move(pending));
  return norm_.defined() ? norm_ : norm;
}

std::vector<StepGraph::UpdateOutcome> StepGraph::outcomes(bool all) {
  std::vector<UpdateOutcome> settled;
  while (pending_.size() > (all ? 0U : 1U)) {
    auto& next = pending_.front();
    if (next.copied) {
      next.copied->synchronize();
      next.outcome.skipped = next.flag.item<double>() != 0;
    }
    if (!next.outcome.skipped && !next.is_counted) {
      parts_.strategy.held()->count_update();
    }
    settled.push_back(next.outcome);
    pending_.pop_front();
  }
  return settled;
}

bool StepGraph::release() {
  if (first_graph() == nullptr) return false;
  update_.reset();
  entries_.clear();
  current_ = nullptr;
  off_ = true;
  memory::empty_cache(parts_.world.data().device());
  return true;
}

}  // namespace lockstep::train
