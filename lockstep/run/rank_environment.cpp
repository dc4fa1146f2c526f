#include "lockstep/run/rank_environment.h"

#include <algorithm>

#include <unistd.h>

#include "lockstep/base/error.h"
#include "lockstep/run/detail/variable_reader.h"
#include "lockstep/run/host.h"

namespace lockstep::run {
namespace {

using detail::Number;
using detail::RankAndSize;
using detail::shown;
using detail::VariableReader;

void require_below(const Number& number, const Number& size) {
  if (number.value < size.value) return;
  throw Error(
      Fault::config, "rank: ", shown(number), " is not below ", shown(size),
      "; they come from different launchers, or one was set by hand: unset both "
      "or correct them");
}

// Reads LOCAL_RANK, LOCAL_WORLD_SIZE, GROUP_RANK and GROUP_WORLD_SIZE, or guesses them
// when they are not set. Guesses have to come out the same on every rank.
void take_local(const VariableReader& reader, const RankAndSize& world,
                RankEnvironment& found) {
  const auto rank = reader.number({"LOCAL_RANK"});
  const auto size = reader.number({"LOCAL_WORLD_SIZE"});
  const bool one_node = is_loopback(found.master_address) || found.world_size == 1;
  if (size) {
    found.local_world_size = size->value;
    found.local_rank = rank ? rank->value : found.rank % std::max(1, size->value);
    require_below({"LOCAL_RANK", found.local_rank}, *size);
    if (size->value > found.world_size) {
      throw Error(Fault::config, "rank: ", shown(*size), " is more than ",
                  shown(world.size), "; a node cannot have more ranks than the job");
    }
  } else if (one_node) {
    found.local_world_size = found.world_size;
    found.local_rank = rank ? rank->value : found.rank;
    if (rank) require_below(*rank, world.size);
  } else if (rank) {
    throw Error(
        Fault::config, "rank: ", shown(*rank), " and ", shown(world.size),
        " are set but LOCAL_WORLD_SIZE is not; set it to the number of ranks on "
        "this node");
  }
  // Neither is set, and the master is elsewhere: one rank a node, as in a PyTorchJob.
  const int local = found.local_world_size;
  const auto node = reader.number({"GROUP_RANK"});
  const auto nodes = reader.number({"GROUP_WORLD_SIZE"});
  found.node = node ? node->value : (found.rank - found.local_rank) / local;
  found.nodes = nodes ? nodes->value : (found.world_size + local - 1) / local;
  if (node && nodes) require_below(*node, *nodes);
  if (!nodes) found.nodes = std::max(found.nodes, found.node + 1);
  if (found.node < found.nodes) return;
  throw Error(Fault::config, "rank: ", shown(world.rank), " with ", local,
              " ranks a node is on node ", found.node, ", but ", shown(*nodes),
              "; set GROUP_RANK too, or unset GROUP_WORLD_SIZE");
}

// Throws for two launchers at once, for example `srun` of a program with a RANK of its
// own. torchrun and lockstep launch are started by others on purpose, and say so.
void require_agreement(const RankAndSize& ours,
                       const std::optional<RankAndSize>& other) {
  if (!other) return;
  if (ours.rank.value == other->rank.value && ours.size.value == other->size.value) {
    return;
  }
  throw Error(Fault::config, "rank: two launchers disagree: ", shown(ours.rank), " of ",
              shown(ours.size), ", but ", shown(other->rank), " of ",
              shown(other->size), "; unset the pair that is wrong");
}

std::optional<RankAndSize> world_numbers(const VariableReader& reader) {
  const auto rank = reader.number({"RANK"});
  const auto size = reader.number({"WORLD_SIZE"});
  if (rank && !size) {
    throw Error(Fault::config, "rank: ", shown(*rank),
                " is set but WORLD_SIZE is not; set both, or unset RANK");
  }
  if (!rank) return std::nullopt;
  return RankAndSize{.rank = *rank, .size = *size};
}

RankEnvironment from_world(const VariableReader& reader, const RankAndSize& world) {
  const bool ours = reader.text("LOCKSTEP_LAUNCHER") == "1";
  if (!ours && !reader.has("TORCHELASTIC_RUN_ID")) {
    if (detail::started_by_srun(reader)) {
      require_agreement(world, detail::slurm_numbers(reader));
    }
    require_agreement(world, detail::mpi_numbers(reader));
  }
  require_below(world.rank, world.size);
  RankEnvironment found;
  found.by = ours ? StartedBy::lockstep : StartedBy::torchrun;
  found.rank = world.rank.value;
  found.world_size = world.size.value;
  detail::take_master(reader, found);
  if (found.world_size > 1 && (found.master_address.empty() || !found.master_port)) {
    throw Error(Fault::config, "rank: ", shown(world.rank), " and ", shown(world.size),
                " are set without ",
                found.master_address.empty() ? "MASTER_ADDR" : "MASTER_PORT",
                "; set MASTER_ADDR to the host of rank 0 and MASTER_PORT to a free "
                "port there");
  }
  take_local(reader, world, found);
  found.agent_store = reader.text("TORCHELASTIC_USE_AGENT_STORE") == "True";
  found.restart_count = reader.number_or("TORCHELASTIC_RESTART_COUNT", 0);
  found.max_restarts = reader.number_or("TORCHELASTIC_MAX_RESTARTS", 0);
  found.job_id = reader.text("TORCHELASTIC_RUN_ID");
  if (reader.has("ROLE_NAME")) found.role = reader.text("ROLE_NAME");
  return found;
}

RankEnvironment alone(const VariableReader& reader) {
  if (const auto size = reader.number({"WORLD_SIZE"}); size && size->value > 1) {
    throw Error(Fault::config, "rank: ", shown(*size),
                " is set but RANK is not; set both, or unset WORLD_SIZE");
  }
  RankEnvironment found;
  if (reader.has("SLURM_JOB_ID")) {
    found.note = str("inside Slurm job ", reader.text("SLURM_JOB_ID"),
                     ", but not started by srun: this is a single process");
  }
  return found;
}

RankEnvironment foreign(const VariableReader& reader) {
  const auto slurm = detail::slurm_numbers(reader);
  const auto mpi = detail::mpi_numbers(reader);
  // mpirun inside an allocation: Slurm's numbers are those of MPI's own daemons, or of
  // the batch script. srun sets MPI's variables too, but then they agree.
  const bool mpi_is_nearer =
      slurm && mpi &&
      (slurm->rank.value != mpi->rank.value || slurm->size.value != mpi->size.value);
  if (!mpi_is_nearer) {
    if (auto found = detail::detect_slurm(reader)) return *found;
  }
  if (auto found = detail::detect_mpi(reader)) return *found;
  if (auto found = detail::detect_lsf(reader)) return *found;
  return alone(reader);
}

}  // namespace

std::string_view name_of(StartedBy by) noexcept {
  switch (by) {
    case StartedBy::lockstep:
      return "lockstep";
    case StartedBy::torchrun:
      return "torchrun";
    case StartedBy::slurm:
      return "slurm";
    case StartedBy::mpi:
      return "mpi";
    case StartedBy::lsf:
      return "lsf";
    case StartedBy::single:
      break;
  }
  return "single";
}

Variables process_variables() {
  Variables variables;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const auto equals = text.find('=');
    if (equals == std::string_view::npos) continue;
    variables.emplace(text.substr(0, equals), text.substr(equals + 1));
  }
  return variables;
}

RankEnvironment detect(const Variables& variables) {
  const VariableReader reader(variables);
  const auto world = world_numbers(reader);
  auto found = world ? from_world(reader, *world) : foreign(reader);
  found.token = reader.text("LOCKSTEP_JOB_TOKEN");
  found.error_file = reader.text("TORCHELASTIC_ERROR_FILE");
  found.gloo_interface = reader.text("GLOO_SOCKET_IFNAME");
  return found;
}

std::string describe(const RankEnvironment& environment) {
  if (environment.by == StartedBy::single) return "single process, no launcher";
  std::string text = str(name_of(environment.by), ": rank ", environment.rank, " of ",
                         environment.world_size, " (", environment.local_rank, " of ",
                         environment.local_world_size, " on node ", environment.node,
                         " of ", environment.nodes, ")");
  if (!environment.master_address.empty()) {
    text += str(", store at ",
                endpoint_text(environment.master_address, environment.master_port),
                environment.agent_store ? " in the launcher" : "");
  }
  if (environment.restart_count > 0) {
    text +=
        str(", restart ", environment.restart_count, " of ", environment.max_restarts);
  }
  return text;
}

std::vector<std::pair<std::string, std::string>> variables_of(
    const RankEnvironment& environment) {
  const auto& e = environment;
  std::vector<std::pair<std::string, std::string>> variables = {
      {"RANK", str(e.rank)},
      {"WORLD_SIZE", str(e.world_size)},
      {"LOCAL_RANK", str(e.local_rank)},
      {"LOCAL_WORLD_SIZE", str(e.local_world_size)},
      {"GROUP_RANK", str(e.node)},
      {"GROUP_WORLD_SIZE", str(e.nodes)},
      {"ROLE_RANK", str(e.rank)},
      {"ROLE_WORLD_SIZE", str(e.world_size)},
      {"ROLE_NAME", e.role},
      {"MASTER_ADDR", e.master_address},
      {"MASTER_PORT", str(e.master_port)},
      {"TORCHELASTIC_RESTART_COUNT", str(e.restart_count)},
      {"TORCHELASTIC_MAX_RESTARTS", str(e.max_restarts)},
      {"TORCHELASTIC_RUN_ID", e.job_id},
      {"TORCHELASTIC_USE_AGENT_STORE", e.agent_store ? "True" : "False"},
      {"TORCHELASTIC_ERROR_FILE", e.error_file},
      {"TORCH_NCCL_ASYNC_ERROR_HANDLING", "1"},
      {"LOCKSTEP_LAUNCHER", "1"},
      {"LOCKSTEP_JOB_TOKEN", e.token},
  };
  return variables;
}

}  // namespace lockstep::run
