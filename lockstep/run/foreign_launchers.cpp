// Reads what Slurm, the MPI family and LSF tell a process that they have started.
#include <algorithm>
#include <array>
#include <cstdint>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/run/detail/variable_reader.h"
#include "lockstep/run/slurm.h"

namespace lockstep::run::detail {
namespace {

// The default of torch, used when nothing tells two jobs apart.
constexpr int kDefaultPort = 29500;

// Returns the last four digits of a job's id: the same on all ranks and likely to
// differ between jobs of one host.
int last_digits(const std::string& job_id, int digits) {
  std::string tail;
  for (auto c = job_id.rbegin(); c != job_id.rend() && *c >= '0' && *c <= '9'; ++c) {
    tail.insert(tail.begin(), *c);
    if (static_cast<int>(tail.size()) == digits) break;
  }
  return tail.empty() ? 0 : std::stoi(tail);
}

// Computes FNV-1a: std::hash may differ between builds, and all ranks have to agree.
std::uint32_t hash_of(std::string_view text) {
  std::uint32_t hash = 2166136261U;
  for (const unsigned char c : text) hash = (hash ^ c) * 16777619U;
  return hash;
}

void require_rank(const RankAndSize& numbers) {
  if (numbers.rank.value < numbers.size.value) return;
  throw Error(
      Fault::config, "rank: ", shown(numbers.rank), " is not below ",
      shown(numbers.size),
      "; they come from different launchers, or one was set by hand: unset both "
      "or correct them");
}

void require_local(const RankEnvironment& found, std::string_view rank_name,
                   std::string_view size_name) {
  if (found.local_rank < found.local_world_size &&
      found.local_world_size <= found.world_size) {
    return;
  }
  throw Error(Fault::config, "rank: ", rank_name, "=", found.local_rank, " and ",
              size_name, "=", found.local_world_size, " do not fit into ",
              found.world_size, " ranks; one was set by hand: unset or correct it");
}

// A shell that Slurm gives a user has the variables of a job but is no task of it.
bool is_interactive(const VariableReader& reader) {
  const auto name = reader.text("SLURM_JOB_NAME");
  return name == "bash" || name == "interactive";
}

std::string slurm_node_list(const VariableReader& reader) {
  // The step's own list comes first: a step may use only some of the job's nodes, and
  // rank 0 is on the first of these.
  return reader.first_text(
      {"SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST", "SLURM_NODELIST"});
}

// Returns how many tasks each node has; empty if Slurm does not say.
std::vector<int> slurm_tasks(const VariableReader& reader) {
  const auto list = reader.first_text(
      {"SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE", "SLURM_NTASKS_PER_NODE"});
  return list.empty() ? std::vector<int>{} : slurm::expand_tasks(list);
}

void take_slurm_nodes(const VariableReader& reader, RankEnvironment& found) {
  const auto names = slurm::expand_nodes(slurm_node_list(reader));
  const auto counted =
      reader.number({"SLURM_STEP_NUM_NODES", "SLURM_NNODES", "SLURM_JOB_NUM_NODES"});
  found.nodes = std::max(1, counted ? counted->value : static_cast<int>(names.size()));
  found.node = reader.number_or("SLURM_NODEID", 0);
  if (found.node >= found.nodes) {
    throw Error(Fault::config, "rank: SLURM_NODEID=", found.node,
                " is not below the number of nodes, ", found.nodes,
                "; one was set by hand: unset or correct it");
  }
  found.local_rank = reader.number_or("SLURM_LOCALID", 0);
  const auto tasks = slurm_tasks(reader);
  const auto node = static_cast<std::size_t>(found.node);
  if (found.nodes == 1) {
    found.local_world_size = found.world_size;
  } else if (node < tasks.size()) {
    found.local_world_size = tasks[node];
  } else if (!tasks.empty()) {
    found.local_world_size = tasks.back();  // "4" alone: the same on every node
  } else {
    found.local_world_size = (found.world_size + found.nodes - 1) / found.nodes;
  }
  require_local(found, "SLURM_LOCALID", "the tasks of this node");
  if (found.master_address.empty() && !names.empty()) {
    found.master_address = names.front();
  }
}

struct MpiFamily {
  std::string_view rank, size, local_rank, local_size;
};

constexpr std::array<MpiFamily, 3> kMpiFamilies{{
    {"PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"},
    {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
     "OMPI_COMM_WORLD_LOCAL_SIZE"},
    {"MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_LOCAL_RANK",
     "MV2_COMM_WORLD_LOCAL_SIZE"},
}};

std::optional<MpiFamily> mpi_family(const VariableReader& reader) {
  for (const auto& family : kMpiFamilies) {
    if (reader.has(family.rank)) return family;
  }
  return std::nullopt;
}

// Sets the rendezvous of an MPI job without MASTER_ADDR: on one host ranks can find it
// out for themselves.
void take_mpi_master(std::string_view local_size_name, RankEnvironment& found) {
  if (found.master_address.empty()) {
    if (found.local_world_size != found.world_size) {
      throw Error(Fault::config, "rank: MPI started ", found.world_size,
                  " ranks, but only ", local_size_name, "=", found.local_world_size,
                  " on this host, and MASTER_ADDR is not set; export MASTER_ADDR (the "
                  "host of rank 0) and MASTER_PORT (a free port) and pass them on: "
                  "mpirun -x MASTER_ADDR -x MASTER_PORT ...");
    }
    found.master_address = "127.0.0.1";
  }
  if (found.master_port != 0) return;
  // The port is between Slurm's range and the kernel's ephemeral ports.
  found.master_port = found.job_id.empty()
                          ? kDefaultPort
                          : 25'000 + static_cast<int>(hash_of(found.job_id) % 4'000);
}

// Parses "batch1 1 h41 42 h42 42": the first is the launch node, which has no rank,
// unless it is the only one.
std::string lsf_first_host(const VariableReader& reader) {
  std::vector<std::string> words;
  for (auto& word : text::split(reader.text("LSB_MCPU_HOSTS"), ' ')) {
    if (!word.empty()) words.push_back(std::move(word));
  }
  if (words.size() >= 4 && words[1] == "1") return words[2];
  return words.empty() ? "" : words[0];
}

}  // namespace

std::string shown(const Number& number) {
  return str(number.name, "=", number.value);
}

bool VariableReader::has(std::string_view name) const {
  return !text(name).empty();
}

std::string VariableReader::text(std::string_view name) const {
  const auto found = variables_.find(std::string(name));
  return found == variables_.end() ? "" : found->second;
}

std::string VariableReader::first_text(
    std::initializer_list<std::string_view> names) const {
  for (const auto name : names) {
    if (has(name)) return text(name);
  }
  return "";
}

std::optional<Number> VariableReader::number(
    std::initializer_list<std::string_view> names) const {
  for (const auto name : names) {
    const auto written = text(name);
    if (written.empty()) continue;
    constexpr std::size_t kDigits = 9;  // fits into an int, with room to add
    if (written.size() > kDigits ||
        written.find_first_not_of("0123456789") != std::string::npos) {
      throw Error(Fault::config, "rank: ", name, "='", written.substr(0, 64),
                  "' is not a whole number of at least 0; correct or unset it");
    }
    return Number{.name = std::string(name), .value = std::stoi(written)};
  }
  return std::nullopt;
}

int VariableReader::number_or(std::string_view name, int otherwise) const {
  const auto found = number({name});
  return found ? found->value : otherwise;
}

void take_master(const VariableReader& reader, RankEnvironment& found) {
  found.master_address = reader.text("MASTER_ADDR");
  const auto port = reader.number({"MASTER_PORT"});
  if (!port) return;
  if (port->value > 65'535) {
    throw Error(Fault::config, "rank: ", shown(*port),
                " is not a TCP port; set it to 1 to 65535");
  }
  found.master_port = port->value;
}

bool started_by_srun(const VariableReader& reader) {
  return reader.has("SLURM_STEP_ID") || reader.has("SLURM_STEPID");
}

std::optional<RankAndSize> slurm_numbers(const VariableReader& reader) {
  if (is_interactive(reader)) return std::nullopt;
  const auto rank = reader.number({"SLURM_PROCID"});
  const auto size = reader.number({"SLURM_NTASKS"});
  if (!rank || !size) return std::nullopt;
  return RankAndSize{.rank = *rank, .size = *size};
}

std::optional<RankEnvironment> detect_slurm(const VariableReader& reader) {
  const auto numbers = slurm_numbers(reader);
  if (!numbers) return std::nullopt;
  require_rank(*numbers);
  if (!started_by_srun(reader) && numbers->size.value > 1) {
    // No rank but this one would ever come.
    throw Error(
        Fault::config, "rank: the Slurm job has ", shown(numbers->size),
        " tasks, but this process was not started by srun (SLURM_STEP_ID is not "
        "set); start it with srun, or with lockstep launch");
  }
  RankEnvironment found;
  found.by = StartedBy::slurm;
  found.rank = numbers->rank.value;
  found.world_size = numbers->size.value;
  found.job_id = reader.first_text({"SLURM_JOB_ID", "SLURM_JOBID"});
  take_master(reader, found);
  take_slurm_nodes(reader, found);
  if (found.master_address.empty() && found.world_size > 1) {
    throw Error(Fault::config, "rank: ", shown(numbers->rank), " and ",
                shown(numbers->size),
                " are set but no list of nodes (SLURM_STEP_NODELIST, "
                "SLURM_JOB_NODELIST); start with srun, or export MASTER_ADDR");
  }
  if (found.master_port == 0) found.master_port = 15'000 + last_digits(found.job_id, 4);
  return found;
}

std::optional<RankAndSize> mpi_numbers(const VariableReader& reader) {
  const auto family = mpi_family(reader);
  if (!family) {
    // PMIx gives a rank alone; the size has to come from one of the others.
    const auto rank = reader.number({"PMIX_RANK"});
    const auto size =
        reader.number({"PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "MV2_COMM_WORLD_SIZE"});
    if (!rank || !size) return std::nullopt;
    return RankAndSize{.rank = *rank, .size = *size};
  }
  const auto rank = reader.number({family->rank});
  const auto size = reader.number({family->size});
  if (!size) {
    throw Error(Fault::config, "rank: ", shown(*rank), " is set but ", family->size,
                " is not; set both, or unset ", family->rank);
  }
  return RankAndSize{.rank = *rank, .size = *size};
}

std::optional<RankEnvironment> detect_mpi(const VariableReader& reader) {
  const auto numbers = mpi_numbers(reader);
  if (!numbers) return std::nullopt;
  require_rank(*numbers);
  const auto family = mpi_family(reader).value_or(kMpiFamilies[1]);
  RankEnvironment found;
  found.by = StartedBy::mpi;
  found.rank = numbers->rank.value;
  found.world_size = numbers->size.value;
  found.local_world_size = reader.number_or(family.local_size, found.world_size);
  found.local_rank = reader.number_or(family.local_rank,
                                      found.rank % std::max(1, found.local_world_size));
  require_local(found, family.local_rank, family.local_size);
  found.node = found.rank / found.local_world_size;
  found.nodes =
      (found.world_size + found.local_world_size - 1) / found.local_world_size;
  found.job_id = reader.first_text(
      {"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid", "PMI_JOBID", "SLURM_JOB_ID"});
  take_master(reader, found);
  take_mpi_master(family.local_size, found);
  return found;
}

std::optional<RankEnvironment> detect_lsf(const VariableReader& reader) {
  const auto rank = reader.number({"JSM_NAMESPACE_RANK"});
  const auto size = reader.number({"JSM_NAMESPACE_SIZE"});
  if (!rank || !size) return std::nullopt;
  require_rank({.rank = *rank, .size = *size});
  RankEnvironment found;
  found.by = StartedBy::lsf;
  found.rank = rank->value;
  found.world_size = size->value;
  found.local_world_size = reader.number_or("JSM_NAMESPACE_LOCAL_SIZE", 1);
  found.local_rank = reader.number_or("JSM_NAMESPACE_LOCAL_RANK", 0);
  require_local(found, "JSM_NAMESPACE_LOCAL_RANK", "JSM_NAMESPACE_LOCAL_SIZE");
  found.node = found.rank / found.local_world_size;
  found.nodes =
      (found.world_size + found.local_world_size - 1) / found.local_world_size;
  found.job_id = reader.text("LSB_JOBID");
  take_master(reader, found);
  if (found.master_address.empty()) found.master_address = lsf_first_host(reader);
  if (found.master_address.empty() && found.world_size > 1) {
    throw Error(Fault::config, "rank: ", shown(*rank), " and ", shown(*size),
                " are set but LSB_MCPU_HOSTS is not; export MASTER_ADDR, the host of "
                "rank 0");
  }
  if (found.master_port == 0) found.master_port = 10'000 + last_digits(found.job_id, 3);
  return found;
}

}  // namespace lockstep::run::detail
