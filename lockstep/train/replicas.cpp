#include "lockstep/train/replicas.h"

#include <exception>
#include <mutex>
#include <system_error>
#include <thread>

#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "lockstep/comm/join.h"
#include "lockstep/train/device.h"
#include "lockstep/train/shared.h"
#include "lockstep/train/trainer.h"

namespace lockstep::train {
namespace {

// Keeps the first failure: later ones are only its echo in the other ranks.
class FirstFailure {
 public:
  void note(std::exception_ptr failure) {
    const std::lock_guard lock(mutex_);
    if (!failure_) failure_ = std::move(failure);
  }
  void rethrow() const {
    if (failure_) std::rethrow_exception(failure_);
  }

 private:
  std::mutex mutex_;
  std::exception_ptr failure_;  // guarded by mutex_ while the ranks run
};

}  // namespace

Result train_replicas(const config::Resolved& config, const Replicas& replicas,
                      const RunHooks& hooks) {
  const auto& devices = replicas.devices;
  const int ranks = static_cast<int>(devices.size());
  const auto shared = open_shared(*config, hooks, ranks);
  auto worlds = comm::join_threads(devices, config->comm);
  choose_vector_code();
  FirstFailure failure;
  Result result;
  const auto train_one = [&](int rank) {
    auto& world = worlds[static_cast<std::size_t>(rank)];
    try {
      log::set_rank(rank);
      Reporter reporter({replicas.run, replicas.console}, config->monitor,
                        {.rank = rank,
                         .ranks = ranks,
                         .is_replica = true,
                         .gpus = gpu_numbers(devices)});
      const auto own =
          train(config, {replicas.run, reporter, replicas.stop, world}, *shared);
      if (rank == 0) result = own;
    } catch (...) {
      failure.note(std::current_exception());
      world.abort();
    }
  };
  {
    std::vector<std::jthread> threads;
    try {
      for (int rank = 1; rank < ranks; ++rank) threads.emplace_back(train_one, rank);
    } catch (const std::system_error& error) {
      worlds[0].abort();  // those that run wait for the others
      throw Error(Fault::hardware, "parallel.ranks: thread ", threads.size() + 1,
                  " of ", ranks - 1, " could not be started: ", error.what(),
                  "; lower parallel.ranks or raise the limit (ulimit -u)");
    }
    train_one(0);
  }
  failure.rethrow();
  return result;
}

}  // namespace lockstep::train
