// lockstep_worker --selftest: do the ranks find each other, and do they agree?
#include "apps/worker_selftest.h"

#include <cstdio>

#include <fmt/format.h>

#include <torch/torch.h>

#include "lockstep/base/clock.h"
#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/comm/join.h"
#include "lockstep/comm/selftest.h"
#include "lockstep/run/rank_environment.h"
#include "lockstep/train/device.h"

namespace lockstep {
namespace {

torch::Device device_of(const run::RankEnvironment& environment, bool cuda) {
  if (!cuda) return torch::kCPU;
  if (!torch::cuda::is_available()) {
    throw Error(Fault::hardware,
                "selftest: --cuda was requested, but there is no GPU; leave it out");
  }
  const auto gpus = static_cast<int>(torch::cuda::device_count());
  return {torch::kCUDA, static_cast<c10::DeviceIndex>(environment.local_rank % gpus)};
}

// Prints the rows; returns the first problem, or "".
std::string show(const std::vector<comm::SelftestRow>& rows) {
  std::vector<std::vector<std::string>> lines;
  std::string problem;
  for (const auto& row : rows) {
    lines.push_back({row.collective, row.problem.empty() ? "ok" : "FAILED",
                     row.problem.empty() ? str(row.checks, " results") : row.problem});
    if (problem.empty() && !row.problem.empty()) {
      problem = str(row.collective, ": ", row.problem);
    }
  }
  fmt::print("{}", text::table(lines));
  return problem;
}

void summarise(const comm::World& world, std::string_view backend, double seconds) {
  fmt::print("{} {} over {}, joined in {:.0f} ms ({})\n", world.size(),
             world.size() == 1 ? "rank agrees" : "ranks agree", backend, 1e3 * seconds,
             run::describe(world.environment()));
}

}  // namespace

int run_selftest(const SelftestOptions& options, const config::Config& config) {
  torch::set_num_threads(1);  // the tensors are small, and ranks share the cores
  const auto& clock = Clock::system();
  const auto begin = clock.now();
  const auto environment = run::detect(run::process_variables());
  const auto device = device_of(environment, options.cuda);
  train::make_current(device);
  auto world = comm::join(environment, {.config = config.comm, .device = device});
  world.data().barrier();
  const auto joined = seconds_between(begin, clock.now());
  std::vector<comm::SelftestRow> rows;
  bool more = true;
  while (more) {
    rows = comm::selftest(world.data(), world.cpu(), world.votes());
    // Rank 0's clock decides for all.
    const bool in_time = clock.now() - begin < options.repeat;
    world.votes().cast({.flags = world.rank() == 0 && in_time ? comm::kStop : 0});
    more = comm::Votes::any(world.votes().count()) != 0;
  }
  std::string problem;
  if (world.rank() == 0) {
    if (!world.note().empty()) fmt::print("{}\n", world.note());
    problem = show(rows);
    if (problem.empty()) summarise(world, world.data().backend(), joined);
    std::fflush(stdout);
  }
  for (const auto& row : rows) {
    if (!row.problem.empty()) {
      throw Error(Fault::comm, "selftest: ", row.collective, ": ", row.problem);
    }
  }
  world.close();
  return kExitOk;
}

}  // namespace lockstep
