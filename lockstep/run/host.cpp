#include "lockstep/run/host.h"

#include <cerrno>
#include <cstring>
#include <memory>
#include <set>

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include "lockstep/base/error.h"
#include "lockstep/base/files.h"

namespace lockstep::run {
namespace {

// Returns the bytes of an address without its port, to compare two of them.
std::string bytes_of(const sockaddr* address) {
  if (address == nullptr) return "";
  if (address->sa_family == AF_INET) {
    const auto* four = reinterpret_cast<const sockaddr_in*>(address);
    return {reinterpret_cast<const char*>(&four->sin_addr), sizeof four->sin_addr};
  }
  if (address->sa_family == AF_INET6) {
    const auto* six = reinterpret_cast<const sockaddr_in6*>(address);
    return {reinterpret_cast<const char*>(&six->sin6_addr), sizeof six->sin6_addr};
  }
  return "";
}

std::set<std::string> own_addresses() {
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return {};
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owner(list, ::freeifaddrs);
  std::set<std::string> addresses;
  for (const auto* entry = list; entry != nullptr; entry = entry->ifa_next) {
    addresses.insert(bytes_of(entry->ifa_addr));
  }
  addresses.erase("");
  return addresses;
}

}  // namespace

bool is_loopback(const std::string& address) noexcept {
  return address == "localhost" || address == "::1" || address.rfind("127.", 0) == 0;
}

bool is_this_host(const std::string& address) {
  if (is_loopback(address)) return true;
  addrinfo wanted{};
  wanted.ai_family = AF_UNSPEC;
  wanted.ai_socktype = SOCK_STREAM;
  addrinfo* list = nullptr;
  if (::getaddrinfo(address.c_str(), nullptr, &wanted, &list) != 0) return false;
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owner(list,
                                                                   ::freeaddrinfo);
  const auto own = own_addresses();
  for (const auto* entry = list; entry != nullptr; entry = entry->ai_next) {
    if (own.contains(bytes_of(entry->ai_addr))) return true;
  }
  return false;
}

std::string endpoint_text(const std::string& address, int port) {
  const bool is_ipv6 = address.find(':') != std::string::npos;
  return (is_ipv6 ? "[" + address + "]" : address) + ":" + std::to_string(port);
}

namespace {

// A rank loads LibTorch, opens its data and has a few sockets to every other one.
constexpr rlim_t kFilesOfARank = 128;
constexpr rlim_t kFilesForAPeer = 16;

// Without this check a rank that can not open a socket waits for its peers for minutes.
void check_open_files(int ranks) {
  const auto needed = kFilesOfARank + kFilesForAPeer * static_cast<rlim_t>(ranks);
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= needed) return;
  if (limit.rlim_max < needed) {
    throw Error(Fault::hardware, "launcher: a process may open ", limit.rlim_max,
                " files here, and one of ", ranks, " ranks needs about ", needed,
                "; raise the limit (ulimit -n ", needed, ")");
  }
  limit.rlim_cur = needed;
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

// Ranks of one machine meet at this address: where it can not be reached they would
// wait for each other until a timeout.
void check_loopback(const RankEnvironment& environment) {
  const auto& master = environment.master_address;
  if (environment.world_size == 1 || !is_loopback(master) || master == "::1") return;
  const files::Descriptor probe(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(9);  // of a datagram socket; nothing is sent
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (!probe || ::connect(probe.get(), reinterpret_cast<sockaddr*>(&address),
                          sizeof address) == 0) {
    return;
  }
  throw Error(Fault::hardware,
              "launcher: 127.0.0.1, where ranks rendezvous, cannot be reached: ",
              std::strerror(errno),
              "; bring the loopback interface up "
              "(ip link set lo up)");
}

}  // namespace

void check_host(const RankEnvironment& environment) {
  check_open_files(environment.local_world_size);
  check_loopback(environment);
}

}  // namespace lockstep::run
