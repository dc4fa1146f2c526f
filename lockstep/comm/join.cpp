#include "lockstep/comm/join.h"

#include <algorithm>
#include <functional>
#include <random>
#include <thread>

#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/files.h"
#include "lockstep/base/log.h"
#include "lockstep/comm/checked.h"
#include "lockstep/comm/detail/backends.h"
#include "lockstep/comm/detail/c10d.h"
#include "lockstep/comm/detail/first_text.h"
#include "lockstep/comm/gloo.h"
#include "lockstep/comm/local.h"
#include "lockstep/comm/modelled.h"
#include "lockstep/comm/rendezvous.h"
#include "lockstep/comm/staged.h"
#include "lockstep/comm/store.h"
#include "lockstep/run/host.h"

namespace lockstep::comm {
namespace {

using run::RankEnvironment;

std::string numeric(const sockaddr* address, socklen_t length) {
  char host[NI_MAXHOST] = "";
  const int error =
      ::getnameinfo(address, length, host, sizeof host, nullptr, 0, NI_NUMERICHOST);
  return error == 0 ? host : "";
}

// Returns the address of this machine from which the master is reached.
std::string address_towards(const std::string& master, int port) {
  addrinfo wanted{};
  wanted.ai_socktype = SOCK_DGRAM;  // connecting one sends nothing
  addrinfo* found = nullptr;
  if (::getaddrinfo(master.c_str(), std::to_string(port).c_str(), &wanted, &found) !=
      0) {
    return "";
  }
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> guard(found,
                                                                   &::freeaddrinfo);
  for (const auto* at = found; at != nullptr; at = at->ai_next) {
    const files::Descriptor socket(
        ::socket(at->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    sockaddr_storage own{};
    socklen_t length = sizeof own;
    if (!socket || ::connect(socket.get(), at->ai_addr, at->ai_addrlen) != 0) continue;
    if (::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&own), &length) == 0) {
      return numeric(reinterpret_cast<sockaddr*>(&own), length);
    }
  }
  return "";
}

// Many systems resolve their own name to a loopback address, which no other machine
// can reach.
std::string first_outside_address() {
  ifaddrs* all = nullptr;
  if (::getifaddrs(&all) != 0) return "";
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> guard(all, &::freeifaddrs);
  for (const auto* one = all; one != nullptr; one = one->ifa_next) {
    if (one->ifa_addr == nullptr || one->ifa_addr->sa_family != AF_INET) continue;
    auto address = numeric(one->ifa_addr, sizeof(sockaddr_in));
    if (!run::is_loopback(address)) return address;
  }
  return "";
}

std::string gloo_interface(const RankEnvironment& env, const config::CommConfig& config,
                           bool one_machine) {
  if (!config.interface.empty()) return config.interface;
  if (!env.gloo_interface.empty()) return env.gloo_interface;
  if (one_machine) return "127.0.0.1";
  auto address = address_towards(env.master_address, env.master_port);
  if (address.empty() || run::is_loopback(address)) {
    address = first_outside_address();
  }
  return address.empty() ? "127.0.0.1" : address;
}

// Returns "" if no rank has an obstacle; else the first, with its rank.
std::string agreed_obstacle(Communicator& cpu, const std::string& own) {
  const auto first = detail::first_text(cpu, own);
  return first ? str("rank ", first->first, ": ", first->second) : "";
}

// Returns the facts that have to be the same for the ranks to build the same groups.
std::vector<wire::Fact> facts_of(const JoinOptions& options) {
  std::vector<wire::Fact> facts{
      {"version", LOCKSTEP_VERSION},
      {"comm.backend", std::string(name_of(options.config.backend))},
      {"comm.debug", options.config.debug ? "true" : "false"},
      {"device", c10::DeviceTypeName(options.device.type(), /*lower_case=*/true)}};
  facts.insert(facts.end(), options.facts.begin(), options.facts.end());
  return facts;
}

class Joining {
 public:
  Joining(const Rendezvous& place, const JoinOptions& options)
      : env_(place.environment), options_(options) {
    std::random_device random;
    MeetOptions meeting{
        .facts = facts_of(options),
        .patience = Patience(options.config.join_timeout, options.interrupted),
        .instance = static_cast<std::int64_t>(random()) << 31 | random()};
    while (true) {
      store_ = open_store(place, meeting.patience);
      try {
        verdict_ = meet(*store_, env_, meeting);
        return;
      } catch (const StoreLost&) {
        // This may be the store of an earlier attempt that is closing: the new one will
        // come.
        const bool hosts = env_.rank == 0 && !env_.agent_store;
        if (hosts || meeting.patience.is_over()) throw;
      }
    }
  }

  const c10::intrusive_ptr<c10d::Store>& store() const { return store_; }

  std::unique_ptr<Communicator> gloo(const std::string& name) const {
    return make_gloo(group(name, torch::kCPU));
  }

  // Makes the fastest communicator that is wanted and usable for tensors of the host.
  // What was wanted and is not usable, all ranks alike, is said in `note`, or thrown if
  // nothing else was wanted.
  std::unique_ptr<Communicator> on_host(const std::string& name,
                                        std::string& note) const {
    const auto as_it_is = [](const std::string& obstacle) { return obstacle; };
    for (const auto& backend : detail::backends()) {
      if (!backend.on_host || !is_wanted(backend)) continue;
      auto tried = try_backend(backend, name, as_it_is);
      if (tried.made) return std::move(tried.made);
      note = std::move(tried.note);
    }
    throw Error(Fault::internal, "comm: no backend exchanges CPU tensors");
  }

  // The same for those of a GPU: null if none is usable. Whether one is, the ranks
  // decide together over `cpu`.
  std::unique_ptr<Communicator> on_device(Communicator& cpu, std::string& note) const {
    const auto agreed = [&cpu](const std::string& own) {
      return agreed_obstacle(cpu, own);
    };
    for (const auto& backend : detail::backends()) {
      if (backend.on_host || !is_wanted(backend)) continue;
      const auto name = std::string(name_of(backend.name));
      auto tried = try_backend(backend, name, agreed);
      if (tried.made) return std::move(tried.made);
      note = std::move(tried.note);
    }
    return nullptr;
  }

  std::unique_ptr<Votes> votes() const {
    std::unique_ptr<Votes> shared;
    if (verdict_.one_machine) {
      shared = make_shared_votes({.rank = env_.rank,
                                  .size = env_.world_size,
                                  .timeout = options_.config.timeout},
                                 teller("votes"));
    }
    return shared ? std::move(shared) : make_votes(gloo("votes"));
  }

  // Tells through the store.
  Tell teller(const std::string& about) const {
    return [this, about, round = 0](const std::string& text) mutable {
      const auto key = str(about, "_", round++);
      if (env_.rank == 0) store_->set(key, text);
      if (store_->add(key + "_came", 1) == env_.world_size) {
        store_->set(key + "_all", std::string("1"));
      }
      store_->wait({key + "_all"}, options_.config.join_timeout);
      return store_->get_to_str(key);
    };
  }

 private:
  GroupOptions group(const std::string& name, const torch::Device& device) const {
    return {.store = c10::make_intrusive<c10d::PrefixStore>(name, store_),
            .rank = env_.rank,
            .size = env_.world_size,
            .device = device,
            .timeout = options_.config.timeout,
            .interface = gloo_interface(env_, options_.config, verdict_.one_machine)};
  }

  bool is_wanted(const detail::Backend& backend) const {
    return detail::is_wanted(backend, options_.config.backend,
                             options_.device.is_cpu());
  }

  using Agree = std::function<std::string(const std::string& obstacle)>;
  struct TriedBackend {
    std::unique_ptr<Communicator> made;
    std::string note;  // why there is none
  };
  TriedBackend try_backend(const detail::Backend& backend, const std::string& name,
                           const Agree& agree) const {
    const auto label = name_of(backend.name);
    const detail::BackendSite site{
        .group = group(name, backend.on_host ? torch::kCPU : options_.device),
        .one_machine = verdict_.one_machine,
        .tell = teller(std::string(label))};
    auto obstacle = agree(backend.available(site));
    if (obstacle.empty()) {
      std::unique_ptr<Communicator> made;
      try {
        made = backend.make(site);
      } catch (const Error& error) {
        if (backend.name == backend.or_gloo) throw;  // nothing stands in for it
        obstacle = error.what();
      }
      obstacle = agree(obstacle);
      if (obstacle.empty()) return {std::move(made), ""};
      if (made) made->abort();
    }
    if (options_.config.backend == backend.name) {
      throw Error(Fault::hardware, "comm: backend ", label, " was requested, but ",
                  obstacle, "; set comm.backend=auto or gloo");
    }
    return {nullptr,
            str(label, " is not usable (", obstacle, "); tensors go over gloo")};
  }

  RankEnvironment env_;
  const JoinOptions& options_;
  c10::intrusive_ptr<c10d::Store> store_;
  wire::Verdict verdict_;
};

}  // namespace

World::World(RankEnvironment environment) : environment_(std::move(environment)) {}
World::World(World&&) noexcept = default;
World& World::operator=(World&&) noexcept = default;
World::~World() = default;

// Makes the world of one process: itself, or rank 0 of a modelled network.
World World::alone(run::RankEnvironment environment, const JoinOptions& options) {
  World world(std::move(environment));
  const auto& config = options.config;
  const bool modelled = config.backend == config::CommBackend::modelled;
  if (config.backend == config::CommBackend::nccl) {
    world.note_ = "a single rank needs no nccl";
  }
  if (modelled) {
    world.data_ = make_modelled(
        {.ranks = static_cast<int>(config.modelled_ranks),
         .latency_seconds = 1e-6 * config.modelled_latency_us,
         .bytes_per_second = static_cast<double>(config.modelled_bandwidth),
         .device = options.device,
         .busy = config.modelled_busy});
    world.note_ = str("the network is modelled: ", config.modelled_ranks,
                      " ranks, of which one exists");
  } else {
    world.data_ = std::move(make_local({options.device})[0]);
  }
  if (modelled || !options.device.is_cpu()) {
    world.cpu_ = std::move(make_local({torch::kCPU})[0]);
  }
  world.votes_ = make_own_votes();
  return world;
}

World join(const RankEnvironment& environment, const JoinOptions& options) {
  const auto place = parse_init(options.init, environment);
  if (place.environment.world_size == 1) {
    return World::alone(place.environment, options);
  }
  if (options.config.backend == config::CommBackend::modelled) {
    throw Error(Fault::config,
                "comm: backend modelled stands for ranks that do not exist, but there "
                "are ",
                place.environment.world_size,
                "; start one, and set comm.modelled_ranks");
  }
  World world(place.environment);
  if (options.device.is_cpu() && options.config.backend == config::CommBackend::nccl) {
    throw Error(Fault::config,
                "comm: backend nccl was requested, but tensors are on the CPU; set "
                "comm.backend=auto or gloo");
  }
  try {
    const Joining joining(place, options);
    world.store_ = joining.store();
    world.votes_ = joining.votes();
    if (options.device.is_cpu()) {
      world.data_ = joining.on_host("gloo", world.note_);
    } else {
      world.cpu_ = joining.gloo("gloo");
      world.data_ = joining.on_device(*world.cpu_, world.note_);
      if (!world.data_) {
        world.data_ =
            make_staged(joining.on_host("staged", world.note_), options.device);
      }
    }
    if (options.config.debug) {
      world.data_ = make_checked(std::move(world.data_), joining.gloo("debug"));
    }
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    throw Error(Fault::comm, "comm: rank ", world.rank(), " of ", world.size(),
                " could not join: ", detail::first_line(error));
  }
  return world;
}

std::vector<World> join_threads(const std::vector<torch::Device>& devices,
                                const config::CommConfig& config) {
  const LocalOptions options{.timeout = config.timeout};
  const std::vector<torch::Device> hosts(devices.size(), torch::kCPU);
  auto data = make_local(devices, options);
  auto cpu = make_local(hosts, options);
  auto control = make_local(hosts, options);
  std::vector<World> worlds;
  for (std::size_t i = 0; i < devices.size(); ++i) {
    const int rank = static_cast<int>(i);
    const int size = static_cast<int>(devices.size());
    RankEnvironment environment;
    environment.rank = environment.local_rank = rank;
    environment.world_size = environment.local_world_size = size;
    World world(std::move(environment));
    world.data_ = std::move(data[i]);
    world.cpu_ = std::move(cpu[i]);
    world.control_ = control[i].get();
    world.votes_ = make_votes(std::move(control[i]));
    worlds.push_back(std::move(world));
  }
  return worlds;
}

void World::abort() noexcept {
  data_->abort();
  if (cpu_) cpu_->abort();
  if (control_ != nullptr) control_->abort();
}

// The ranks have nothing more to say to each other, but rank 0 may host the store, and
// others may still be reading from it.
void World::close() {
  if (!store_) return;
  constexpr std::chrono::seconds kLongest{10};
  try {
    store_->add("bye", 1);
    if (environment_.rank != 0 || environment_.agent_store) return;
    const auto limit = std::chrono::steady_clock::now() + kLongest;
    while (store_->add("bye", 0) < environment_.world_size &&
           std::chrono::steady_clock::now() < limit) {
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
  } catch (const std::exception&) {
    // A rank has left already: there is nothing to wait for.
  }
}

}  // namespace lockstep::comm
