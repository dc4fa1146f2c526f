#pragma once

#include <string>
#include <vector>

#include "lockstep/hardware/machine.h"

// What was measured, kept for each machine below a state directory, which is
// $XDG_STATE_HOME/lockstep for a person: machines/<key>/measured.json.
namespace lockstep::hardware {

// Sixteen hex digits: the model of the CPU, the cores that we may use, and the GPUs
// with their UUIDs. Another driver, more memory or another name of the host is still
// the same machine; a hidden GPU is another one.
std::string machine_key(const Machine& machine);

// Where files about this machine lie; others than ours, too.
Path machine_directory(const Path& state, const Machine& machine);

// Makes the directory. Fault::io if it can not be written.
Path store_measured(const Machine& machine, const Path& state,
                    const Measured& measured);

// Fills in machine.measured where something was kept, also when more GPUs were visible
// then. What can not be used (damaged,
// of a newer format) is left alone: the result is one sentence that says so, else "".
std::string load_measured(Machine& machine, const Path& state);

// Sentences that name what is more than a tenth slower than the median of its equals:
// GPUs of one name, pairs of such GPUs with the same link between them.
std::vector<std::string> slow_ones(const Machine& machine, const Measured& measured);

// Sentences that name pairs whose copies hang or arrive damaged, and the variable that
// avoids it.
std::vector<std::string> broken_pairs(const Measured& measured);

}  // namespace lockstep::hardware
