#include "lockstep/cli/detail/service_client.h"

#include <algorithm>
#include <ostream>
#include <thread>

#include <nlohmann/json.hpp>

#include "lockstep/base/clock.h"
#include "lockstep/base/error.h"
#include "lockstep/base/files.h"
#include "lockstep/base/text.h"
#include "lockstep/cli/detail/output.h"
#include "lockstep/config/server.h"
#include "lockstep/server/http.h"
#include "lockstep/server/router.h"
#include "lockstep/service/service.h"

namespace lockstep::cli {
namespace {

using Json = nlohmann::ordered_json;

class RemoteService : public ServiceClient {
 public:
  RemoteService(server::ClientOptions options, std::string token)
      : options_(std::move(options)), token_(std::move(token)) {}

 protected:
  void stream(const std::string& target, const std::string& last_id,
              const std::function<void(std::string_view)>& on_piece) override {
    auto wanted = request("GET", target, "");
    if (!last_id.empty()) wanted.headers.emplace_back("Last-Event-ID", last_id);
    const auto answer =
        server::send_request(options_, wanted, [&](std::string_view piece) {
          on_piece(piece);
          return true;
        });
    if (answer.status >= 400) call("GET", target);  // says why
  }

  ServiceAnswer ask(const std::string& method, const std::string& target,
                    const std::string& body) override {
    auto answer = server::send_request(options_, request(method, target, body));
    return {answer.status, std::move(answer.body)};
  }

 private:
  server::Request request(const std::string& method, const std::string& target,
                          const std::string& body) const {
    server::Request request{.method = method, .target = target, .body = body};
    if (!token_.empty()) request.headers = {{"Authorization", "Bearer " + token_}};
    if (!body.empty()) request.headers.emplace_back("Content-Type", "application/json");
    return request;
  }

  const server::ClientOptions options_;
  const std::string token_;
};

class LocalService : public ServiceClient {
 public:
  LocalService(service::ServiceOptions options, std::string user)
      : service_(std::move(options)),
        router_(service_, {}),
        who_{.user = std::move(user), .role = service::Role::admin, .token = "local"} {}

 protected:
  void stream(const std::string& target, const std::string& last_id,
              const std::function<void(std::string_view)>& on_piece) override {
    server::Request request{.method = "GET", .target = target};
    if (!last_id.empty()) request.headers = {{"last-event-id", last_id}};
    auto response = router_.handle_as(request, who_);
    if (!response.stream) {
      call("GET", target);
      return;
    }
    constexpr std::chrono::milliseconds kQuiet{200};
    while (!response.stream->is_over()) {
      const auto piece = response.stream->next();
      if (piece.empty()) {
        std::this_thread::sleep_for(kQuiet);
      } else {
        on_piece(piece);
      }
    }
  }

  ServiceAnswer ask(const std::string& method, const std::string& target,
                    const std::string& body) override {
    auto response =
        router_.handle_as({.method = method, .target = target, .body = body}, who_);
    return {response.status, std::move(response.body)};
  }

 private:
  service::Service service_;
  server::Router router_;
  const service::Identity who_;
};

struct FollowedJob {
  int attempt = 1;
  bool goes_on = true;  // its log may still grow
};

FollowedJob followed_job(ServiceClient& client, const std::string& id) {
  using service::JobState;
  const auto job = Json::parse(client.call("GET", "/v1/jobs/" + id).body);
  const auto state = service::job_state_of(job.value("state", ""));
  const bool ended = !state || service::is_over(*state) || *state == JobState::paused ||
                     *state == JobState::interrupted;
  // One that waits has not begun its first.
  return {.attempt = std::max(1, job.value("attempt", 1)), .goes_on = !ended};
}

std::string token_of(const Arguments& arguments, const Context& context) {
  constexpr std::int64_t kLongest = 4096;
  if (const auto file = arguments.value("--token-file")) {
    return std::string(text::trim(files::read(*file, kLongest)));
  }
  return context.variable("LOCKSTEP_TOKEN").value_or("");
}

}  // namespace

ServiceAnswer ServiceClient::call(const std::string& method, const std::string& target,
                                  const std::string& body) {
  auto answer = ask(method, target, body);
  if (answer.status < 400) return answer;
  const auto problem = Json::parse(answer.body, nullptr, false);
  const auto detail = problem.is_object() ? problem.value("detail", answer.body)
                                          : str("status ", answer.status);
  throw Error(answer.status >= 500 ? Fault::io : Fault::config, detail);
}

void ServiceClient::follow(const FollowedLog& log,
                           const std::function<void(const std::string&)>& on_line) {
  constexpr std::chrono::milliseconds kBetween{500};
  constexpr std::chrono::minutes kPatience{10};
  EventReader events;
  auto attempt = followed_job(*this, log.job).attempt;
  auto heard = Clock::system().now();
  while (true) {
    const auto which = log.rank ? str("?rank=", *log.rank) : str("?attempt=", attempt);
    try {
      stream(str("/v1/runs/", log.job, "/logs/stream", which), events.last_id(),
             [&](std::string_view piece) {
               for (const auto& line : events.add(piece)) on_line(line);
               heard = Clock::system().now();
             });
      const auto job = followed_job(*this, log.job);
      heard = Clock::system().now();
      // Another attempt has a log of its own.
      const bool is_next = !log.rank && job.attempt != attempt;
      if (is_next) events = {};
      if (!is_next && !job.goes_on) return;
      attempt = job.attempt;
    } catch (const Error& error) {
      const bool waits =
          error.fault() == Fault::io && Clock::system().now() - heard < kPatience;
      if (!waits) throw;
    }
    events.begin_again();
    std::this_thread::sleep_for(kBetween);
  }
}

std::unique_ptr<ServiceClient> service_client(const Arguments& arguments,
                                              Context& context) {
  auto url = arguments.value("--server");
  if (!url) url = context.variable("LOCKSTEP_SERVER");
  if (url && !url->empty()) {
    return std::make_unique<RemoteService>(
        server::ClientOptions{.url = *url,
                              .authority = arguments.value("--ca").value_or("")},
        token_of(arguments, context));
  }
  const auto loaded = config::load_server(arguments.value("--config").value_or(""), {});
  const auto state = service::state_folder(loaded.config.store, caller_of(context));
  const auto user =
      arguments.value("--as").value_or(context.variable("USER").value_or("local"));
  service::check_user_name(user);
  return std::make_unique<LocalService>(
      service::ServiceOptions{
          .config = loaded.config, .state = state, .caller = caller_of(context)},
      user);
}

std::vector<Option> service_options(std::vector<Option> more) {
  more.push_back({.name = "--server",
                  .value = "URL",
                  .help = "The server to ask (LOCKSTEP_SERVER); without it the service "
                          "of this machine."});
  more.push_back({.name = "--token-file",
                  .value = "FILE",
                  .help = "File with the token (or LOCKSTEP_TOKEN).",
                  .completes = Completes::file});
  more.push_back({.name = "--ca",
                  .value = "FILE",
                  .help = "PEM file of the authority that signed the server's "
                          "certificate.",
                  .completes = Completes::file});
  more.push_back({.name = "--config",
                  .value = "FILE",
                  .help = "Of the service of this machine: its server.yaml.",
                  .completes = Completes::file});
  more.push_back(
      {.name = "--as", .value = "USER", .help = "On this machine: the user who asks."});
  more.push_back({.name = "--json", .help = "The answer as JSON."});
  return more;
}

std::vector<std::string> EventReader::add(std::string_view piece) {
  rest_ += piece;
  std::vector<std::string> data;
  for (auto end = rest_.find("\n\n"); end != std::string::npos;
       end = rest_.find("\n\n")) {
    for (const auto& line : text::split(rest_.substr(0, end), '\n')) {
      constexpr std::string_view kData = "data: ";
      constexpr std::string_view kId = "id: ";
      if (text::starts_with(line, kData)) data.push_back(line.substr(kData.size()));
      if (text::starts_with(line, kId)) last_id_ = line.substr(kId.size());
    }
    rest_.erase(0, end + 2);
  }
  return data;
}

Command job_action(const JobAction& action) {
  return {.name = action.name,
          .summary = action.summary,
          .usage = str("lockstep ", action.name, " JOB [options]"),
          .details = action.details,
          .operands = {{.name = "JOB", .help = "The id of the job (lockstep jobs)."}},
          .options = service_options({}),
          .run = [name = action.name](const Arguments& arguments, Context& context) {
            const auto client = service_client(arguments, context);
            const auto answer = client->call(
                "POST", str("/v1/jobs/", *arguments.operand("JOB"), "/", name));
            if (arguments.has("--json")) {
              context.out << answer.body << "\n";
            } else {
              const auto job = Json::parse(answer.body);
              context.out << job.at("id").get<std::string>() << " is "
                          << job.at("state").get<std::string>() << "\n";
            }
            return kExitOk;
          }};
}

}  // namespace lockstep::cli
