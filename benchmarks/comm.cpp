// What does our layer over c10d cost, and what does a vote?
//
//   bench_comm all_reduce [MIB] [ROUNDS]   two ranks: ours and c10d's own Gloo in turn
//   bench_comm votes [RANKS] [STEPS]       a step of 5 ms, with and without a vote
//
// Prints one JSON line.
#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <vector>

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

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

launcher::RankEnvironment environment(int rank, int ranks, int port) {
  launcher::RankEnvironment env;
  env.rank = env.local_rank = rank;
  env.world_size = env.local_world_size = ranks;
  env.master_address = "127.0.0.1";
  env.master_port = port;
  return env;
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

// Ours and c10d's in turn on the same tensor, over two groups of the same kind.
void all_reduce(int rank, int port, std::int64_t mib, int rounds) {
  torch::set_num_threads(1);
  auto world = comm::join(environment(rank, 2, port), {});
  auto env = environment(rank, 2, port + 1);
  const auto store =
      comm::open_store({.environment = env, .file = ""}, std::chrono::seconds(30));
  const auto raw = comm::make_gloo_group({.store = store, .rank = rank, .size = 2});
  const auto t = torch::ones({mib << 18});
  std::vector<torch::Tensor> tensors{t};
  std::vector<double> ours, theirs, ratios;
  for (int round = 0; round < rounds; ++round) {
    world.data().barrier();
    auto begin = Steady::now();
    world.data().all_reduce(t).wait();
    ours.push_back(seconds_since(begin));
    world.data().barrier();
    begin = Steady::now();
    raw->allreduce(tensors)->wait();
    theirs.push_back(seconds_since(begin));
    t.fill_(1);
    ratios.push_back(ours.back() / theirs.back());
  }
  world.data().barrier();
  if (rank != 0) return;
  fmt::print(
      "{{\"mib\": {}, \"rounds\": {}, \"ours_ms\": {:.3f}, \"c10d_ms\": {:.3f}, "
      "\"ratio_of_medians\": {:.4f}, \"median_of_ratios\": {:.4f}}}\n",
      mib, rounds, 1e3 * median(ours), 1e3 * median(theirs),
      median(ours) / median(theirs), median(ratios));
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
  const bool reduces = argc < 2 || std::strcmp(argv[1], "all_reduce") == 0;
  const int first = argc > 2 ? std::atoi(argv[2]) : reduces ? 24 : 4;
  const int second = argc > 3 ? std::atoi(argv[3]) : reduces ? 100 : 1000;
  const int port = launcher::HeldPort::any().port();
  if (reduces) {
    as_processes(2, [&](int rank) { all_reduce(rank, port, first, second); });
  } else {
    as_processes(first, [&](int rank) { votes(rank, first, port, second); });
  }
}
