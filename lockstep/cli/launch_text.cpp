// Makes the output of `lockstep launch --dry-run`.
#include "lockstep/base/str.h"
#include "lockstep/base/text.h"
#include "lockstep/cli/detail/launch.h"
#include "lockstep/cli/detail/output.h"
#include "lockstep/hardware/cpu_topology.h"
#include "lockstep/run/host.h"

namespace lockstep::cli {
namespace {

using launcher::StdStreams;

std::string console_text(StdStreams console) {
  switch (console) {
    case StdStreams::out:
      return "stdout";
    case StdStreams::err:
      return "stderr";
    case StdStreams::both:
      return "stdout, stderr";
    case StdStreams::nothing:
      break;
  }
  return "-";
}

std::string rank_table(const launcher::Job& job) {
  std::vector<std::vector<std::string>> rows = {
      {"RANK", "LOCAL_RANK", "THREADS", "CPUS", "TERMINAL"}};
  for (std::size_t i = 0; i < job.ranks.size(); ++i) {
    const auto& rank = job.ranks[i];
    rows.push_back(
        {str(job.first.rank + static_cast<int>(i)), str(i), str(rank.place.threads),
         rank.place.cpus.empty() ? "any" : hardware::cpu_list_text(rank.place.cpus),
         console_text(rank.console)});
  }
  return text::table(rows, {0, 1, 2});
}

// Returns that of the first rank; values that are chosen at the start are in words.
std::string environment_text(const launcher::Job& job) {
  std::string result;
  for (const auto& [name, value] : variables_of(job.first)) {
    std::string shown = value.empty() ? value : shell_word(value);
    if (name == "MASTER_ADDR" && value.empty()) shown = "127.0.0.1";
    if (name == "MASTER_PORT" && value == "0") shown = "(a free port)";
    if (name == "TORCHELASTIC_ERROR_FILE") shown = "(in the run directory)";
    if (name == "LOCKSTEP_JOB_TOKEN") {
      shown = job.first.nodes == 1 ? "(random)" : value.empty() ? "" : "(given)";
    }
    result += str("  ", name, "=", shown, "\n");
  }
  return result + str("  OMP_NUM_THREADS=", job.ranks[0].place.threads, "\n");
}

}  // namespace

std::string launch_text(const LaunchOptions& options) {
  const auto& job = options.job;
  std::vector<std::string> words;
  for (const auto& word : job.command) words.push_back(shell_word(word));
  const auto& first = job.first;
  std::string text = str("command  ", text::join(words, " "), "\n");
  text +=
      str("node     ", first.node, " of ", first.nodes, ", ranks ", first.rank, " to ",
          first.rank + first.local_world_size - 1, " of ", first.world_size, "\n");
  const auto address =
      first.master_address.empty() ? "127.0.0.1" : first.master_address;
  text += str("store    ",
              first.master_port == 0 ? address + ", a free port"
                                     : run::endpoint_text(address, first.master_port),
              "\n");
  text += str("threads  ", options.threads_line, "\n");
  text += str("logs     ",
              options.log_dir.empty()
                  ? "a temporary directory, kept only when something goes wrong"
                  : str("a new directory in ", options.log_dir),
              "\n");
  for (const auto& note : options.notes) text += str("note     ", note, "\n");
  return printable(text + "\n" + rank_table(job) + "\nenvironment of rank " +
                   str(first.rank) + " (RANK, LOCAL_RANK and the like differ):\n" +
                   environment_text(job));
}

}  // namespace lockstep::cli
