#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>
#include <unistd.h>

#include "lockstep/base/files.h"
#include "lockstep/base/process.h"
#include "lockstep/server/http.h"
#include "lockstep/service/attempt.h"
#include "tests/service/rig.h"

namespace lockstep::test {

// `lockstep serve` as a process, with a worker that computes nothing. What it keeps
// stays when it ends, so that it can be started again.
class Served {
 public:
  using Json = nlohmann::ordered_json;

  ~Served() {
    if (server_) kill();
    end_supervisors();
  }

  // Starts it with further words, and waits until it answers.
  void start(std::vector<std::string> words = {}) {
    words.insert(
        words.begin(),
        {installation_.program(), "serve", "http.port=0", "queue.cores=2",
         "queue.retry_delay=10ms", "limits.changes_per_minute=1000000",
         "limits.requests_per_minute=1000000", "store.dir=" + state_.path().string()});
    if (token_.empty()) words.insert(words.begin() + 2, "--insecure-local");
    server_.emplace(process::Child::start({.arguments = std::move(words),
                                           .environment = environment,
                                           .out = process::StreamMode::pipe,
                                           .err = process::StreamMode::discard}));
    url_.clear();
    char c = 0;
    while (::read(server_->out().get(), &c, 1) == 1 && c != '\n') url_ += c;
    ASSERT_FALSE(url_.empty()) << "the server did not start";
  }

  void signal(int number) { server_->signal(number); }

  process::End wait() {
    const auto end = server_->wait();
    server_.reset();
    return end;
  }

  void kill() {
    signal(SIGKILL);
    wait();
  }

  // Another command of the same installation, on the same state.
  process::Output command(std::vector<std::string> words) {
    words.insert(words.begin(), installation_.program());
    return test::run(std::move(words), environment);
  }

  // The same, which goes on beside the test.
  process::Child begin(std::vector<std::string> words) {
    words.insert(words.begin(), installation_.program());
    return process::Child::start({.arguments = std::move(words),
                                  .environment = environment,
                                  .out = process::StreamMode::pipe,
                                  .err = process::StreamMode::discard});
  }

  server::Answer ask(const std::string& method, const std::string& target,
                     const std::string& body = "") {
    server::Request request{.method = method, .target = target, .body = body};
    if (!token_.empty()) request.headers = {{"Authorization", "Bearer " + token_}};
    return server::send_request({.url = url_, .authority = authority}, request);
  }

  std::string submit(int steps) { return submit_recipe(short_recipe(steps)); }
  std::string submit_held(int steps) { return submit_recipe(held_recipe(steps)); }

  std::string state_of(const std::string& id) {
    return Json::parse(ask("GET", "/v1/jobs/" + id).body).value("state", "");
  }

  bool reaches(const std::string& id, const std::string& state) {
    return eventually([&] { return state_of(id) == state; });
  }

  files::Path state() const { return state_.path(); }
  pid_t pid() const { return server_->pid(); }
  const std::string& url() const { return url_; }
  service::JobFolder folder(const std::string& id) const {
    return service::JobFolder(state_.path() / "jobs" / id);
  }

  // Asks with a token from now on; a server that is started then wants one.
  void use_token(const std::string& token) { token_ = token; }

  std::vector<std::pair<std::string, std::string>> environment;
  std::string authority;  // PEM file of the server's certificate

 private:
  std::string submit_recipe(const std::string& recipe) {
    const auto answer =
        ask("POST", "/v1/jobs", "{\"max_retries\": 50, \"recipe\": " + recipe + "}");
    EXPECT_EQ(answer.status, 201) << answer.body;
    return Json::parse(answer.body).value("id", "");
  }

  // No test leaves a job behind.
  void end_supervisors() {
    std::error_code ignored;
    for (const auto& job :
         std::filesystem::directory_iterator(state_.path() / "jobs", ignored)) {
      const service::JobFolder folder(job.path());
      for (int attempt = 1; std::filesystem::exists(folder.started(attempt), ignored);
           ++attempt) {
        const auto view = service::look_at_attempt(folder, attempt);
        if (view.status == service::AttemptStatus::alive) {
          service::signal_supervisor(*view.supervisor, SIGKILL);
        }
      }
    }
  }

  FakeInstallation installation_;
  files::TemporaryDirectory state_;
  std::optional<process::Child> server_;
  std::string url_;
  std::string token_;
};

}  // namespace lockstep::test
