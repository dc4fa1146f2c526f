#pragma once

#include <string>

#include "lockstep/launcher/rank_environment.h"

namespace lockstep::launcher {

// "localhost", 127.x or ::1: an address that every host has.
bool is_loopback(const std::string& address) noexcept;

// Whether a name or an address is one of this host's own. A name that can not be looked
// up is not.
bool is_this_host(const std::string& address);

// "node0:29500", "[fe80::1]:29500"
std::string endpoint_text(const std::string& address, int port);

// What the ranks of this host need of it, on the one that starts them or on each of
// them: a loopback interface, if they meet there, and files that a process may open; a
// soft limit is raised for that. Fault::hardware, with what to do, where it is missing:
// they would wait for each other for minutes.
void check_host(const RankEnvironment& environment);

}  // namespace lockstep::launcher
