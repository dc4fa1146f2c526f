// Fills in what zero shards, and within which ranks.
#include "lockstep/base/units.h"
#include "lockstep/config/decisions.h"
#include "lockstep/planner/detail/resolver.h"

namespace lockstep::planner::detail {
namespace {

struct ShardGroup {
  int ranks = 0;
  std::string because;
};

// Returns the ranks of one node where the state fits in them, else all.
ShardGroup usual_group(const config::Config& config, const ZeroFacts& facts) {
  const int ranks = config.parallel.ranks.value();
  if (ranks == 1) return {ranks, "1 rank"};
  const auto& model = facts.knowledge.model;
  const run::ModelDescription none;
  const CostInputs inputs{config, facts.machine, model ? *model : none,
                          facts.knowledge.correction};
  const int node = ranks_of_node(inputs, ranks);
  if (node == 0) return {ranks, str("all ", ranks, " ranks are on one node")};
  if (node == 1) return {ranks, "all ranks: a node has one of them"};
  const auto within = str("the ", node, " ranks of a node");
  if (!model) return {node, within};
  const int stage = config.parallel.zero_stage.value();
  const Candidate one{
      .method = method_of_stage(stage), .ranks = ranks, .shard_group = node};
  const auto state = memory_cost(inputs, one).state();
  const auto limit = memory_limit(inputs, one);
  const bool fits = limit.bytes <= 0 || state <= limit.bytes;
  const bool takes_node = facts.preference.shard_group.value_or(node) == node && fits;
  const auto holds = str(units::format_bytes(state), " of state a rank");
  if (takes_node) {
    return {node, str(within, ": ", holds, "; only reduced shards cross the network")};
  }
  return {ranks,
          fits ? str("all ranks: within ", within, " it does not fit")
               : str("all ranks: ", within, " have ", holds, " > ", limit.because)};
}

}  // namespace

void resolve_zero(Resolver& r, const ZeroFacts& facts) {
  const auto& parallel = r.config().parallel;
  const auto& wish = facts.preference;
  if (parallel.strategy != config::Strategy::zero) {
    const auto unused =
        str("not used: parallel.strategy is ", name_of(parallel.strategy));
    r.offer("parallel.zero_stage", 1, unused);
    r.offer("parallel.shard_group", 0, unused);
    return;
  }
  const int wished = wish.method ? stage_of(*wish.method) : 0;
  r.offer("parallel.zero_stage", wished > 0 ? wished : 2,
          wished > 0 && !wish.shards_because.empty()
              ? wish.shards_because
              : "shards gradients and optimizer state, without gathering parameters "
                "twice a step");
  const int ranks = parallel.ranks.value();
  if (!r.is_open("parallel.shard_group")) {
    const auto lack = config::lack_of_shard_group(parallel.shard_group.value(), ranks);
    if (!lack.empty()) r.refuse(Fault::config, "parallel.shard_group", lack);
    return;
  }
  const auto group = usual_group(r.config(), facts);
  r.offer("parallel.shard_group", group.ranks, group.because);
}

}  // namespace lockstep::planner::detail
