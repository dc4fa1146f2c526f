#include "lockstep/run/run_lock.h"

#include <cerrno>
#include <condition_variable>
#include <mutex>
#include <thread>

#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lockstep/base/error.h"
#include "lockstep/base/files.h"
#include "lockstep/run/detail/lock_file.h"

namespace lockstep::run {
namespace {

using files::Descriptor;
using std::chrono::milliseconds;

constexpr milliseconds kLookEvery{200};

bool is_process_alive(const LockHolder& holder) {
  RunRecord record;
  record.host = record_of_this_process().host;
  record.pid = holder.pid;
  record.process_start = holder.process_start;
  return may_be_alive(record);
}

[[noreturn]] void refuse(const Path& run, const std::string& holder,
                         std::string_view remedy) {
  throw Error(Fault::config, "run.name: the run in '", run.string(),
              "' is still running (", holder, "); ", remedy);
}

// Waits in pieces: an interruption must not wait for all of it.
void wait(milliseconds time, const LockOptions& options) {
  const auto until = std::chrono::steady_clock::now() + time;
  while (true) {
    if (options.interrupted && options.interrupted()) {
      throw Error(Fault::comm, "run.name: asked to end while waiting for the lock");
    }
    const auto left = until - std::chrono::steady_clock::now();
    if (left.count() <= 0) return;
    std::this_thread::sleep_for(std::min<std::chrono::nanoseconds>(left, kLookEvery));
  }
}

constexpr std::string_view kStopIt = "wait for it, stop it, or choose another run.name";

// Puts a file of our own in the place of one that a process of another machine may
// still have open, and locked: it sees that this one is another.
Descriptor replaced(const Path& run, const LockHolder& self) {
  const auto path = lock_file(run);
  const auto beside = run / str(".lock.", self.host, ".", self.pid);
  auto file = open_lock(beside, O_CREAT | O_TRUNC);
  static_cast<void>(try_flock(file.get(), LOCK_EX));
  write_holder(file.get(), {.holder = self}, beside);
  if (::rename(beside.c_str(), path.c_str()) != 0) {
    files::fail("replace", path, errno);
  }
  return file;
}

// The right to replace the lock, so that of two processes whose wait ends at the same
// time one gets it. Made by O_EXCL, which every file system has.
class Claim {
 public:
  explicit Claim(const Path& run) : path_(run / ".lock.claim") {
    file_ =
        Descriptor(::open(path_.c_str(), O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0644));
  }
  ~Claim() {
    if (file_) ::unlink(path_.c_str());
  }
  Claim(const Claim&) = delete;
  Claim& operator=(const Claim&) = delete;

  explicit operator bool() const noexcept { return static_cast<bool>(file_); }

  // Removes a claim whose maker died in the few lines for which it needs it.
  void remove_if_older_than(milliseconds limit, const Path& run) const {
    const auto there = look_at(path_);
    if (there && age(there.get(), run) > limit) ::unlink(path_.c_str());
  }

 private:
  const Path path_;
  Descriptor file_;
};

// Waits until its holder, on another machine, has renewed it, or the lease has ended.
// Returns whether it has ended.
bool lease_ends(const Path& run, const LockHolder& holder, const LockOptions& options) {
  const auto path = lock_file(run);
  std::optional<std::chrono::nanoseconds> first;
  while (true) {
    // It is opened anew: a network file system then asks its server how the file is.
    const auto file = look_at(path);
    if (!file) return true;  // given back meanwhile
    struct stat now {};
    if (::fstat(file.get(), &now) != 0) files::fail("look at", path, errno);
    if (first && changed_at(now) != *first) return false;
    const auto left = options.lease - age(file.get(), run);
    if (left.count() <= 0) return true;
    if (!first && options.say) {
      options.say(str("the lock of '", run.string(), "' is ", holder.text(),
                      "'s; waiting up to ", (left.count() + 999) / 1000,
                      " s to see whether it still lives (--take-over does not wait)"));
    }
    first = changed_at(now);
    wait(std::min(left, kLookEvery), options);
  }
}

// A process that lives looks at its lock every so often, and then kills its ranks: we
// must not clean up before that.
void wait_for_loser(const LockHolder& holder, const LockOptions& options) {
  constexpr milliseconds kToEnd{2'000};
  const auto time = options.renew_every + kToEnd;
  if (options.say) {
    options.say(str("taken from ", holder.text(), "; it has ", time.count() / 1000,
                    " s to notice and to end"));
  }
  wait(time, options);
}

// Returns the open, locked file, which names `options.self`; nothing: look again.
std::optional<Descriptor> try_take(const Path& run, const LockOptions& options) {
  const auto path = lock_file(run);
  auto file = open_lock(path, O_CREAT);
  const auto flock = flock_to_keep(file.get());
  if (!is_in_place(file.get(), path)) return std::nullopt;
  const auto holder = holder_in(file.get());
  const bool here = holder && holder->boot == options.self.boot;
  if (flock == Flock::taken && (!holder || here)) {
    refuse(run, holder ? holder->text() : "a process that is just starting it",
           kStopIt);
  }
  if (flock == Flock::unknown && here && is_process_alive(*holder)) {
    refuse(run, holder->text(), kStopIt);
  }
  if (holder && !here) {
    if (!options.take_over && !lease_ends(run, *holder, options)) {
      refuse(run, holder->text(),
             str(kStopIt, "; --take-over takes the run from that machine"));
    }
    const Claim claim(run);
    if (!claim) {
      claim.remove_if_older_than(options.lease, run);
      wait(kLookEvery, options);
    }
    if (!claim || !is_in_place(file.get(), path)) return std::nullopt;
    const bool may_live = age(file.get(), run) < options.lease;
    auto mine = replaced(run, options.self);
    if (may_live) wait_for_loser(*holder, options);
    return mine;
  }
  write_holder(file.get(), {.holder = options.self}, path);
  return file;
}

// Leaves all signals to other threads while it lives.
class BlockedSignals {
 public:
  BlockedSignals() {
    sigset_t all;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~BlockedSignals() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  BlockedSignals(const BlockedSignals&) = delete;
  BlockedSignals& operator=(const BlockedSignals&) = delete;

 private:
  sigset_t before_{};
};

}  // namespace

class RunLock::Impl {
 public:
  Impl(Descriptor file, const Path& run, const LockOptions& options)
      : file_(std::move(file)),
        self_(options.self),
        on_lost_(options.on_lost),
        run_(run) {
    const BlockedSignals for_the_thread;
    renewer_ = std::jthread([this, every = options.renew_every](std::stop_token stop) {
      renew(every, stop);
    });
  }

  ~Impl() {
    renewer_.request_stop();
    renewer_.join();
    // A file that is not ours any more is not removed.
    if (is_in_place(file_.get(), lock_file(run_))) {
      ::unlink(lock_file(run_).c_str());
    }
  }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  void moved_to(const Path& run) {
    const std::lock_guard guard(mutex_);
    run_ = run;
  }

  std::string lost_to() const {
    const std::lock_guard guard(mutex_);
    return lost_to_;
  }

  int descriptor() const noexcept { return file_.get(); }

 private:
  void renew(milliseconds every, const std::stop_token& stop) {
    std::mutex waiting;
    for (std::int64_t renewed = 1;; ++renewed) {
      std::unique_lock lock(waiting);
      // The first time is sooner: without flock two may have taken it together.
      const auto first = std::min(every, milliseconds(1'000));
      wake_.wait_for(lock, stop, renewed == 1 ? first : every, [] { return false; });
      if (stop.stop_requested()) return;
      if (!renew_once(renewed)) break;
    }
    if (on_lost_) on_lost_(lost_to());
  }

  // Returns false if another process has it now. The mutex is not held over what a
  // stalled file system may hold up.
  bool renew_once(std::int64_t renewed) {
    const auto path = lock_file(place());
    const auto there = look_at(path);
    if (!there) return put_back(path);
    const auto holder = holder_in(there.get());
    if (!is_in_place(file_.get(), path) || (holder && !is_self(*holder))) {
      const std::lock_guard guard(mutex_);
      lost_to_ = holder ? holder->text() : "another process";
      return false;
    }
    try {
      write_holder(file_.get(), {.holder = self_, .renewed = renewed}, path);
    } catch (const Error&) {  // a full disk: the next time may do
    }
    return true;
  }

  // Restores a file that was removed: the run is still ours, unless another process is
  // quicker.
  bool put_back(const Path& path) {
    Descriptor file(::open(path.c_str(), O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0644));
    if (!file) return true;  // the directory is gone, or the next look will tell
    static_cast<void>(try_flock(file.get(), LOCK_EX));
    try {
      write_holder(file.get(), {.holder = self_}, path);
    } catch (const Error&) {
    }
    // The old descriptor stays open: a guard has a copy of it.
    replacements_.push_back(std::move(file_));
    file_ = std::move(file);
    return true;
  }

  bool is_self(const LockHolder& holder) const {
    return holder.boot == self_.boot && holder.pid == self_.pid &&
           holder.host == self_.host && holder.process_start == self_.process_start;
  }

  Path place() const {
    const std::lock_guard guard(mutex_);
    return run_;
  }

  Descriptor file_;                       // of the renewer, once there is one
  std::vector<Descriptor> replacements_;  // earlier values of file_
  const LockHolder self_;
  const std::function<void(const std::string&)> on_lost_;
  mutable std::mutex mutex_;  // guards the two below
  Path run_;
  std::string lost_to_;
  std::condition_variable_any wake_;
  std::jthread renewer_;
};

std::string LockHolder::text() const {
  return str("process ", pid, " on ", host);
}

LockHolder this_process() {
  const auto record = record_of_this_process();
  return {.host = record.host,
          .boot = boot_id(),
          .pid = record.pid,
          .process_start = record.process_start};
}

RunLock RunLock::take(const Path& run, const LockOptions& options) {
  constexpr int kTries = 1'000;  // each one lost to a quicker process
  for (int i = 0; i < kTries; ++i) {
    if (auto file = try_take(run, options)) {
      return RunLock(std::make_unique<Impl>(std::move(*file), run, options));
    }
  }
  refuse(run, "others take and give back its lock all the time", kStopIt);
}

RunLock::RunLock(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
RunLock::RunLock(RunLock&&) noexcept = default;
RunLock::~RunLock() = default;

void RunLock::moved_to(const Path& run) {
  impl_->moved_to(run);
}

std::string RunLock::lost_to() const {
  return impl_->lost_to();
}

int RunLock::descriptor() const noexcept {
  return impl_->descriptor();
}

// A reader must not write, so it asks the clock of its own machine, with room for a
// difference.
bool may_be_alive(const RunDirectory& run, const RunRecord& record) {
  const auto file = look_at(lock_file(run.path()));
  const auto holder = file ? holder_in(file.get()) : std::nullopt;
  if (!holder) return may_be_alive(record);
  if (holder->boot == boot_id()) {
    if (record.host == this_process().host) return may_be_alive(record);
    // This is the same kernel under another name, a container's for instance: its
    // process numbers may not be ours, but its lock is seen here.
    const auto asked = try_flock(file.get(), LOCK_SH);
    return asked == Flock::unknown ? may_be_alive(record) : asked == Flock::taken;
  }
  struct stat open {};
  if (::fstat(file.get(), &open) != 0) return may_be_alive(record);
  constexpr int kRoom = 5;
  const std::chrono::nanoseconds now = Clock::system().wall().time_since_epoch();
  return now - changed_at(open) < kRoom * LockOptions().lease;
}

}  // namespace lockstep::run
