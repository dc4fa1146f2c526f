#include "lockstep/run/host.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/resource.h>

#include "tests/support/support.h"

namespace lockstep {
namespace {

using run::is_this_host;

TEST(Host, EveryAddressOfItsInterfacesIsItsOwn) {
  ifaddrs* list = nullptr;
  ASSERT_EQ(::getifaddrs(&list), 0);
  int seen = 0;
  for (const auto* entry = list; entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr || entry->ifa_addr->sa_family != AF_INET) continue;
    char text[INET_ADDRSTRLEN] = "";
    const auto* address = reinterpret_cast<const sockaddr_in*>(entry->ifa_addr);
    ::inet_ntop(AF_INET, &address->sin_addr, text, sizeof text);
    EXPECT_TRUE(is_this_host(text)) << text;
    ++seen;
  }
  ::freeifaddrs(list);
  EXPECT_GT(seen, 0);
}

TEST(Host, OthersAreNot) {
  EXPECT_FALSE(is_this_host("203.0.113.77"));
  EXPECT_FALSE(is_this_host("2001:db8::77"));
  EXPECT_FALSE(is_this_host(""));
}

TEST(Host, TheLoopbackIsEverybodys) {
  for (const std::string address : {"localhost", "127.0.0.1", "127.8.8.8", "::1"}) {
    EXPECT_TRUE(run::is_loopback(address)) << address;
    EXPECT_TRUE(is_this_host(address)) << address;
  }
  EXPECT_FALSE(run::is_loopback("10.0.0.1"));
}

// What a rank does that another launcher has started; ours does it for all of them.
TEST(Host, FewOpenFilesAreALineAndASoftLimitIsRaised) {
  const int status = test::in_child([] {
    rlimit few{};
    ::getrlimit(RLIMIT_NOFILE, &few);
    few.rlim_cur = 40;
    ::setrlimit(RLIMIT_NOFILE, &few);
    run::check_host({.local_world_size = 2});
    ::getrlimit(RLIMIT_NOFILE, &few);
    if (few.rlim_cur < 128) return 1;
    few.rlim_cur = few.rlim_max = 40;
    ::setrlimit(RLIMIT_NOFILE, &few);
    const auto text = test::error_text(
        Fault::hardware, [] { run::check_host({.local_world_size = 2}); });
    return text.find("may open 40 files here, and one of 2 ranks needs") ==
                   std::string::npos
               ? 2
               : 0;
  });
  EXPECT_EQ(status, 0);
}

TEST(Host, ALoopbackThatIsDownIsALineForThoseWhoMeetThere) {
  const int status = test::in_child([] {
    if (::unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0) return 77;
    for (const auto* address : {"127.0.0.1", "localhost"}) {
      const auto text = test::error_text(Fault::hardware, [&] {
        run::check_host({.world_size = 2, .master_address = address});
      });
      if (text.find("ip link set lo up") == std::string::npos) return 1;
    }
    run::check_host({.world_size = 2, .master_address = "10.0.0.1"});
    run::check_host({.world_size = 1, .master_address = "127.0.0.1"});
    return 0;
  });
  if (status == 77) GTEST_SKIP() << "no network namespaces for this user";
  EXPECT_EQ(status, 0);
}

TEST(Host, EndpointsAreWrittenSoThatTheyCanBeRead) {
  EXPECT_EQ(run::endpoint_text("node0", 29500), "node0:29500");
  EXPECT_EQ(run::endpoint_text("fe80::1", 77), "[fe80::1]:77");
}

}  // namespace
}  // namespace lockstep
