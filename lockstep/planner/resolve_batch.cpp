// Decides how many samples go through the model at once, and how often in a step.
#include <algorithm>

#include "lockstep/base/text.h"
#include "lockstep/planner/detail/resolver.h"
#include "lockstep/planner/search.h"

namespace lockstep::planner::detail {
namespace {

void offer_global(Resolver& r) {
  const auto& batch = r.config().batch;
  const auto ranks = r.config().parallel.ranks.value();
  if (!batch.per_rank.is_auto()) {
    const auto per_rank = batch.per_rank.value();
    r.offer("batch.global", per_rank * ranks,
            str("batch.per_rank ", per_rank, " * parallel.ranks ", ranks));
  } else if (!batch.micro.is_auto() && !batch.accumulation.is_auto()) {
    const auto micro = batch.micro.value();
    const auto accumulation = batch.accumulation.value();
    r.offer("batch.global", micro * accumulation * ranks,
            str("batch.micro ", micro, " * batch.accumulation ", accumulation,
                " * parallel.ranks ", ranks));
  } else {
    const auto global = usual_global(batch, ranks);
    r.offer("batch.global", global,
            global == config::kDefaultGlobalBatch
                ? "default: no batch size is set"
                : str("near the usual ", config::kDefaultGlobalBatch,
                      ", a multiple of ranks x micro x accumulation; no batch size is "
                      "set"));
  }
}

bool nothing_named(const config::BatchConfig& batch) {
  return batch.global.is_auto() && batch.per_rank.is_auto() && batch.micro.is_auto() &&
         batch.accumulation.is_auto();
}

// Returns the largest size up to `most` that divides the share.
std::int64_t dividing(std::int64_t share, std::int64_t most) {
  auto size = std::min(share, most);
  while (share % size != 0) --size;
  return size;
}

bool is_limited(const config::Config& config) {
  return config.parallel.device == config::Device::cuda || config.memory.host_limit > 0;
}

// Offers to find the micro-batch by trying; `open` means that no size was set.
void offer_search(Resolver& r, bool open) {
  const auto& config = r.config();
  const bool limited = is_limited(config);
  const bool fails_alone = !config.parallel.sync_batch_norm;
  if (open && limited && fails_alone) {
    r.offer("memory.find_micro", "true",
            str("trial steps find the largest that fits memory.target ",
                text::from_double(config.memory.target)));
  }
  r.offer(
      "memory.find_micro", "false",
      !open ? "batch.micro or batch.accumulation is set"
      : !fails_alone
          ? "parallel.sync_batch_norm: an out-of-memory on one rank cannot be retried"
      : config.batch.micro.value_or(0) < config.batch.per_rank.value()
          ? "CPU memory has no limit to search against; memory.host_limit sets one"
          : "the whole batch.per_rank fits");
  if (!config.memory.find_micro.value()) return;
  if (!limited) {
    r.refuse(Fault::config, "memory.find_micro",
             "true, but CPU memory has no limit to search against; set "
             "memory.host_limit, or memory.find_micro=false");
  }
  if (!fails_alone) {
    r.refuse(Fault::config, "memory.find_micro",
             "true, but with parallel.sync_batch_norm no rank may run out of memory "
             "alone; switch one of them off");
  }
}

std::string how_large(const Resolver& r, const Preference& preference,
                      std::int64_t micro) {
  if (micro != *preference.micro) {
    return str(preference.batch_because, "; ", micro, " divides batch.per_rank");
  }
  const bool tries = preference.micro_is_guess && will_find_micro(r.config());
  return preference.batch_because +
         (tries ? "; memory.find_micro measures what fits" : "");
}

}  // namespace

void resolve_batch(Resolver& r, const Preference& preference) {
  const auto ranks = r.config().parallel.ranks.value();
  const bool named = !nothing_named(r.config().batch);
  if (preference.find_micro) {
    r.offer("memory.find_micro", *preference.find_micro ? "true" : "false",
            preference.find_micro_because);
  }
  if (!named && !preference.micro_is_guess) {
    r.offer("batch.micro", preference.micro, preference.batch_because);
    r.offer("batch.accumulation", preference.accumulation, preference.batch_because);
  }
  offer_global(r);
  r.validate();  // refuses what does not divide, with the arithmetic
  const auto& batch = r.config().batch;
  const auto global = batch.global.value();
  r.offer("batch.per_rank", global / ranks,
          str("batch.global ", global, " / parallel.ranks ", ranks));
  const auto per_rank = batch.per_rank.value();
  const bool open = batch.micro.is_auto() && batch.accumulation.is_auto();
  if (open && preference.micro) {
    const auto micro = dividing(per_rank, *preference.micro);
    r.offer("batch.micro", micro, how_large(r, preference, micro));
  }
  if (batch.micro.is_auto()) {
    r.offer("batch.accumulation", 1, "one micro-batch for the whole batch.per_rank");
  } else {
    r.offer("batch.accumulation", per_rank / batch.micro.value(),
            str("batch.per_rank ", per_rank, " / batch.micro ", batch.micro.value()));
  }
  offer_search(r, open && (preference.micro_is_guess || !preference.micro));
  const auto accumulation = batch.accumulation.value();
  r.offer("batch.micro", per_rank / accumulation,
          str("batch.per_rank ", per_rank, " / batch.accumulation ", accumulation));
  const bool cuda = r.config().parallel.device == config::Device::cuda;
  const auto micro = batch.micro.value();
  const std::int64_t usual = cuda ? 1024 : 256;
  if (preference.eval && *preference.eval < usual) {
    r.offer(
        "batch.eval", std::max(micro, *preference.eval),
        str("needs no more memory than a training step; at least batch.micro ", micro));
  }
  r.offer("batch.eval", std::max(micro, usual),
          str("no gradients are kept; at least batch.micro ", micro));
}

}  // namespace lockstep::planner::detail
