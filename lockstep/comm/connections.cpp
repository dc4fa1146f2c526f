#include "lockstep/comm/detail/connections.h"

#include <algorithm>
#include <filesystem>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"

namespace lockstep::comm::detail {
namespace {

SocketAddress to_text(const sockaddr_storage& address) {
  char text[INET6_ADDRSTRLEN] = "";
  if (address.ss_family == AF_INET) {
    const auto& v4 = reinterpret_cast<const sockaddr_in&>(address);
    ::inet_ntop(AF_INET, &v4.sin_addr, text, sizeof text);
    return str(text, ":", ntohs(v4.sin_port));
  }
  if (address.ss_family == AF_INET6) {
    const auto& v6 = reinterpret_cast<const sockaddr_in6&>(address);
    ::inet_ntop(AF_INET6, &v6.sin6_addr, text, sizeof text);
    return str("[", text, "]:", ntohs(v6.sin6_port));
  }
  return "";
}

template <typename Ask>
SocketAddress ask(int fd, const Ask& which) {
  sockaddr_storage address{};
  socklen_t length = sizeof address;
  if (which(fd, reinterpret_cast<sockaddr*>(&address), &length) != 0) return "";
  return to_text(address);
}

SocketAddress local_address(int fd) {
  return ask(fd, ::getsockname);
}

SocketAddress peer_address(int fd) {
  return ask(fd, ::getpeername);
}

bool is_listening(int fd) {
  int listening = 0;
  socklen_t length = sizeof listening;
  return ::getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listening, &length) == 0 &&
         listening != 0;
}

template <typename Visit>
void for_each_descriptor(const Visit& visit) {
  std::error_code ignored;
  for (const auto& entry :
       std::filesystem::directory_iterator("/proc/self/fd", ignored)) {
    const auto number = text::to_integer(entry.path().filename().string());
    if (number) visit(static_cast<int>(*number));
  }
}

}  // namespace

std::vector<SocketAddress> listening_sockets() {
  std::vector<SocketAddress> found;
  for_each_descriptor([&](int fd) {
    if (!is_listening(fd)) return;
    if (auto address = local_address(fd); !address.empty()) {
      found.push_back(std::move(address));
    }
  });
  return found;
}

SocketAddress first_new(const std::vector<SocketAddress>& before,
                        const std::vector<SocketAddress>& after) {
  for (const auto& address : after) {
    if (std::find(before.begin(), before.end(), address) == before.end())
      return address;
  }
  return "";
}

void exchange_addresses(Connections& connections, c10d::Store& store,
                        const Member& member) {
  const auto [rank, size] = member;
  constexpr std::size_t kLongest = 100;
  store.set(str("listens_", rank), std::string(connections.own));
  for (int r = 0; r < size; ++r) {
    if (r == rank) continue;
    auto address = store.get_to_str(str("listens_", r));
    if (address.size() <= kLongest) connections.others.push_back(std::move(address));
  }
}

void cut(const Connections& connections, bool both_ways) noexcept {
  try {
    for_each_descriptor([&](int fd) {
      if (is_listening(fd)) return;
      const auto peer = peer_address(fd);
      if (peer.empty()) return;
      const auto& others = connections.others;
      const bool ours = local_address(fd) == connections.own ||
                        std::find(others.begin(), others.end(), peer) != others.end();
      // Only reading is shut down: gloo then sees the end of its stream and closes,
      // which the peer notices; a write would be answered with SIGPIPE.
      if (ours) ::shutdown(fd, both_ways ? SHUT_RDWR : SHUT_RD);
    });
  } catch (const std::exception&) {
    // A connection that could not be cut ends by its timeout.
  }
}

}  // namespace lockstep::comm::detail
