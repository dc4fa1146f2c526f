#include "lockstep/comm/gloo.h"

#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include "tests/support/support.h"

namespace lockstep::test {

TEST(Gloo, ARankThatNeverComesIsACommFault) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  store->setTimeout(std::chrono::milliseconds(200));
  const auto message = error_text(Fault::comm, [&] {
    comm::make_gloo({.store = store,
                     .rank = 0,
                     .size = 2,
                     .timeout = std::chrono::milliseconds(200)});
  });
  EXPECT_THAT(message, testing::HasSubstr("rank 0 of 2"));
}

TEST(Gloo, AnAddressThatIsNotOursIsAnError) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  const auto message = error_text(Fault::comm, [&] {
    comm::make_gloo({.store = store, .interface = "192.0.2.1"});
  });
  EXPECT_THAT(message, testing::HasSubstr("192.0.2.1"));
}

}  // namespace lockstep::test
