#pragma once

#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lockstep::run {

// The launcher of this process. `torchrun` stands for everything that sets RANK and
// WORLD_SIZE: torchrun itself, Kubernetes, a user.
enum class StartedBy { single, lockstep, torchrun, slurm, mpi, lsf };
std::string_view name_of(StartedBy by) noexcept;

// The place of this process among the ranks of its job, and their rendezvous.
struct RankEnvironment {
  StartedBy by = StartedBy::single;
  int rank = 0;
  int world_size = 1;
  int local_rank = 0;  // among the ranks of this node
  int local_world_size = 1;
  // GROUP_RANK and GROUP_WORLD_SIZE. A launcher that does not tell (MPI) is taken to
  // fill node after node.
  int node = 0;
  int nodes = 1;
  std::string master_address;  // where rank 0's store is; "" when there is none to meet
  int master_port = 0;
  // The launcher itself hosts the store: all ranks are clients, rank 0 included.
  bool agent_store = false;
  int restart_count = 0;
  int max_restarts = 0;
  std::string job_id;            // TORCHELASTIC_RUN_ID, Slurm's job id, ...; "" if none
  std::string token;             // guards our keys in the store; "" if none
  std::string role = "default";  // ROLE_NAME
  std::string error_file;        // TORCHELASTIC_ERROR_FILE; "" if none
  std::string gloo_interface;    // GLOO_SOCKET_IFNAME; "" if none
  std::string note;              // something that looks odd, for the log; "" if nothing

  bool operator==(const RankEnvironment&) const = default;
};

using Variables = std::map<std::string, std::string>;

// Returns the environment of this process.
Variables process_variables();

// Returns the first that matches: RANK and WORLD_SIZE, Slurm, the MPI family, LSF; else
// a single process. Throws Fault::config when variables contradict each other (a rank
// outside the world, half of a pair, two launchers that disagree), showing both.
RankEnvironment detect(const Variables& variables);

// Returns "torchrun: rank 2 of 4 (2 of 4 on node 0 of 1), store at host:29500"
std::string describe(const RankEnvironment& environment);

// The inverse of detect(): returns the environment of a rank that we start, for us and
// for any program that torchrun could start. detect() gives the same back, with
// StartedBy::lockstep and no note.
std::vector<std::pair<std::string, std::string>> variables_of(
    const RankEnvironment& environment);

}  // namespace lockstep::run
