#include "lockstep/comm/votes.h"

#include <signal.h>

#include "lockstep/comm/join.h"
#include "lockstep/comm/local.h"
#include "tests/comm/ranks.h"

namespace lockstep::test {

using comm::Ballot;
using comm::Votes;
using ::testing::HasSubstr;

namespace {

// As many as a ballot has room for, all different.
comm::Weights weights_of(int rank, int round) {
  comm::Weights weights{0.5 * rank, 1.0 * round, -2.25, 1e300};
  for (std::size_t i = 4; i < weights.size(); ++i) {
    weights[i] = rank + 1.0 / static_cast<double>(i);
  }
  return weights;
}

// Many rounds, each with other ballots, by ranks that do not wait for each other
// otherwise.
void vote_many_times(Votes& votes, int rank, int ranks) {
  for (int round = 1; round <= 2000; ++round) {
    votes.cast({.flags = static_cast<comm::Flags>(1U << (rank + round) % 8),
                .value = 1000L * rank + round,
                .weights = weights_of(rank, round)});
    const auto& ballots = votes.count();
    ASSERT_EQ(ballots.size(), static_cast<std::size_t>(ranks));
    comm::Flags expected = 0;
    for (int r = 0; r < ranks; ++r) {
      expected |= 1U << (r + round) % 8;
      ASSERT_EQ(ballots[static_cast<std::size_t>(r)].value, 1000L * r + round);
      ASSERT_EQ(ballots[static_cast<std::size_t>(r)].weights, weights_of(r, round));
    }
    ASSERT_EQ(Votes::any(ballots), expected);
  }
}

}  // namespace

TEST(Votes, EveryRankReadsTheSameBallotsInSharedMemory) {
  const int port = free_port();
  as_processes(4, [&](int rank) {
    auto world = comm::join(environment_of(rank, 4, port), {});
    vote_many_times(world.votes(), rank, 4);
    world.close();
  });
}

TEST(Votes, EveryRankReadsTheSameBallotsOverACommunicator) {
  auto ranks = comm::make_local({torch::kCPU, torch::kCPU, torch::kCPU});
  const auto errors = as_threads(3, [&](int rank) {
    const auto votes =
        comm::make_votes(std::move(ranks[static_cast<std::size_t>(rank)]));
    vote_many_times(*votes, rank, 3);
  });
  for (const auto& error : errors) EXPECT_FALSE(error);
}

TEST(Votes, WeightsAreAddedUpIfEveryRankHasToldThem) {
  std::vector<Ballot> ballots{{.flags = comm::kWeighed, .weights = {1, 2}},
                              {.flags = comm::kWeighed | 1, .weights = {0.5, 4}}};
  ballots[1].weights.back() = 3;
  comm::Weights expected{1.5, 6};
  expected.back() = 3;
  const auto sum = Votes::sum_of_weights(ballots);
  ASSERT_TRUE(sum.has_value());
  EXPECT_EQ(*sum, expected);
  ballots[0].flags = 0;
  EXPECT_FALSE(Votes::sum_of_weights(ballots).has_value());
}

TEST(Votes, APeerThatDiesIsNamed) {
  const int port = free_port();
  as_processes(3, [&](int rank) {
    auto world = comm::join(environment_of(rank, 3, port), {});
    if (rank == 1) ::raise(SIGKILL);
    world.votes().cast({});
    const auto text = error_text(Fault::comm, [&] { world.votes().count(); });
    EXPECT_THAT(text, HasSubstr("rank 1 (pid "));
    EXPECT_THAT(text, HasSubstr("has ended"));
  });
}

TEST(Votes, APeerThatDoesNotVoteIsNamed) {
  const int port = free_port();
  std::array<int, 2> ends{};
  ASSERT_EQ(::pipe(ends.data()), 0);
  as_processes(2, [&](int rank) {
    auto world = comm::join(environment_of(rank, 2, port),
                            {.config = {.timeout = std::chrono::milliseconds(200)}});
    char byte = 0;
    if (rank == 1) {
      ASSERT_EQ(::read(ends[0], &byte, 1), 1);  // alive, and silent
      return;
    }
    world.votes().cast({});
    EXPECT_THAT(error_text(Fault::comm, [&] { world.votes().count(); }),
                HasSubstr("rank 1 did not vote within 200 ms"));
    ASSERT_EQ(::write(ends[1], &byte, 1), 1);
  });
}

// Other programs have theirs there, and come and go.
std::vector<std::string> of_ours_in_memory() {
  auto names = names_in("/dev/shm");
  std::erase_if(names, [](const std::string& name) {
    return name.find("lockstep") == std::string::npos;
  });
  return names;
}

// The memory has no name, so there is nothing to leave behind, whenever a rank dies.
TEST(Votes, HaveNoFile) {
  const auto before = of_ours_in_memory();
  const int port = free_port();
  as_processes(2, [&](int rank) {
    auto world = comm::join(environment_of(rank, 2, port), {});
    world.votes().cast({});
    world.votes().count();
    EXPECT_EQ(of_ours_in_memory(), before);
    world.data().barrier();
    ::raise(SIGKILL);
  });
  EXPECT_EQ(of_ours_in_memory(), before);
}

TEST(Votes, OneRankWithoutTheMemoryMeansNoneHasIt) {
  std::vector<std::string> told;
  // Rank 0, and a peer that never maps it.
  const auto votes =
      comm::make_shared_votes({.rank = 0, .size = 2}, [&](const std::string& text) {
        told.push_back(text);
        return text;
      });
  EXPECT_EQ(votes, nullptr);
  EXPECT_THAT(told.at(0), HasSubstr("/proc/"));
}

}  // namespace lockstep::test
