#include "lockstep/launcher/port.h"

#include <cerrno>
#include <cstring>

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "lockstep/base/error.h"
#include "lockstep/base/port_holder.h"

namespace lockstep::launcher {
namespace {

using files::Descriptor;

void set_reuse(const Descriptor& socket, bool reuse) {
  const int value = reuse ? 1 : 0;
  ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &value, sizeof value);
}

// A socket for IPv6 takes IPv4 as well.
Descriptor open_socket(int family) {
  Descriptor socket(::socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!socket || family != AF_INET6) return socket;
  const int off = 0;
  ::setsockopt(socket.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
  return socket;
}

// Returns 0, or errno.
int bind_everywhere(const Descriptor& socket, int family, int port) {
  const auto number = htons(static_cast<std::uint16_t>(port));
  sockaddr_in6 wide{};
  wide.sin6_family = AF_INET6;
  wide.sin6_port = number;
  sockaddr_in narrow{};
  narrow.sin_family = AF_INET;
  narrow.sin_port = number;
  const int result =
      family == AF_INET6
          ? ::bind(socket.get(), reinterpret_cast<const sockaddr*>(&wide), sizeof wide)
          : ::bind(socket.get(), reinterpret_cast<const sockaddr*>(&narrow),
                   sizeof narrow);
  return result == 0 ? 0 : errno;
}

// Both families have the port at the same offset.
int port_of(const Descriptor& socket) {
  sockaddr_in6 address{};
  socklen_t size = sizeof address;
  if (::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&address), &size) != 0) {
    throw Error(Fault::io, "port: getsockname: ", std::strerror(errno));
  }
  return ntohs(address.sin6_port);
}

[[noreturn]] void refuse(int port, int code) {
  if (code == EADDRINUSE) {
    throw Error(Fault::config, "port: ", port, " is taken by ", describe_holder(port),
                "; end it, choose another --master-port, or leave the port out and a "
                "free one is found");
  }
  if (code == EACCES) {
    throw Error(Fault::config, "port: ", port, " is for root only (",
                std::strerror(code), "); choose one of 1024 to 65535");
  }
  throw Error(Fault::io, "port: cannot bind ", port, ": ", std::strerror(code));
}

}  // namespace

HeldPort::HeldPort(Descriptor socket, int port) noexcept
    : socket_(std::move(socket)), port_(port) {}

HeldPort HeldPort::any() {
  return take(0);
}

HeldPort HeldPort::take(int port) {
  if (port < 0 || port > 65'535) {
    throw Error(Fault::config, "port: ", port,
                " is not a TCP port; choose one of 1024 "
                "to 65535");
  }
  int code = EAFNOSUPPORT;
  for (const int family : {AF_INET6, AF_INET}) {
    Descriptor socket = open_socket(family);
    // A kernel without IPv6 may refuse the socket or only its address.
    code = socket ? bind_everywhere(socket, family, port) : errno;
    if (code == EADDRINUSE && only_lingers(port)) {
      set_reuse(socket, true);
      code = bind_everywhere(socket, family, port);
    }
    if (code == 0) {
      // It is set only now: with it from the start, two launchers could hold the same
      // port, each waiting for its own store to listen.
      set_reuse(socket, true);
      const int bound = port_of(socket);
      return {std::move(socket), bound};
    }
    if (code != EAFNOSUPPORT && code != EADDRNOTAVAIL) break;
  }
  refuse(port, code);
}

}  // namespace lockstep::launcher
