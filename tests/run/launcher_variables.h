#pragma once

#include "lockstep/run/rank_environment.h"

// The environments that other launchers give their processes.
namespace lockstep::test {

inline run::Variables torchrun_variables() {
  return {{"RANK", "5"},
          {"WORLD_SIZE", "8"},
          {"LOCAL_RANK", "1"},
          {"LOCAL_WORLD_SIZE", "4"},
          {"GROUP_RANK", "1"},
          {"GROUP_WORLD_SIZE", "2"},
          {"ROLE_NAME", "trainer"},
          {"MASTER_ADDR", "node0.example"},
          {"MASTER_PORT", "29400"},
          {"TORCHELASTIC_RESTART_COUNT", "1"},
          {"TORCHELASTIC_MAX_RESTARTS", "3"},
          {"TORCHELASTIC_RUN_ID", "job-7"},
          {"TORCHELASTIC_USE_AGENT_STORE", "True"},
          {"TORCHELASTIC_ERROR_FILE", "/tmp/x/error.json"}};
}

inline run::Variables slurm_variables() {
  return {{"SLURM_JOB_ID", "1234567"},
          {"SLURM_JOB_NAME", "train"},
          {"SLURM_STEP_ID", "0"},
          {"SLURM_PROCID", "6"},
          {"SLURM_NTASKS", "11"},
          {"SLURM_LOCALID", "2"},
          {"SLURM_NODEID", "1"},
          {"SLURM_NNODES", "3"},
          {"SLURM_JOB_NODELIST", "gnode[08-10]"},
          {"SLURM_STEP_TASKS_PER_NODE", "4(x2),3"}};
}

inline run::Variables mpirun_variables() {
  return {{"OMPI_COMM_WORLD_RANK", "2"},
          {"OMPI_COMM_WORLD_SIZE", "4"},
          {"OMPI_COMM_WORLD_LOCAL_RANK", "2"},
          {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"},
          {"PMIX_RANK", "2"},
          {"PMIX_NAMESPACE", "3341287425"}};
}

inline run::Variables merged(run::Variables first, const run::Variables& second) {
  for (const auto& [name, value] : second) first[name] = value;
  return first;
}

}  // namespace lockstep::test
