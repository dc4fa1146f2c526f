#include "lockstep/comm/wire.h"

#include <random>

#include "tests/support/support.h"

namespace lockstep::test {

namespace wire = comm::wire;

namespace {

wire::Hello sample_hello() {
  return {.rank = 3,
          .world_size = 8,
          .node = 1,
          .host = "node-1",
          .pid = 4711,
          .machine = "m",
          .facts = {{"version", "0.1.0"}, {"config", "3f2a"}}};
}

}  // namespace

TEST(Wire, WhatIsWrittenIsRead) {
  const auto hello = wire::decode_hello(wire::encode(sample_hello()));
  EXPECT_EQ(hello.rank, 3);
  EXPECT_EQ(hello.world_size, 8);
  EXPECT_EQ(hello.node, 1);
  EXPECT_EQ(hello.host, "node-1");
  EXPECT_EQ(hello.pid, 4711);
  EXPECT_EQ(hello.machine, "m");
  ASSERT_EQ(hello.facts.size(), 2U);
  EXPECT_EQ(hello.facts[1].value, "3f2a");
  const auto verdict = wire::decode_verdict(wire::encode(
      wire::Verdict{.problem = "why", .fault = Fault::config, .one_machine = true}));
  EXPECT_EQ(verdict.problem, "why");
  EXPECT_EQ(verdict.fault, Fault::config);
  EXPECT_TRUE(verdict.one_machine);
}

TEST(Wire, WhateverBytesComeReadingEnds) {
  std::mt19937 random(1);
  const std::string good[] = {wire::encode(sample_hello()),
                              wire::encode(wire::Verdict{.problem = "why"})};
  int refused = 0;
  for (int i = 0; i < 50'000; ++i) {
    auto bytes = good[i % 2];
    for (unsigned change = random() % 4; change > 0; --change) {
      bytes[random() % bytes.size()] = static_cast<char>(random());
    }
    if (random() % 4 == 0) bytes.resize(random() % (bytes.size() + 1));
    if (random() % 16 == 0) bytes.append(random() % 100'000, 'x');
    const auto error = error_of([&] {
      if (i % 2 == 0) {
        static_cast<void>(wire::decode_hello(bytes));
      } else {
        static_cast<void>(wire::decode_verdict(bytes));
      }
    });
    if (error) {
      ASSERT_EQ(error->fault(), Fault::comm);
      refused += 1;
    }
  }
  EXPECT_GT(refused, 10'000);
}

TEST(Wire, LengthsBeyondTheLimitAreRefused) {
  auto bytes = wire::encode(sample_hello());
  bytes[0] = bytes[1] = bytes[2] = bytes[3] = '\x7f';  // the length of the first text
  EXPECT_THAT(error_text(Fault::comm, [&] { wire::decode_hello(bytes); }),
              testing::HasSubstr("too long"));
}

}  // namespace lockstep::test
