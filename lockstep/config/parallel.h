#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "lockstep/config/auto.h"
#include "lockstep/config/enums.h"
#include "lockstep/config/field.h"

namespace lockstep::config {

enum class Strategy { automatic, single, data_parallel, ddp, zero };

constexpr std::array<std::string_view, 5> names_of(Strategy) {
  return {"auto", "single", "data_parallel", "ddp", "zero"};
}

enum class Device { automatic, cpu, cuda };

constexpr std::array<std::string_view, 3> names_of(Device) {
  return {"auto", "cpu", "cuda"};
}

// The action when the ranks of a run can not be set up.
enum class OnSetupFailure { automatic, stop, single };

constexpr std::array<std::string_view, 3> names_of(OnSetupFailure) {
  return {"auto", "stop", "single"};
}

// The data type that gradients are sent as.
enum class Compression { none, fp16, bf16 };

constexpr std::array<std::string_view, 3> names_of(Compression) {
  return {"none", "fp16", "bf16"};
}

// The way in which the ranks share the update of the parameters after a step.
enum class ShardUpdate { automatic, shm, on, off };

constexpr std::array<std::string_view, 4> names_of(ShardUpdate) {
  return {"auto", "shm", "on", "off"};
}

struct ParallelConfig {
  Strategy strategy = Strategy::automatic;
  Auto<int> ranks;
  std::vector<int> device_ids;
  Auto<int> zero_stage;
  Auto<int> shard_group;
  int live_buckets = 2;
  int prefetch_units = 1;
  std::int64_t persist_below = 65536;
  bool reshard_after_forward = true;
  Auto<std::int64_t> bucket_bytes;
  Auto<double> bucket_cap_mb;
  std::int64_t first_bucket_bytes = 1 << 20;
  bool gradient_as_bucket_view = true;
  bool find_unused_parameters = false;
  bool static_graph = false;
  bool broadcast_buffers = true;
  bool sync_batch_norm = false;
  Compression compression = Compression::none;
  ShardUpdate shard_update = ShardUpdate::automatic;
  bool balance = false;
  Device device = Device::automatic;
  Auto<int> threads;
  OnSetupFailure on_setup_failure = OnSetupFailure::automatic;
};

inline constexpr double kMebibyte = 1048576;
inline constexpr double kLargestBucket = 1099511627776;

template <typename Visitor>
void describe(ParallelConfig& c, Visitor& v) {
  v.field(
      "strategy", c.strategy,
      {.help = "How the model is spread over the ranks.", .affects = Affects::speed});
  v.field("ranks", c.ranks,
          {.help = "Ranks that train together, one for each device: processes, or "
                   "threads of one process with data_parallel.",
           .range = between(1, 1024),
           .affects = Affects::speed});
  v.field("device_ids", c.device_ids,
          {.help = "The GPUs of data_parallel's replicas; one may be named twice. "
                   "Empty: the first of this machine, one for each rank.",
           .range = between(0, 1023),
           .affects = Affects::speed,
           .needs = "parallel.device=cuda"});
  v.field("zero_stage", c.zero_stage,
          {.help = "What zero shards: 1 the optimizer's state, 2 gradients as well, 3 "
                   "parameters as well, which are gathered block by block.",
           .range = between(1, 3),
           .affects = Affects::speed,
           .needs = "parallel.strategy=zero"});
  v.field(
      "shard_group", c.shard_group,
      {.help = "zero shards within groups of so many ranks that follow each other, "
               "and every group has the whole; the number of ranks is a multiple of "
               "it. 0: all ranks. auto: those of one node, or all where that does "
               "not fit.",
       .range = between(0, 1024),
       .affects = Affects::speed,
       .needs = "parallel.strategy=zero"});
  v.field("live_buckets", c.live_buckets,
          {.help = "Buckets of gradients that a rank has memory for at a time, from "
                   "zero_stage 2 on: more hide more of their sums, and take more.",
           .range = between(1, 1024),
           .affects = Affects::speed,
           .needs = "parallel.zero_stage>1"});
  v.field("prefetch_units", c.prefetch_units,
          {.help = "Blocks whose parameters are gathered ahead of their use at "
                   "zero_stage 3: more hide more, and take more memory.",
           .range = between(0, 1024),
           .affects = Affects::speed,
           .needs = "parallel.zero_stage>2"});
  v.field("persist_below", c.persist_below,
          {.help = "Blocks with fewer bytes of parameters stay whole for a pass at "
                   "zero_stage 3.",
           .range = between(0, kLargestBucket),
           .unit = Unit::bytes,
           .affects = Affects::speed,
           .needs = "parallel.zero_stage>2"});
  v.field("reshard_after_forward", c.reshard_after_forward,
          {.help = "A block is freed after its forward pass and gathered again for its "
                   "backward pass, at zero_stage 3; false: it stays whole in between, "
                   "which is faster and takes more memory.",
           .affects = Affects::speed,
           .needs = "parallel.zero_stage>2"});
  v.field(
      "bucket_bytes", c.bucket_bytes,
      {.help = "The most gradient bytes that are sent in one collective; small models "
               "are sent in smaller pieces, so that sending starts early.",
       .range = between(1, kLargestBucket),
       .unit = Unit::bytes,
       .affects = Affects::speed,
       .needs = kPeers});
  v.field("bucket_cap_mb", c.bucket_cap_mb,
          {.help = "The same in MiB, as PyTorch's DDP calls it.",
           .range = between(1 / kMebibyte, kLargestBucket / kMebibyte),
           .affects = Affects::speed,
           .needs = kPeers});
  v.field("first_bucket_bytes", c.first_bucket_bytes,
          {.help = "The first bucket is smaller, so that sending starts early.",
           .range = between(1, kLargestBucket),
           .unit = Unit::bytes,
           .affects = Affects::speed,
           .needs = kPeers});
  v.field("gradient_as_bucket_view", c.gradient_as_bucket_view,
          {.help = "Gradients live in the buckets; false: they are copied in and out.",
           .affects = Affects::speed});
  v.field("find_unused_parameters", c.find_unused_parameters,
          {.help = "Parameters may take no part in a step; they are left as they are "
                   "when no rank used them. false: that is an error which names them.",
           .needs = "parallel.strategy!=single"});
  v.field("static_graph", c.static_graph,
          {.help = "Every step uses the same parameters: only the first is checked.",
           .affects = Affects::speed,
           .needs = kPeers});
  v.field("broadcast_buffers", c.broadcast_buffers,
          {.help = "All ranks get rank 0's buffers (running statistics) before each "
                   "step; false: before they are evaluated or saved only.",
           .needs = kPeers});
  v.field("sync_batch_norm", c.sync_batch_norm,
          {.help = "Batch normalisation over the samples of all ranks.",
           .needs = "parallel.ranks>1"});
  v.field("compression", c.compression,
          {.help = "Gradients travel as: none (as they are), fp16 or bf16 (half the "
                   "bytes; each is rounded to 11 or 8 bits before it is summed).",
           .needs = kPeers});
  v.field("shard_update", c.shard_update,
          {.help = "Each rank changes its shard of the parameters and gives it to the "
                   "others; off: every rank changes all. shm: where ranks share "
                   "memory, since that is faster there.",
           .affects = Affects::speed,
           .needs = kPeers});
  v.field("balance", c.balance,
          {.help = "Shares of the batch follow the measured speed of the ranks.",
           .affects = Affects::speed,
           .needs = "parallel.ranks>1"});
  v.field("device", c.device,
          {.help = "Where the model computes.", .affects = Affects::speed});
  v.field(
      "threads", c.threads,
      {.help = "CPU threads inside an operation. Sums are split by it: the last bits "
               "of the results depend on it.",
       .range = between(1, 1024),
       .unit = Unit::threads,
       .affects = Affects::speed});
  v.field(
      "on_setup_failure", c.on_setup_failure,
      {.help = "When ranks can not find each other: stop, or continue with a single "
               "one. auto: stop if parallel.ranks or parallel.strategy is set.",
       .needs = "parallel.ranks>1"});
}

}  // namespace lockstep::config
