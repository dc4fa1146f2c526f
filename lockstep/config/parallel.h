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
  v.field("strategy", c.strategy,
          {.help = "The parallel strategy: single, DDP, DataParallel or ZeRO.",
           .affects = Affects::speed});
  v.field("ranks", c.ranks,
          {.help = "Ranks that train together, one for each device: processes, or "
                   "threads of one process with data_parallel.",
           .range = between(1, 1024),
           .affects = Affects::speed});
  v.field("device_ids", c.device_ids,
          {.help = "The GPUs of data_parallel's replicas; one may be named twice. "
                   "Empty: the first ones, one for each rank.",
           .range = between(0, 1023),
           .affects = Affects::speed,
           .needs = "parallel.device=cuda"});
  v.field("zero_stage", c.zero_stage,
          {.help = "ZeRO stage: 1 shards the optimizer state, 2 also gradients, 3 also "
                   "parameters, which are gathered block by block.",
           .range = between(1, 3),
           .affects = Affects::speed,
           .needs = "parallel.strategy=zero"});
  v.field(
      "shard_group", c.shard_group,
      {.help = "Hybrid sharding: zero shards within groups of this many consecutive "
               "ranks and replicates across groups; must divide the number of ranks. "
               "0: all ranks. auto: those of one node, or all where that does not fit.",
       .range = between(0, 1024),
       .affects = Affects::speed,
       .needs = "parallel.strategy=zero"});
  v.field("live_buckets", c.live_buckets,
          {.help = "Gradient buckets in memory at a time, from zero_stage 2 on: more "
                   "overlap more communication, and take more memory.",
           .range = between(1, 1024),
           .affects = Affects::speed,
           .needs = "parallel.zero_stage>1"});
  v.field("prefetch_units", c.prefetch_units,
          {.help = "Blocks whose parameters are prefetched at zero_stage 3: more "
                   "overlap more communication, and take more memory.",
           .range = between(0, 1024),
           .affects = Affects::speed,
           .needs = "parallel.zero_stage>2"});
  v.field("persist_below", c.persist_below,
          {.help = "Blocks with fewer bytes of parameters stay gathered during a pass "
                   "at zero_stage 3.",
           .range = between(0, kLargestBucket),
           .unit = Unit::bytes,
           .affects = Affects::speed,
           .needs = "parallel.zero_stage>2"});
  v.field("reshard_after_forward", c.reshard_after_forward,
          {.help = "Reshard after forward, at zero_stage 3: free a block's parameters "
                   "after its forward pass and gather them again for its backward "
                   "pass; false: keep them, which is faster and takes more memory.",
           .affects = Affects::speed,
           .needs = "parallel.zero_stage>2"});
  v.field("bucket_bytes", c.bucket_bytes,
          {.help = "The largest gradient bucket, sent in one collective; small models "
                   "use smaller buckets, so that communication starts early.",
           .range = between(1, kLargestBucket),
           .unit = Unit::bytes,
           .affects = Affects::speed,
           .needs = kPeers});
  v.field("bucket_cap_mb", c.bucket_cap_mb,
          {.help = "The same in MiB, as in PyTorch's DDP.",
           .range = between(1 / kMebibyte, kLargestBucket / kMebibyte),
           .affects = Affects::speed,
           .needs = kPeers});
  v.field("first_bucket_bytes", c.first_bucket_bytes,
          {.help = "Size of the first bucket, which is smaller so that communication "
                   "starts early.",
           .range = between(1, kLargestBucket),
           .unit = Unit::bytes,
           .affects = Affects::speed,
           .needs = kPeers});
  v.field(
      "gradient_as_bucket_view", c.gradient_as_bucket_view,
      {.help =
           "Gradients are views into the buckets; false: they are copied in and out.",
       .affects = Affects::speed});
  v.field("find_unused_parameters", c.find_unused_parameters,
          {.help = "Allow parameters that take no part in a step; they are left "
                   "unchanged if no rank used them. false: an error names them.",
           .needs = "parallel.strategy!=single"});
  v.field("static_graph", c.static_graph,
          {.help = "Static graph: every step uses the same parameters, so only the "
                   "first is checked.",
           .affects = Affects::speed,
           .needs = kPeers});
  v.field("broadcast_buffers", c.broadcast_buffers,
          {.help = "Broadcast rank 0's buffers (running statistics) before each step; "
                   "false: only before they are evaluated or saved.",
           .needs = kPeers});
  v.field("sync_batch_norm", c.sync_batch_norm,
          {.help = "SyncBatchNorm: batch normalization over the samples of all ranks.",
           .needs = "parallel.ranks>1"});
  v.field("compression", c.compression,
          {.help = "Gradient compression: none, fp16 or bf16 (half the bytes; each "
                   "gradient is rounded to 11 or 8 bits before the sum).",
           .needs = kPeers});
  v.field("shard_update", c.shard_update,
          {.help = "Sharded optimizer step of ddp: each rank updates its shard of the "
                   "parameters and sends it to the others; off: every rank updates "
                   "all. shm: only where ranks share memory, where it is faster.",
           .affects = Affects::speed,
           .needs = kPeers});
  v.field("balance", c.balance,
          {.help = "Load balancing: shares of the batch follow the measured speed of "
                   "the ranks.",
           .affects = Affects::speed,
           .needs = "parallel.ranks>1"});
  v.field("device", c.device,
          {.help = "The device that the model runs on.", .affects = Affects::speed});
  v.field("threads", c.threads,
          {.help = "CPU threads of an operation (intra-op). Sums are split by it, so "
                   "the last bits of the results depend on it.",
           .range = between(1, 1024),
           .unit = Unit::threads,
           .affects = Affects::speed});
  v.field("on_setup_failure", c.on_setup_failure,
          {.help = "When ranks cannot find each other: stop, or continue with a single "
                   "one. auto: stop if parallel.ranks or parallel.strategy is set.",
           .needs = "parallel.ranks>1"});
}

}  // namespace lockstep::config
