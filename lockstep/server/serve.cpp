#include "lockstep/server/serve.h"

#include <cerrno>

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/stat.h>

#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "lockstep/launcher/rotating_file.h"
#include "lockstep/server/http.h"
#include "lockstep/server/router.h"
#include "lockstep/server/webhook.h"
#include "lockstep/service/service.h"

namespace lockstep::server {
namespace {

constexpr int kKeptLogs = 3;
constexpr std::chrono::hours kCleanUpEvery{1};

// Two servers would both work on one queue. A lock of the process: a child that was
// just forked when the server is killed must not keep the next one from starting.
files::Descriptor lock_folder(const files::Path& state) {
  const auto path = state / "serve.lock";
  files::Descriptor file(
      ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!file) files::fail("open", path, errno);
  struct flock lock {};
  lock.l_type = F_WRLCK;
  if (::fcntl(file.get(), F_SETLK, &lock) == 0) return file;
  throw Error(Fault::config, "store.dir: another server works in '", state.string(),
              "'; stop it, or name another folder");
}

void start_log(const config::StoreConfig& store) {
  log::Options options;
  if (!store.log.empty()) {
    auto file = std::make_shared<launcher::RotatingFile>(
        store.log, launcher::RotatingFile::Limits{.rotate_bytes = store.log_bytes,
                                                  .keep = kKeptLogs});
    options.writer = [file](log::Level, std::string_view line) { file->append(line); };
  }
  log::start(options);
}

ServerOptions http_options(const config::ServerConfig& config) {
  const auto& http = config.http;
  return {.address = http.address,
          .port = http.port,
          .certificate = http.certificate,
          .key = http.key,
          .threads = http.threads,
          .max_connections = http.max_connections,
          .header_bytes = config.limits.header_bytes,
          .bodies_bytes = config.limits.bodies_bytes,
          .idle_ms = http.idle_timeout.count(),
          .request_ms = http.request_timeout.count()};
}

void refuse_without_tokens(const config::LoadedServer& loaded, service::Store& store) {
  if (config::is_loopback(loaded.config.http.address)) return;
  for (const auto& token : service::tokens(store)) {
    const bool expired = token.expires != 0 && token.expires <= store.now();
    if (!token.revoked && !expired) return;
  }
  throw Error(Fault::config, "http.address=", loaded.config.http.address,
              ": there is no valid token, so nobody could use the server; create one: "
              "lockstep token create --role admin --user NAME");
}

// What serves.
struct Serving {
  const ServeOptions& options;
  service::Service& service;
  HttpServer& server;
};

void reload(const Serving& serving) {
  const auto& [options, service, server] = serving;
  try {
    const auto fresh = options.reload();
    config::validate(fresh, options.insecure_local);
    // First what can fail: either all of it holds from now on, or nothing.
    server.reload_certificate();
    service.reload(fresh.config);
    log::info("server", "read certificates, limits and quotas again");
  } catch (const Error& error) {
    log::error("server", str("kept the settings from before: ", error.what()));
  }
}

// A disk that is full for an hour must not end the server.
void clean_up(service::Service& service) {
  try {
    const int removed = service.clean_up();
    if (removed > 0) log::info("server", str("removed ", removed, " jobs and files"));
  } catch (const Error& error) {
    log::error("server", str("nothing was removed: ", error.what()));
  }
}

// Returns when it was asked to end.
void wait_for_signals(const Serving& serving, launcher::Signals& signals) {
  auto cleaned = Clock::system().now();
  while (true) {
    pollfd ready{.fd = signals.fd(), .events = POLLIN, .revents = 0};
    constexpr int kLook = 60'000;
    ::poll(&ready, 1, kLook);
    while (const auto signal = signals.take()) {
      if (*signal == SIGTERM || *signal == SIGINT) return;
      if (*signal == SIGHUP) reload(serving);
    }
    if (Clock::system().now() - cleaned < kCleanUpEvery) continue;
    cleaned = Clock::system().now();
    clean_up(serving.service);
  }
}

}  // namespace

int serve(const ServeOptions& options, const jobs::Caller& caller) {
  const auto& config = options.loaded.config;
  config::validate(options.loaded, options.insecure_local);
  // The log, requests and runs are nobody else's.
  ::umask(077);
  // Before any thread, so that all have them blocked.
  launcher::Signals signals;
  start_log(config.store);
  const auto state = service::state_folder(config.store, caller);
  std::filesystem::create_directories(state);
  const auto lock = lock_folder(state);
  Webhook webhook(config.webhook);
  service::Service service(
      {.config = config,
       .state = state,
       .caller = caller,
       .on_change = [&](const service::Job& job) { webhook.tell(job); }});
  refuse_without_tokens(options.loaded, service.store());
  RouterOptions router_options;
  if (options.insecure_local) {
    router_options.everybody = service::Identity{
        .user = "local", .role = service::Role::admin, .token = "local"};
  }
  Router router(service, router_options);
  const auto server = make_http_server(http_options(config), router);
  service.start();
  server->start();
  const auto url = str(config.http.certificate.empty() ? "http" : "https", "://",
                       config.http.address, ":", server->port());
  log::info("server", str("serves at ", url));
  if (options.on_ready) options.on_ready(url);
  wait_for_signals({options, service, *server}, signals);
  log::info("server", "ends; jobs go on");
  server->stop();
  service.stop();
  return kExitOk;
}

}  // namespace lockstep::server
