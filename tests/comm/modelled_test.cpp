// A network that is not there: its formula, its order, and that it really overlaps.
#include "lockstep/comm/modelled.h"

#include <atomic>
#include <mutex>
#include <semaphore>

#include "lockstep/comm/join.h"
#include "tests/support/support.h"

namespace lockstep::test {

using comm::Call;
using comm::Kind;
using comm::ModelledOptions;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

namespace {

double seconds(Kind kind, int ranks, std::int64_t bytes) {
  const auto t = torch::zeros({bytes}, torch::kUInt8);
  return comm::modelled_seconds(
      {.kind = kind, .out = {t}},
      {.ranks = ranks, .latency_seconds = 1e-3, .bytes_per_second = 1000});
}

}  // namespace

TEST(Modelled, TakesTheTimeOfARing) {
  EXPECT_DOUBLE_EQ(seconds(Kind::all_reduce, 2, 1000), 2 * 1e-3 + 1);
  EXPECT_DOUBLE_EQ(seconds(Kind::all_reduce, 4, 1000), 6 * 1e-3 + 1.5);
  EXPECT_DOUBLE_EQ(seconds(Kind::all_reduce, 1, 1000), 0);
  EXPECT_DOUBLE_EQ(seconds(Kind::reduce_scatter, 4, 1000), 3 * 1e-3 + 0.75);
  EXPECT_DOUBLE_EQ(seconds(Kind::all_gather, 4, 1000), 3 * 1e-3 + 0.75);
  EXPECT_DOUBLE_EQ(seconds(Kind::broadcast, 5, 1000), 3 * 1e-3 + 1);
  EXPECT_DOUBLE_EQ(seconds(Kind::send, 4, 1000), 1e-3 + 1);
}

TEST(Modelled, MessagesOfATreeAreFewer) {
  const auto t = torch::zeros({1000}, torch::kUInt8);
  const auto of = [&](Kind kind, int ranks) {
    return comm::modelled_seconds({.kind = kind, .out = {t}},
                                  {.ranks = ranks,
                                   .tree = true,
                                   .latency_seconds = 1e-3,
                                   .bytes_per_second = 1000});
  };
  EXPECT_DOUBLE_EQ(of(Kind::all_reduce, 512), 2 * 9 * 1e-3 + 2 * 511.0 / 512);
  EXPECT_DOUBLE_EQ(of(Kind::reduce_scatter, 5), 3 * 1e-3 + 0.8);
  EXPECT_DOUBLE_EQ(of(Kind::all_gather, 8), 3 * 1e-3 + 7.0 / 8);
  EXPECT_DOUBLE_EQ(of(Kind::all_reduce, 1), 0);
}

TEST(Modelled, CollectivesPassOneAfterTheOtherWhileTheCallerGoesOn) {
  std::mutex mutex;
  std::vector<std::int64_t> passed;  // milliseconds, in the order in which they passed
  std::counting_semaphore<8> allowed(0);
  std::atomic<int> at_once = 0;
  ModelledOptions options{
      .ranks = 2, .latency_seconds = 0, .bytes_per_second = 4000};  // a float a ms
  options.occupy = [&](std::chrono::nanoseconds time) {
    EXPECT_EQ(++at_once, 1);
    allowed.acquire();
    const std::lock_guard lock(mutex);
    passed.push_back(time.count() / 1'000'000);
    --at_once;
  };
  const auto network = comm::make_modelled(options);
  auto first = network->all_reduce(torch::ones({3}));
  auto second = network->all_reduce(torch::ones({1}));
  auto third = network->all_reduce(torch::ones({2}));
  EXPECT_FALSE(first.done()) << "nobody has let it pass, and we are here";
  allowed.release();
  first.wait();
  EXPECT_FALSE(third.done());
  allowed.release(2);
  third.wait();
  second.wait();
  EXPECT_THAT(passed, ElementsAre(3, 1, 2));
}

TEST(Modelled, TheOtherRanksContributeNothing) {
  const auto network =
      comm::make_modelled({.ranks = 4, .occupy = [](std::chrono::nanoseconds) {}});
  EXPECT_EQ(network->backend(), "modelled");
  EXPECT_EQ(network->size(), 4);
  EXPECT_EQ(network->rank(), 0);
  const auto t = torch::arange(4.0F);
  network->all_reduce(t).wait();
  EXPECT_TRUE(torch::equal(t, torch::arange(4.0F)));
  const auto out = torch::full({4}, 9.0F);
  network->all_gather(out, torch::ones({1})).wait();
  EXPECT_TRUE(torch::equal(out, torch::tensor({1.0F, 0.0F, 0.0F, 0.0F})));
  const auto slice = torch::empty({1});
  network->reduce_scatter(slice, torch::arange(5.0F, 9.0F)).wait();
  EXPECT_EQ(slice.item<float>(), 5);
  EXPECT_THAT(error_text(Fault::config, [&] { network->split(0); }),
              HasSubstr("modelled"));
}

TEST(Modelled, AbortEndsWhatWaits) {
  std::binary_semaphore never(0);
  const auto network = comm::make_modelled(
      {.ranks = 2, .occupy = [&](std::chrono::nanoseconds) { never.acquire(); }});
  auto first = network->all_reduce(torch::ones({1}));
  network->abort();
  error_text(Fault::comm, [&] { first.wait(); });
  error_text(Fault::comm, [&] { network->all_reduce(torch::ones({1})).wait(); });
  never.release();
}

TEST(Modelled, AWorldOfOneProcessStandsForMany) {
  comm::JoinOptions options;
  options.config.backend = config::CommBackend::modelled;
  options.config.modelled_ranks = 64;
  auto world = comm::join({}, options);
  EXPECT_EQ(world.size(), 1);
  EXPECT_EQ(world.data().size(), 64);
  EXPECT_EQ(world.data().backend(), "modelled");
  EXPECT_EQ(world.cpu().size(), 1);
  EXPECT_THAT(world.note(), HasSubstr("64 ranks"));
}

TEST(Modelled, RealRanksAreRefused) {
  run::RankEnvironment environment;
  environment.world_size = 2;
  comm::JoinOptions options;
  options.config.backend = config::CommBackend::modelled;
  EXPECT_THAT(error_text(Fault::config, [&] { comm::join(environment, options); }),
              HasSubstr("start one"));
}

}  // namespace lockstep::test
