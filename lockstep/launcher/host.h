#pragma once

#include <string>

namespace lockstep::launcher {

// "localhost", 127.x or ::1: an address that every host has.
bool is_loopback(const std::string& address) noexcept;

// Whether a name or an address is one of this host's own. A name that can not be looked
// up is not.
bool is_this_host(const std::string& address);

// "node0:29500", "[fe80::1]:29500"
std::string endpoint_text(const std::string& address, int port);

}  // namespace lockstep::launcher
