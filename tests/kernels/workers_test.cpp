#include "lockstep/kernels/workers.h"

#include <atomic>

#include <ATen/Parallel.h>

#include "tests/support/support.h"

namespace lockstep::kernels {
namespace {

TEST(Workers, VisitEveryItemOnceWithAnyNumberOfThreads) {
  const int before = at::get_num_threads();
  for (const int threads : {1, 2, 5}) {
    at::set_num_threads(threads);
    for (const std::int64_t count : {0, 1, 2, 7, 1000}) {
      std::vector<std::atomic<int>> visits(static_cast<std::size_t>(count));
      Workers workers(count, 2);
      for (int round = 0; round < 3; ++round) {
        workers.run([&](std::int64_t begin, std::int64_t end) {
          for (auto i = begin; i < end; ++i) ++visits[static_cast<std::size_t>(i)];
        });
      }
      for (const auto& number : visits) EXPECT_EQ(number, 3) << count;
    }
  }
  at::set_num_threads(before);
}

TEST(Workers, SeveralThreadsTakePart) {
  const int before = at::get_num_threads();
  at::set_num_threads(3);
  std::atomic<int> pieces = 0;
  Workers(1000, 1).run([&](std::int64_t, std::int64_t) { ++pieces; });
  EXPECT_EQ(pieces, 3);
  at::set_num_threads(before);
}

}  // namespace
}  // namespace lockstep::kernels
