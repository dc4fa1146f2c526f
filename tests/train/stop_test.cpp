#include "lockstep/train/stop.h"

#include <signal.h>

#include "tests/support/support.h"

namespace lockstep::train {
namespace {

TEST(StopRequest, RemembersTheFirstSignal) {
  const StopRequest stop;
  EXPECT_EQ(stop.signal(), 0);
  ::raise(SIGTERM);
  EXPECT_EQ(stop.signal(), SIGTERM);
  ::raise(SIGTERM);
  EXPECT_EQ(stop.signal(), SIGTERM);
}

TEST(StopRequest, TheSecondInterruptEndsTheProcessAtOnce) {
  const int status = test::in_child([] {
    const StopRequest stop;
    ::raise(SIGINT);
    ::raise(SIGINT);
    return 7;
  });
  EXPECT_EQ(status, 130);
}

TEST(StopRequest, HangUpAndUsr1AskTooAndUsr2DoesNot) {
  for (const int number : {SIGHUP, SIGUSR1}) {
    const StopRequest stop;
    ::raise(SIGUSR2);
    EXPECT_EQ(stop.signal(), 0);
    ::raise(number);
    EXPECT_EQ(stop.signal(), number);
  }
}

TEST(StopRequest, WhatWasIgnoredStaysIgnored) {
  ::signal(SIGHUP, SIG_IGN);  // as nohup does
  {
    const StopRequest stop;
    ::raise(SIGHUP);
    EXPECT_EQ(stop.signal(), 0);
  }
  ::signal(SIGHUP, SIG_DFL);
}

TEST(StopRequest, ANewOneStartsFresh) {
  {
    const StopRequest stop;
    ::raise(SIGTERM);
  }
  const StopRequest stop;
  EXPECT_EQ(stop.signal(), 0);
}

}  // namespace
}  // namespace lockstep::train
