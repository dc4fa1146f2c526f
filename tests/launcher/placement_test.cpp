#include "lockstep/launcher/placement.h"

#include <set>

#include "tests/support/support.h"

namespace lockstep {
namespace {

using hardware::CpuTopology;
using launcher::Binding;
using launcher::place_ranks;
using launcher::PlacementRequest;
using launcher::RankPlacement;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// `nodes` NUMA nodes with `cores` cores of two hyper-threads each, numbered as most
// servers do: first one thread of every core, then the other.
CpuTopology numa_server(int nodes, int cores) {
  CpuTopology topology;
  const int total = nodes * cores;
  for (int number = 0; number < 2 * total; ++number) {
    const int core = number % total;
    topology.cpus.push_back({.number = number,
                             .core = core,
                             .socket = core / cores,
                             .numa_node = core / cores});
  }
  return topology;
}

std::vector<int> threads_of(const std::vector<RankPlacement>& places) {
  std::vector<int> threads;
  for (const auto& place : places) threads.push_back(place.threads);
  return threads;
}

std::vector<std::string> cpu_lists_of(const std::vector<RankPlacement>& places) {
  std::vector<std::string> lists;
  for (const auto& place : places) {
    lists.push_back(hardware::cpu_list_text(place.cpus));
  }
  return lists;
}

TEST(Placement, WithoutBindingTheCoresAreDividedAndNobodyIsBound) {
  const auto places = place_ranks(numa_server(2, 4), {.ranks = 4});
  EXPECT_THAT(threads_of(places), ElementsAre(2, 2, 2, 2));
  EXPECT_THAT(cpu_lists_of(places), ElementsAre("", "", "", ""));
  EXPECT_EQ(places[0].because,
            "8 physical cores of this machine divided among 4 ranks");
  EXPECT_EQ(place_ranks(numa_server(2, 4), {})[0].threads, 8);
  EXPECT_EQ(place_ranks(numa_server(1, 1), {})[0].because,
            "1 physical core of this machine");
}

TEST(Placement, NumaPutsBlocksOfRanksOnTheNodes) {
  const auto places =
      place_ranks(numa_server(2, 4), {.ranks = 4, .binding = Binding::numa});
  EXPECT_THAT(cpu_lists_of(places),
              ElementsAre("0-3,8-11", "0-3,8-11", "4-7,12-15", "4-7,12-15"));
  EXPECT_THAT(threads_of(places), ElementsAre(2, 2, 2, 2));
  EXPECT_EQ(places[3].because, "4 physical cores of NUMA node 1 divided among 2 ranks");
}

TEST(Placement, CoresAreNobodyElses) {
  for (const int ranks : {1, 2, 3, 4, 5, 7, 8}) {
    const auto places =
        place_ranks(numa_server(2, 4), {.ranks = ranks, .binding = Binding::cores});
    std::set<int> seen;
    std::size_t count = 0;
    for (const auto& place : places) {
      EXPECT_THAT(place.cpus, ::testing::Not(IsEmpty()));
      // Both hyper-threads of each of its cores.
      EXPECT_EQ(place.cpus.size(), 2U * static_cast<std::size_t>(place.threads));
      seen.insert(place.cpus.begin(), place.cpus.end());
      count += place.cpus.size();
    }
    EXPECT_EQ(seen.size(), 16U) << ranks;  // all are used
    EXPECT_EQ(count, 16U) << ranks;        // and each once
    const auto threads = threads_of(places);
    EXPECT_LE(*std::max_element(threads.begin(), threads.end()) -
                  *std::min_element(threads.begin(), threads.end()),
              1);
  }
}

TEST(Placement, CoresStayOnOneSideWhenTheyCan) {
  EXPECT_THAT(cpu_lists_of(place_ranks(numa_server(2, 4),
                                       {.ranks = 2, .binding = Binding::cores})),
              ElementsAre("0-3,8-11", "4-7,12-15"));
  EXPECT_THAT(cpu_lists_of(place_ranks(numa_server(2, 4),
                                       {.ranks = 4, .binding = Binding::cores})),
              ElementsAre("0-1,8-9", "2-3,10-11", "4-5,12-13", "6-7,14-15"));
}

TEST(Placement, MoreRanksThanCoresShareAndItIsSaid) {
  const auto places =
      place_ranks(numa_server(1, 2), {.ranks = 4, .binding = Binding::cores});
  EXPECT_THAT(cpu_lists_of(places), ElementsAre("0,2", "0,2", "1,3", "1,3"));
  EXPECT_THAT(threads_of(places), ElementsAre(1, 1, 1, 1));
  EXPECT_THAT(places[0].because, HasSubstr("fewer cores than ranks"));
}

TEST(Placement, RanksGoToTheirGpusSide) {
  const std::vector<int> left = {0, 1, 2, 3, 8, 9, 10, 11};
  const std::vector<int> right = {4, 5, 6, 7, 12, 13, 14, 15};
  PlacementRequest request{
      .ranks = 4, .binding = Binding::numa, .near_gpu = {right, right, right, left}};
  auto places = place_ranks(numa_server(2, 4), request);
  EXPECT_THAT(cpu_lists_of(places),
              ElementsAre("4-7,12-15", "4-7,12-15", "4-7,12-15", "0-3,8-11"));
  EXPECT_THAT(threads_of(places), ElementsAre(1, 1, 1, 4));
  EXPECT_EQ(places[3].because, "4 physical cores near the GPU");
  request.binding = Binding::cores;
  request.near_gpu = {right, left};
  request.ranks = 2;
  places = place_ranks(numa_server(2, 4), request);
  EXPECT_THAT(cpu_lists_of(places), ElementsAre("4-7,12-15", "0-3,8-11"));
}

TEST(Placement, GpusOnAnUnknownSideChangeNothing) {
  const auto plain =
      place_ranks(numa_server(2, 4), {.ranks = 2, .binding = Binding::numa});
  const std::vector<int> left = {0, 1, 2, 3, 8, 9, 10, 11};
  const std::vector<std::vector<std::vector<int>>> unknown = {
      {left, {}}, {{}, {}}, {left, {99}}, {left, {1, 2, 3, 4}}, {left}};
  for (const auto& near : unknown) {
    EXPECT_EQ(cpu_lists_of(place_ranks(
                  numa_server(2, 4),
                  {.ranks = 2, .binding = Binding::numa, .near_gpu = near})),
              cpu_lists_of(plain));
  }
}

TEST(Placement, TheQuotaLimitsTheThreads) {
  auto topology = numa_server(2, 4);
  topology.quota = 5;
  const auto places = place_ranks(topology, {.ranks = 2});
  EXPECT_THAT(threads_of(places), ElementsAre(2, 2));
  EXPECT_EQ(places[0].because,
            "the cgroup grants 5 physical cores divided among 2 ranks");
}

TEST(Placement, OmpNumThreadsIsHonoured) {
  const auto places = place_ranks(
      numa_server(2, 4), {.ranks = 2, .binding = Binding::numa, .omp_num_threads = 3});
  EXPECT_THAT(threads_of(places), ElementsAre(3, 3));
  EXPECT_EQ(places[0].because, "OMP_NUM_THREADS of the environment");
  EXPECT_THAT(places[0].cpus, ::testing::Not(IsEmpty()));
}

TEST(Placement, UnknownCpusMeanOneThreadAndNoBinding) {
  const auto places = place_ranks({}, {.ranks = 2, .binding = Binding::cores});
  EXPECT_THAT(threads_of(places), ElementsAre(1, 1));
  EXPECT_THAT(places[1].cpus, IsEmpty());
}

TEST(Binding, NamesReadBack) {
  for (const auto binding : {Binding::none, Binding::numa, Binding::cores}) {
    EXPECT_EQ(launcher::binding_of(name_of(binding)), binding);
  }
  EXPECT_EQ(launcher::binding_of("socket"), std::nullopt);
}

}  // namespace
}  // namespace lockstep
