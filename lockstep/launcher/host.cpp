#include "lockstep/launcher/host.h"

#include <cstring>
#include <memory>
#include <set>

#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

namespace lockstep::launcher {
namespace {

// The bytes of an address, without its port: what two of them are compared by.
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

}  // namespace lockstep::launcher
