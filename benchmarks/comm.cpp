// What does our layer over c10d cost, how fast is shared memory, and what does a vote
// cost?
//
//   bench_comm all_reduce [MIB] [ROUNDS]   two ranks: ours over Gloo, c10d's own Gloo,
//                                          and shared memory, in turn
//   bench_comm overlap [MIB] [STEPS]       two ranks that compute while they reduce
//   bench_comm votes [RANKS] [STEPS]       a step of 5 ms, with and without a vote
//
// Prints one JSON line.
#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "benchmarks/support.h"
#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <torch/torch.h>

#include "lockstep/comm/gloo.h"
#include "lockstep/comm/join.h"
#include "lockstep/comm/store.h"
#include "lockstep/launcher/port.h"

using namespace lockstep;  // NOLINT: a program of one file

namespace {

using Steady = std::chrono::steady_clock;

double seconds_since(Steady::time_point begin) {
  return std::chrono::duration<double>(Steady::now() - begin).count();
}

void as_processes(int ranks, const std::function<void(int)>& body) {
  for (int rank = 1; rank < ranks; ++rank) {
    if (::fork() != 0) continue;
    body(rank);
    std::fflush(nullptr);
    ::_exit(0);
  }
  body(0);
  while (::wait(nullptr) > 0) {
  }
}

comm::World join_over(int rank, int port, config::CommBackend backend) {
  return comm::join(environment(rank, 2, port), {.config = {.backend = backend}});
}

double seconds_of(comm::Communicator& meets, const std::function<void()>& body) {
  meets.barrier();
  const auto begin = Steady::now();
  body();
  return seconds_since(begin);
}

// Everything in turn, so that a busy machine slows all of them down.
void all_reduce(int rank, int port, std::int64_t mib, int rounds) {
  torch::set_num_threads(1);
  auto gloo = join_over(rank, port, config::CommBackend::gloo);
  auto shm = join_over(rank, port + 1, config::CommBackend::shm);
  const auto store =
      comm::open_store({.environment = environment(rank, 2, port + 2), .file = ""},
                       std::chrono::milliseconds(30'000));
  const auto raw = comm::make_gloo_group({.store = store, .rank = rank, .size = 2});
  const auto t = torch::ones({mib << 18}), copy = torch::ones({mib << 18});
  const auto buffer = shm.data().empty_buffer(mib << 18, torch::kFloat32);
  std::vector<torch::Tensor> tensors{t};
  std::vector<double> ours, theirs, in_place, through, copied;
  for (int round = 0; round < rounds; ++round) {
    t.fill_(1);
    buffer.fill_(1);
    auto& meets = shm.data();
    ours.push_back(seconds_of(meets, [&] { gloo.data().all_reduce(t).wait(); }));
    theirs.push_back(seconds_of(meets, [&] { raw->allreduce(tensors)->wait(); }));
    through.push_back(seconds_of(meets, [&] { shm.data().all_reduce(t).wait(); }));
    in_place.push_back(
        seconds_of(meets, [&] { shm.data().all_reduce(buffer).wait(); }));
    copied.push_back(seconds_of(
        meets, [&] { std::memcpy(copy.data_ptr(), t.data_ptr(), t.nbytes()); }));
  }
  shm.data().barrier();
  if (rank != 0) return;
  const auto c10d = median(theirs);
  fmt::print(
      "{{\"mib\": {}, \"rounds\": {}, \"c10d_ms\": {:.3f}, \"gloo_ms\": {:.3f}, "
      "\"shm_private_ms\": {:.3f}, \"shm_buffer_ms\": {:.3f}, \"memcpy_ms\": {:.3f}, "
      "\"gloo_to_c10d\": {:.4f}, \"c10d_to_shm_private\": {:.2f}, "
      "\"c10d_to_shm_buffer\": {:.2f}}}\n",
      mib, rounds, 1e3 * c10d, 1e3 * median(ours), 1e3 * median(through),
      1e3 * median(in_place), 1e3 * median(copied), median(ours) / c10d,
      c10d / median(through), c10d / median(in_place));
}

// Something to compute for about 5 ms of a core.
void compute(const torch::Tensor& a, const torch::Tensor& b, int times) {
  for (int i = 0; i < times; ++i) torch::mm(a, b);
}

int times_for_5_ms(const torch::Tensor& a, const torch::Tensor& b) {
  compute(a, b, 50);
  const auto begin = Steady::now();
  compute(a, b, 200);
  return std::max(1, static_cast<int>(5e-3 / (seconds_since(begin) / 200)));
}

// As backward does it: a part of the computation, then a part of the gradients starts.
double overlapped_step(comm::Communicator& c, const std::vector<torch::Tensor>& buckets,
                       const std::function<void()>& compute_part) {
  c.barrier();
  const auto begin = Steady::now();
  std::vector<comm::Pending> pending;
  for (const auto& bucket : buckets) {
    compute_part();
    pending.push_back(c.all_reduce(bucket));
  }
  for (auto& one : pending) one.wait();
  return seconds_since(begin);
}

// Four buckets, 10 ms of a core before each: over Gloo, and over shared memory from
// private and from shared tensors.
void overlap(int rank, int port, std::int64_t mib, int steps) {
  torch::set_num_threads(1);
  const auto a = torch::randn({64, 64}), b = torch::randn({64, 64});
  const int times = 2 * times_for_5_ms(a, b);
  auto gloo = join_over(rank, port, config::CommBackend::gloo);
  auto shm = join_over(rank, port + 1, config::CommBackend::shm);
  std::vector<torch::Tensor> own, shared;
  for (int i = 0; i < 4; ++i) {
    own.push_back(torch::ones({mib << 16}));
    shared.push_back(shm.data().empty_buffer(mib << 16, torch::kFloat32).fill_(1));
  }
  const auto part = [&] { compute(a, b, times); };
  std::vector<double> alone, over_gloo, through, in_place;
  for (int step = 0; step < steps; ++step) {
    alone.push_back(seconds_of(shm.data(), [&] {
      for (int i = 0; i < 4; ++i) part();
    }));
    over_gloo.push_back(overlapped_step(gloo.data(), own, part));
    through.push_back(overlapped_step(shm.data(), own, part));
    in_place.push_back(overlapped_step(shm.data(), shared, part));
    for (const auto& t : own) t.fill_(1);
    for (const auto& t : shared) t.fill_(1);
  }
  shm.data().barrier();
  if (rank != 0) return;
  fmt::print(
      "{{\"mib\": {}, \"steps\": {}, \"compute_ms\": {:.3f}, \"gloo_ms\": {:.3f}, "
      "\"shm_private_ms\": {:.3f}, \"shm_buffer_ms\": {:.3f}}}\n",
      mib, steps, 1e3 * median(alone), 1e3 * median(over_gloo), 1e3 * median(through),
      1e3 * median(in_place));
}

// A step: compute, cast, exchange gradients, count; the time inside cast() and count()
// is what the vote costs the step.
void votes(int rank, int ranks, int port, int steps) {
  torch::set_num_threads(1);
  const auto a = torch::randn({64, 64}), b = torch::randn({64, 64});
  const int times = times_for_5_ms(a, b);
  auto world = comm::join(environment(rank, ranks, port), {});
  const auto gradients = torch::ones({1 << 14});
  std::vector<double> step_times, vote_times;
  for (int step = 0; step < steps; ++step) {
    const auto begin = Steady::now();
    compute(a, b, times);
    const auto cast_begin = Steady::now();
    world.votes().cast({.flags = 0, .value = step});
    double vote = seconds_since(cast_begin);
    world.data().all_reduce(gradients).wait();
    gradients.fill_(1);
    const auto count_begin = Steady::now();
    static_cast<void>(world.votes().count());
    vote += seconds_since(count_begin);
    vote_times.push_back(vote);
    step_times.push_back(seconds_since(begin));
  }
  world.close();
  if (rank != 0) return;
  double sum = 0;
  for (const double one : vote_times) sum += one;
  fmt::print(
      "{{\"ranks\": {}, \"steps\": {}, \"step_ms\": {:.3f}, \"vote_us\": {:.2f}, "
      "\"vote_mean_us\": {:.2f}, \"share_of_5_ms\": {:.5f}}}\n",
      ranks, steps, 1e3 * median(step_times), 1e6 * median(vote_times),
      1e6 * sum / steps, sum / steps / 5e-3);
}

}  // namespace

int main(int argc, char** argv) {
  const std::string what = argc < 2 ? "all_reduce" : argv[1];
  const bool votes_are_asked_for = what == "votes";
  const int first = argc > 2 ? std::atoi(argv[2]) : votes_are_asked_for ? 4 : 24;
  const int second = argc > 3 ? std::atoi(argv[3]) : votes_are_asked_for ? 1000 : 100;
  const int port = launcher::HeldPort::any().port();
  if (votes_are_asked_for) {
    as_processes(first, [&](int rank) { votes(rank, first, port, second); });
  } else {
    const auto program = what == "overlap" ? overlap : all_reduce;
    as_processes(2, [&](int rank) { program(rank, port, first, second); });
  }
}
