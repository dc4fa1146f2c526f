#pragma once

#include <optional>
#include <span>
#include <string>

#include "lockstep/launcher/job.h"

namespace lockstep::launcher {

// The kind of a rank's end.
enum class Ending {
  well,     // status 0
  stopped,  // cleanly, by request
  told,     // because we told it to, after another one had failed
  killed,   // by us
  failed,   // by itself
};
Ending ending_of(const Job& job, const RankEnd& end);

// Returns the rank that failed first; nothing if none did. One that only lost its peers
// (Fault::comm) counts as a consequence when there is a better reason: the kernel
// closes the sockets of a dying process before it is seen to be dead. Ranks whose end
// was seen at the same moment are ordered by their error files.
std::optional<std::size_t> first_failure(const run::RunDirectory& run, const Job& job,
                                         std::span<const RankEnd> ends);

// Returns false for faults that another attempt meets again: config, diverged. A rank
// that can not be killed may still hold its GPU, and its part of the run.
bool is_retryable(const run::RunDirectory& run, const Job& job, const RankEnd& end);

// Returns what the ends of all ranks mean for the run, the user and the shell.
JobResult judge(const run::RunDirectory& run, const Job& job,
                std::vector<RankEnd> ends);

// Returns one line: "rank 1 (pid 4711 on host) ended by signal 11 (Segmentation
// fault)", and the text of its error file. A single rank's own words are enough.
std::string failure_line(const run::RunDirectory& run, const Job& job,
                         const RankEnd& end);

// Returns the line of the rank that failed first, the last lines of its log, and a line
// for each of the others.
struct FailedRanks {
  std::span<const RankEnd> ends;
  std::size_t first;
};
std::string failure_report(const run::RunDirectory& run, const Job& job,
                           const FailedRanks& ranks);

}  // namespace lockstep::launcher
