#include "lockstep/comm/store.h"

#include <cerrno>
#include <cstring>
#include <memory>
#include <thread>

#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/files.h"
#include "lockstep/base/log.h"
#include "lockstep/base/port_holder.h"
#include "lockstep/base/text.h"
#include "lockstep/base/units.h"
#include "lockstep/comm/detail/c10d.h"

namespace lockstep::comm {
namespace {

using Steady = std::chrono::steady_clock;
using run::RankEnvironment;
using Addresses = std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)>;

Addresses resolve(const std::string& host, int port) {
  addrinfo wanted{};
  wanted.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int error =
      ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &wanted, &found);
  if (error != 0) {
    throw Error(Fault::comm, "comm: cannot find the master '", host,
                "': ", ::gai_strerror(error), "; check MASTER_ADDR");
  }
  return {found, &::freeaddrinfo};
}

bool try_listen(const files::Descriptor& socket, const addrinfo& at) {
  constexpr int kOn = 1, kBacklog = 4096;
  // The launcher holds the port with a socket that does not listen, and ranks of an
  // earlier attempt may have left connections that linger: both let this one in.
  ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &kOn, sizeof kOn);
  return ::bind(socket.get(), at.ai_addr, at.ai_addrlen) == 0 &&
         ::listen(socket.get(), kBacklog) == 0;
}

// Returns whether a store of this process may hold the port on its way out: a group
// that was aborted lets go of its store when its threads have ended.
bool is_being_freed(int port) {
  const auto holder = find_port_holder(port);
  return !holder || holder->pid <= 0 || holder->pid == ::getpid();
}

[[noreturn]] void port_is_taken(int port) {
  const auto holder = find_port_holder(port);
  throw Error(Fault::io, "comm: port ", port, " is taken",
              holder && holder->pid > 0
                  ? str(" by pid ", holder->pid, " (", holder->program, ")")
                  : "",
              "; end it, or set another MASTER_PORT");
}

// Listens on the master's address, so that other interfaces do not see the store. An
// address that is not this machine's (a name that a cluster forwards) is listened to on
// all of them.
files::Descriptor listen_at(const std::string& host, int port) {
  constexpr std::chrono::milliseconds kPause{10}, kOwnStore{3'000};
  const auto patience = Steady::now() + kOwnStore;
  const auto addresses = resolve(host, port);
  int error = 0;
  for (const auto* at = addresses.get(); at != nullptr; at = at->ai_next) {
    files::Descriptor socket(::socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (!socket) {
      error = errno;
      continue;
    }
    while (true) {
      if (try_listen(socket, *at)) return socket;
      error = errno;
      if (error != EADDRINUSE) break;
      if (!is_being_freed(port) || Steady::now() >= patience) port_is_taken(port);
      std::this_thread::sleep_for(kPause);
    }
  }
  if (error == EADDRNOTAVAIL && host != "0.0.0.0") {
    log::warning("comm", str("'", host,
                             "' is not an address of this machine: the store "
                             "listens at port ",
                             port, " on all interfaces"));
    return listen_at("0.0.0.0", port);
  }
  throw Error(Fault::io, "comm: cannot listen at ", host, ":", port, ": ",
              std::strerror(error));
}

bool answers(const addrinfo& at, std::chrono::milliseconds limit) {
  const files::Descriptor socket(
      ::socket(at.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket) return false;
  if (::connect(socket.get(), at.ai_addr, at.ai_addrlen) == 0) return true;
  if (errno != EINPROGRESS) return false;
  pollfd ready{.fd = socket.get(), .events = POLLOUT, .revents = 0};
  if (::poll(&ready, 1, static_cast<int>(limit.count())) <= 0) return false;
  int error = 0;
  socklen_t length = sizeof error;
  ::getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &error, &length);
  return error == 0;
}

// Returns whether a process listens there. A name that is not known yet (a cluster's
// DNS comes with its hosts) counts as no answer.
bool somebody_answers(const RankEnvironment& env) {
  constexpr std::chrono::milliseconds kOneTry{1000};
  try {
    const auto addresses = resolve(env.master_address, env.master_port);
    for (const auto* at = addresses.get(); at != nullptr; at = at->ai_next) {
      if (answers(*at, kOneTry)) return true;
    }
  } catch (const Error&) {
    return false;
  }
  return false;
}

// c10d's client waits a second between two tries; a rank that comes a moment before
// rank 0 should not.
void wait_until_it_answers(const RankEnvironment& env, const Patience& patience) {
  constexpr std::chrono::milliseconds kPause{10};
  while (!somebody_answers(env)) {
    patience.check();
    if (patience.is_over()) {
      static_cast<void>(resolve(env.master_address, env.master_port));
      throw Error(Fault::comm, "comm: rank ", env.rank, " of ", env.world_size,
                  " waited ", units::exact_duration(patience.limit()), " for ",
                  env.agent_store ? "the launcher's store" : "rank 0 (node 0)", " at ",
                  env.master_address, ":", env.master_port,
                  ", which does not answer; is it running, and its port open?");
    }
    std::this_thread::sleep_for(kPause);
  }
}

c10::intrusive_ptr<c10d::Store> open_tcp(const RankEnvironment& env,
                                         const Patience& patience) {
  if (env.master_address.empty() || env.master_port <= 0) {
    throw Error(Fault::config, "comm: there are ", env.world_size,
                " ranks, but MASTER_ADDR or MASTER_PORT is not set: the rendezvous "
                "address is missing");
  }
  c10d::TCPStoreOptions options;
  options.port = static_cast<std::uint16_t>(env.master_port);
  options.waitWorkers = false;
  options.timeout = patience.limit();
  options.isServer = env.rank == 0 && !env.agent_store;
  if (options.isServer) {
    options.masterListenFd = listen_at(env.master_address, env.master_port).release();
  } else {
    wait_until_it_answers(env, patience);
  }
  return c10::make_intrusive<c10d::TCPStore>(env.master_address, options);
}

int number_of(std::string_view key, std::string_view text) {
  const auto number = text::to_integer(text);
  if (!number || *number < 0 || *number > 1'000'000) {
    throw Error(Fault::config, "comm: ", key, "=", text, " is not a number of ranks");
  }
  return static_cast<int>(*number);
}

void read_query(std::string_view query, RankEnvironment& env) {
  for (const auto& pair : text::split(query, '&')) {
    const auto equals = pair.find('=');
    const auto key = pair.substr(0, equals);
    const auto value = equals == std::string::npos ? "" : pair.substr(equals + 1);
    if (key == "rank") {
      env.rank = env.local_rank = number_of(key, value);
    } else if (key == "world_size") {
      env.world_size = env.local_world_size = number_of(key, value);
    } else {
      throw Error(Fault::config, "comm: '", key,
                  "' is not a setting of an address; write ?rank=0&world_size=2");
    }
  }
  if (env.world_size < 1 || env.rank >= env.world_size) {
    throw Error(Fault::config, "comm: rank=", env.rank,
                ", but world_size=", env.world_size);
  }
}

void read_address(const std::string& init, std::string_view address,
                  RankEnvironment& env) {
  const auto colon = address.rfind(':');
  const auto port = colon == std::string_view::npos
                        ? std::nullopt
                        : text::to_integer(address.substr(colon + 1));
  if (!port || *port < 1 || *port > 65535 || colon == 0) {
    throw Error(Fault::config, "comm: '", init, "' has no port; write tcp://HOST:PORT");
  }
  env.master_address = address.substr(0, colon);
  if (env.master_address.size() > 2 && env.master_address.front() == '[') {
    env.master_address = env.master_address.substr(1, env.master_address.size() - 2);
  }
  env.master_port = static_cast<int>(*port);
  env.agent_store = false;
}

}  // namespace

Rendezvous parse_init(const std::string& init, RankEnvironment environment) {
  Rendezvous place{.environment = std::move(environment), .file = ""};
  const std::string_view all = init;
  if (all == "env://") return place;
  const auto question = all.find('?');
  const auto head = all.substr(0, question);
  if (question != std::string_view::npos) {
    read_query(all.substr(question + 1), place.environment);
  }
  if (text::starts_with(head, "tcp://")) {
    read_address(init, head.substr(6), place.environment);
  } else if (text::starts_with(head, "file:///")) {
    place.file = head.substr(7);
  } else {
    throw Error(
        Fault::config, "comm: '", init,
        "' is not a rendezvous address; write env://, tcp://HOST:PORT or file:///PATH");
  }
  return place;
}

c10::intrusive_ptr<c10d::Store> open_store(const Rendezvous& place,
                                           const Patience& patience) {
  const auto& env = place.environment;
  try {
    c10::intrusive_ptr<c10d::Store> store;
    if (place.file.empty()) {
      store = open_tcp(env, patience);
    } else {
      store = c10::make_intrusive<c10d::FileStore>(place.file, env.world_size);
      store->setTimeout(patience.limit());
    }
    // A stranger who does not know the token can not meet our keys. Nor can ranks of an
    // earlier attempt, where the attempts of all nodes are counted alike or one store
    // serves them all; a node that joins torchrun's job late starts to count at 0.
    const bool counted = env.agent_store || env.by != run::StartedBy::torchrun;
    const auto prefix = str("lockstep/", env.token.empty() ? env.job_id : env.token,
                            "/attempt_", counted ? env.restart_count : 0);
    return c10::make_intrusive<c10d::PrefixStore>(prefix, store);
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    throw Error(
        Fault::comm, "comm: rank ", env.rank, " could not reach the store at ",
        place.file.empty() ? str(env.master_address, ":", env.master_port) : place.file,
        ": ", detail::first_line(error));
  }
}

}  // namespace lockstep::comm
