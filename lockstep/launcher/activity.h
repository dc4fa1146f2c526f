#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include <sys/types.h>

#include "lockstep/base/clock.h"
#include "lockstep/hardware/gpu_meter.h"

namespace lockstep::launcher {

// The work of a process since its start, as far as the kernel counts it.
struct Activity {
  double cpu_seconds = 0;              // used, and waited for by threads that could run
  std::int64_t io_bytes = 0;           // asked for by read(2), write(2) and their like
  std::int64_t storage_bytes = 0;      // of those, what went to or came from a disk
  std::int64_t major_page_faults = 0;  // each one waited for a disk
  bool in_kernel = false;  // now: a thread waits for a disk or a driver (state D)
};

// Returns the kernel's letter for what a process is at: 'R' running, 'S' and 'D'
// waiting, 'T' stopped, 't' held by a debugger, 'Z' ended and not waited for; 'X' if
// there is none.
char process_state(pid_t pid, const std::filesystem::path& proc = "/proc");

// Returns whether a process has begun to end, or has ended: others may know of it,
// while it can not be waited for yet.
bool is_ending(pid_t pid, const std::filesystem::path& proc = "/proc");

// Returns nothing where it can not be read: the process has ended, or is another
// user's.
std::optional<Activity> read_activity(pid_t pid,
                                      const std::filesystem::path& proc = "/proc");

// Watches whether the GPUs of ranks compute. They are asked by a thread of its own: a
// driver that hangs must not hold up a caller.
class GpuWatch {
 public:
  // The GPUs of a local rank, as CUDA counts them here; nothing: it may be any.
  using GpusOfRank = std::optional<std::vector<int>>;
  // Returns what the GPUs are at, in CUDA's order; called by that thread alone, and
  // once more at most after the watch is gone. Empty: a GpuMeter of that thread.
  using Read = std::function<std::vector<hardware::GpuStatus>()>;
  // `clock` must outlive it.
  explicit GpuWatch(std::vector<GpusOfRank> gpus_by_rank,
                    const Clock& clock = Clock::system(), Read read = {});
  ~GpuWatch();
  GpuWatch(const GpuWatch&) = delete;
  GpuWatch& operator=(const GpuWatch&) = delete;

  // Returns whether one of the rank's GPUs has run a kernel lately. Nothing if not
  // known; false for a rank without GPUs.
  std::optional<bool> is_busy(int local_rank);

 private:
  struct Shared;  // with the thread, which may outlive this object
  static void ask_again_and_again(Shared& shared, const Clock& clock, Read read);

  const std::vector<GpusOfRank> gpus_by_rank_;
  const Clock& clock_;
  const Read read_;
  std::shared_ptr<Shared> shared_;  // from the first question on
};

}  // namespace lockstep::launcher
