#pragma once

#include "lockstep/hardware/machine.h"

// The parts that inspect() adds beside the GPUs, one function each.
namespace lockstep::hardware::detail {

void add_cpu_facts(const Path& root, Machine& machine);
void add_memory_facts(const Path& root, Machine& machine);
// Adds to each GPU what the kernel's log says of it.
void add_xid_errors(const Path& root, Machine& machine);
Disk read_disk(const Path& directory, const Path& root);
std::vector<NetworkInterface> network_interfaces(const Path& root);
// Returns the names of the devices that have verbs, whatever network they are on.
std::vector<std::string> rdma_devices(const Path& root);

}  // namespace lockstep::hardware::detail
