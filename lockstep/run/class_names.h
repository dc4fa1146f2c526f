#pragma once

#include <string>
#include <vector>

#include "lockstep/run/run_directory.h"

// The names of a run's classes, in their order: for reports and predictions.
namespace lockstep::run {

// Writes classes.json; nothing where there are no names.
void write_class_names(const RunDirectory& run, const std::vector<std::string>& names);

// Returns none where the run has none, or where they can not be read.
std::vector<std::string> read_class_names(const RunDirectory& run);

}  // namespace lockstep::run
