// An attempt watches its ranks while they run: whether they move, and are still
// ours.
#include <cerrno>
#include <chrono>
#include <utility>

#include <signal.h>
#include <sys/stat.h>

#include "lockstep/base/error.h"
#include "lockstep/launcher/detail/attempt.h"

namespace lockstep::launcher {
namespace {

using std::chrono::milliseconds;

// The interval of checks whether the run is still there, and ours.
constexpr milliseconds kRunInterval{1'000};

// The interval between two looks at what a quiet rank does.
constexpr milliseconds kEvidenceInterval{500};

}  // namespace

// The ranks make the file.
const run::HeartbeatReader* Attempt::heartbeat() {
  if (!heartbeat_) {
    try {
      heartbeat_.emplace(scene_.run.heartbeat());
    } catch (const Error&) {
      return nullptr;
    }
  }
  return &*heartbeat_;
}

void Attempt::look_for_hang() {
  if (!next_look_) return;
  if (told_ || asked_by_ != 0) {
    next_look_.reset();  // they are on their way out, and the deadline is theirs
    return;
  }
  if (scene_.clock.now() < *next_look_) return;
  next_look_ = scene_.clock.now() + scene_.job.monitor_interval;
  std::vector<RankLook> looks;
  for (auto& rank : ranks_) looks.push_back(look_at(rank));
  const auto verdict = scene_.hang->look(looks);
  if (verdict.slow) tell_slow(*verdict.slow);
  if (!verdict.hang) return;
  auto& rank = ranks_[static_cast<std::size_t>(verdict.hang->local_rank)];
  rank.end.hang = verdict.hang->because;
  rank.child.signal(SIGKILL);
  fail(rank);
}

RankLook Attempt::look_at(Rank& rank) {
  RankLook look{.running = rank.running, .beat = {}};
  if (!rank.running) return look;
  if (const auto* file = heartbeat()) look.beat = file->read(rank.end.rank);
  // A rank may be wrapped into another program: the one that beats counts.
  const auto pid = look.beat ? look.beat->pid : rank.end.pid;
  look.state = process_state(pid);
  const auto now = scene_.clock.now();
  const bool wanted = scene_.hang->wants_evidence(rank.end.local_rank);
  if (!wanted) {
    // Observations during an earlier pause say nothing of this one.
    rank.evidence_at.reset();
    rank.activity.reset();
    rank.gpu_busy.reset();
  }
  const bool due = !rank.evidence_at || now - *rank.evidence_at >= kEvidenceInterval;
  if (wanted && due) {
    rank.evidence_at = now;
    rank.activity = read_activity(pid);
    rank.gpu_busy = gpus_.is_busy(rank.end.local_rank);
  }
  look.activity = rank.activity;
  look.gpu_busy = rank.gpu_busy;
  return look;
}

void Attempt::tell_slow(const SlowRank& slow) {
  const int rank = ranks_[static_cast<std::size_t>(slow.local_rank)].end.rank;
  scene_.notes.event("slow",
                     {{"rank", std::int64_t{rank}},
                      {"step", slow.beat.step},
                      {"phase", std::string(name_of(slow.beat.phase))},
                      {"seconds", std::chrono::duration<double>(slow.quiet).count()}});
  scene_.notes.say(str("rank ", rank, " is slow: ", slow.text));
}

// The run may belong to another process by now, or be gone.
void Attempt::look_after_run() {
  const auto now = scene_.clock.now();
  if (told_) next_run_look_.reset();
  if (!next_run_look_ || now < *next_run_look_) return;
  next_run_look_ = now + kRunInterval;
  if (!is_taken_over() && !is_homeless()) return;
  told_ = true;
  kill_running();
}

// Returns whether another process has the run: these ranks must not write any more.
bool Attempt::is_taken_over() {
  const auto owner = scene_.job.lost_to ? scene_.job.lost_to() : "";
  if (owner.empty()) return false;
  for (auto& rank : ranks_) rank.end.lost_to = owner;
  scene_.notes.say(
      str("the run was taken over by ", owner, "; its ranks here are killed"));
  return true;
}

// Returns whether the directory was removed or moved: nothing that workers of ours
// compute could be kept. It must be seen twice, for on a network file system a file may
// be missing for a moment while it is being replaced.
bool Attempt::is_homeless() {
  struct stat info {};
  const bool is_gone = beats() &&
                       ::stat(scene_.run.record_file().c_str(), &info) != 0 &&
                       (errno == ENOENT || errno == ENOTDIR);
  if (!std::exchange(seems_gone_, is_gone) || !is_gone) return false;
  for (auto& rank : ranks_) rank.end.homeless = true;
  return true;
}

}  // namespace lockstep::launcher
