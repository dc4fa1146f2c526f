#include "lockstep/launcher/placement.h"

#include <algorithm>
#include <map>
#include <set>

#include "lockstep/base/error.h"

namespace lockstep::launcher {
namespace {

using hardware::Cpu;

// A physical core: the numbers of its hyper-threads.
struct Core {
  int numa_node = 0;
  std::vector<int> cpus;
};

// Neighbours stand together: by NUMA node, then socket, then number.
std::vector<Core> cores_of(std::vector<Cpu> cpus) {
  std::sort(cpus.begin(), cpus.end(), [](const Cpu& a, const Cpu& b) {
    return std::tie(a.numa_node, a.socket, a.core, a.number) <
           std::tie(b.numa_node, b.socket, b.core, b.number);
  });
  std::vector<Core> cores;
  for (std::size_t i = 0; i < cpus.size(); ++i) {
    if (i == 0 || cpus[i].core != cpus[i - 1].core) {
      cores.push_back({.numa_node = cpus[i].numa_node, .cpus = {}});
    }
    cores.back().cpus.push_back(cpus[i].number);
  }
  return cores;
}

// The cores that some ranks have in common, and their name.
struct Home {
  std::vector<Core> cores;
  std::vector<int> ranks;
  std::string name;
};

std::vector<Core> cores_near(const std::vector<Core>& all,
                             const std::vector<int>& cpus) {
  const std::set<int> near(cpus.begin(), cpus.end());
  std::vector<Core> cores;
  for (const auto& core : all) {
    if (near.contains(core.cpus.front())) cores.push_back(core);
  }
  return cores;
}

// Groups ranks by the side of the machine that their GPUs are on. Empty when that is
// not known for all of them, or when the sides overlap: else some ranks would get less.
std::vector<Home> homes_by_gpu(const std::vector<Core>& all,
                               const PlacementRequest& request) {
  std::map<int, Home> homes;  // by the first CPU
  std::set<int> taken;
  if (static_cast<int>(request.near_gpu.size()) != request.ranks) return {};
  for (int rank = 0; rank < request.ranks; ++rank) {
    auto cores = cores_near(all, request.near_gpu[static_cast<std::size_t>(rank)]);
    if (cores.empty()) return {};
    auto& home = homes[cores.front().cpus.front()];
    home.ranks.push_back(rank);
    if (!home.cores.empty()) {
      if (home.cores.size() != cores.size()) return {};
      continue;
    }
    for (const auto& core : cores) {
      if (!taken.insert(core.cpus.front()).second) return {};
    }
    home.cores = std::move(cores);
    home.name = "near the GPU";
  }
  std::vector<Home> result;
  result.reserve(homes.size());
  for (auto& [first, home] : homes) result.push_back(std::move(home));
  return result;
}

// Puts ranks in blocks over the NUMA nodes: the first ranks on the first node.
std::vector<Home> homes_by_node(const std::vector<Core>& all, int ranks) {
  std::map<int, Home> by_node;
  for (const auto& core : all) {
    auto& home = by_node[core.numa_node];
    home.name = str("of NUMA node ", core.numa_node);
    home.cores.push_back(core);
  }
  std::vector<Home> homes;
  homes.reserve(by_node.size());
  for (auto& [node, home] : by_node) homes.push_back(std::move(home));
  const auto nodes = static_cast<long long>(homes.size());
  for (int rank = 0; rank < ranks; ++rank) {
    homes[static_cast<std::size_t>(rank * nodes / ranks)].ranks.push_back(rank);
  }
  return homes;
}

std::vector<Home> homes_for(const std::vector<Core>& all,
                            const PlacementRequest& request) {
  if (request.binding != Binding::none) {
    auto homes = homes_by_gpu(all, request);
    if (!homes.empty()) return homes;
  }
  if (request.binding == Binding::numa) return homes_by_node(all, request.ranks);
  Home whole{.cores = all, .ranks = {}, .name = "of this machine"};
  for (int rank = 0; rank < request.ranks; ++rank) whole.ranks.push_back(rank);
  return {whole};
}

std::vector<int> cpus_of(const std::vector<Core>& cores) {
  std::vector<int> cpus;
  for (const auto& core : cores) {
    cpus.insert(cpus.end(), core.cpus.begin(), core.cpus.end());
  }
  std::sort(cpus.begin(), cpus.end());
  return cpus;
}

std::string cores_text(std::size_t count) {
  return str(count, count == 1 ? " physical core" : " physical cores");
}

std::string ranks_text(std::size_t count) {
  return count == 1 ? "" : str(" divided among ", count, " ranks");
}

// Returns the `index`th of `parts` shares of the cores, neighbours together; with more
// parts than cores, one core that others have, too.
std::vector<Core> share(const std::vector<Core>& cores, std::size_t index,
                        std::size_t parts) {
  const auto begin = index * cores.size() / parts;
  const auto end = std::max(begin + 1, (index + 1) * cores.size() / parts);
  return {cores.begin() + static_cast<std::ptrdiff_t>(begin),
          cores.begin() + static_cast<std::ptrdiff_t>(end)};
}

RankPlacement place_in(const Home& home, std::size_t index, Binding binding) {
  const auto own = share(home.cores, index, home.ranks.size());
  const bool shared = home.ranks.size() > home.cores.size();
  RankPlacement place;
  if (binding == Binding::cores) place.cpus = cpus_of(own);
  if (binding == Binding::numa) place.cpus = cpus_of(home.cores);
  // Without its own share every rank gets an equal number: the slowest counts.
  const auto threads =
      binding == Binding::cores ? own.size() : home.cores.size() / home.ranks.size();
  place.threads = std::max(1, static_cast<int>(threads));
  place.because =
      str(cores_text(home.cores.size()), " ", home.name, ranks_text(home.ranks.size()),
          shared ? ": there are fewer cores than ranks" : "");
  return place;
}

void apply_limits(const hardware::CpuTopology& topology,
                  const PlacementRequest& request, RankPlacement& place) {
  if (request.omp_num_threads) {
    place.threads = *request.omp_num_threads;
    place.because = "OMP_NUM_THREADS of the environment";
    return;
  }
  if (!topology.quota) return;
  const int most = std::max(1, *topology.quota / request.ranks);
  if (place.threads <= most) return;
  place.threads = most;
  place.because =
      str("the cgroup grants ", cores_text(static_cast<std::size_t>(*topology.quota)),
          ranks_text(static_cast<std::size_t>(request.ranks)));
}

}  // namespace

std::string_view name_of(Binding binding) noexcept {
  switch (binding) {
    case Binding::numa:
      return "numa";
    case Binding::cores:
      return "cores";
    case Binding::none:
      break;
  }
  return "none";
}

std::optional<Binding> binding_of(std::string_view name) noexcept {
  for (const auto binding : {Binding::none, Binding::numa, Binding::cores}) {
    if (name == name_of(binding)) return binding;
  }
  return std::nullopt;
}

std::vector<RankPlacement> place_ranks(const hardware::CpuTopology& topology,
                                       const PlacementRequest& request) {
  LOCKSTEP_CHECK(request.ranks >= 1, request.ranks);
  std::vector<RankPlacement> places(static_cast<std::size_t>(request.ranks));
  const auto all = cores_of(topology.cpus);
  if (all.empty()) {
    for (auto& place : places) {
      place.because = "the CPUs of this machine are not known";
      apply_limits(topology, request, place);
    }
    return places;
  }
  for (const auto& home : homes_for(all, request)) {
    for (std::size_t i = 0; i < home.ranks.size(); ++i) {
      auto& place = places[static_cast<std::size_t>(home.ranks[i])];
      place = place_in(home, i, request.binding);
      apply_limits(topology, request, place);
    }
  }
  return places;
}

}  // namespace lockstep::launcher
