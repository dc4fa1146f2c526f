#pragma once

#include <memory>
#include <string>
#include <string_view>

#include <stdlib.h>

#include "lockstep/base/files.h"
#include "lockstep/server/detail/target.h"
#include "lockstep/server/router.h"
#include "lockstep/service/refusal.h"
#include "lockstep/service/remote_recipe.h"

// What is done with bytes of clients. True: they were taken for good; an answer with
// status 500, or any error but a refusal, is a finding.
namespace lockstep::fuzz {

// A recipe of a job. One that is taken sets nothing that names a thing of this machine.
inline bool remote_recipe(std::string_view bytes) {
  try {
    const auto checked = service::check_remote(
        {.text = std::string(bytes)},
        [](const std::string&, const std::string&) { return std::nullopt; });
    for (const auto& key : config::local_keys()) {
      if (checked.loaded.sources.at(key).origin != config::Origin::standard) abort();
    }
    return true;
  } catch (const service::Refusal&) {
    return false;
  }
}

// The target of a request: no segment of one that is taken leads out of its folder.
inline bool request_target(std::string_view bytes) {
  const auto target = server::parse_target(bytes);
  if (!target) return false;
  for (const auto& segment : target->segments) {
    if (segment == ".." || segment.find_first_of("/\\;") != std::string::npos ||
        segment.find('\0') != std::string::npos) {
      abort();
    }
  }
  return true;
}

// A service without anybody who works on its queue.
class FuzzedService {
 public:
  FuzzedService() {
    config::ServerConfig config;
    config.limits.changes_per_minute = 10'000'000;
    config.limits.requests_per_minute = 10'000'000;
    config.quota.jobs_per_user = 1'000'000'000;
    jobs::Caller caller;
    caller.executable = "/nonexistent/lockstep";
    service_ = std::make_unique<service::Service>(service::ServiceOptions{
        .config = config, .state = folder_.path(), .caller = caller, .machine = [] {
          return hardware::Machine();
        }});
    router_ = std::make_unique<server::Router>(*service_, server::RouterOptions{});
  }

  int ask(const std::string& target, std::string_view body) {
    const auto response = router_->handle_as(
        {.method = "POST", .target = target, .body = std::string(body)},
        {.user = "fuzz", .role = service::Role::admin, .token = "t"});
    if (response.status == 500) abort();
    return response.status;
  }

 private:
  files::TemporaryDirectory folder_;
  std::unique_ptr<service::Service> service_;
  std::unique_ptr<server::Router> router_;
};

inline FuzzedService& fuzzed_service() {
  static FuzzedService service;
  return service;
}

// The first byte chooses the route, the rest is the body.
inline bool http_body(std::string_view bytes) {
  static const std::string kTargets[] = {"/v1/jobs",
                                         "/v1/files",
                                         "/v1/tokens",
                                         "/multigpu/config",
                                         "/multigpu/training/auto",
                                         "/multigpu/resources/manage"};
  if (bytes.empty()) return false;
  const auto which = static_cast<unsigned char>(bytes[0]) % std::size(kTargets);
  return fuzzed_service().ask(kTargets[which], bytes.substr(1)) < 300;
}

}  // namespace lockstep::fuzz
