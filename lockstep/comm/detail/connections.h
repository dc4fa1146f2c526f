#pragma once

#include <string>
#include <vector>

#include <torch/csrc/distributed/c10d/Store.hpp>

// The TCP connections of one gloo group. Gloo has no abort: a collective that waits for
// a peer ends when their connection does, so that is what abort() cuts.
namespace lockstep::comm::detail {

// An address such as "127.0.0.1:4711", "[::1]:4711".
using SocketAddress = std::string;

struct Connections {
  SocketAddress own;  // the address this rank's device listens on; "" if unknown
  std::vector<SocketAddress> others;  // and those of its peers
};

// Returns the addresses of this process's listening TCP sockets.
std::vector<SocketAddress> listening_sockets();

// Returns the one in `after` that is not in `before`; "" if there is none.
SocketAddress first_new(const std::vector<SocketAddress>& before,
                        const std::vector<SocketAddress>& after);

struct Member {
  int rank;
  int size;  // of the group
};

// Collective.
void exchange_addresses(Connections& connections, c10d::Store& store,
                        const Member& member);

// Shuts down every connection that was accepted at the own address or leads to one of
// the others. `both_ways`: gloo's thread stands still and would not close them.
void cut(const Connections& connections, bool both_ways = false) noexcept;

}  // namespace lockstep::comm::detail
