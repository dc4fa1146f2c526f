#include "lockstep/base/in_parallel.h"

#include <atomic>
#include <thread>
#include <vector>

#include "lockstep/base/error.h"
#include "tests/support/support.h"

namespace lockstep {
namespace {

TEST(InParallel, DoesEachOnceWhateverTheNumberOfThreads) {
  for (const std::size_t threads : {0u, 1u, 3u, 16u}) {
    std::vector<std::atomic<int>> done(7);
    in_parallel(done.size(), threads, [&](std::size_t i) { ++done[i]; });
    for (const auto& times : done) EXPECT_EQ(times, 1);
  }
  in_parallel(0, 4, [](std::size_t) { FAIL(); });
}

TEST(InParallel, TheFirstThatFailedIsTheOneThatIsThrown) {
  std::atomic<int> begun = 0;
  const auto body = [&](std::size_t i) {
    if (i > 1) throw Error(Fault::io, "body ", i);
    // Two fail: this one waits until the other has.
    ++begun;
    while (i == 0 && begun < 2) std::this_thread::yield();
    throw Error(Fault::io, "body ", i);
  };
  EXPECT_EQ(test::error_text(Fault::io, [&] { in_parallel(2, 2, body); }), "body 0");
}

}  // namespace
}  // namespace lockstep
