// The only source that sees gloo's headers. Nothing here may touch a gloo::Context: its
// layout differs between the headers and the code inside LibTorch.
#include "lockstep/comm/gloo.h"

#include <mutex>

#include <net/if.h>
#include <signal.h>

#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include "lockstep/base/error.h"
#include "lockstep/comm/detail/backends.h"
#include "lockstep/comm/detail/c10d.h"
#include "lockstep/comm/detail/connections.h"

namespace lockstep::comm {
namespace {

using Device = std::shared_ptr<::gloo::transport::Device>;

Device make_device(const std::string& interface) {
  if (::if_nametoindex(interface.c_str()) != 0) {
    return c10d::ProcessGroupGloo::createDeviceForInterface(interface);
  }
  return c10d::ProcessGroupGloo::createDeviceForHostname(interface);
}

// Makes a device and finds its address and its thread, which gloo does not tell. They
// are the listening socket and the thread that appear while the device is made; one
// device at a time.
Device make_device(const std::string& interface, detail::Connections& connections,
                   detail::Complaint& complaint) {
  static std::mutex one_at_a_time;
  const std::lock_guard lock(one_at_a_time);
  const auto before = detail::listening_sockets();
  Device device;
  complaint = detail::listen_to_threads([&] { device = make_device(interface); });
  connections.own = detail::first_new(before, detail::listening_sockets());
  return device;
}

// Gloo writes to connections whose peer may be gone; that is an error of the write, not
// a reason to end this process.
void survive_broken_connections() {
  struct sigaction now {};
  if (::sigaction(SIGPIPE, nullptr, &now) == 0 && now.sa_handler == SIG_DFL) {
    ::signal(SIGPIPE, SIG_IGN);
  }
}

c10::intrusive_ptr<c10d::Backend> make_group(const GroupOptions& options,
                                             detail::Connections& connections,
                                             detail::Complaint& complaint) {
  auto gloo = c10d::ProcessGroupGloo::Options::create(options.timeout);
  gloo->devices.push_back(make_device(options.interface, connections, complaint));
  detail::exchange_addresses(connections, *options.store, {options.rank, options.size});
  return c10::make_intrusive<c10d::ProcessGroupGloo>(options.store, options.rank,
                                                     options.size, gloo);
}

}  // namespace

std::unique_ptr<Communicator> make_gloo(const GroupOptions& options) {
  survive_broken_connections();
  try {
    auto connections = std::make_shared<detail::Connections>();
    detail::C10dParts parts;
    parts.group = make_group(options, *connections, parts.complaint);
    parts.name = "gloo";
    parts.device = options.device;
    parts.store = options.store;
    // Between machines a store that is asked after a failure may be as far as the peer.
    parts.asks_after_failure = options.interface == "127.0.0.1";
    parts.rank = options.rank;
    parts.size = options.size;
    parts.scatters_by_all_reduce = true;
    parts.cut = [connections, complaint = parts.complaint] {
      detail::cut(*connections, complaint->load());
    };
    parts.remake = [options](detail::Store store, int rank, int size) {
      auto part = options;
      part.store = std::move(store);
      part.rank = rank;
      part.size = size;
      return make_gloo(part);
    };
    return detail::make_c10d(std::move(parts));
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    throw Error(Fault::comm, "comm: rank ", options.rank, " of ", options.size,
                " could not join over gloo (", options.interface,
                "): ", detail::first_line(error));
  }
}

c10::intrusive_ptr<c10d::Backend> make_gloo_group(const GroupOptions& options) {
  detail::Connections unused;
  detail::Complaint ignored;
  return make_group(options, unused, ignored);
}

namespace detail {

Backend gloo_backend() {
  return {.name = config::CommBackend::gloo,
          .or_gloo = config::CommBackend::gloo,
          .on_host = true,
          .available = [](const BackendSite&) { return std::string(); },
          .make = [](const BackendSite& site) { return make_gloo(site.group); }};
}

}  // namespace detail

}  // namespace lockstep::comm
