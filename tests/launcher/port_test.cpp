#include "lockstep/launcher/port.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "lockstep/base/port_holder.h"
#include "lockstep/base/text.h"
#include "tests/support/support.h"

namespace lockstep {
namespace {

using files::Descriptor;
using launcher::HeldPort;
using ::testing::HasSubstr;

// What a store does: SO_REUSEADDR, bind, listen. An invalid descriptor if it can not.
Descriptor listen_on(const std::string& address, int port, bool reuse = true) {
  const bool wide = address.find(':') != std::string::npos;
  Descriptor socket(::socket(wide ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int on = reuse ? 1 : 0;
  ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  sockaddr_in6 six{};
  six.sin6_family = AF_INET6;
  six.sin6_port = htons(static_cast<std::uint16_t>(port));
  sockaddr_in four{};
  four.sin_family = AF_INET;
  four.sin_port = six.sin6_port;
  ::inet_pton(
      wide ? AF_INET6 : AF_INET, address.c_str(),
      wide ? static_cast<void*>(&six.sin6_addr) : static_cast<void*>(&four.sin_addr));
  const auto* name = wide ? reinterpret_cast<const sockaddr*>(&six)
                          : reinterpret_cast<const sockaddr*>(&four);
  const socklen_t size = wide ? sizeof six : sizeof four;
  if (::bind(socket.get(), name, size) != 0) return Descriptor();
  if (::listen(socket.get(), 8) != 0) return Descriptor();
  return socket;
}

int local_port(const Descriptor& socket) {
  sockaddr_in6 address{};
  socklen_t size = sizeof address;
  ::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&address), &size);
  return ntohs(address.sin6_port);
}

bool can_connect(int port) {
  const Descriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return ::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address),
                   sizeof address) == 0;
}

TEST(HeldPort, TheStoreListensOnItWhileItIsHeld) {
  for (const std::string address : {"127.0.0.1", "0.0.0.0", "::", "::1"}) {
    const auto held = HeldPort::any();
    ASSERT_GT(held.port(), 0);
    EXPECT_FALSE(can_connect(held.port()));  // nobody listens yet
    const auto store = listen_on(address, held.port());
    ASSERT_TRUE(store) << address;
    if (address == "::1") continue;
    EXPECT_TRUE(can_connect(held.port())) << address;
  }
}

TEST(HeldPort, NobodyElseGetsIt) {
  const auto held = HeldPort::any();
  EXPECT_FALSE(listen_on("127.0.0.1", held.port(), false));
  EXPECT_FALSE(listen_on("::", held.port(), false));
  // The kernel's own choice, often enough to see most of its ports: all these sockets
  // stay open, so each gets another one.
  std::vector<Descriptor> others;
  for (int i = 0; i < 400; ++i) {
    for (const std::string address : {"127.0.0.1", "0.0.0.0", "::"}) {
      auto other = listen_on(address, 0, i % 2 == 0);
      if (!other) continue;  // out of descriptors
      EXPECT_NE(local_port(other), held.port());
      others.push_back(std::move(other));
    }
  }
  EXPECT_GT(others.size(), 300U);
  const auto second = HeldPort::any();
  EXPECT_NE(second.port(), held.port());
}

TEST(HeldPort, AnotherStoreCanFollowTheFirst) {
  const auto held = HeldPort::any();
  for (int attempt = 0; attempt < 3; ++attempt) {
    const auto store = listen_on("::", held.port());
    ASSERT_TRUE(store) << attempt;
    EXPECT_TRUE(can_connect(held.port()));
  }
}

TEST(HeldPort, IsFreeAgainAfterwards) {
  int port = 0;
  {
    const auto held = HeldPort::any();
    port = held.port();
    auto moved = HeldPort::take(0);
    EXPECT_NE(moved.port(), port);
  }
  EXPECT_TRUE(listen_on("::", port, false));
}

TEST(HeldPort, OneThatListensIsNamed) {
  for (const std::string address : {"127.0.0.1", "0.0.0.0", "::", "::1"}) {
    const auto listener = listen_on(address, 0);
    const int port = local_port(listener);
    const auto text = test::error_text(Fault::config, [&] { HeldPort::take(port); });
    EXPECT_THAT(text, ::testing::StartsWith("port: " + std::to_string(port) +
                                            " is taken by process " +
                                            std::to_string(::getpid()) + " ("));
    EXPECT_THAT(text, HasSubstr("test_launcher"));
    EXPECT_THAT(text, HasSubstr("--master-port"));
  }
}

TEST(HeldPort, AnotherProcessThatListensIsNamed) {
  auto listener = listen_on("127.0.0.1", 0);
  const int port = local_port(listener);
  // The child inherits the socket, we close ours: it alone is the holder.
  const int kept = ::dup(listener.get());
  auto child = process::Child::start({.arguments = {"sleep", "1000"}});
  ::close(kept);
  listener.reset();
  const auto holder = find_port_holder(port);
  ASSERT_TRUE(holder);
  EXPECT_EQ(holder->pid, child.pid());
  EXPECT_EQ(holder->program, "sleep 1000");
}

TEST(HeldPort, TwoDoNotHoldTheSame) {
  const auto first = HeldPort::any();
  EXPECT_THAT(test::error_text(Fault::config, [&] { HeldPort::take(first.port()); }),
              HasSubstr("is taken by a process that cannot be seen from here"));
}

// What the store of the job before leaves behind: connections that it closed itself.
TEST(HeldPort, LingeringConnectionsDoNotCount) {
  auto store = listen_on("127.0.0.1", 0);
  const int port = local_port(store);
  const Descriptor client(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  ASSERT_EQ(::connect(client.get(), reinterpret_cast<const sockaddr*>(&address),
                      sizeof address),
            0);
  Descriptor(::accept(store.get(), nullptr, nullptr)).reset();
  char byte = 0;
  EXPECT_EQ(::read(client.get(), &byte, 1), 0);
  ::shutdown(client.get(), SHUT_WR);
  store.reset();
  ASSERT_FALSE(listen_on("127.0.0.1", port, false));  // it does linger
  const auto held = HeldPort::take(port);
  EXPECT_EQ(held.port(), port);
  EXPECT_TRUE(listen_on("127.0.0.1", port));
}

TEST(HeldPort, WhatIsNoPortIsRefused) {
  for (const int port : {-1, 65'536, 1 << 20}) {
    EXPECT_THAT(test::error_text(Fault::config, [&] { HeldPort::take(port); }),
                HasSubstr("is not a TCP port"));
  }
}

TEST(Holder, OfAFreePortIsNobody) {
  const auto held = HeldPort::any();
  EXPECT_EQ(find_port_holder(held.port()), std::nullopt);
}

TEST(Holder, OfAForeignProcessIsSaidToBeOne) {
  const files::TemporaryDirectory proc;
  test::write_file(proc.path() / "net/tcp",
                   "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when "
                   "retrnsmt   uid  timeout inode\n"
                   "   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 "
                   "00000000     0        0 4711 1 0 100 0 0 10 0\n"
                   "junk\n   1: 0100007F:ZZZZ 0 0A 0 0 0 0 0 1\n   2: x y 0A");
  const auto holder = find_port_holder(0x1F90, proc.path());
  ASSERT_TRUE(holder);
  EXPECT_EQ(describe(*holder), "a process of another user or container");
  EXPECT_EQ(find_port_holder(80, proc.path()), std::nullopt);
}

}  // namespace
}  // namespace lockstep
