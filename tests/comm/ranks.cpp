// Included by the tests' one translation unit.
#include "tests/comm/ranks.h"

#include <thread>

#include <pthread.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include "lockstep/comm/gloo.h"
#include "lockstep/comm/local.h"
#include "lockstep/comm/nccl.h"
#include "lockstep/comm/shm.h"
#include "lockstep/comm/store.h"
#include "lockstep/launcher/port.h"

namespace lockstep::test {

RankErrors as_threads(int ranks, const std::function<void(int rank)>& body) {
  RankErrors errors(static_cast<std::size_t>(ranks));
  // MKL's vector functions choose their code in the first call, and when threads make
  // it at once one may get a less exact one (train/device.h).
  torch::full({64}, 0.5).tanh();
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      errors[static_cast<std::size_t>(rank)] = error_of([&] { body(rank); });
    });
  }
  for (auto& thread : threads) thread.join();
  return errors;
}

namespace {

[[noreturn]] void be_rank(int rank, const std::function<void(int)>& body) {
  int status = 0;
  try {
    body(rank);
    if (::testing::Test::HasFailure()) status = 99;
  } catch (const std::exception& error) {
    std::cerr << "rank " << rank << ": " << error.what() << std::endl;
    status = 98;
  }
  ::_exit(status);
}

}  // namespace

std::vector<process::End> as_processes(int ranks,
                                       const std::function<void(int rank)>& body) {
  std::vector<pid_t> pids;
  for (int rank = 0; rank < ranks; ++rank) {
    const pid_t pid = ::fork();
    if (pid == 0) be_rank(rank, body);
    pids.push_back(pid);
  }
  std::vector<process::End> ends;
  for (const pid_t pid : pids) {
    int status = 0;
    ::waitpid(pid, &status, 0);
    process::End end;
    if (WIFSIGNALED(status)) end.signal = WTERMSIG(status);
    if (WIFEXITED(status)) end.exit_status = WEXITSTATUS(status);
    EXPECT_NE(end.exit_status, 98) << "rank " << ends.size() << " threw";
    EXPECT_NE(end.exit_status, 99) << "rank " << ends.size() << " failed";
    ends.push_back(end);
  }
  return ends;
}

int free_port() {
  return launcher::HeldPort::any().port();
}

run::RankEnvironment environment_of(int rank, int ranks, int port) {
  run::RankEnvironment env;
  env.by = run::StartedBy::lockstep;
  env.rank = env.local_rank = rank;
  env.world_size = env.local_world_size = ranks;
  env.master_address = "127.0.0.1";
  env.master_port = port;
  env.token = "a token";
  return env;
}

std::string name_of(Rig rig) {
  constexpr std::array<const char*, 6> kNames = {"Local",         "GlooThreads",
                                                 "GlooProcesses", "ShmProcesses",
                                                 "NcclProcesses", "LocalGpu"};
  return kNames[static_cast<std::size_t>(rig)];
}

bool needs_gpu(Rig rig) {
  return rig == Rig::nccl_processes || rig == Rig::local_gpu;
}

namespace {

void expect_no_errors(const RankErrors& errors) {
  for (const auto& error : errors) {
    if (error) ADD_FAILURE() << error->what();
  }
}

std::vector<std::unique_ptr<comm::Communicator>> local_ranks(
    int ranks, const torch::Device& device, std::chrono::milliseconds timeout) {
  return comm::make_local(
      std::vector<torch::Device>(static_cast<std::size_t>(ranks), device),
      {.timeout = timeout});
}

void with_local(int ranks, const torch::Device& device, const PairBody& body,
                std::chrono::milliseconds timeout) {
  const auto all = local_ranks(ranks, device, timeout);
  const auto hosts = local_ranks(ranks, torch::kCPU, timeout);
  expect_no_errors(as_threads(ranks, [&](int rank) {
    const auto index = static_cast<std::size_t>(rank);
    body(*all[index], device.is_cpu() ? *all[index] : *hosts[index]);
  }));
}

void with_gloo_threads(int ranks, const PairBody& body,
                       std::chrono::milliseconds timeout) {
  // c10d's flight recorder is the process's, and not made for several ranks in it.
  ::setenv("TORCH_FR_BUFFER_SIZE", "0", 1);
  const auto store = c10::make_intrusive<c10d::HashStore>();
  expect_no_errors(as_threads(ranks, [&](int rank) {
    const auto communicator = comm::make_gloo(
        {.store = store, .rank = rank, .size = ranks, .timeout = timeout});
    body(*communicator, *communicator);
  }));
}

// Gloo between processes, and NCCL on top of it where that is asked for.
void with_store(Rig rig, int ranks, const PairBody& body,
                std::chrono::milliseconds timeout) {
  const int port = free_port();
  as_processes(ranks, [&](int rank) {
    const auto store = comm::open_store(
        {.environment = environment_of(rank, ranks, port), .file = ""}, timeout);
    const auto gloo = comm::make_gloo(
        {.store = store, .rank = rank, .size = ranks, .timeout = timeout});
    std::unique_ptr<comm::Communicator> nccl;
    if (rig == Rig::nccl_processes) {
      // Ranks of one GPU pass for ranks of different machines.
      ::setenv("NCCL_HOSTID", std::to_string(rank).c_str(), 1);
      nccl = comm::make_nccl(
          {.store = c10::make_intrusive<c10d::PrefixStore>("nccl", store),
           .rank = rank,
           .size = ranks,
           .device = torch::Device(torch::kCUDA, 0),
           .timeout = timeout});
    }
    body(nccl ? *nccl : *gloo, *gloo);
    // Rank 0 hosts the store, which the others need until they have joined.
    gloo->barrier();
  });
}

}  // namespace

struct MeetingPoint::Page {
  pthread_barrier_t barrier;
  char text[256];
};

MeetingPoint::MeetingPoint(int ranks) {
  void* memory = ::mmap(nullptr, sizeof(Page), PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  page_ = static_cast<Page*>(memory);
  pthread_barrierattr_t shared;
  ::pthread_barrierattr_init(&shared);
  ::pthread_barrierattr_setpshared(&shared, PTHREAD_PROCESS_SHARED);
  ::pthread_barrier_init(&page_->barrier, &shared, static_cast<unsigned>(ranks));
}

MeetingPoint::~MeetingPoint() {
  ::munmap(page_, sizeof(Page));
}

comm::Tell MeetingPoint::tell(int rank) const {
  return [this, rank](const std::string& text) {
    if (rank == 0) std::snprintf(page_->text, sizeof page_->text, "%s", text.c_str());
    ::pthread_barrier_wait(&page_->barrier);
    std::string told = page_->text;
    ::pthread_barrier_wait(&page_->barrier);
    return told;
  };
}

std::unique_ptr<comm::Communicator> MeetingPoint::shm(
    int rank, int ranks, std::chrono::milliseconds timeout) const {
  return comm::make_shm({.rank = rank, .size = ranks, .timeout = timeout}, tell(rank));
}

void with_communicators(Rig rig, int ranks,
                        const std::function<void(comm::Communicator&)>& body,
                        std::chrono::milliseconds timeout) {
  with_pairs(
      rig, ranks, [&](comm::Communicator& c, comm::Communicator&) { body(c); },
      timeout);
}

void with_pairs(Rig rig, int ranks, const PairBody& body,
                std::chrono::milliseconds timeout) {
  switch (rig) {
    case Rig::local:
      return with_local(ranks, torch::kCPU, body, timeout);
    case Rig::local_gpu:
      return with_local(ranks, torch::Device(torch::kCUDA, 0), body, timeout);
    case Rig::gloo_threads:
      return with_gloo_threads(ranks, body, timeout);
    case Rig::gloo_processes:
    case Rig::nccl_processes:
      return with_store(rig, ranks, body, timeout);
    case Rig::shm_processes:
      break;
  }
  const MeetingPoint point(ranks);
  as_processes(ranks, [&](int rank) {
    const auto shm = point.shm(rank, ranks, timeout);
    body(*shm, *shm);
  });
}

}  // namespace lockstep::test
