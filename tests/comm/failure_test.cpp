// Peers that die, hang, differ or give up.
#include <signal.h>

#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include "lockstep/comm/checked.h"
#include "lockstep/comm/communicator.h"
#include "lockstep/comm/gloo.h"
#include "lockstep/comm/join.h"
#include "lockstep/comm/local.h"
#include "tests/comm/ranks.h"

namespace lockstep::test {

using comm::Communicator;
using ::testing::HasSubstr;

namespace {

// A wait that must not come to this.
constexpr std::chrono::hours kNever{1};

void all_reduce_until_it_fails(Communicator& c) {
  while (true) c.all_reduce(torch::ones({1 << 16})).wait();
}

}  // namespace

TEST(Failure, APeerKilledInACollectiveEndsAllSurvivors) {
  const int port = free_port();
  const auto ends = as_processes(4, [&](int rank) {
    auto world = comm::join(environment_of(rank, 4, port), {});
    if (rank == 2) {
      for (int i = 0; i < 20; ++i)
        world.data().all_reduce(torch::ones({1 << 16})).wait();
      ::raise(SIGKILL);
    }
    const auto text =
        error_text(Fault::comm, [&] { all_reduce_until_it_fails(world.data()); });
    EXPECT_THAT(text, HasSubstr("all_reduce(sum) of Float [65536] failed on rank"));
    EXPECT_THAT(text, HasSubstr("failure_test.cpp:"));
  });
  EXPECT_EQ(ends[2].signal, SIGKILL);
}

TEST(Failure, AbortWakesThisRankAndItsPeers) {
  for (const auto rig : {Rig::local, Rig::gloo_processes, Rig::shm_processes}) {
    with_communicators(
        rig, 3,
        [&](Communicator& c) {
          c.barrier();
          const auto t = torch::ones({1 << 20});
          if (c.rank() == 1) {
            // Nobody can finish this: rank 1 takes no part in it.
            c.abort();
          }
          EXPECT_EQ(error_of([&] { all_reduce_until_it_fails(c); })->fault(),
                    Fault::comm)
              << name_of(rig);
          if (rig == Rig::gloo_processes)
            ::_exit(::testing::Test::HasFailure() ? 99 : 0);
        },
        kNever);
  }
}

TEST(Failure, ARankThatGivesUpWhileItWaitsIsHeardByTheOthers) {
  const c10::intrusive_ptr<c10d::Store> store = c10::make_intrusive<c10d::HashStore>();
  const auto errors = as_threads(2, [&](int rank) {
    const auto c =
        comm::make_gloo({.store = store, .rank = rank, .size = 2, .timeout = kNever});
    if (rank == 1) {
      store->wait({"waiting"});
      c->abort();
      return;
    }
    auto pending = c->all_reduce(torch::ones({1 << 20}));
    store->set("waiting", std::string("yes"));
    pending.wait();
  });
  ASSERT_TRUE(errors[0]);
  EXPECT_EQ(errors[0]->fault(), Fault::comm);
  EXPECT_FALSE(errors[1]);
}

namespace {

using Collective = std::function<comm::Pending(Communicator&)>;

// Rank 1 takes no part in it.
void expect_a_timeout(const Collective& collective) {
  const c10::intrusive_ptr<c10d::Store> store = c10::make_intrusive<c10d::HashStore>();
  const auto errors = as_threads(2, [&](int rank) {
    auto c = comm::make_gloo({.store = store,
                              .rank = rank,
                              .size = 2,
                              .timeout = std::chrono::milliseconds(1'000)});
    if (rank == 1) {
      store->wait({"gave up"}, kPatience);
      return;
    }
    const auto error = error_of([&] { collective(*c).wait(); });
    c.reset();
    store->set("gave up", std::string("yes"));
    throw *error;
  });
  ASSERT_TRUE(errors[0]);
  EXPECT_EQ(errors[0]->fault(), Fault::comm);
  EXPECT_FALSE(errors[1]);
}

}  // namespace

// Whatever the collective is: c10d gives each a work of another kind.
TEST(Failure, ATimeoutIsAnErrorAndTheDestructorDoesNotHang) {
  const std::vector<Collective> collectives{
      [](Communicator& c) { return c.all_reduce(torch::ones({8})); },
      [](Communicator& c) {
        return c.reduce_scatter(torch::empty({4}), torch::ones({8}));
      },
      [](Communicator& c) { return c.all_gather(torch::empty({8}), torch::ones({4})); },
      [](Communicator& c) { return c.broadcast(torch::ones({8}), 1); }};
  std::vector<std::jthread> side_by_side;  // each asks its peers for a while
  for (const auto& collective : collectives) {
    side_by_side.emplace_back([&collective] { expect_a_timeout(collective); });
  }
}

// An exception may unwind between the start of a collective and its wait().
TEST(Failure, ACollectiveThatIsGivenUpDoesNotHoldUpTheDestructor) {
  const c10::intrusive_ptr<c10d::Store> store = c10::make_intrusive<c10d::HashStore>();
  const auto errors = as_threads(2, [&](int rank) {
    auto c =
        comm::make_gloo({.store = store, .rank = rank, .size = 2, .timeout = kNever});
    if (rank == 0) {
      static_cast<void>(c->all_reduce(torch::ones({1 << 20})));
      c.reset();
      store->set("left", std::string("yes"));
    } else {
      store->wait({"left"}, kPatience);
    }
  });
  for (const auto& error : errors) EXPECT_FALSE(error) << error->what();
}

TEST(Failure, LengthsThatDoNotFitAreAnErrorOnEveryRank) {
  const auto all = comm::make_local({torch::kCPU, torch::kCPU}, {.timeout = kNever});
  const auto errors = as_threads(2, [&](int rank) {
    // Rank 0 sends 1 and 3 rows, rank 1 expects 2 and 2.
    const auto in = torch::ones({4}), out = torch::empty({4});
    all[static_cast<std::size_t>(rank)]
        ->all_to_all(out, in, {2, 2},
                     rank == 0 ? std::vector<std::int64_t>{1, 3}
                               : std::vector<std::int64_t>{2, 2})
        .wait();
  });
  for (const auto& error : errors) {
    ASSERT_TRUE(error);
    EXPECT_THAT(error->what(), HasSubstr("does not match"));
  }
}

// Gloo throws on a thread of its own when more comes than was expected.
TEST(Failure, RanksThatAskForDifferentThingsOverGlooAreNamed) {
  using Ask = std::function<comm::Pending(Communicator&, const torch::Tensor&)>;
  const Ask sum = [](Communicator& c, const torch::Tensor& t) {
    return c.all_reduce(t);
  };
  const Ask gather = [](Communicator& c, const torch::Tensor& t) {
    return c.all_gather(torch::zeros({2 * t.numel()}), t);
  };
  const Ask broadcast = [](Communicator& c, const torch::Tensor& t) {
    return c.broadcast(t, 0);
  };
  const Ask scatter = [](Communicator& c, const torch::Tensor& t) {
    return c.reduce_scatter(torch::empty({t.numel()}), torch::ones({2 * t.numel()}));
  };
  struct Case {
    Ask first, second;
    int more;  // elements of rank 1
    std::chrono::milliseconds timeout;
    const char* said;
  };
  const std::vector<Case> cases{
      {sum, sum, 2, kNever, "rank 0 all_reduce(sum) of Float [3] at "},
      {gather, gather, 2, kNever, "rank 0 all_gather of Float [3] at "},
      {scatter, scatter, 2, kNever, "rank 0 reduce_scatter(sum) of Float [6] at "},
      // Nothing of one is anything of the other: both wait in vain.
      {sum, broadcast, 0, std::chrono::seconds(2), "rank 1 broadcast from rank 0 of "}};
  for (const auto& one : cases) {
    with_communicators(
        Rig::gloo_processes, 2,
        [&](Communicator& c) {
          const auto t = torch::ones({c.rank() == 0 ? 3 : 3 + one.more});
          const auto& ask = c.rank() == 0 ? one.first : one.second;
          const auto error = error_of([&] {
            ask(c, t).wait();
            c.barrier();  // where nothing was noticed yet
          });
          ASSERT_TRUE(error) << one.said;
          // Both sides are named, unless the rank that has the store is gone before
          // this one has asked it; without our handler the process would have been
          // aborted.
          const std::string text = error->what();
          const bool named =
              text.find(one.said) != std::string::npos &&
              text.find("ranks issue different collectives") != std::string::npos;
          const bool alone = text.find("a peer ") != std::string::npos;
          EXPECT_TRUE(named || alone) << text;
          EXPECT_EQ(text.find("frame #"), std::string::npos) << text;
          // Threads of gloo wait for a peer, and main() would for them.
          ::_exit(::testing::Test::HasFailure() ? 99 : 0);
        },
        one.timeout);
  }
}

TEST(Failure, AGroupIsBuiltAgainInTheSameProcess) {
  const int port = free_port();
  as_processes(3, [&](int rank) {
    for (int attempt = 0; attempt < 3; ++attempt) {
      auto env = environment_of(rank, 3, port);
      env.restart_count = attempt;
      auto world = comm::join(env, {});
      const auto t = torch::full({5}, static_cast<float>(rank));
      world.data().all_reduce(t).wait();
      EXPECT_TRUE(torch::equal(t, torch::full({5}, 3.0F)));
      if (attempt == 1) {
        // A broken one is as good a start as a clean one.
        world.data().abort();
        continue;
      }
      world.close();
    }
  });
}

TEST(ShmFailure, APeerThatIsKilledIsNamedByAllSurvivors) {
  const MeetingPoint point(4);
  const auto ends = as_processes(4, [&](int rank) {
    const auto c = point.shm(rank, 4, kNever);
    const auto shared = c->empty_buffer(1 << 18, torch::kFloat32);
    for (int i = 0; rank == 2 && i < 20; ++i) {
      c->all_reduce(i % 2 == 0 ? torch::ones({1 << 18}) : shared).wait();
    }
    if (rank == 2) ::raise(SIGKILL);
    const auto text = error_text(Fault::comm, [&] {
      for (int i = 0;; ++i) {
        c->all_reduce(i % 2 == 0 ? torch::ones({1 << 18}) : shared).wait();
      }
    });
    EXPECT_THAT(text, HasSubstr("all_reduce(sum) of Float [262144] failed on rank"));
    EXPECT_THAT(text, HasSubstr("failure_test.cpp:"));
    EXPECT_THAT(text, HasSubstr("rank 2 (pid "));
    EXPECT_THAT(text, HasSubstr("has ended"));
    // It stays broken.
    EXPECT_EQ(error_of([&] { c->barrier(); })->fault(), Fault::comm);
  });
  EXPECT_EQ(ends[2].signal, SIGKILL);
}

TEST(ShmFailure, ARankThatDoesNotComeIsNamed) {
  const MeetingPoint point(3);
  as_processes(3, [&](int rank) {
    const auto c = point.shm(rank, 3, std::chrono::milliseconds(300));
    if (rank == 1) {
      std::this_thread::sleep_for(std::chrono::milliseconds(700));
      EXPECT_EQ(error_of([&] { c->barrier(); })->fault(), Fault::comm);
      return;
    }
    const auto text =
        error_text(Fault::comm, [&] { c->all_reduce(torch::ones({1 << 20})).wait(); });
    EXPECT_THAT(text, HasSubstr("rank 1 did not take part within 300 ms"));
  });
}

TEST(ShmFailure, ASenderThatDoesNotComeIsNamed) {
  const MeetingPoint point(2);
  as_processes(2, [&](int rank) {
    const auto c = point.shm(rank, 2, std::chrono::milliseconds(200));
    if (rank == 1) {
      std::this_thread::sleep_for(std::chrono::milliseconds(500));
      return;
    }
    const auto text =
        error_text(Fault::comm, [&] { c->recv(torch::empty({4}), 1).wait(); });
    EXPECT_THAT(text, HasSubstr("rank 1 did not take part within 200 ms"));
  });
}

// As after an error: the process lives on, its communicator does not.
TEST(ShmFailure, ARankThatLeavesIsNamed) {
  const MeetingPoint point(3);
  as_processes(3, [&](int rank) {
    auto c = point.shm(rank, 3, kNever);
    c->barrier();
    if (rank == 0) {
      c.reset();
      std::this_thread::sleep_for(std::chrono::milliseconds(300));
      return;
    }
    EXPECT_THAT(error_text(Fault::comm, [&] { c->barrier(); }),
                HasSubstr("rank 0 has left"));
  });
}

TEST(ShmFailure, AWaitingRankIsWokenByAbortFromAnotherThread) {
  const MeetingPoint point(2);
  as_processes(2, [&](int rank) {
    const auto c = point.shm(rank, 2, kNever);
    if (rank == 1) {
      std::this_thread::sleep_for(std::chrono::milliseconds(400));
      return;
    }
    auto pending = c->all_reduce(torch::ones({1 << 20}));
    std::jthread other([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      c->abort();
    });
    EXPECT_THAT(error_text(Fault::comm, [&] { pending.wait(); }),
                HasSubstr("rank 0 aborted"));
  });
}

TEST(Checked, NamesTheFirstDifferenceWithBothPlaces) {
  const c10::intrusive_ptr<c10d::Store> store = c10::make_intrusive<c10d::HashStore>();
  const auto errors = as_threads(3, [&](int rank) {
    const auto options = [&](const std::string& name) {
      return comm::GroupOptions{
          .store = c10::make_intrusive<c10d::PrefixStore>(name, store),
          .rank = rank,
          .size = 3,
          .timeout = kPatience};
    };
    const auto c = comm::make_checked(comm::make_gloo(options("inner")),
                                      comm::make_gloo(options("side")));
    c->all_reduce(torch::ones({4})).wait();
    if (rank == 1) {
      c->broadcast(torch::ones({4}), 0).wait();
    } else {
      c->all_reduce(torch::ones({4}), comm::Reduce::max).wait();
    }
  });
  for (const auto& error : errors) {
    ASSERT_TRUE(error);
    EXPECT_EQ(error->fault(), Fault::config);
    EXPECT_THAT(error->what(), HasSubstr("rank 0 all_reduce(max) of Float [4] at "));
    EXPECT_THAT(error->what(),
                HasSubstr("rank 1 broadcast from rank 0 of Float [4] at "));
    EXPECT_THAT(error->what(), HasSubstr("failure_test.cpp:"));
  }
}

}  // namespace lockstep::test
