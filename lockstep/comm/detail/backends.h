#pragma once

#include <memory>
#include <string>
#include <vector>

#include "lockstep/comm/communicator.h"
#include "lockstep/comm/gloo.h"
#include "lockstep/comm/shm.h"
#include "lockstep/config/comm.h"

namespace lockstep::comm::detail {

// The ranks that a communicator is made for.
struct BackendSite {
  GroupOptions group;  // with the device whose tensors travel
  bool one_machine = false;
  Tell tell;  // rank 0's text to all ranks, through the store
};

// A way to move tensors between processes.
struct Backend {
  config::CommBackend name;     // the value of comm.backend that asks for it
  config::CommBackend or_gloo;  // and the one that asks for it where it is usable
  bool on_host;                 // moves tensors of the host, else those of a GPU
  // Returns "" if this rank can use it, else the obstacle.
  std::string (*available)(const BackendSite& site);
  std::unique_ptr<Communicator> (*make)(const BackendSite& site);
};

// Returns the table of all of them (config/comm.h), the fastest first. Of each kind of
// device the first that is wanted and available is taken.
const std::vector<Backend>& backends();

// Returns whether a value of comm.backend asks for a backend, for tensors that are on
// the host or on a GPU. `auto` asks for each one on its own kind of device.
bool is_wanted(const Backend& backend, config::CommBackend wanted,
               bool tensors_on_host);

}  // namespace lockstep::comm::detail
