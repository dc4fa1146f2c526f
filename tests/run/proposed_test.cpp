#include "lockstep/run/proposed.h"

#include "tests/support/support.h"

namespace lockstep::run {
namespace {

class ProposedSettings : public testing::Test {
 protected:
  std::string config() const { return test::read_file(run_.config()); }
  std::string plan() const { return test::read_file(run_.plan()); }

  files::TemporaryDirectory folder_;
  RunDirectory run_ = RunDirectory::create(
      folder_.path(), {.name = "r", .config_yaml = "old", .plan_json = "{\"old\": 1}"});
};

TEST_F(ProposedSettings, CountAtOnceAndCanBeTakenBack) {
  propose(run_, {"new", "{}"});
  EXPECT_EQ(config(), "new");
  EXPECT_TRUE(take_back_proposed(run_));
  EXPECT_EQ(config(), "old");
  EXPECT_EQ(plan(), "{\"old\": 1}");
  EXPECT_FALSE(take_back_proposed(run_));
}

TEST_F(ProposedSettings, ThatWereAcceptedStay) {
  propose(run_, {"new", "{}"});
  accept_proposed(run_);
  EXPECT_FALSE(take_back_proposed(run_));
  EXPECT_EQ(config(), "new");
  EXPECT_EQ(plan(), "{}");
}

TEST_F(ProposedSettings, OfAnAttemptThatWasKilledAreNotWhatTheRunWasTrainedWith) {
  propose(run_, {"of a killed one", "{}"});
  propose(run_, {"of the next", "{}"});
  EXPECT_EQ(config(), "of the next");
  take_back_proposed(run_);
  EXPECT_EQ(config(), "old");
}

}  // namespace
}  // namespace lockstep::run
