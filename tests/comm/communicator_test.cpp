// The contract of Communicator, held by every backend.
#include "lockstep/comm/communicator.h"

#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include "lockstep/comm/local.h"
#include "lockstep/comm/selftest.h"
#include "lockstep/comm/votes.h"
#include "tests/comm/ranks.h"

namespace lockstep::test {

using comm::Communicator;
using comm::Reduce;
using ::testing::HasSubstr;

class Contract : public ::testing::TestWithParam<std::tuple<Rig, int>> {
 protected:
  // By the device's file: asking CUDA would spoil it for the processes that are forked.
  void SetUp() override {
    if (needs_gpu(rig()) && !std::filesystem::exists("/dev/nvidiactl")) {
      GTEST_SKIP() << "no GPU";
    }
  }

  Rig rig() const { return std::get<0>(GetParam()); }
  int ranks() const { return std::get<1>(GetParam()); }
  void on_ranks(const std::function<void(Communicator&)>& body) const {
    with_communicators(rig(), ranks(), body);
  }
};

// Where the ranks' tensors live.
torch::TensorOptions of(const Communicator& c, torch::Dtype dtype = torch::kFloat32) {
  return torch::dtype(dtype).device(c.device());
}

std::string name_of_contract(
    const ::testing::TestParamInfo<std::tuple<Rig, int>>& info) {
  return str(name_of(std::get<0>(info.param)), std::get<1>(info.param));
}

INSTANTIATE_TEST_SUITE_P(
    Backends, Contract,
    ::testing::Combine(::testing::Values(Rig::local, Rig::gloo_threads,
                                         Rig::gloo_processes, Rig::shm_processes),
                       ::testing::Values(1, 2, 3, 4)),
    name_of_contract);

INSTANTIATE_TEST_SUITE_P(OneGpu, Contract,
                         ::testing::Combine(::testing::Values(Rig::nccl_processes,
                                                              Rig::local_gpu),
                                            ::testing::Values(2)),
                         name_of_contract);

TEST_P(Contract, EveryCollectiveIsRightInEveryDtype) {
  with_pairs(rig(), ranks(), [](Communicator& c, Communicator& cpu) {
    const auto votes = comm::make_votes(cpu.split(0));
    const auto rows = comm::selftest(c, cpu, *votes);
    ASSERT_GE(rows.size(), 13U);
    for (const auto& row : rows) EXPECT_EQ(row.problem, "") << row.collective;
    for (const auto& row : rows) {
      EXPECT_TRUE(row.checks > 0 || c.size() == 1) << row.collective;
    }
  });
}

TEST_P(Contract, CollectivesAreAsynchronous) {
  on_ranks([](Communicator& c) {
    std::vector<torch::Tensor> tensors;
    std::vector<comm::Pending> pending;
    for (int i = 0; i < 8; ++i) {
      tensors.push_back(torch::full({100 + i}, static_cast<float>(i), of(c)));
      pending.push_back(c.all_reduce(tensors.back()));
    }
    for (int i = 7; i >= 0; --i) {
      const auto index = static_cast<std::size_t>(i);
      pending[index].wait();
      EXPECT_TRUE(torch::equal(
          tensors[index],
          torch::full({100 + i}, static_cast<float>(i * c.size()), of(c))));
      EXPECT_TRUE(pending[index].done());
    }
  });
}

TEST_P(Contract, MeansOfHalvesAndOfReduceScatter) {
  on_ranks([](Communicator& c) {
    const auto in = torch::full({2L * c.size()}, 3.0, of(c, torch::kBFloat16));
    const auto out = torch::zeros({2}, of(c, torch::kBFloat16));
    c.reduce_scatter(out, in, Reduce::mean).wait();
    EXPECT_TRUE(torch::equal(out, torch::full({2}, 3.0, of(c, torch::kBFloat16))));
  });
}

TEST_P(Contract, ParametersMayBeAveragedInPlace) {
  on_ranks([](Communicator& c) {
    const auto parameter =
        torch::full({3}, static_cast<float>(2 * c.rank()), of(c).requires_grad(true));
    c.all_reduce(parameter, Reduce::mean).wait();
    EXPECT_TRUE(parameter.detach().eq(c.size() - 1).all().item<bool>());
  });
}

TEST_P(Contract, EmptyTensorsAndScalarsTakePart) {
  on_ranks([](Communicator& c) {
    const auto nothing = torch::empty({0}, of(c));
    c.all_reduce(nothing).wait();
    c.all_gather(torch::empty({0}, of(c)), nothing).wait();
    const auto scalar = torch::tensor(2.0, of(c));
    c.all_reduce(scalar).wait();
    EXPECT_EQ(scalar.item<double>(), 2.0 * c.size());
  });
}

TEST_P(Contract, AWrongCallIsRefusedBeforeItIsSent) {
  on_ranks([](Communicator& c) {
    const auto refused = [&](const std::function<void()>& call) {
      return error_text(Fault::internal, call);
    };
    const auto t = torch::ones({4, 6}, of(c));
    EXPECT_THAT(refused([&] { static_cast<void>(c.all_reduce(t.t())); }),
                HasSubstr("not contiguous"));
    EXPECT_THAT(refused([&] {
                  static_cast<void>(c.all_reduce(torch::ones({2}, of(c, torch::kInt32)),
                                                 Reduce::mean));
                }),
                HasSubstr("integers have no mean"));
    EXPECT_THAT(refused([&] { static_cast<void>(c.broadcast(t, c.size())); }),
                HasSubstr("is not one of"));
    EXPECT_THAT(refused([&] {
                  static_cast<void>(
                      c.all_gather(torch::empty({3}, of(c)), torch::ones({7}, of(c))));
                }),
                HasSubstr("out has 3 elements, in 7 *"));
    EXPECT_THAT(refused([&] {
                  static_cast<void>(c.all_gather(
                      torch::empty({4L * c.size()}, of(c, torch::kFloat64)),
                      torch::ones({4}, of(c))));
                }),
                HasSubstr("out is Double"));
    EXPECT_THAT(refused([&] { static_cast<void>(c.all_reduce(torch::Tensor())); }),
                HasSubstr("undefined"));
    EXPECT_THAT(
        refused([&] {
          static_cast<void>(c.all_reduce(torch::ones({2}, of(c, torch::kInt16))));
        }),
        HasSubstr("this dtype is not exchanged"));
    c.barrier();  // it is still usable
  });
}

TEST_P(Contract, SplitOrdersByKeyAndSeparatesColors) {
  on_ranks([](Communicator& c) {
    const auto part = c.split(c.rank() % 2, -c.rank());  // the last rank comes first
    const int members = (c.size() + 1 - c.rank() % 2) / 2;
    ASSERT_EQ(part->size(), members);
    EXPECT_EQ(part->rank(), members - 1 - c.rank() / 2);
    const auto t = torch::tensor({c.rank()}, of(c, torch::kInt64));
    part->all_reduce(t, Reduce::max).wait();
    EXPECT_EQ(t.item<std::int64_t>() % 2, c.rank() % 2);
    part->barrier();
  });
}

// Two ranks: a + b has one order, so every backend has the same bits.
TEST(Communicator, TwoRanksSumToTheSameBitsOnEveryBackend) {
  // Not by the process's generator: seeding it would touch a GPU's, too.
  const auto value = [](int rank) {
    auto generator = at::detail::createCPUGenerator(static_cast<unsigned>(7 + rank));
    return torch::randn({1000}, generator);
  };
  const auto expected = value(0) + value(1);
  for (const auto rig : {Rig::local, Rig::gloo_processes, Rig::shm_processes}) {
    with_communicators(rig, 2, [&](Communicator& c) {
      const auto t = value(c.rank());
      c.all_reduce(t).wait();
      EXPECT_TRUE(torch::equal(t, expected)) << name_of(rig);
    });
  }
}

TEST(Local, SumsInTheOrderOfTheRanks) {
  std::vector<torch::Tensor> parts;
  auto generator = at::detail::createCPUGenerator(3);
  for (int r = 0; r < 4; ++r) parts.push_back(torch::randn({257}, generator));
  const auto expected = ((parts[0] + parts[1]) + parts[2]) + parts[3];
  with_communicators(Rig::local, 4, [&](Communicator& c) {
    const auto t = parts[static_cast<std::size_t>(c.rank())].clone();
    c.all_reduce(t).wait();
    EXPECT_TRUE(torch::equal(t, expected));
  });
}

// The same GPU more than once: ranks are threads with streams of their own.
TEST(LocalGpu, EveryCollectiveIsRightOnAGpu) {
  if (!torch::cuda::is_available()) GTEST_SKIP() << "no GPU";
  const torch::Device gpu(torch::kCUDA, 0);
  const auto all = comm::make_local({gpu, gpu, gpu});
  const auto cpu = comm::make_local({torch::kCPU, torch::kCPU, torch::kCPU});
  const auto errors = as_threads(3, [&](int rank) {
    const auto index = static_cast<std::size_t>(rank);
    const c10::impl::VirtualGuardImpl streams(torch::kCUDA);
    const c10::StreamGuard own(streams.getStreamFromGlobalPool(gpu));
    const auto votes = comm::make_votes(cpu[index]->split(0));
    for (const auto& row : comm::selftest(*all[index], *cpu[index], *votes)) {
      EXPECT_EQ(row.problem, "") << row.collective;
    }
    // Work that is still running on the rank's stream when the collective starts.
    auto a = torch::full({2048, 2048}, 1e-3F, gpu);
    for (int i = 0; i < 20; ++i) a = torch::mm(a, a).clamp(0, 1e-3);
    const auto t = torch::full({1 << 20}, static_cast<float>(rank + 1), gpu);
    all[index]->all_reduce(t).wait();
    EXPECT_TRUE(torch::equal(t, torch::full({1 << 20}, 6.0F, gpu)));
  });
  for (const auto& error : errors) EXPECT_FALSE(error) << error->what();
}

TEST(Local, NamesTheRankThatDoesNotCome) {
  auto ranks = comm::make_local({torch::kCPU, torch::kCPU, torch::kCPU},
                                {.timeout = std::chrono::milliseconds(50)});
  auto pending = ranks[0]->all_reduce(torch::ones({1}));
  static_cast<void>(ranks[2]->all_reduce(torch::ones({1})));
  EXPECT_THAT(error_text(Fault::comm, [&] { pending.wait(); }),
              HasSubstr("rank 1 did not take part within 50 ms"));
}

TEST(Local, DifferentCallsAreAnErrorOnEveryRank) {
  const auto all = comm::make_local({torch::kCPU, torch::kCPU});
  const auto errors = as_threads(2, [&](int rank) {
    auto& c = *all[static_cast<std::size_t>(rank)];
    c.all_reduce(torch::ones({rank == 0 ? 3 : 4})).wait();
  });
  for (const auto& error : errors) {
    ASSERT_TRUE(error);
    EXPECT_EQ(error->fault(), Fault::config);
    EXPECT_THAT(error->what(), HasSubstr("rank 0 all_reduce(sum) of Float [3] at"));
    EXPECT_THAT(error->what(), HasSubstr("rank 1 all_reduce(sum) of Float [4] at"));
    EXPECT_THAT(error->what(), HasSubstr("communicator_test.cpp:"));
  }
}

}  // namespace lockstep::test
