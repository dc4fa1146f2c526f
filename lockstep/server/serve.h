#pragma once

#include <functional>
#include <string>

#include "lockstep/config/server.h"
#include "lockstep/jobs/caller.h"
#include "lockstep/launcher/signals.h"

namespace lockstep::server {

struct ServeOptions {
  config::LoadedServer loaded;
  bool insecure_local = false;  // no tokens
  // Reads the config again, for SIGHUP.
  std::function<config::LoadedServer()> reload;
  // Called once, with the address, when requests are answered.
  std::function<void(const std::string& url)> on_ready;
};

// Serves until SIGTERM or SIGINT; jobs go on then. SIGHUP reads certificates, limits
// and quotas again. Throws Fault::config for an address that is not allowed without TLS
// or tokens, and if another server works in the same folder.
int serve(const ServeOptions& options, const jobs::Caller& caller);

}  // namespace lockstep::server
