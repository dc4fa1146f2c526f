#include "lockstep/config/decisions.h"

#include "lockstep/base/str.h"
#include "lockstep/config/config.h"

namespace lockstep::config {
namespace {

// Returns "2 or 4", the numbers nearest to `group` that divide the ranks.
std::string nearest_groups(int group, int ranks) {
  int below = group - 1, above = group + 1;
  while (below > 1 && ranks % below != 0) --below;
  while (above < ranks && ranks % above != 0) ++above;
  return below > 1 && below < above ? str(below, " or ", above) : str(above);
}

}  // namespace

std::string lack_of_shard_group(int group, int ranks) {
  if (group == 0 || group == ranks) return "";
  if (ranks == 1) {
    return str("groups of ", group,
               ", but there is 1 rank; leave parallel.shard_group auto");
  }
  if (group == 1) {
    return str("1, but a group of one rank shards nothing; set parallel.shard_group=",
               nearest_groups(1, ranks), ", or parallel.strategy=ddp");
  }
  if (group > ranks) {
    return str("groups of ", group, ", but there are ", ranks,
               " ranks; set parallel.shard_group=", ranks);
  }
  if (ranks % group == 0) return "";
  return str(ranks, " ranks are not groups of ", group, ": ", ranks, " = ",
             ranks / group, " x ", group, " + ", ranks % group,
             "; set parallel.shard_group=", nearest_groups(group, ranks));
}

std::string obstacle_to_own_passes(const Config& config) {
  const auto mode = config.precision.mode;
  if (mode != Precision::automatic && mode != Precision::bf16_params) {
    return str("they need precision.mode=bf16_params, not ", name_of(mode));
  }
  if (config.model.dropout > 0) return "model.dropout is not 0";
  if (config.lora.rank > 0) return "they have no adapters (lora.rank)";
  const auto& parallel = config.parallel;
  if (parallel.strategy == Strategy::zero && parallel.zero_stage.value_or(0) == 3) {
    return "parallel.zero_stage is 3";
  }
  if (parallel.strategy == Strategy::data_parallel) {
    return "parallel.strategy is data_parallel";
  }
  if (config.memory.recompute_every.value_or(0) > 0) {
    return "memory.recompute_every is not 0";
  }
  return "";
}

}  // namespace lockstep::config
