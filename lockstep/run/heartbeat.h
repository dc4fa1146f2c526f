#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "lockstep/base/clock.h"
#include "lockstep/base/files.h"

namespace lockstep::run {

// The phase of a rank. The values are on disk: existing ones never change.
enum class Phase : std::uint32_t {
  starting = 0,
  training = 1,
  evaluating = 2,
  saving = 3,
  stopping = 4,
  finished = 5,
  loading = 6,     // waiting for data
  exchanging = 7,  // waiting for the other ranks
  // The rank computes something for the first time, as a batch of a new shape:
  // libraries tune themselves, which may take minutes.
  warming_up = 8,
};
std::string_view name_of(Phase phase) noexcept;

struct Beat {
  std::int64_t step = 0;
  Phase phase = Phase::starting;
  double time = 0;  // seconds since 1970
  int pid = 0;
};

// Returns the file in which this process's launcher looks for beats
// (LOCKSTEP_HEARTBEAT); empty if none does.
files::Path launcher_heartbeat();

struct HeartbeatSlot {
  int rank;
  int ranks;
};

// A rank's slot in the heartbeat file, mapped into memory: a beat is a few stores, no
// system call, so every step may have one.
//
// Threads: one at a time. Processes: one writer a rank.
class HeartbeatWriter {
 public:
  // Makes the file if it is not there (any rank may come first); its room is allocated,
  // so that a full disk is an error here (Fault::io) and never a signal later.
  HeartbeatWriter(const files::Path& path, const HeartbeatSlot& slot,
                  const Clock& clock = Clock::system());
  ~HeartbeatWriter();
  HeartbeatWriter(const HeartbeatWriter&) = delete;
  HeartbeatWriter& operator=(const HeartbeatWriter&) = delete;

  void beat(std::int64_t step, Phase phase) noexcept;

 private:
  void* mapping_ = nullptr;
  std::size_t mapping_bytes_ = 0;
  int rank_;
  int pid_;
  const Clock& clock_;
};

class HeartbeatReader {
 public:
  // Throws Fault::io if there is no such file, or it is not one of this version.
  explicit HeartbeatReader(const files::Path& path);

  int ranks() const noexcept { return ranks_; }

  // Returns whole beats only; nothing if the rank has not beaten yet, or died in the
  // middle of it.
  std::optional<Beat> read(int rank) const;

 private:
  files::Descriptor file_;
  int ranks_ = 0;
};

}  // namespace lockstep::run
