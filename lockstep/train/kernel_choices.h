#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <set>
#include <string>
#include <utility>

#include "lockstep/comm/join.h"
#include "lockstep/models/model.h"

namespace lockstep::train {

// A batch of all ranks, and how they cut it.
struct BatchCut {
  std::int64_t global = 0;   // samples
  std::int64_t largest = 0;  // of the shares of the ranks
  std::int64_t micro = 0;
  at::IntArrayRef sample;  // shape of the input of one
  bool match = false;      // all ranks make as many passes as the largest share needs
};

// Returns the sizes of the micro-batches that ranks make of it, the largest first.
std::set<std::int64_t, std::greater<>> micro_batches_of(const BatchCut& batch,
                                                        std::int64_t ranks);

// The algorithms that a model's own passes have chosen by measuring, kept for this run
// and on this machine: a later run does not measure again, and this one has the same
// bits when it resumes, whatever others have measured meanwhile. A file that can not be
// read or written costs no run.
class KernelChoices {
 public:
  // An empty path keeps nothing.
  struct Files {
    std::filesystem::path run;      // of this run: what it uses
    std::filesystem::path machine;  // of all runs, for shapes that this one has not had
  };

  // Gives the model what the files have. Lifetime: the model outlives it.
  KernelChoices(models::Model& model, Files files);

  // Chooses for batches that have not come before: rank 0 measures and keeps, the
  // others take what it has chosen. Collective for such a batch; cheap for others.
  void agree(const BatchCut& batch, comm::World& world);

  // Adds what has been chosen since. Cheap where nothing was.
  void keep();

 private:
  void measure(const BatchCut& batch, std::int64_t ranks);

  // A file, and what it had when it was read or written.
  struct Kept {
    std::filesystem::path file;
    std::string text = {};
  };
  static void write(Kept& kept, const std::string& text);

  models::OwnBackward* own_;
  Kept run_, machine_;
  std::set<std::pair<std::int64_t, std::int64_t>> seen_;  // global and micro
};

// Returns the file of this user on this machine; empty where there is no place for it.
std::filesystem::path kernel_choices_file();

}  // namespace lockstep::train
