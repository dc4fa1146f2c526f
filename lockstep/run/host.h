#pragma once

#include <string>

#include "lockstep/run/rank_environment.h"

namespace lockstep::run {

// Returns true for "localhost", 127.x or ::1, which every host has.
bool is_loopback(const std::string& address) noexcept;

// Returns whether a name or an address is one of this host's own. A name that can not
// be looked up is not.
bool is_this_host(const std::string& address);

// Returns "node0:29500", "[fe80::1]:29500".
std::string endpoint_text(const std::string& address, int port);

// Checks what ranks need of this host, in the process that starts them or in each: a
// loopback interface, if they meet there, and files that a process may open; a soft
// limit is raised for that. Throws Fault::hardware, with what to do, where it is
// missing: they would wait for each other for minutes.
void check_host(const RankEnvironment& environment);

}  // namespace lockstep::run
