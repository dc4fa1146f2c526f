#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <torch/csrc/distributed/c10d/Store.hpp>

#include "lockstep/comm/communicator.h"
#include "lockstep/comm/votes.h"
#include "lockstep/comm/wire.h"
#include "lockstep/config/comm.h"
#include "lockstep/run/rank_environment.h"

namespace lockstep::comm {

struct JoinOptions {
  std::string init = "env://";  // or tcp://HOST:PORT, file:///PATH (store.h)
  config::CommConfig config;
  torch::Device device = torch::kCPU;  // of the tensors that data() moves
  // The facts that must be the same on every rank: {"config", hash}. The number of
  // ranks and the version of this program are compared anyway.
  std::vector<wire::Fact> facts;
  // Called while ranks wait for each other; true: give up (Fault::comm). May be empty.
  std::function<bool()> interrupted;
};

// The process group of a job, after its rendezvous.
//
// Lifetime: the destructor never communicates. Call close() at a clean end; after an
//           error just let it go: the peers notice.
class World {
 public:
  World(World&&) noexcept;
  World& operator=(World&&) noexcept;
  ~World();

  const run::RankEnvironment& environment() const noexcept { return environment_; }
  int rank() const noexcept { return environment_.rank; }
  int size() const noexcept { return environment_.world_size; }

  Communicator& data() noexcept { return *data_; }
  // Returns the communicator of host tensors; data() itself where that moves them.
  Communicator& cpu() noexcept { return cpu_ ? *cpu_ : *data_; }
  Votes& votes() noexcept { return *votes_; }

  // Returns the reason why data() is not what a user would expect; "" if it is.
  const std::string& note() const noexcept { return note_; }

  // Leaves together with the other ranks: the one that hosts the store stays until the
  // last has left, or a few seconds. Collective.
  void close();

  // Ends pending collectives on this rank, so that the others do not wait for it. From
  // any thread; never blocks.
  void abort() noexcept;

 private:
  friend World join(const run::RankEnvironment&, const JoinOptions&);
  friend std::vector<World> join_threads(const std::vector<torch::Device>&,
                                         const config::CommConfig&);
  explicit World(run::RankEnvironment environment);
  static World alone(run::RankEnvironment environment, const JoinOptions& options);

  run::RankEnvironment environment_;
  c10::intrusive_ptr<c10d::Store> store_;  // none for a single rank
  std::unique_ptr<Communicator> data_, cpu_;
  std::unique_ptr<Votes> votes_;
  Communicator* control_ = nullptr;  // of votes_, between threads
  std::string note_;
};

// Meets the other ranks of `environment` (run::detect tells it). A world of one
// rank needs no network. Throws Fault::comm when ranks do not come or a backend fails
// to start, and Fault::config when they differ in a fact that must be the same: on
// every rank, with the same text.
//
// Collective. May be called again in the same process, with the restart count raised,
// once the earlier World is gone.
World join(const run::RankEnvironment& environment, const JoinOptions& options);

// Makes ranks as threads of this process: a World for each device, to be used by a
// thread each. A device may be given more than once.
std::vector<World> join_threads(const std::vector<torch::Device>& devices,
                                const config::CommConfig& config);

}  // namespace lockstep::comm
