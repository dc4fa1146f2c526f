#include "lockstep/probe/all_reduce.h"

#include <algorithm>

#include "lockstep/base/clock.h"
#include "lockstep/base/error.h"

namespace lockstep::probe {
namespace {

using torch::Tensor;

// Returns small whole numbers that differ between ranks and places.
Tensor values_of(int rank, std::int64_t count) {
  return (torch::arange(count, torch::kInt64) % 5 + rank % 3 + 1).to(torch::kFloat32);
}

Tensor sum_of(int ranks, std::int64_t count) {
  auto sum = torch::zeros({count}, torch::kFloat32);
  for (int rank = 0; rank < ranks; ++rank) sum += values_of(rank, count);
  return sum;
}

// Returns the median of the slowest rank's times.
double median_of_slowest(const std::vector<double>& own, comm::Communicator& cpu) {
  auto times = torch::tensor(own, torch::kFloat64);
  cpu.all_reduce(times, comm::Reduce::max).wait();
  return times.median().item<double>();
}

hardware::MeasuredCollective measure_one(comm::World& world, std::int64_t bytes,
                                         int times) {
  auto& data = world.data();
  const auto count = std::max<std::int64_t>(bytes / 4, 1);
  const auto buffer = data.empty_buffer(count, torch::kFloat32);
  buffer.zero_();
  const auto& clock = Clock::system();
  std::vector<double> seconds;
  constexpr int kUncounted = 3;
  for (int i = 0; i < times + kUncounted; ++i) {
    data.barrier();
    finish(data.device());
    const auto begin = clock.now();
    data.all_reduce(buffer).wait();
    finish(data.device());
    if (i >= kUncounted) seconds.push_back(seconds_between(begin, clock.now()));
  }
  return {.backend = std::string(data.backend()),
          .ranks = world.size(),
          .bytes = count * 4,
          .seconds = median_of_slowest(seconds, world.cpu())};
}

}  // namespace

std::string check_all_reduce(comm::World& world) {
  auto& data = world.data();
  for (const std::int64_t count : {1, 37, 65'536, 1 << 20}) {
    const auto tensor = values_of(world.rank(), count).to(data.device());
    data.all_reduce(tensor).wait();
    finish(data.device());
    const auto got = tensor.to(torch::kCPU);
    const auto known = sum_of(world.size(), count);
    if (torch::equal(got, known)) continue;
    return str((got != known).sum().item<std::int64_t>(), " of ", count, " sums over ",
               world.size(), " ranks are wrong on rank ", world.rank(), " (",
               data.backend(), ")");
  }
  return "";
}

std::vector<hardware::MeasuredCollective> measure_all_reduce(
    comm::World& world, const std::vector<std::int64_t>& bytes, const Effort& effort) {
  const auto problem = check_all_reduce(world);
  // The others wait in vain for a rank that leaves, and report it: it is the first.
  if (!problem.empty()) throw Error(Fault::hardware, "measure: ", problem);
  std::vector<hardware::MeasuredCollective> measured;
  for (const auto size : bytes) {
    measured.push_back(measure_one(world, size, effort.collectives));
  }
  return measured;
}

}  // namespace lockstep::probe
