#include "lockstep/parallel/layout.h"

#include <random>
#include <set>

#include "lockstep/parallel/shards.h"
#include "tests/support/support.h"

namespace lockstep::test {

using parallel::Parameter;

namespace {

std::vector<Parameter> parameters_of(const std::vector<std::int64_t>& sizes,
                                     torch::Dtype dtype = torch::kFloat32) {
  std::vector<Parameter> list;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    list.push_back({str("p", i), torch::zeros({sizes[i]}, dtype)});
  }
  return list;
}

}  // namespace

TEST(Layout, EveryParameterHasItsPlaceAndItsCounter) {
  std::mt19937 random(1);
  for (int round = 0; round < 100; ++round) {
    std::vector<std::int64_t> sizes(1 + random() % 20);
    for (auto& size : sizes) size = static_cast<std::int64_t>(random() % 1000);
    const auto parameters = parameters_of(sizes);
    auto order = parallel::reversed_order(sizes.size());
    std::shuffle(order.begin(), order.end(), random);
    const auto bucket_bytes = static_cast<std::int64_t>(1 + random() % 5000);
    const auto groups = parallel::plan_layout(
        parameters, order,
        {.first_bucket_bytes = bucket_bytes / 2 + 1, .bucket_bytes = bucket_bytes});
    ASSERT_EQ(groups.size(), 1U);
    const auto& group = groups[0];
    std::set<std::size_t> seen;
    std::int64_t end = 0;
    for (const auto& slot : group.slots) {
      EXPECT_EQ(slot.offset, end) << "no gaps";
      EXPECT_EQ(slot.offset * 4 % 64, 0);
      end = slot.offset + (slot.numel + 1 + 15) / 16 * 16;
      seen.insert(slot.parameter);
    }
    EXPECT_EQ(end, group.numel);
    EXPECT_EQ(seen.size(), sizes.size());
    std::int64_t at = 0;
    std::size_t slot = 0;
    for (const auto& bucket : group.buckets) {
      EXPECT_EQ(bucket.begin, at);
      EXPECT_EQ(bucket.first_slot, slot);
      EXPECT_GT(bucket.last_slot, bucket.first_slot);
      at = bucket.end;
      slot = bucket.last_slot;
    }
    EXPECT_EQ(at, group.numel);
    EXPECT_EQ(slot, group.slots.size());
  }
}

TEST(Layout, EveryElementIsOfOneRanksShard) {
  const auto parameters = parameters_of({1, 100, 7, 640, 0, 33, 2000, 5});
  for (const int ranks : {1, 2, 3, 7}) {
    const auto groups = parallel::plan_layout(
        parameters, parallel::reversed_order(8),
        {.first_bucket_bytes = 100, .bucket_bytes = 3000, .shards = ranks});
    ASSERT_GT(groups[0].buckets.size(), 2U);
    std::vector<int> owners(static_cast<std::size_t>(groups[0].numel));
    for (int rank = 0; rank < ranks; ++rank) {
      for (const auto& shard :
           parallel::owned_shards(groups, parallel::kStages[1], {rank, ranks})) {
        EXPECT_TRUE(ranks == 1 || shard.offset % 16 == 0) << "whole vectors";
        for (auto i = shard.offset; i < shard.offset + shard.size; ++i) {
          owners[static_cast<std::size_t>(i)] += 1;
        }
      }
    }
    EXPECT_THAT(owners, ::testing::Each(1)) << ranks;
  }
}

TEST(Layout, ABucketHoldsOneUnit) {
  auto parameters = parameters_of(std::vector<std::int64_t>(12, 10));
  for (std::size_t i = 0; i < 12; ++i) parameters[i].unit = i / 4;
  const auto groups =
      parallel::plan_layout(parameters, parallel::reversed_order(12), {});
  ASSERT_EQ(groups[0].buckets.size(), 3U);
  for (const auto& bucket : groups[0].buckets) {
    std::set<std::size_t> units;
    for (auto s = bucket.first_slot; s < bucket.last_slot; ++s) {
      units.insert(parameters[groups[0].slots[s].parameter].unit);
    }
    EXPECT_EQ(units.size(), 1U);
  }
}

TEST(Layout, TheFirstBucketIsSmallAndTheOthersFull) {
  const auto parameters = parameters_of(std::vector<std::int64_t>(100, 1000));
  const auto groups =
      parallel::plan_layout(parameters, parallel::reversed_order(100),
                            {.first_bucket_bytes = 8000, .bucket_bytes = 40'000});
  const auto& buckets = groups[0].buckets;
  ASSERT_GT(buckets.size(), 3U);
  EXPECT_EQ(buckets[0].last_slot, 2U);  // 2 * 1008 * 4 bytes
  for (std::size_t b = 1; b + 1 < buckets.size(); ++b) {
    const auto bytes = (buckets[b].end - buckets[b].begin) * 4;
    EXPECT_GE(bytes, 40'000);
    EXPECT_LT(bytes, 40'000 + 1008 * 4);
  }
}

TEST(Layout, ASmallModelHasSmallerBucketsButNoneBelowTheFirst) {
  const auto parameters = parameters_of(std::vector<std::int64_t>(64, 1000));
  const auto buckets = [&](std::int64_t first_bytes, std::int64_t number) {
    return parallel::plan_layout(parameters, parallel::reversed_order(64),
                                 {.first_bucket_bytes = first_bytes,
                                  .bucket_bytes = 1 << 20,
                                  .num_buckets = number})[0]
        .buckets.size();
  };
  EXPECT_EQ(buckets(1, 8), 9U) << "the first has one parameter, the others eight";
  EXPECT_EQ(buckets(16 * 4032, 8), 4U) << "sixteen parameters each, as the first";
  EXPECT_EQ(buckets(1, 1), 2U) << "bucket_bytes would do";
}

TEST(Layout, DtypesHaveGroupsOfTheirOwn) {
  auto parameters = parameters_of({10, 20, 30});
  parameters[1].tensor = torch::zeros({20}, torch::kBFloat16);
  const auto groups = parallel::plan_layout(parameters, {2, 1, 0}, {});
  ASSERT_EQ(groups.size(), 2U);
  EXPECT_EQ(groups[0].slots.size(), 2U);
  EXPECT_EQ(groups[1].dtype, torch::kBFloat16);
  EXPECT_EQ(groups[1].numel, 32);  // 64 bytes
}

TEST(Layout, TheSizeDoesNotDependOnTheOrder) {
  const auto parameters = parameters_of({1, 100, 7, 64, 0, 33});
  const auto one = parallel::plan_layout(parameters, {0, 1, 2, 3, 4, 5}, {});
  const auto other = parallel::plan_layout(parameters, {5, 2, 0, 4, 1, 3}, {});
  EXPECT_EQ(one[0].numel, other[0].numel);
}

TEST(Layout, ATiedParameterIsListedOnceAndAFrozenOneNotAtAll) {
  torch::nn::Sequential model(torch::nn::Linear(4, 4), torch::nn::Linear(4, 4),
                              torch::nn::Linear(4, 4));
  auto& first = *model[0]->as<torch::nn::Linear>();
  auto& second = *model[1]->as<torch::nn::Linear>();
  second.weight = second.register_parameter("tied", first.weight);
  model[2]->as<torch::nn::Linear>()->weight.requires_grad_(false);
  const auto list = parallel::trainable_parameters(*model);
  std::vector<std::string> names;
  for (const auto& parameter : list) names.push_back(parameter.name);
  EXPECT_EQ(std::count(names.begin(), names.end(), "0.weight"), 1);
  EXPECT_EQ(std::count(names.begin(), names.end(), "1.tied"), 0);
  EXPECT_EQ(std::count(names.begin(), names.end(), "2.weight"), 0);
}

}  // namespace lockstep::test
