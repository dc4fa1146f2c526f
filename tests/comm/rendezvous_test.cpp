// Ranks meet, compare, and say who is missing or different.
#include "lockstep/comm/rendezvous.h"

#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include "lockstep/comm/join.h"
#include "lockstep/comm/same.h"
#include "lockstep/comm/store.h"
#include "lockstep/launcher/port.h"
#include "tests/comm/ranks.h"

namespace lockstep::test {

using comm::wire::Fact;
using ::testing::AllOf;
using ::testing::HasSubstr;

namespace {

using Facts = std::vector<Fact>;

// The ranks meet as threads; `world` and `facts` are what each believes.
RankErrors meet_as(int ranks, const std::function<int(int)>& world,
                   const std::function<Facts(int)>& facts,
                   std::chrono::milliseconds timeout = kPatience) {
  const c10::intrusive_ptr<c10d::Store> store = c10::make_intrusive<c10d::HashStore>();
  return as_threads(ranks, [&](int rank) {
    auto env = environment_of(rank, world(rank), 4711);
    comm::meet(*store, env, {.facts = facts(rank), .patience = timeout});
  });
}

void expect_same_error(const RankErrors& errors, Fault fault,
                       const ::testing::Matcher<std::string>& matcher) {
  for (const auto& error : errors) {
    ASSERT_TRUE(error);
    EXPECT_EQ(error->fault(), fault);
    EXPECT_THAT(error->what(), matcher);
    EXPECT_STREQ(error->what(), errors[0]->what());
  }
}

}  // namespace

TEST(Rendezvous, RanksThatAgreeGoOn) {
  for (const auto& error : meet_as(
           4, [](int) { return 4; },
           [](int) {
             return Facts{{"config", "abc"}};
           })) {
    EXPECT_FALSE(error) << error->what();
  }
}

TEST(Rendezvous, AnotherNumberOfRanksIsNamedOnEveryRank) {
  const auto errors = meet_as(
      3, [](int rank) { return rank == 2 ? 4 : 3; }, [](int) { return Facts{}; });
  expect_same_error(errors, Fault::config,
                    AllOf(HasSubstr("the number of ranks differs between ranks: 3 on "
                                    "rank 0 ("),
                          HasSubstr(", 4 on rank 2 (")));
}

TEST(Rendezvous, ARankThatExpectsFewerDoesNotLeaveTheOthersWaiting) {
  const auto errors = meet_as(
      2, [](int rank) { return rank == 0 ? 4 : 2; }, [](int) { return Facts{}; });
  expect_same_error(errors, Fault::config, HasSubstr("4 on rank 0"));
}

TEST(Rendezvous, AnotherConfigIsNamedWithBothValues) {
  const auto errors = meet_as(
      4, [](int) { return 4; },
      [](int rank) {
        return Facts{{"version", "1"}, {"config", rank == 3 ? "bbb" : "aaa"}};
      });
  expect_same_error(errors, Fault::config,
                    AllOf(HasSubstr("config differs between ranks: aaa on rank 0 ("),
                          HasSubstr("bbb on rank 3 (")));
}

TEST(Rendezvous, TwoProcessesWithOneRankAreNamed) {
  const c10::intrusive_ptr<c10d::Store> store = c10::make_intrusive<c10d::HashStore>();
  const auto errors = as_threads(3, [&](int thread) {
    const auto env = environment_of(thread == 2 ? 1 : thread, 3, 4711);
    comm::meet(*store, env, {.patience = kPatience, .instance = thread});
  });
  expect_same_error(errors, Fault::config,
                    HasSubstr("two processes say that they are rank 1"));
}

TEST(Rendezvous, TheMissingRankAndItsNodeAreNamed) {
  const c10::intrusive_ptr<c10d::Store> store = c10::make_intrusive<c10d::HashStore>();
  const auto errors = as_threads(3, [&](int rank) {
    auto env = environment_of(rank, 4, 4711);
    env.local_world_size = 2;
    env.nodes = 2;
    comm::meet(*store, env, {.patience = std::chrono::milliseconds(1'000)});
  });
  expect_same_error(errors, Fault::comm, HasSubstr("rank 3 (node 1) did not join"));
}

TEST(Rendezvous, NobodyAtTheMastersAddressIsSaid) {
  const int port = free_port();
  const auto text = error_text(Fault::comm, [&] {
    comm::join(environment_of(1, 2, port),
               {.config = {.join_timeout = std::chrono::milliseconds(100)}});
  });
  EXPECT_THAT(text, AllOf(HasSubstr("rank 1 of 2 waited 100ms for rank 0 (node 0)"),
                          HasSubstr(str("127.0.0.1:", port))));
}

TEST(Rendezvous, APortThatIsTakenIsReportedWithItsHolder) {
  const int port = free_port();
  const auto first = comm::open_store(
      {.environment = environment_of(0, 1, port), .file = ""}, kPatience);
  const auto text = error_text(Fault::io, [&] {
    comm::open_store({.environment = environment_of(0, 1, port), .file = ""},
                     kPatience);
  });
  EXPECT_THAT(text,
              AllOf(HasSubstr(str("port ", port, " is taken by pid ", ::getpid())),
                    HasSubstr("test_comm")));
}

TEST(Rendezvous, TheStoreIsHostedOnAPortThatTheLauncherHolds) {
  const auto held = launcher::HeldPort::any();
  const auto store = comm::open_store(
      {.environment = environment_of(0, 1, held.port()), .file = ""}, kPatience);
  store->set("key", std::string("value"));
  EXPECT_EQ(store->get_to_str("key"), "value");
}

TEST(Rendezvous, ARankWithoutTheTokenDoesNotMeetTheOthers) {
  const int port = free_port();
  const auto store = comm::open_store(
      {.environment = environment_of(0, 2, port), .file = ""}, kPatience);
  store->set("hello_0", std::string("ours"));
  auto stranger = environment_of(1, 2, port);
  stranger.token = "another";
  const auto text = error_text(Fault::comm, [&] {
    comm::join(stranger, {.config = {.join_timeout = std::chrono::milliseconds(200)}});
  });
  EXPECT_THAT(text, HasSubstr("rank 1"));
}

TEST(Rendezvous, GarbageInTheStoreIsAnErrorNotACrash) {
  const c10::intrusive_ptr<c10d::Store> store = c10::make_intrusive<c10d::HashStore>();
  store->set("hello_0", std::string("\xff\xff\xff\xff garbage"));
  const auto text = error_text(Fault::comm, [&] {
    comm::meet(*store, environment_of(1, 2, 4711), {.patience = kPatience});
  });
  EXPECT_THAT(text, HasSubstr("not one of ours"));
}

TEST(Init, UnderstandsTcpAndFile) {
  const auto tcp = comm::parse_init("tcp://10.0.0.7:1234?rank=1&world_size=3", {});
  EXPECT_EQ(tcp.environment.master_address, "10.0.0.7");
  EXPECT_EQ(tcp.environment.master_port, 1234);
  EXPECT_EQ(tcp.environment.rank, 1);
  EXPECT_EQ(tcp.environment.world_size, 3);
  EXPECT_EQ(comm::parse_init("file:///tmp/x?rank=0&world_size=2", {}).file, "/tmp/x");
  for (const auto* wrong :
       {"", "tcp://", "tcp://host", "tcp://:1", "tcp://h:99999", "tcp://h:0",
        "file://relative", "mpi://", "tcp://h:1?rank=2&world_size=2",
        "tcp://h:1?rank=x", "tcp://h:1?size=2", "tcp://h:1?world_size=0"}) {
    EXPECT_TRUE(error_of([&] { comm::parse_init(wrong, {}); })) << wrong;
  }
}

TEST(Join, MeetsAtAnAddressOrInAFile) {
  const files::TemporaryDirectory folder;
  const int port = free_port();
  for (const auto& place : {str("tcp://127.0.0.1:", port),
                            str("file://", (folder.path() / "meet").string())}) {
    as_processes(2, [&](int rank) {
      auto world =
          comm::join({}, {.init = str(place, "?rank=", rank, "&world_size=2")});
      EXPECT_EQ(world.size(), 2);
      const auto t = torch::ones({3});
      world.data().all_reduce(t).wait();
      EXPECT_TRUE(torch::equal(t, torch::full({3}, 2.0F)));
      world.close();
    });
  }
}

TEST(Join, ASingleRankNeedsNoNetwork) {
  auto world = comm::join({}, {});
  EXPECT_EQ(world.size(), 1);
  EXPECT_EQ(world.data().backend(), "local");
  world.votes().cast({.flags = comm::kStop, .value = 15});
  EXPECT_EQ(world.votes().count()[0].value, 15);
}

TEST(Join, ABackendThatCanNotBeUsedIsRefusedByName) {
  const int port = free_port();
  as_processes(2, [&](int rank) {
    const auto text = error_text(Fault::config, [&] {
      comm::join(environment_of(rank, 2, port),
                 {.config = {.backend = config::CommBackend::nccl}});
    });
    EXPECT_THAT(text, HasSubstr("backend nccl was requested"));
  });
}

TEST(Join, DebugModeComparesEveryCollective) {
  const int port = free_port();
  as_processes(2, [&](int rank) {
    auto world = comm::join(environment_of(rank, 2, port), {.config = {.debug = true}});
    world.data().all_reduce(torch::ones({4})).wait();
    const auto text = error_text(Fault::config, [&] {
      world.data().all_reduce(torch::ones({4 + rank})).wait();
    });
    EXPECT_THAT(text, HasSubstr("ranks issue different collectives"));
  });
}

TEST(Same, AModelThatDiffersIsNamedOnEveryRank) {
  with_communicators(Rig::gloo_processes, 3, [](comm::Communicator& c) {
    const torch::nn::Linear same(4, 5);
    comm::check_same(c, "parameter", comm::facts_of(*same));
    const torch::nn::Linear other(4, c.rank() == 1 ? 6 : 5);
    const auto text = error_text(Fault::config, [&] {
      comm::check_same(c, "parameter", comm::facts_of(*other));
    });
    EXPECT_THAT(text,
                AllOf(HasSubstr("parameter 0 differs between ranks"),
                      HasSubstr("weight Float [5, 4] strides [4, 1] on ranks 0, 2"),
                      HasSubstr("weight Float [6, 4] strides [4, 1] on rank 1")));
  });
}

TEST(Same, AnotherNumberDtypeOrOrderIsNamed) {
  const auto difference = [](const std::vector<Facts>& by_rank) {
    const auto ranks =
        comm::make_local(std::vector<torch::Device>(by_rank.size(), torch::kCPU));
    const auto errors = as_threads(static_cast<int>(by_rank.size()), [&](int rank) {
      const auto index = static_cast<std::size_t>(rank);
      comm::check_same(*ranks[index], "parameter", by_rank[index]);
    });
    for (const auto& error : errors) EXPECT_TRUE(error);
    return std::string(errors[0] ? errors[0]->what() : "");
  };
  const Fact a{"a", "Float [1]"}, b{"b", "Float [2]"};
  EXPECT_THAT(difference({{a, b}, {a}}),
              AllOf(HasSubstr("b Float [2] on rank 0; nothing on rank 1"),
                    HasSubstr("(they have 2 and 1 in all)")));
  EXPECT_THAT(difference({{a, b}, {b, a}}),
              HasSubstr("parameter 0 differs between ranks: a Float [1] on rank 0; b "
                        "Float [2] on rank 1"));
  EXPECT_THAT(difference({{}, {a}}), HasSubstr("nothing on rank 0"));
}

}  // namespace lockstep::test
