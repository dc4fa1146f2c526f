#pragma once

#include <string>
#include <string_view>
#include <vector>

// Slurm's ways to write long lists in short. The texts come from the environment, so
// they may be anything: what is malformed, or larger than any cluster, is Fault::config
// with the text in it, and costs no memory.
namespace lockstep::launcher::slurm {

// "gnode[10,20,25-27],login1" -> gnode10 gnode20 gnode25 ... login1; leading zeros are
// kept: "n[001-003]". Several brackets in one name multiply: "rack[0-1]n[0-3]".
std::vector<std::string> expand_nodes(std::string_view list);

// "4(x2),3" -> 4 4 3
std::vector<int> expand_tasks(std::string_view list);

}  // namespace lockstep::launcher::slurm
