#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <string_view>

#include <stdlib.h>

#include "lockstep/base/files.h"
#include "lockstep/server/detail/target.h"
#include "lockstep/server/router.h"
#include "lockstep/service/refusal.h"
#include "lockstep/service/remote_recipe.h"
#include "lockstep/service/secrets.h"

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

  service::Service& service() { return *service_; }

  int ask(const std::string& target, std::string_view body) {
    const service::Identity who{
        .user = "fuzz", .role = service::Role::admin, .token = "t"};
    const auto response = router_->handle_as(
        {.method = "POST", .target = target, .body = std::string(body)}, who);
    if (response.status == 500) abort();
    forget_old(who);
    return response.status;
  }

  // The job that "/v1/jobs/{id}/resume" is about: one that is over, and stays.
  std::string resumed() {
    if (resumed_.empty()) {
      service::add_user(service_->store(), "fuzz");
      resumed_ = service_->store().add_job({.user = "fuzz", .recipe = "{}"});
    }
    const auto state = service_->store().find_job(resumed_)->state;
    if (state == service::JobState::queued) {
      service_->store().move(resumed_, {state, service::JobState::paused});
    }
    return resumed_;
  }

 private:
  // Millions of inputs must not make the queue longer and longer.
  void forget_old(const service::Identity& who) {
    constexpr int kKept = 64;
    if (++asked_ % kKept != 0) return;
    for (const auto& job : service_->store().jobs({.limit = 1000})) {
      if (job.id == resumed_) continue;
      if (!service::is_over(job.state)) service_->cancel(who, job.id);
      service_->remove(who, job.id);
    }
    for (const auto& file : service_->uploads().list(who)) {
      service_->uploads().remove(who, file.id);
    }
  }

  int asked_ = 0;
  std::string resumed_;
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
                                         "/multigpu/resources/manage",
                                         "/v1/plans",
                                         "resume",
                                         "/v1/users"};
  if (bytes.empty()) return false;
  const auto which = static_cast<unsigned char>(bytes[0]) % std::size(kTargets);
  auto& service = fuzzed_service();
  const auto target = kTargets[which] == "resume"
                          ? "/v1/jobs/" + service.resumed() + "/resume"
                          : kTargets[which];
  return service.ask(target, bytes.substr(1)) < 300;
}

// Parts of a file: two bytes say where a part begins, one how long it is, and its bytes
// follow. The file is announced as all bytes together. One that counts as complete has
// the announced digest.
inline bool uploads(std::string_view bytes) {
  auto& uploads = fuzzed_service().service().uploads();
  const service::Identity who{.user = "fuzz", .role = service::Role::user};
  service::add_user(fuzzed_service().service().store(), who.user);
  const std::string whole(bytes);
  if (whole.empty()) return false;
  const auto made =
      uploads.create(who, {.name = "a file",
                           .kind = "bin",
                           .bytes = static_cast<std::int64_t>(whole.size()),
                           .sha256 = service::sha256(whole)});
  bool complete = false;
  const auto send = [&](std::int64_t offset, std::string_view part) {
    try {
      complete = uploads.add_part(who, made.id, {offset, part}).complete;
    } catch (const service::Refusal&) {
    }
  };
  while (bytes.size() >= 3) {
    const auto offset = static_cast<unsigned char>(bytes[0]) * 256 +
                        static_cast<unsigned char>(bytes[1]);
    const auto size = static_cast<unsigned char>(bytes[2]);
    bytes.remove_prefix(3);
    send(offset, bytes.substr(0, size));
    bytes.remove_prefix(std::min<std::size_t>(size, bytes.size()));
  }
  // Whatever came before: whoever goes on where it ended completes it.
  const auto at = uploads.find(who, made.id).received;
  if (!complete) send(at, std::string_view(whole).substr(static_cast<std::size_t>(at)));
  if (complete && files::read(uploads.path_of(made), 1 << 20) != whole) abort();
  uploads.remove(who, made.id);
  return complete;
}

// Columns of the database that hold JSON, separated by NUL: they may be damaged, and
// then the job is an error and nothing else.
inline bool stored_json(std::string_view bytes) {
  auto& store = fuzzed_service().service().store();
  service::add_user(store, "fuzz");
  const auto id = store.add_job({.user = "fuzz", .recipe = "{}"});
  std::string columns[3];
  for (auto& column : columns) {
    const auto end = std::min(bytes.find('\0'), bytes.size());
    column = std::string(bytes.substr(0, end));
    bytes.remove_prefix(std::min(end + 1, bytes.size()));
  }
  bool taken = false;
  store.transaction([&] {
    store.database()
        .prepare("UPDATE jobs SET gpu_ids = ?, needs = ?, overrides = ? WHERE id = ?")
        .bind(columns[0])
        .bind(columns[1])
        .bind(columns[2])
        .bind(id)
        .run();
  });
  try {
    taken = store.find_job(id).has_value();
  } catch (const Error& error) {
    if (error.fault() != Fault::io) abort();
  }
  store.remove_job(id);
  return taken;
}

}  // namespace lockstep::fuzz
