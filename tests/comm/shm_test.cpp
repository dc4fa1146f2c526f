// What memory shared between processes promises beyond the contract.
#include "lockstep/comm/shm.h"

#include <fstream>

#include "lockstep/comm/join.h"
#include "tests/comm/ranks.h"

namespace lockstep::test {

using comm::Communicator;
using comm::Reduce;
using ::testing::HasSubstr;

namespace {

void on_shm(int ranks, const std::function<void(Communicator&)>& body) {
  with_communicators(Rig::shm_processes, ranks, body);
}

torch::Tensor value_of(int rank, std::int64_t n, torch::Dtype type) {
  torch::manual_seed(100 + rank);
  return (torch::randn({n}) * 50).to(type);
}

// As `local` does it: in the order of the ranks, halves in float and rounded once.
torch::Tensor expected(int ranks, std::int64_t n, torch::Dtype type, Reduce op) {
  const bool half = type == torch::kHalf || type == torch::kBFloat16;
  const auto wide = half ? torch::kFloat32 : type;
  auto sum = value_of(0, n, type).to(wide);
  for (int r = 1; r < ranks; ++r) {
    const auto part = value_of(r, n, type).to(wide);
    if (op == Reduce::max) {
      sum = torch::maximum(sum, part);
    } else if (op == Reduce::min) {
      sum = torch::minimum(sum, part);
    } else {
      sum = sum + part;
    }
  }
  if (op == Reduce::mean) sum = sum / ranks;
  return sum.to(type);
}

constexpr std::int64_t kSeveralChunks = (3 << 18) + 12345;  // of 1 MiB, in floats

// The voluntary switches of this process's thread of that name: how often it slept.
long sleeps_of_thread(const std::string& name) {
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::string line;
    std::getline(std::ifstream(task.path() / "comm"), line);
    if (line != name) continue;
    std::ifstream status(task.path() / "status");
    while (std::getline(status, line)) {
      if (line.find("voluntary_ctxt_switches:") == 0) {
        return std::stol(line.substr(line.find(':') + 1));
      }
    }
  }
  return -1;
}

}  // namespace

class ShmRanks : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Shm, ShmRanks, ::testing::Values(1, 2, 3, 4));

TEST_P(ShmRanks, SumInTheirOrderWhateverTheLengthAndThePlace) {
  on_shm(GetParam(), [](Communicator& c) {
    for (const auto type : {torch::kFloat32, torch::kBFloat16, torch::kHalf,
                            torch::kFloat64, torch::kInt64, torch::kUInt8}) {
      for (const auto op : {Reduce::sum, Reduce::mean, Reduce::max, Reduce::min}) {
        if (op == Reduce::mean && c10::isIntegralType(type, true)) continue;
        for (const std::int64_t n : {1L, 999L, 20'011L, kSeveralChunks}) {
          if (n == kSeveralChunks && op != Reduce::sum) continue;
          const auto wanted = expected(c.size(), n, type, op);
          const auto t = value_of(c.rank(), n, type);
          c.all_reduce(t, op).wait();
          EXPECT_TRUE(torch::equal(t, wanted)) << type << " " << n;
          const auto shared = c.empty_buffer(n, type);
          shared.copy_(value_of(c.rank(), n, type));
          c.all_reduce(shared, op).wait();
          EXPECT_TRUE(torch::equal(shared, wanted)) << type << " shared " << n;
        }
      }
    }
  });
}

TEST_P(ShmRanks, ReduceScatterHasTheBitsOfAllReduce) {
  on_shm(GetParam(), [](Communicator& c) {
    for (const std::int64_t n : {1L, 777L, kSeveralChunks}) {
      const auto whole = expected(c.size(), n * c.size(), torch::kFloat32, Reduce::sum);
      const auto in = value_of(c.rank(), n * c.size(), torch::kFloat32);
      const auto out = torch::empty({n});
      c.reduce_scatter(out, in).wait();
      EXPECT_TRUE(torch::equal(out, whole.narrow(0, n * c.rank(), n))) << n;
      // Into its own slice of the input.
      c.reduce_scatter(in.narrow(0, n * c.rank(), n), in).wait();
      EXPECT_TRUE(torch::equal(in.narrow(0, n * c.rank(), n), out)) << n;
    }
  });
}

// In a buffer that all ranks see, blocks of several slices and slices of several
// blocks.
TEST_P(ShmRanks, SlicesOfASharedBufferAreReducedAndGatheredWhereTheyAre) {
  on_shm(GetParam(), [](Communicator& c) {
    for (const auto type : {torch::kFloat32, torch::kBFloat16}) {
      for (const std::int64_t n : {1L, 777L, kSeveralChunks}) {
        const auto whole = expected(c.size(), n * c.size(), type, Reduce::sum);
        const auto buffer = c.empty_buffer(n * c.size() + 32, type);
        const auto in = buffer.narrow(0, 32, n * c.size());
        in.copy_(value_of(c.rank(), n * c.size(), type));
        const auto own = in.narrow(0, n * c.rank(), n);
        c.reduce_scatter(own, in).wait();
        EXPECT_TRUE(torch::equal(own, whole.narrow(0, n * c.rank(), n))) << n;
        c.barrier();
        c.all_gather(in, own).wait();
        EXPECT_TRUE(torch::equal(in, whole)) << n;
        c.barrier();
      }
    }
  });
}

TEST_P(ShmRanks, LargeTensorsPassThroughSmallChunks) {
  on_shm(GetParam(), [](Communicator& c) {
    const auto own = value_of(c.rank(), kSeveralChunks, torch::kFloat32);
    const auto all = torch::empty({kSeveralChunks * c.size()});
    all.narrow(0, kSeveralChunks * c.rank(), kSeveralChunks).copy_(own);
    c.all_gather(all, all.narrow(0, kSeveralChunks * c.rank(), kSeveralChunks)).wait();
    std::vector<torch::Tensor> uneven;
    std::vector<std::int64_t> lengths;
    for (int r = 0; r < c.size(); ++r) {
      const auto theirs = value_of(r, kSeveralChunks, torch::kFloat32);
      EXPECT_TRUE(
          torch::equal(all.narrow(0, kSeveralChunks * r, kSeveralChunks), theirs));
      lengths.push_back(r == 1 ? 0 : kSeveralChunks / (r + 1));
      uneven.push_back(torch::empty({lengths.back()}));
    }
    const auto rank = static_cast<std::size_t>(c.rank());
    c.all_gather(uneven, own.narrow(0, 0, lengths[rank])).wait();
    for (int r = 0; r < c.size(); ++r) {
      const auto index = static_cast<std::size_t>(r);
      const auto theirs = value_of(r, kSeveralChunks, torch::kFloat32);
      EXPECT_TRUE(torch::equal(uneven[index], theirs.narrow(0, 0, lengths[index])));
    }
    const auto t = own.clone();
    c.broadcast(t, c.size() - 1).wait();
    EXPECT_TRUE(
        torch::equal(t, value_of(c.size() - 1, kSeveralChunks, torch::kFloat32)));
  });
}

// Rank s has r + s * 100'000 rows for rank r; rank 0 has none for itself.
TEST_P(ShmRanks, UnevenPartsOfManyChunksAreExchanged) {
  on_shm(GetParam(), [](Communicator& c) {
    const auto rows = [](int from, int to) -> std::int64_t {
      return to + from * 100'000;
    };
    std::vector<std::int64_t> in_splits, out_splits;
    std::vector<torch::Tensor> parts, wanted;
    for (int r = 0; r < c.size(); ++r) {
      in_splits.push_back(rows(c.rank(), r));
      out_splits.push_back(rows(r, c.rank()));
      parts.push_back(torch::full({in_splits.back(), 3}, c.rank() * 10 + r));
      wanted.push_back(torch::full({out_splits.back(), 3}, r * 10 + c.rank()));
    }
    const auto in = torch::cat(parts).to(torch::kInt32).contiguous();
    const auto expected_out = torch::cat(wanted).to(torch::kInt32);
    const auto out = torch::empty_like(expected_out);
    c.all_to_all(out, in, out_splits, in_splits).wait();
    EXPECT_TRUE(torch::equal(out, expected_out));
  });
}

TEST_P(ShmRanks, MoreCollectivesAtOnceThanThereArePlaces) {
  on_shm(GetParam(), [](Communicator& c) {
    std::vector<torch::Tensor> tensors;
    std::vector<comm::Pending> pending;
    const auto shared = c.empty_buffer(200 * 1000, torch::kFloat32);
    shared.fill_(1);
    for (int i = 0; i < 200; ++i) {
      const bool in_buffer = i % 3 == 0;
      tensors.push_back(in_buffer ? shared.narrow(0, i * 1000, 1000)
                                  : torch::ones({i % 7 == 0 ? 300'000 : i + 1}));
      pending.push_back(c.all_reduce(tensors.back()));
    }
    for (auto& one : pending) one.wait();
    for (const auto& t : tensors) {
      EXPECT_TRUE(torch::equal(t, torch::full_like(t, c.size())));
    }
  });
}

TEST_P(ShmRanks, MessagesOfAnySizePassAroundTheRing) {
  if (GetParam() == 1) return;
  on_shm(GetParam(), [](Communicator& c) {
    const int next = (c.rank() + 1) % c.size();
    const int before = (c.rank() + c.size() - 1) % c.size();
    const auto big = value_of(c.rank(), kSeveralChunks, torch::kFloat32);
    const auto small = torch::full({3}, static_cast<float>(c.rank()));
    auto first = c.send(big, next, 1);
    auto second = c.send(small, next, 2);
    auto nothing = c.send(torch::empty({0}), next, 3);
    // The later one is asked for first.
    const auto got_small = torch::empty({3});
    c.recv(got_small, before, 2).wait();
    EXPECT_TRUE(torch::equal(got_small, torch::full({3}, static_cast<float>(before))));
    const auto got_big = torch::empty({kSeveralChunks});
    c.recv(torch::empty({0}), before, 3).wait();
    c.recv(got_big, before, 1).wait();
    EXPECT_TRUE(
        torch::equal(got_big, value_of(before, kSeveralChunks, torch::kFloat32)));
    first.wait();
    second.wait();
    nothing.wait();
  });
}

TEST(Shm, BuffersAreReducedWhereTheyAreOrThroughChunksWhenOneIsNot) {
  on_shm(3, [](Communicator& c) {
    const auto buffer = c.empty_buffer(1 << 20, torch::kFloat32);
    const auto part = buffer.narrow(0, 1001, 700'000).view({7, 100'000});
    buffer.fill_(c.rank() + 1);
    c.all_reduce(part).wait();
    EXPECT_TRUE(torch::equal(part, torch::full_like(part, 6)));
    EXPECT_EQ(buffer[1000].item<int>(), c.rank() + 1);
    // A place that differs between ranks, and a rank without a buffer.
    const auto elsewhere = c.rank() == 2 ? torch::full({5000}, 3.0F)
                                         : buffer.narrow(0, 8 * c.rank(), 5000);
    elsewhere.fill_(1);
    c.all_reduce(elsewhere).wait();
    EXPECT_TRUE(torch::equal(elsewhere, torch::full_like(elsewhere, 3)));
  });
}

TEST(Shm, ABufferOutlivesItsCommunicator) {
  const MeetingPoint point(2);
  as_processes(2, [&](int rank) {
    auto c = point.shm(rank, 2);
    const auto buffer = c->empty_buffer(100'000, torch::kFloat32);
    buffer.fill_(1);
    c->all_reduce(buffer).wait();
    c.reset();
    buffer.add_(1);
    EXPECT_TRUE(torch::equal(buffer, torch::full_like(buffer, 3)));
  });
}

TEST(Shm, CarriesOnWhileTheCallerComputes) {
  on_shm(2, [](Communicator& c) {
    const auto t = c.empty_buffer(1 << 20, torch::kFloat32);
    t.fill_(1);
    c.barrier();
    auto pending = c.all_reduce(t);
    // The caller is busy with something else; nobody calls done() or wait().
    const auto begin = std::chrono::steady_clock::now();
    while (t[5].item<float>() != 2.0F) {
      ASSERT_LT(std::chrono::steady_clock::now() - begin, kPatience);
    }
    pending.wait();
    EXPECT_TRUE(torch::equal(t, torch::full_like(t, 2)));
  });
}

TEST(Shm, TheThreadSleepsWhenThereIsNothingToDo) {
  on_shm(2, [](Communicator& c) {
    c.all_reduce(torch::ones({1 << 20})).wait();
    c.barrier();
    // One that looks for work now and then never comes to rest, one that a busy machine
    // has kept from its sleep does.
    const auto begin = std::chrono::steady_clock::now();
    long before = -1;
    while (sleeps_of_thread("lockstep_shm") != before) {
      ASSERT_LT(std::chrono::steady_clock::now() - begin, kPatience);
      before = sleeps_of_thread("lockstep_shm");
      ASSERT_GE(before, 0);
      std::this_thread::sleep_for(std::chrono::milliseconds(300));
    }
    c.barrier();
  });
}

TEST(Shm, WhatIsCompleteIsNotLostWhenAPeerLeaves) {
  for (int i = 0; i < 20; ++i) {
    on_shm(3, [](Communicator& c) {
      const auto t = torch::ones({100'000});
      c.all_reduce(t).wait();
      EXPECT_EQ(t[7].item<float>(), 3.0F);
    });
  }
}

TEST(Shm, DifferentCallsAreAnErrorOnEveryRank) {
  on_shm(3, [](Communicator& c) {
    c.barrier();
    const auto text = error_text(Fault::config, [&] {
      c.all_reduce(torch::ones({c.rank() == 1 ? 1 << 20 : 70'000})).wait();
    });
    EXPECT_THAT(text, HasSubstr("rank 0 all_reduce(sum) of Float with 70000 elements"));
    EXPECT_THAT(text, HasSubstr("rank 1 all_reduce(sum) of Float with 1048576"));
    EXPECT_THAT(text, HasSubstr("shm_test.cpp:"));
  });
}

TEST(Shm, AMessageOfAnotherSizeIsAnError) {
  on_shm(2, [](Communicator& c) {
    if (c.rank() == 0) {
      c.send(torch::ones({5}), 1).wait();
    } else {
      EXPECT_THAT(error_text(Fault::comm, [&] { c.recv(torch::empty({4}), 0).wait(); }),
                  HasSubstr("rank 0 sent 20 bytes, and 16 were expected"));
    }
    c.barrier();  // it is still usable
  });
}

TEST(Shm, IsWhatCpuRanksOfOneMachineJoinOver) {
  const int port = free_port();
  as_processes(2, [&](int rank) {
    auto world = comm::join(environment_of(rank, 2, port), {});
    EXPECT_EQ(world.data().backend(), "shm");
    EXPECT_EQ(world.note(), "");
    const auto t = torch::ones({3});
    world.data().all_reduce(t).wait();
    EXPECT_TRUE(torch::equal(t, torch::full({3}, 2.0F)));
    world.close();
  });
}

TEST(Shm, GlooIsTakenWhenItIsAskedFor) {
  const int port = free_port();
  as_processes(2, [&](int rank) {
    auto world = comm::join(environment_of(rank, 2, port),
                            {.config = {.backend = config::CommBackend::gloo}});
    EXPECT_EQ(world.data().backend(), "gloo");
    world.data().barrier();
    world.close();
  });
}

TEST(Shm, NobodyHasItWhenOneRankCanNotMapIt) {
  const MeetingPoint point(2);
  as_processes(2, [&](int rank) {
    // Rank 1 is told a path that leads nowhere.
    const auto tell = [&, real = point.tell(rank)](const std::string& text) {
      const auto told = real(text);
      return rank == 1 && !told.empty() ? std::string("/proc/1/fd/99999") : told;
    };
    const auto text =
        error_text(Fault::io, [&] { comm::make_shm({.rank = rank, .size = 2}, tell); });
    EXPECT_THAT(text, HasSubstr(rank == 1 ? "cannot open" : "rank 1 cannot map"));
  });
}

}  // namespace lockstep::test
