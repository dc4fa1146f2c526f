#pragma once

#include <filesystem>
#include <string>

#include "lockstep/models/model.h"

namespace lockstep::train {

// The algorithms that a model's own passes have chosen by measuring, kept on this
// machine: a later run, or this one when it resumes, does not measure again and has the
// same bits. A file that can not be read or written costs no run.
class KernelChoices {
 public:
  // Gives the model what the file has. Lifetime: the model outlives it. An empty path
  // keeps nothing.
  KernelChoices(models::Model& model, std::filesystem::path file);

  // Adds what has been chosen since. Cheap where nothing was.
  void keep();

 private:
  models::OwnBackward* own_;
  const std::filesystem::path file_;
  std::string kept_;
};

// Returns the file of this user on this machine; empty where there is no place for it.
std::filesystem::path kernel_choices_file();

}  // namespace lockstep::train
