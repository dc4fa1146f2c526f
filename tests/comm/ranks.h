#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/comm/communicator.h"
#include "lockstep/comm/votes.h"
#include "lockstep/run/rank_environment.h"
#include "tests/support/support.h"

// N ranks without a cluster.
namespace lockstep::test {

// What a rank threw; nothing if it did not.
using RankErrors = std::vector<std::optional<Error>>;

// `body(rank)` in one thread for each rank.
RankErrors as_threads(int ranks, const std::function<void(int rank)>& body);

// `body(rank)` in one process for each rank, forked: this process must not have
// computed anything yet, since the threads of its operations are not forked with it.
// Expectations that fail there fail here. Returns how each ended.
std::vector<process::End> as_processes(int ranks,
                                       const std::function<void(int rank)>& body);

// A job's environment on this machine, with a free port.
run::RankEnvironment environment_of(int rank, int ranks, int port);
int free_port();

// Where forked processes, or threads, meet before they have anything else in common.
class MeetingPoint {
 public:
  explicit MeetingPoint(int ranks);
  ~MeetingPoint();
  MeetingPoint(const MeetingPoint&) = delete;
  MeetingPoint& operator=(const MeetingPoint&) = delete;

  comm::Tell tell(int rank) const;

  // A communicator over shared memory. Collective.
  std::unique_ptr<comm::Communicator> shm(
      int rank, int ranks, std::chrono::milliseconds timeout = kPatience) const;

 private:
  struct Page;
  Page* page_;  // that all of them see
};

// The last two need a GPU, which all ranks share.
enum class Rig {
  local,
  gloo_threads,
  gloo_processes,
  shm_processes,
  nccl_processes,
  local_gpu
};
bool needs_gpu(Rig rig);
std::string name_of(Rig rig);

// `body(communicator)` on every rank; any error fails the test.
void with_communicators(Rig rig, int ranks,
                        const std::function<void(comm::Communicator&)>& body,
                        std::chrono::milliseconds timeout = kPatience);

// The same with a second one for tensors of the host, which may be the first.
using PairBody = std::function<void(comm::Communicator&, comm::Communicator& cpu)>;
void with_pairs(Rig rig, int ranks, const PairBody& body,
                std::chrono::milliseconds timeout = kPatience);

}  // namespace lockstep::test
