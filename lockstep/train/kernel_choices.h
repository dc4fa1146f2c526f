#pragma once

#include <cstdint>
#include <filesystem>
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
};

// The algorithms that a model's own passes have chosen by measuring, kept on this
// machine: a later run, or this one when it resumes, does not measure again and has the
// same bits. A file that can not be read or written costs no run.
class KernelChoices {
 public:
  // Gives the model what the file has. Lifetime: the model outlives it. An empty path
  // keeps nothing.
  KernelChoices(models::Model& model, std::filesystem::path file);

  // Chooses for batches that have not come before: rank 0 measures and keeps, the
  // others take what it has chosen. Collective for such a batch; cheap for others.
  void agree(const BatchCut& batch, comm::World& world);

  // Adds what has been chosen since. Cheap where nothing was.
  void keep();

 private:
  void measure(const BatchCut& batch, std::int64_t ranks);

  models::OwnBackward* own_;
  const std::filesystem::path file_;
  std::string kept_;
  std::set<std::pair<std::int64_t, std::int64_t>> seen_;  // global and micro
};

// Returns the file of this user on this machine; empty where there is no place for it.
std::filesystem::path kernel_choices_file();

}  // namespace lockstep::train
