// Who may not have something does not get it: tokens that are revoked, users whose jobs
// leave things behind that are not theirs, and both families of routes by name.
#include <nlohmann/json.hpp>
#include <sys/stat.h>
#include <unistd.h>

#include "lockstep/server/router.h"
#include "lockstep/service/unix_users.h"
#include "tests/service/rig.h"

namespace lockstep::server {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using Json = nlohmann::ordered_json;
using service::Role;

class HostileTest : public ::testing::Test {
 protected:
  HostileTest() {
    config::ServerConfig config;
    config.queue.cores = 2;
    service_ = std::make_unique<service::Service>(
        service::ServiceOptions{.config = config,
                                .state = state_.path(),
                                .caller = test::quiet_caller("/nonexistent/lockstep"),
                                .machine = [] { return test::machine_with(2); }});
    router_ = std::make_unique<Router>(*service_, RouterOptions{});
    token_ = add_token(service_->store(), {.user = "ada", .role = Role::user});
  }

  Response ask(const std::string& method, const std::string& target,
               const std::string& body = "") {
    Request request{.method = method, .target = target, .body = body};
    request.headers = {{"authorization", "Bearer " + token_.secret}};
    return router_->handle(request);
  }

  std::string submit(const std::string& resources = "{}") {
    const auto response = ask("POST", "/v1/jobs",
                              "{\"recipe\": " + test::short_recipe(5) +
                                  ", \"resources\": " + resources + "}");
    EXPECT_EQ(response.status, 201) << response.body;
    return Json::parse(response.body).at("id").get<std::string>();
  }

  service::JobFolder folder(const std::string& id) {
    return service_->folder(test::as("ada"), id);
  }

  // All bytes that a request gives, those of a stream as well.
  std::string all_of(const std::string& target) {
    auto response = ask("GET", target);
    EXPECT_NE(response.status, 500) << target << response.body;
    auto text = response.body;
    if (!response.stream) return text;
    for (int i = 0; i < 3; ++i) text += response.stream->next();
    return text;
  }

  files::TemporaryDirectory state_;
  std::unique_ptr<service::Service> service_;
  std::unique_ptr<Router> router_;
  service::MadeToken token_;
};

TEST_F(HostileTest, ARevokedTokenEndsTheStreamsThatItHasOpen) {
  const auto id = submit();
  std::filesystem::create_directories(folder(id).run());
  const auto file = folder(id).run() / "metrics.jsonl";
  test::write_file(file, "{\"step\": 1}\n");
  const auto response = ask("GET", "/v1/runs/" + id + "/metrics/stream");
  ASSERT_TRUE(response.stream);
  EXPECT_THAT(response.stream->next(), HasSubstr("\"step\": 1"));
  EXPECT_FALSE(response.stream->is_over());
  ASSERT_TRUE(service::revoke_token(service_->store(), token_.id));
  EXPECT_TRUE(test::eventually([&] {
    response.stream->next();
    return response.stream->is_over();
  }));
  test::write_file(file, "{\"step\": 1}\n{\"step\": 2}\n");
  EXPECT_EQ(response.stream->next(), "");
}

// Each line waits for the disk: a flood of changes must not be one of lines.
TEST_F(HostileTest, WhatIsTooOftenIsInTheAuditLogOnce) {
  auto config = service_->config();
  config.limits.changes_per_minute = 1;
  service_->reload(config);
  submit();
  for (int i = 0; i < 20; ++i) EXPECT_EQ(ask("POST", "/v1/jobs", "{}").status, 429);
  const auto lines = service::audit(service_->store(), 0, 100);
  ASSERT_EQ(lines.size(), 2U);
  EXPECT_EQ(lines[0].status, 201);
  EXPECT_EQ(lines[1].status, 429);
}

// A browser on this machine reaches a server without tokens for any page that it shows.
TEST_F(HostileTest, AServerWithoutTokensDoesNotAnswerWebPages) {
  Router open(*service_, {.everybody = test::as("local", Role::admin)});
  const auto status = [&](const Headers& headers, const std::string& method = "POST") {
    const Request request{.method = method,
                          .target = "/v1/jobs",
                          .headers = headers,
                          .body = method == "GET" ? "" : "{}"};
    const auto early = open.refuse_sender(request);
    const auto answer = open.handle(request);
    EXPECT_EQ(early ? early->status : 0, answer.status == 403 ? 403 : 0);
    return answer.status;
  };
  for (const auto& good :
       {"127.0.0.1:8477", "localhost", "LocalHost:1", "[::1]:8477", "127.8.9.1"}) {
    EXPECT_EQ(status({{"host", good}}), 400) << good;  // "{}" is no job
    EXPECT_EQ(status({{"host", good}}, "GET"), 200) << good;
  }
  EXPECT_EQ(status({}), 400);
  for (const auto& evil :
       {"evil.example", "evil.example:8477", "127.0.0.1.evil.example",
        "localhost.evil.example", "[::1].evil.example", "[", "x"}) {
    EXPECT_EQ(status({{"host", evil}}), 403) << evil;
    EXPECT_EQ(status({{"host", evil}}, "GET"), 403) << evil;
  }
  EXPECT_EQ(status({{"host", "localhost"}, {"origin", "https://evil.example"}}), 403);
  EXPECT_EQ(status({{"host", "localhost"}, {"origin", "null"}}), 403);
  // With tokens a page has none, and a name in front of a proxy is a good one.
  Request named{.method = "GET", .target = "/v1/jobs"};
  named.headers = {{"host", "train.example"},
                   {"authorization", "Bearer " + token_.secret}};
  EXPECT_EQ(router_->handle(named).status, 200);
}

// A call that the server has failed at is one, too.
TEST_F(HostileTest, ADefectInAChangeIsInTheAuditLog) {
  // The program that tests GPUs is not there.
  EXPECT_EQ(ask("POST", "/multigpu/gpu/test").status, 500);
  const auto lines = service::audit(service_->store(), 0, 100);
  ASSERT_EQ(lines.size(), 1U);
  EXPECT_EQ(lines[0].action, "POST /multigpu/gpu/test");
  EXPECT_EQ(lines[0].status, 500);
}

TEST_F(HostileTest, AServerWhoseDatabaseIsGoneIsNotReady) {
  EXPECT_EQ(ask("GET", "/readyz").status, 200);
  std::filesystem::rename(state_.path() / "lockstep.db", state_.path() / "moved.db");
  const auto response = ask("GET", "/readyz");
  EXPECT_EQ(response.status, 503);
  EXPECT_THAT(response.body, Not(HasSubstr(state_.path().string())));
  EXPECT_EQ(
      ask("POST", "/v1/jobs", "{\"recipe\": " + test::short_recipe(5) + "}").status,
      500);
  std::filesystem::rename(state_.path() / "moved.db", state_.path() / "lockstep.db");
  EXPECT_EQ(ask("GET", "/readyz").status, 200);
  EXPECT_EQ(service_->jobs(test::as("ada"), {}).size(), 0U);
}

// The operations that users of such services call, by both spellings.
TEST_F(HostileTest, TheOperationsOfMultiGpuTrainersHaveTheirNames) {
  const std::vector<std::pair<std::string, std::string>> operations{
      {"GET", "health"},
      {"GET", "config"},
      {"POST", "config"},
      {"GET", "stats"},
      {"GET", "gpu/0/stats"},
      {"POST", "training/dataparallel"},
      {"POST", "training/distributed"},
      {"POST", "training/auto"},
      {"POST", "training/config"},
      {"POST", "resources/manage"},
      {"GET", "resources/status"},
      {"GET", "performance/metrics"},
      {"GET", "training/history"},
      {"POST", "gpu/test"},
      {"GET", "gpu/recommendations"}};
  EXPECT_EQ(operations.size(), 15U);
  for (const auto& [method, path] : operations) {
    for (const auto* before : {"/multigpu/", "/api/v1/multigpu/"}) {
      // A training needs a body, which says what is missing.
      const bool trains = path.rfind("training/", 0) == 0 && method == "POST" &&
                          path != "training/config";
      const auto status = ask(method, before + path, "{}").status;
      // That of GPUs would start a program, which is not there.
      const int wanted = trains ? 400 : path == "gpu/test" ? 500 : 200;
      EXPECT_EQ(status, wanted) << method << " " << before << path;
    }
  }
}

TEST_F(HostileTest, WhatAResumeDoesNotSayStaysAsItWas) {
  const auto id = submit(R"({"cores": 1, "gpus": 1, "memory_fraction": 0.5})");
  ASSERT_EQ(ask("POST", "/v1/jobs/" + id + "/pause").status, 200);
  ASSERT_EQ(ask("POST", "/v1/jobs/" + id + "/resume", R"({"resources": {"cores": 2}})")
                .status,
            200);
  const auto job = service_->job(test::as("ada"), id);
  EXPECT_EQ(job.resources.cores, 2);
  EXPECT_EQ(job.resources.gpus, 1);
  EXPECT_DOUBLE_EQ(job.resources.memory_fraction, 0.5);
  ASSERT_EQ(ask("POST", "/v1/jobs/" + id + "/pause").status, 200);
  ASSERT_EQ(ask("POST", "/v1/jobs/" + id + "/resume",
                R"({"resources": {"gpu_ids": [1], "memory_fraction": 0.25}})")
                .status,
            200);
  const auto moved = service_->job(test::as("ada"), id);
  EXPECT_EQ(moved.resources.gpu_ids, std::vector<int>{1});
  EXPECT_DOUBLE_EQ(moved.resources.memory_fraction, 0.25);
  EXPECT_EQ(moved.resources.cores, 2);
}

// A job of another Unix user has put links to what only the server may read where the
// server looks.
TEST_F(HostileTest, NothingOfTheServerIsReadThroughTheFolderOfAJob) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give files to other users";
  constexpr const char* kSecret = "secret-4711";
  const auto secret = state_.path() / "private" / "secret";
  std::filesystem::create_directories(secret.parent_path() / "step_1");
  test::write_file(secret,
                   std::string("{\"step\": 1, \"split\": \"train\", \"loss\": 1, "
                               "\"name\": \"") +
                       kSecret + "\"}\n");
  config::QueueConfig queue;
  queue.unix_users = {{"ada", "nobody"}};
  const auto user = *service::unix_user_of(queue, "ada");
  const auto give = [&](const files::Path& path) {
    EXPECT_EQ(::lchown(path.c_str(), user.uid, user.gid), 0) << path;
  };
  const auto id = submit();
  const auto place = folder(id);
  service::make_job_folder(place, user);
  for (const auto* name :
       {"attempts", "run", "run/logs", "run/checkpoints", "run/checkpoints/step_1"}) {
    std::filesystem::create_directories(place.path() / name);
    give(place.path() / name);
  }
  const std::vector<std::string> names{"run/run.json",
                                       "run/metrics.jsonl",
                                       "run/events.jsonl",
                                       "run/config.yaml",
                                       "run/heartbeat",
                                       "run/logs/rank_0.log",
                                       "run/model.safetensors",
                                       "run/checkpoints/step_1/secret",
                                       "attempts/1.log",
                                       "attempts/1.started",
                                       "attempts/1.ended",
                                       "plan.json",
                                       "lock"};
  const auto base = "/v1/runs/" + id;
  const auto ask_everything = [&] {
    for (const auto& target :
         {"/v1/jobs/" + id, base, base + "/metrics", base + "/events",
          base + "/logs?attempt=1", base + "/logs?rank=0", base + "/checkpoints",
          base + "/checkpoints/1/secret", base + "/weights", base + "/metrics/stream",
          base + "/events/stream", base + "/logs/stream?attempt=1",
          base + "/logs/stream?rank=0", std::string("/v1/runs"),
          std::string("/metrics"), std::string("/multigpu/performance/metrics"),
          std::string("/v1/queue")}) {
      EXPECT_THAT(all_of(target), Not(HasSubstr(kSecret))) << target;
    }
    service::look_at_attempt(place, 1);
  };
  // A link, a hard link, a pipe that nobody writes to.
  for (const auto kind : {0, 1, 2}) {
    for (const auto& name : names) {
      const auto path = place.path() / name;
      std::filesystem::remove(path);
      if (kind == 0) {
        std::filesystem::create_symlink(secret, path);
        give(path);
      } else if (kind == 1) {
        std::filesystem::create_hard_link(secret, path);
      } else {
        ASSERT_EQ(::mkfifo(path.c_str(), 0666), 0);
        give(path);
      }
    }
    ask_everything();
  }
  // The same by folders: names in a folder that is not the job's are not told.
  std::filesystem::remove_all(place.run() / "checkpoints");
  std::filesystem::create_symlink(secret.parent_path(), place.run() / "checkpoints");
  give(place.run() / "checkpoints");
  EXPECT_EQ(Json::parse(all_of(base + "/checkpoints"))["items"].size(), 0U);
  std::filesystem::remove_all(place.run());
  test::write_file(secret.parent_path() / "metrics.jsonl", test::read_file(secret));
  std::filesystem::create_symlink(secret.parent_path(), place.run());
  give(place.run());
  ask_everything();
  // Removing the job removes links, and nothing that they lead to.
  ask("POST", "/v1/jobs/" + id + "/cancel");
  EXPECT_EQ(ask("DELETE", "/v1/jobs/" + id).status, 200);
  EXPECT_TRUE(std::filesystem::exists(secret));
}

}  // namespace
}  // namespace lockstep::server
