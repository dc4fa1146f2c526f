#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <torch/torch.h>

#include "lockstep/checkpoint/pieces.h"
#include "lockstep/comm/votes.h"
#include "lockstep/storage/catalog.h"
#include "lockstep/storage/manifest.h"

namespace lockstep::checkpoint {

class Staging;

// Writes checkpoints while training continues. At a step boundary begin() copies the
// tensors that the next forward pass changes; a thread (on a GPU a stream) copies the
// rest under the next forward and backward pass, and fence() waits for it before the
// weights change. Then the thread writes and hashes, and rank 0 publishes when all have
// written.
//
// Ranks agree through the ballots that they exchange anyway: each adds flags() to its
// own and shows those of all to on_ballots(). So no rank waits for another's disk.
//
// Collective: begin(), by all ranks at the same step, and on_ballots() with the same
//             ballots.
// Threads:    one, that trains; it has another of its own. Lifetime:   the destructor
// gives up what is not finished; that leaves nothing that a
//             reader would take for a checkpoint.
class Saver {
 public:
  struct Options {
    std::filesystem::path checkpoints;
    int rank = 0;
    int ranks = 1;
    torch::Device device = torch::kCPU;
    storage::Keep keep;
    storage::FileSystem* files = nullptr;  // the real one
  };
  explicit Saver(Options options);
  ~Saver();
  Saver(const Saver&) = delete;
  Saver& operator=(const Saver&) = delete;

  // `head` needs no files and tensors; rank 0's is written. REQUIRES: !is_busy()
  void begin(Pieces pieces, storage::Manifest head);
  // To be called before the pieces given to begin() change.
  void fence();

  // Returns true between begin() and the outcome.
  bool is_busy() const noexcept;
  comm::Flags flags() const;

  struct SaveOutcome {
    std::int64_t step = 0;
    bool saved = false;
    std::string text;             // the directory, or why it failed
    std::int64_t bytes = 0;       // of this rank
    std::int64_t held_bytes = 0;  // of memory
    double blocked_seconds = 0;   // of the thread that trains
    double seconds = 0;           // from begin() on
    double work_seconds = 0;      // of these, those in which it did not wait for others
  };
  // Returns the outcome when all ranks know that the checkpoint is there, or that it
  // failed.
  std::optional<SaveOutcome> on_ballots(const std::vector<comm::Ballot>& ballots);

  // Waits until flags() has changed, or the time is over: for a caller that has nothing
  // else to do.
  void wait(std::chrono::milliseconds limit);

 private:
  class Job;

  Options options_;
  std::unique_ptr<Staging> staging_;
  std::unique_ptr<Job> job_;
};

}  // namespace lockstep::checkpoint
