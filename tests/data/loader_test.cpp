#include "lockstep/data/loader.h"

#include <cstring>
#include <latch>
#include <set>
#include <thread>

#include <sys/resource.h>

#include "lockstep/data/permutation.h"
#include "tests/support/support.h"

namespace lockstep::data {
namespace {

// Sample i is the 32-bit number i; its target is i mod 10.
class Numbers : public Dataset {
 public:
  explicit Numbers(std::int64_t size, std::int64_t broken = -1)
      : size_(size), broken_(broken) {
    spec_.shape = {1};
    spec_.dtype = torch::kInt32;
    spec_.num_classes = 10;
  }
  std::int64_t size() const noexcept override { return size_; }
  const SampleSpec& spec() const noexcept override { return spec_; }
  std::int64_t read(std::int64_t index, std::span<std::byte> input) const override {
    if (index == broken_) throw Error(Fault::io, "sample ", index, " is broken");
    const auto value = static_cast<std::int32_t>(index);
    std::memcpy(input.data(), &value, sizeof value);
    return index % 10;
  }

 private:
  std::int64_t size_, broken_;
  SampleSpec spec_;
};

std::vector<int> values_of(const Batch& batch) {
  const auto* begin = batch.inputs.data_ptr<std::int32_t>();
  return {begin, begin + batch.inputs.numel()};
}

std::vector<int> all_values(const Dataset& dataset, const LoaderOptions& options) {
  Loader loader(dataset, options);
  std::vector<int> all;
  while (const auto* batch = loader.next()) {
    const auto values = values_of(*batch);
    all.insert(all.end(), values.begin(), values.end());
  }
  return all;
}

TEST(Loader, AnEpochVisitsEachSampleOnceInTheOrderOfThePermutation) {
  const Numbers numbers(103);
  const auto values = all_values(numbers, {.batch = 10, .seed = 7, .epochs = 1});
  std::vector<int> expected;
  const Permutation order(103, 7, 0);
  for (std::uint64_t i = 0; i < 103; ++i)
    expected.push_back(static_cast<int>(order(i)));
  EXPECT_EQ(values, expected);
}

TEST(Loader, TheOrderDoesNotDependOnWorkersOrPrefetch) {
  const Numbers numbers(1003);
  const auto one = all_values(numbers, {.batch = 16, .seed = 7, .epochs = 3});
  EXPECT_EQ(one.size(), 3009u);
  EXPECT_EQ(
      one,
      all_values(numbers,
                 {.batch = 16, .workers = 4, .prefetch = 7, .seed = 7, .epochs = 3}));
  EXPECT_EQ(
      one,
      all_values(numbers,
                 {.batch = 16, .workers = 3, .prefetch = 1, .seed = 7, .epochs = 3}));
}

// Whatever the number of ranks: their shares, put together, are the global batch.
TEST(Loader, RanksShareEachGlobalBatch) {
  const Numbers numbers(103);
  const LoaderOptions alone{.batch = 10, .seed = 7, .epochs = 2};
  for (const int ranks : {2, 3, 7, 12}) {
    std::vector<std::unique_ptr<Loader>> loaders;
    for (int rank = 0; rank < ranks; ++rank) {
      auto options = alone;
      options.rank = rank;
      options.ranks = ranks;
      loaders.push_back(std::make_unique<Loader>(numbers, options));
    }
    Loader expected(numbers, alone);
    while (const auto* batch = expected.next()) {
      std::vector<int> together;
      for (auto& loader : loaders) {
        const auto* share = loader->next();
        ASSERT_NE(share, nullptr);
        EXPECT_EQ(share->global_size, batch->size);
        EXPECT_EQ(share->begin, batch->begin);
        EXPECT_EQ(share->ends_epoch, batch->ends_epoch);
        const auto values = values_of(*share);
        together.insert(together.end(), values.begin(), values.end());
      }
      EXPECT_EQ(together, values_of(*batch)) << ranks << " ranks";
    }
    for (auto& loader : loaders) EXPECT_EQ(loader->next(), nullptr);
  }
}

TEST(Loader, SharesFollowTheirWeightsFromTheBatchOnThatWasNamed) {
  const Numbers numbers(1000);
  const std::vector<std::int64_t> weights{1, 0, 6};
  constexpr std::int64_t kFrom = 12;
  std::vector<std::unique_ptr<Loader>> loaders;
  for (int rank = 0; rank < 3; ++rank) {
    loaders.push_back(std::make_unique<Loader>(
        numbers,
        LoaderOptions{.batch = 21, .rank = rank, .ranks = 3, .workers = 2, .seed = 7}));
  }
  Loader whole(numbers, {.batch = 21, .seed = 7});
  for (std::int64_t number = 0; number < 30; ++number) {
    // Each when it comes by, but all for the same batch.
    if (number >= 4 && number < 7) {
      auto& loader = *loaders[static_cast<std::size_t>(number - 4)];
      ASSERT_GE(kFrom, number + loader.prefetch_depth());
      loader.reshare(kFrom, weights);
    }
    std::vector<int> together;
    std::vector<std::int64_t> sizes;
    for (auto& loader : loaders) {
      const auto* share = loader->next();
      sizes.push_back(share->size);
      EXPECT_EQ(share->largest_size, number < kFrom ? 7 : 18);
      const auto values = values_of(*share);
      together.insert(together.end(), values.begin(), values.end());
    }
    EXPECT_EQ(sizes, number < kFrom ? (std::vector<std::int64_t>{7, 7, 7})
                                    : (std::vector<std::int64_t>{3, 0, 18}));
    EXPECT_EQ(together, values_of(*whole.next())) << number;
  }
}

TEST(Loader, OnlyTheLastBatchOfAnEpochIsShort) {
  const Numbers numbers(25);
  Loader loader(numbers, {.batch = 10, .epochs = 2});
  std::vector<std::int64_t> sizes;
  std::vector<bool> ends;
  while (const auto* batch = loader.next()) {
    sizes.push_back(batch->size);
    ends.push_back(batch->ends_epoch);
    EXPECT_EQ(batch->inputs.size(0), batch->size);
    EXPECT_EQ(batch->targets.size(0), batch->size);
  }
  EXPECT_EQ(sizes, (std::vector<std::int64_t>{10, 10, 5, 10, 10, 5}));
  EXPECT_EQ(ends, (std::vector<bool>{false, false, true, false, false, true}));
}

TEST(Loader, TargetsBelongToTheirSamples) {
  const Numbers numbers(100);
  Loader loader(numbers, {.batch = 7, .workers = 3, .epochs = 1});
  while (const auto* batch = loader.next()) {
    const auto expected = batch->inputs.flatten().remainder(10).to(torch::kInt64);
    EXPECT_TRUE(batch->targets.equal(expected));
  }
}

TEST(Loader, StartsAtAnyPosition) {
  const Numbers numbers(50);
  const auto whole = all_values(numbers, {.batch = 8, .seed = 3, .epochs = 2});
  const auto rest = all_values(
      numbers,
      {.batch = 8, .seed = 3, .start = {.epoch = 0, .consumed = 24}, .epochs = 2});
  EXPECT_EQ(rest, std::vector<int>(whole.begin() + 24, whole.end()));
  Loader second(numbers, {.batch = 8, .seed = 3, .start = {.epoch = 1, .consumed = 0}});
  EXPECT_EQ(values_of(*second.next()),
            std::vector<int>(whole.begin() + 50, whole.begin() + 58));
}

TEST(Loader, WithoutShuffleTheOrderIsThatOfTheFile) {
  const Numbers numbers(5);
  EXPECT_EQ(all_values(numbers, {.batch = 2, .shuffle = false, .epochs = 1}),
            (std::vector<int>{0, 1, 2, 3, 4}));
}

TEST(Loader, ABatchKeepsItsValuesUntilTheNextCall) {
  const Numbers numbers(1000);
  Loader loader(numbers, {.batch = 10, .workers = 4, .prefetch = 2});
  for (int i = 0; i < 300; ++i) {
    const auto* batch = loader.next();
    const auto first = values_of(*batch);
    std::this_thread::yield();  // let the workers run into the ring if they can
    EXPECT_EQ(values_of(*batch), first);
  }
}

TEST(Loader, GoodBatchesComeBeforeTheErrorOfABadOne) {
  const Numbers numbers(40, /*broken=*/25);
  Loader loader(numbers, {.batch = 10, .workers = 2, .shuffle = false});
  EXPECT_NE(loader.next(), nullptr);
  EXPECT_NE(loader.next(), nullptr);
  EXPECT_THAT(test::error_text(Fault::io, [&] { loader.next(); }),
              testing::HasSubstr("sample 25 is broken"));
}

// Sample 15 takes until sample 25, which another worker reads, has failed.
class SlowBeforeBroken : public Numbers {
 public:
  SlowBeforeBroken() : Numbers(40, /*broken=*/25) {}
  std::int64_t read(std::int64_t index, std::span<std::byte> input) const override {
    if (index == 25) reached_.count_down();
    if (index == 15) {
      reached_.wait();
      for (int i = 0; i < 1000; ++i) std::this_thread::yield();
    }
    return Numbers::read(index, input);
  }

 private:
  mutable std::latch reached_{1};
};

TEST(Loader, ABatchThatIsSlowComesBeforeAnErrorThatIsNot) {
  const SlowBeforeBroken numbers;
  Loader loader(numbers, {.batch = 10, .workers = 2, .shuffle = false});
  EXPECT_NE(loader.next(), nullptr);
  ASSERT_NE(loader.next(), nullptr);
  EXPECT_THAT(test::error_text(Fault::io, [&] { loader.next(); }),
              testing::HasSubstr("sample 25 is broken"));
}

TEST(Loader, SteadyStateReusesItsBuffers) {
  const Numbers numbers(1000);
  Loader loader(numbers, {.batch = 10, .workers = 2, .prefetch = 3});
  std::set<const void*> places;
  for (int i = 0; i < 200; ++i) places.insert(loader.next()->inputs.data_ptr());
  EXPECT_EQ(places.size(), 4u);  // prefetch and the one in use
}

// Starting threads fails where a container limits them: the ones that run must end.
TEST(Loader, AThreadThatCanNotBeStartedIsAnErrorNotAHang) {
  const int status = test::in_child([] {
    if (!test::become_nobody()) return 1;
    const rlimit none{0, 0};
    ::setrlimit(RLIMIT_NPROC, &none);
    const Numbers numbers(100);
    const auto error = test::error_of([&] { Loader loader(numbers, {.workers = 3}); });
    return error && error->fault() == Fault::hardware ? 0 : 2;
  });
  EXPECT_EQ(status, 0);
}

TEST(Loader, CanBeDroppedInTheMiddle) {
  const Numbers numbers(100000);
  for (int i = 0; i < 20; ++i) {
    Loader loader(numbers, {.batch = 100, .workers = 4, .prefetch = 8});
    loader.next();
  }
}

}  // namespace
}  // namespace lockstep::data
