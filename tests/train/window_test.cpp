// How the numbers of ranks become metrics.
#include "lockstep/train/window.h"

#include "lockstep/monitor/catalogue.h"
#include "tests/support/support.h"

namespace lockstep::train {
namespace {

const run::NamedValue* field_in(const std::vector<run::NamedValue>& fields,
                                std::string_view name) {
  for (const auto& one : fields) {
    if (one.name == name) return &one;
  }
  return nullptr;
}

RankWindow window_of(double forward, std::int64_t bytes) {
  RankWindow window;
  window.forward_seconds = forward;
  window.data_wait_seconds = 0.25;
  window.exchange_wait_seconds = 0.5;
  window.memory.allocated_bytes = bytes;
  return window;
}

}  // namespace

TEST(RankWindow, NumbersAreReducedAsTheirListSays) {
  const auto fields = fields_of({window_of(2, 100), window_of(4, 300)}, 6);
  ASSERT_NE(field_in(fields, "forward_seconds"), nullptr);
  EXPECT_DOUBLE_EQ(*run::number_of(*field_in(fields, "forward_seconds")), 0.5)
      << "the mean over the ranks, of a step";
  EXPECT_EQ(std::get<std::int64_t>(field_in(fields, "memory_bytes")->value), 100)
      << "rank 0's, and whole";
  EXPECT_NE(field_in(fields, "exchange_wait_seconds"), nullptr);
}

TEST(RankWindow, WhatIsNotKnownIsNotWritten) {
  const auto fields = fields_of({window_of(0, 1)}, 1);
  EXPECT_EQ(field_in(fields, "forward_seconds"), nullptr) << "0: nobody knows";
  EXPECT_EQ(field_in(fields, "exchange_wait_seconds"), nullptr) << "one rank alone";
  EXPECT_NE(field_in(fields, "data_wait_seconds"), nullptr);
}

TEST(RankWindow, EveryNumberThatIsWrittenIsInTheCatalogue) {
  for (const auto& one : fields_of({window_of(1, 1), window_of(1, 1)}, 1)) {
    EXPECT_NE(monitor::find_metric(one.name), nullptr) << one.name;
  }
}

}  // namespace lockstep::train
