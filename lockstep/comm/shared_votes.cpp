// Votes in memory that the processes of one machine share.
#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <climits>
#include <cstring>

#include <fcntl.h>
#include <linux/futex.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/comm/votes.h"

namespace lockstep::comm {
namespace {

// Rounds alternate between two sets of places: nobody casts for round k + 2 before all
// have counted k, since counting k + 1 needs everybody's ballot for it.
constexpr std::size_t kSets = 2;

struct alignas(64) Place {
  std::atomic<std::uint64_t> flags;
  std::atomic<std::int64_t> value;
  std::atomic<std::uint64_t> round;  // the last one cast here, from 1 on
  std::atomic<std::int32_t> pid;
};
static_assert(std::atomic<std::uint64_t>::is_always_lock_free);

struct alignas(64) Bell {
  std::atomic<std::uint32_t> rung;  // grows with every ballot: what sleepers watch
  std::atomic<std::uint32_t> sleepers;
};

class SharedVotes : public Votes {
 public:
  SharedVotes(const SharedVotesOptions& options, const std::function<void()>& meet)
      : options_(options), ballots_(static_cast<std::size_t>(options.size)) {
    bytes_ = sizeof(Bell) + kSets * ballots_.size() * sizeof(Place);
    if (options.rank == 0) map(O_RDWR | O_CREAT | O_EXCL);
    meet();
    if (options.rank != 0) map(O_RDWR);
    for (std::size_t set = 0; set < kSets; ++set) {
      place(set, self()).pid = static_cast<std::int32_t>(::getpid());
    }
    meet();
    if (options.rank == 0) ::unlink(options.path.c_str());
  }

  ~SharedVotes() override { ::munmap(memory_, bytes_); }
  SharedVotes(const SharedVotes&) = delete;
  SharedVotes& operator=(const SharedVotes&) = delete;

  void cast(const Ballot& ballot) override {
    ++round_;
    auto& own = place(round_ % kSets, self());
    own.flags.store(ballot.flags, std::memory_order_relaxed);
    own.value.store(ballot.value, std::memory_order_relaxed);
    own.round.store(round_, std::memory_order_release);
    bell().rung.fetch_add(1, std::memory_order_seq_cst);
    if (bell().sleepers.load(std::memory_order_seq_cst) != 0) wake();
  }

  const std::vector<Ballot>& count() override {
    const auto deadline = std::chrono::steady_clock::now() + options_.timeout;
    for (std::size_t r = 0; r < ballots_.size(); ++r) {
      auto& its = place(round_ % kSets, r);
      wait_for(its, r, deadline);
      ballots_[r] = {its.flags.load(std::memory_order_relaxed),
                     its.value.load(std::memory_order_relaxed)};
    }
    return ballots_;
  }

 private:
  std::size_t self() const { return static_cast<std::size_t>(options_.rank); }

  Bell& bell() const { return *static_cast<Bell*>(memory_); }

  Place& place(std::size_t set, std::size_t rank) const {
    auto* first = reinterpret_cast<Place*>(static_cast<char*>(memory_) + sizeof(Bell));
    return first[set * ballots_.size() + rank];
  }

  void map(int flags) {
    const files::Descriptor file(
        ::open(options_.path.c_str(), flags | O_CLOEXEC, 0600));
    if (!file) fail("open");
    if (options_.rank == 0) {
      // Allocated, not a hole: a full disk is an error here, not a signal later.
      errno = ::posix_fallocate(file.get(), 0, static_cast<off_t>(bytes_));
      if (errno != 0) fail("allocate");
    }
    memory_ =
        ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
    if (memory_ == MAP_FAILED) fail("map");
  }

  [[noreturn]] void fail(std::string_view what) const {
    throw Error(Fault::io, "comm: can not ", what, " '", options_.path.string(),
                "': ", std::strerror(errno));
  }

  bool has_cast(const Place& its) const {
    return its.round.load(std::memory_order_acquire) >= round_;
  }

  // Others are usually there already. Then a few looks, then sleep until somebody
  // casts.
  void wait_for(const Place& its, std::size_t rank,
                std::chrono::steady_clock::time_point deadline) {
    constexpr int kLooks = 100;
    for (int i = 0; i < kLooks; ++i) {
      if (has_cast(its)) return;
    }
    bell().sleepers.fetch_add(1, std::memory_order_seq_cst);
    const auto seen = [&] { return bell().rung.load(std::memory_order_seq_cst); };
    for (auto rung = seen(); !has_cast(its); rung = seen()) {
      sleep_until_rung(rung);
      if (has_cast(its)) break;
      check_alive(its, rank);
      if (std::chrono::steady_clock::now() >= deadline) {
        bell().sleepers.fetch_sub(1);
        throw Error(Fault::comm, "comm: rank ", rank, " did not vote within ",
                    options_.timeout.count(), " ms (rank ", options_.rank,
                    " waited, round ", round_, ")");
      }
    }
    bell().sleepers.fetch_sub(1);
  }

  // At most a moment at a time: a peer that dies rings no bell.
  void sleep_until_rung(std::uint32_t rung) const {
    const timespec moment{.tv_sec = 0, .tv_nsec = 50'000'000};
    ::syscall(SYS_futex, &bell().rung, FUTEX_WAIT, rung, &moment, nullptr, 0);
  }

  void wake() const {
    ::syscall(SYS_futex, &bell().rung, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
  }

  // A process that has ended but was not reaped can still be signalled: look at its
  // state as well.
  static bool is_gone(pid_t pid) {
    if (::kill(pid, 0) != 0 && errno == ESRCH) return true;
    try {
      const auto stat = files::read(str("/proc/", pid, "/stat"), 4096);
      const auto state = stat.find(") ");
      return state != std::string::npos && state + 2 < stat.size() &&
             (stat[state + 2] == 'Z' || stat[state + 2] == 'X');
    } catch (const Error&) {
      return true;
    }
  }

  void check_alive(const Place& its, std::size_t rank) {
    const pid_t pid = its.pid.load();
    if (!is_gone(pid) || has_cast(its)) return;
    bell().sleepers.fetch_sub(1);
    throw Error(Fault::comm, "comm: rank ", rank, " (pid ", pid, ") has ended; rank ",
                options_.rank, " waited for its vote");
  }

  SharedVotesOptions options_;
  std::size_t bytes_ = 0;
  void* memory_ = nullptr;
  std::uint64_t round_ = 0;
  std::vector<Ballot> ballots_;
};

}  // namespace

std::unique_ptr<Votes> make_shared_votes(const SharedVotesOptions& options,
                                         const std::function<void()>& meet) {
  return std::make_unique<SharedVotes>(options, meet);
}

}  // namespace lockstep::comm
