#pragma once

#include <string>
#include <string_view>
#include <vector>

// Slurm's ways to write long lists in short. The texts come from the environment, so
// they may be anything: a text that is malformed, or larger than any cluster, throws
// Fault::config with the text, and costs no memory.
namespace lockstep::run::slurm {

// Turns "gnode[10,20,25-27],login1" into gnode10 gnode20 gnode25 ... login1; leading
// zeros stay: "n[001-003]". Several brackets multiply: "rack[0-1]n[0-3]".
std::vector<std::string> expand_nodes(std::string_view list);

// Turns "4(x2),3" into 4 4 3.
std::vector<int> expand_tasks(std::string_view list);

}  // namespace lockstep::run::slurm
