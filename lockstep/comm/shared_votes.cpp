// Votes in memory that the processes of one machine share.
#include <atomic>

#include <unistd.h>

#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "lockstep/comm/detail/liveness.h"
#include "lockstep/comm/detail/shared_memory.h"
#include "lockstep/comm/votes.h"

namespace lockstep::comm {
namespace {

using detail::Bell;
using detail::SharedMemory;

// Rounds alternate between two sets of places: no rank casts for round k + 2 before all
// have counted k, since counting k + 1 needs all ranks' ballots for it.
constexpr std::size_t kSets = 2;

struct alignas(64) VoterSlot {
  std::atomic<std::uint64_t> flags;
  std::atomic<std::int64_t> value;
  std::atomic<std::uint64_t> round;  // the last one cast here, from 1 on
  std::atomic<std::int32_t> pid;
  std::array<std::atomic<double>, kMostWeights> weights;
};
static_assert(std::atomic<double>::is_always_lock_free);
static_assert(std::atomic<std::uint64_t>::is_always_lock_free);

class SharedVotes : public Votes {
 public:
  SharedVotes(const SharedVotesOptions& options, SharedMemory memory)
      : options_(options),
        memory_(std::move(memory)),
        ballots_(static_cast<std::size_t>(options.size)) {
    for (std::size_t set = 0; set < kSets; ++set) {
      place(set, self()).pid = static_cast<std::int32_t>(::getpid());
    }
  }

  static std::size_t num_bytes(int ranks) {
    return sizeof(Bell) + kSets * static_cast<std::size_t>(ranks) * sizeof(VoterSlot);
  }

  bool all_are_here() const {
    for (std::size_t r = 0; r < ballots_.size(); ++r) {
      if (place(0, r).pid.load() == 0) return false;
    }
    return true;
  }

  void close_file() noexcept { memory_.close_file(); }

  void cast(const Ballot& ballot) override {
    ++round_;
    auto& own = place(round_ % kSets, self());
    own.flags.store(ballot.flags, std::memory_order_relaxed);
    own.value.store(ballot.value, std::memory_order_relaxed);
    for (std::size_t i = 0; i < kMostWeights; ++i) {
      own.weights[i].store(ballot.weights[i], std::memory_order_relaxed);
    }
    own.round.store(round_, std::memory_order_release);
    bell().ring();
  }

  const std::vector<Ballot>& count() override {
    const auto deadline = std::chrono::steady_clock::now() + options_.timeout;
    for (std::size_t r = 0; r < ballots_.size(); ++r) {
      auto& its = place(round_ % kSets, r);
      wait_for(its, r, deadline);
      ballots_[r] = {its.flags.load(std::memory_order_relaxed),
                     its.value.load(std::memory_order_relaxed)};
      for (std::size_t i = 0; i < kMostWeights; ++i) {
        ballots_[r].weights[i] = its.weights[i].load(std::memory_order_relaxed);
      }
    }
    return ballots_;
  }

 private:
  std::size_t self() const { return static_cast<std::size_t>(options_.rank); }

  Bell& bell() const { return *reinterpret_cast<Bell*>(memory_.data()); }

  VoterSlot& place(std::size_t set, std::size_t rank) const {
    auto* first = reinterpret_cast<VoterSlot*>(memory_.data() + sizeof(Bell));
    return first[set * ballots_.size() + rank];
  }

  bool has_cast(const VoterSlot& its) const {
    return its.round.load(std::memory_order_acquire) >= round_;
  }

  void wait_for(const VoterSlot& its, std::size_t rank,
                std::chrono::steady_clock::time_point deadline) {
    // Ranks sleep for a moment at most: a peer that dies rings no bell.
    constexpr std::chrono::milliseconds kMoment{50};
    const auto seen = [&] { return bell().rung.load(std::memory_order_seq_cst); };
    for (auto rung = seen(); !has_cast(its); rung = seen()) {
      bell().sleep(rung, kMoment);
      if (has_cast(its)) return;
      check_alive(its, rank);
      if (std::chrono::steady_clock::now() < deadline) continue;
      throw Error(Fault::comm, "comm: rank ", rank, " did not vote within ",
                  options_.timeout.count(), " ms (rank ", options_.rank,
                  " waited, round ", round_, ")");
    }
  }

  void check_alive(const VoterSlot& its, std::size_t rank) {
    const pid_t pid = its.pid.load();
    if (!detail::is_gone(pid) || has_cast(its)) return;
    throw Error(Fault::comm, "comm: rank ", rank, " (pid ", pid, ") has ended; rank ",
                options_.rank, " waited for its vote");
  }

  SharedVotesOptions options_;
  SharedMemory memory_;
  std::uint64_t round_ = 0;
  std::vector<Ballot> ballots_;
};

}  // namespace

namespace {

// Returns an empty one where it can not be had.
SharedMemory try_to(const std::function<SharedMemory()>& make) {
  try {
    return make();
  } catch (const Error& error) {
    log::warning("comm", error.what());
    return {};
  }
}

}  // namespace

std::unique_ptr<Votes> make_shared_votes(const SharedVotesOptions& options,
                                         const Tell& tell) {
  const auto bytes = SharedVotes::num_bytes(options.size);
  SharedMemory memory;
  std::string path;
  if (options.rank == 0) {
    memory = try_to([&] { return SharedMemory::create_nameless(bytes); });
    if (memory.data() != nullptr) {
      path = SharedMemory::path_for_others(::getpid(), memory.descriptor()).string();
    }
  }
  path = tell(path);
  if (options.rank != 0 && !path.empty()) {
    memory = try_to([&] { return SharedMemory::open(path, bytes); });
  }
  // Every rank that has it says so in it, and rank 0 counts.
  std::unique_ptr<SharedVotes> votes;
  if (memory.data() != nullptr) {
    votes = std::make_unique<SharedVotes>(options, std::move(memory));
  }
  tell("");
  const bool complete = votes && votes->all_are_here();
  if (tell(complete ? "complete" : "") != "complete") return nullptr;
  votes->close_file();
  return votes;
}

}  // namespace lockstep::comm
