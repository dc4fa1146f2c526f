#pragma once

#include <string>
#include <vector>

#include "lockstep/hardware/machine.h"

// The measurements of each machine are kept below a state directory, by default
// $XDG_STATE_HOME/lockstep: machines/<key>/measured.json.
namespace lockstep::hardware {

// Returns sixteen hex digits, a hash of the model of the CPU, the cores that we may
// use, and the GPUs with their UUIDs. Another driver, more memory or another name of
// the host is still the same machine; a hidden GPU is another one.
std::string machine_key(const Machine& machine);

// Returns the directory of the files about this machine; others than ours, too.
Path machine_directory(const Path& state, const Machine& machine);

// Makes the directory. Fault::io if it can not be written.
Path store_measured(const Machine& machine, const Path& state,
                    const Measured& measured);

// Fills in machine.measured where something was kept, also when more GPUs were visible
// then. A file that can not be used (damaged, of a newer format) is left alone: returns
// one sentence that says so, else "".
std::string load_measured(Machine& machine, const Path& state);

// Returns sentences that name devices more than a tenth slower than the median of its
// equals: GPUs of one name, pairs of such GPUs with the same link between them.
std::vector<std::string> slow_ones(const Machine& machine, const Measured& measured);

// Returns sentences that name pairs whose copies hang or arrive damaged, and the
// variable that avoids this.
std::vector<std::string> broken_pairs(const Measured& measured);

}  // namespace lockstep::hardware
