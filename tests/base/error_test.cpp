#include "lockstep/base/error.h"

#include <array>
#include <set>

#include "tests/support/support.h"

namespace lockstep {
namespace {

constexpr std::array kFaults = {Fault::config, Fault::hardware, Fault::io,
                                Fault::comm,   Fault::diverged, Fault::internal};

TEST(Error, TextIsThePartsInOrder) {
  const Error error(Fault::config, "zero: stage ", 7, " does not exist");
  EXPECT_STREQ(error.what(), "zero: stage 7 does not exist");
  EXPECT_EQ(error.fault(), Fault::config);
}

TEST(Error, ExitStatusReadsBackToTheFault) {
  for (const auto fault : kFaults) EXPECT_EQ(fault_of(exit_status(fault)), fault);
}

TEST(Error, AStatusThatIsNoFaultReadsAsInternal) {
  for (const int status : {0, 1, 64, 127, 255, -3}) {
    EXPECT_EQ(fault_of(status), Fault::internal) << status;
  }
}

// Launchers and scripts of other people rely on these numbers.
TEST(Error, ExitStatusesNeverChange) {
  EXPECT_EQ(exit_status(Fault::config), 2);
  EXPECT_EQ(exit_status(Fault::hardware), 3);
  EXPECT_EQ(exit_status(Fault::io), 4);
  EXPECT_EQ(exit_status(Fault::comm), 5);
  EXPECT_EQ(exit_status(Fault::diverged), 6);
  EXPECT_EQ(exit_status(Fault::internal), 70);
}

TEST(Error, TheShellSeesUsageEnvironmentOrFailure) {
  EXPECT_EQ(shell_status(Fault::config), 2);
  EXPECT_EQ(shell_status(Fault::hardware), 3);
  EXPECT_EQ(shell_status(Fault::io), 3);
  EXPECT_EQ(shell_status(Fault::comm), 1);
  EXPECT_EQ(shell_status(Fault::internal), 1);
}

TEST(Error, FaultsHaveDistinctNames) {
  std::set<std::string_view> names;
  for (const auto fault : kFaults) names.insert(name_of(fault));
  EXPECT_EQ(names.size(), kFaults.size());
  EXPECT_EQ(name_of(Fault::io), "io");
}

TEST(Check, NamesTheExpressionTheValuesAndThePlace) {
  const int ranks = 3;
  const auto text = test::error_text(
      Fault::internal, [&] { LOCKSTEP_CHECK(ranks == 4, "ranks ", ranks); });
  EXPECT_THAT(text, ::testing::HasSubstr("ranks == 4 does not hold: ranks 3"));
  EXPECT_THAT(text, ::testing::HasSubstr("error_test.cpp:"));
}

TEST(Check, IsSilentWhenItHolds) {
  EXPECT_NO_THROW(LOCKSTEP_CHECK(1 + 1 == 2));
}

}  // namespace
}  // namespace lockstep
