#include "lockstep/comm/gloo.h"

#include <thread>

#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include "tests/support/support.h"

namespace lockstep::comm {
namespace {

// LibTorch's gloo, built against the system's headers, really adds: the layouts agree.
TEST(Gloo, ThreeRanksAsThreadsAgreeOnASum) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  std::vector<torch::Tensor> sums(3);
  {
    std::vector<std::jthread> ranks;
    for (int rank = 0; rank < 3; ++rank) {
      ranks.emplace_back([&, rank] {
        const auto gloo = make_gloo({.store = store, .rank = rank, .size = 3});
        std::vector<torch::Tensor> tensors{torch::full({1000}, rank + 1.0)};
        gloo->allreduce(tensors)->wait();
        sums[static_cast<std::size_t>(rank)] = tensors[0];
      });
    }
  }
  for (const auto& sum : sums) EXPECT_TRUE(sum.eq(6).all().item<bool>());
}

TEST(Gloo, ARankThatNeverComesIsACommFault) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  store->setTimeout(std::chrono::milliseconds(200));
  const auto message = test::error_text(Fault::comm, [&] {
    make_gloo({.store = store,
               .rank = 0,
               .size = 2,
               .timeout = std::chrono::milliseconds(200)});
  });
  EXPECT_THAT(message, testing::HasSubstr("rank 0 of 2"));
}

}  // namespace
}  // namespace lockstep::comm
