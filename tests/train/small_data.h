#pragma once

#include <random>

#include "lockstep/config/resolved.h"
#include "lockstep/data/dataset.h"
#include "lockstep/data/loader.h"
#include "lockstep/task/build.h"

namespace lockstep::test {

// Images of noise whose class is brighter: something a network can learn in a few
// steps.
class SmallImages : public data::Dataset {
 public:
  explicit SmallImages(std::int64_t size, std::int64_t channels = 1) : size_(size) {
    spec_.shape = {channels, 8, 8};
    spec_.num_classes = 4;
    spec_.scale = 1 / 64.0F;
    spec_.shift = -2;
  }
  std::int64_t size() const noexcept override { return size_; }
  const data::SampleSpec& spec() const noexcept override { return spec_; }
  std::int64_t read(std::int64_t index, std::span<std::byte> input) const override {
    std::minstd_rand random(static_cast<unsigned>(index + 1));
    const auto label = index % 4;
    for (auto& pixel : input) {
      pixel = static_cast<std::byte>(random() % 64 + static_cast<unsigned>(label) * 48);
    }
    return label;
  }

 private:
  std::int64_t size_;
  data::SampleSpec spec_;
};

// What a run computes that trains on such samples.
inline std::shared_ptr<task::Task> task_for(const data::SampleSpec& spec,
                                            const torch::Tensor& class_weights = {}) {
  return task::make_task(config::Config{}, spec, class_weights);
}

// A config with no `auto` left, for a small model on a CPU.
inline config::Config small_config() {
  config::Config c;
  c.model.name = "mlp";
  c.model.hidden = 16;
  c.batch.global = 8;
  c.batch.per_rank = 8;
  c.batch.accumulation = 1;
  c.batch.micro = 8;
  c.batch.eval = 16;
  c.data.workers = 2;
  c.data.prefetch = 2;
  c.data.pin_memory = false;
  c.train.steps = 0;
  c.train.epochs = 1;
  c.eval.every = 0;
  c.precision.mode = config::Precision::fp32;
  c.parallel.strategy = config::Strategy::single;
  c.parallel.ranks = 1;
  c.parallel.device = config::Device::cpu;
  c.parallel.threads = 1;
  c.memory.recompute_every = 0;
  c.memory.find_micro = false;
  c.memory.offload = false;
  return c;
}

// The knobs that the planner would still choose, and that tests of training have not
// chosen for themselves.
inline config::Resolved resolved(config::Config c) {
  const bool cuda = c.parallel.device == config::Device::cuda;
  if (c.comm.backend == config::CommBackend::automatic) {
    c.comm.backend =
        cuda ? config::CommBackend::nccl_or_gloo : config::CommBackend::shm_or_gloo;
  }
  if (c.parallel.shard_update == config::ShardUpdate::automatic) {
    c.parallel.shard_update = config::ShardUpdate::shm;
  }
  if (c.parallel.on_setup_failure == config::OnSetupFailure::automatic) {
    c.parallel.on_setup_failure = config::OnSetupFailure::stop;
  }
  if (c.train.graph == config::Graph::automatic) {
    c.train.graph = config::Graph::if_possible;
  }
  if (c.parallel.bucket_bytes.is_auto()) {
    c.parallel.bucket_bytes = 25 << 20;
  }
  if (c.parallel.bucket_cap_mb.is_auto()) c.parallel.bucket_cap_mb = 25;
  if (c.parallel.zero_stage.is_auto()) c.parallel.zero_stage = 1;
  if (c.parallel.shard_group.is_auto()) c.parallel.shard_group = 0;
  return config::Resolved(std::move(c));
}

// The first samples of the real data, and a line of metrics for each step.
inline config::Config quick_config() {
  auto config = small_config();
  config.data.train_samples = 200;
  config.data.eval_samples = 50;
  config.batch.global = 16;
  config.batch.micro = 16;
  config.train.log_every = 1;
  return config;
}

}  // namespace lockstep::test
