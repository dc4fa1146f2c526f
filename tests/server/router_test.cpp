#include "lockstep/server/router.h"

#include <set>

#include <nlohmann/json.hpp>

#include "tests/service/rig.h"
#include "tests/support/oracle.h"

namespace lockstep::server {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using Json = nlohmann::ordered_json;
using service::Role;

class RouterTest : public ::testing::Test {
 protected:
  RouterTest() {
    config::ServerConfig config;
    config.limits.changes_per_minute = 100'000;
    config.limits.requests_per_minute = 100'000;
    config.limits.failed_logins_per_minute = 1'000'000;
    config.provided.inputs = {{"fashion", "/srv/fashion"}};
    config.provided.models_dir = (state_.path() / "models").string();
    service_ = std::make_unique<service::Service>(
        service::ServiceOptions{.config = config,
                                .state = state_.path(),
                                .caller = test::quiet_caller("/nonexistent/lockstep"),
                                .machine = [] { return test::machine_with(0); }});
    router_ = std::make_unique<Router>(*service_, RouterOptions{});
    for (const auto& [user, role] :
         {std::pair("ada", Role::user), std::pair("eve", Role::user),
          std::pair("vic", Role::viewer), std::pair("root", Role::admin)}) {
      tokens_[user] = add_token(service_->store(), {.user = user, .role = role}).secret;
    }
    tokens_["ada-viewer"] =
        add_token(service_->store(), {.user = "ada", .role = Role::viewer}).secret;
  }

  Response ask(const std::string& user, const std::string& method,
               const std::string& target, const std::string& body = "") {
    Request request{.method = method, .target = target, .body = body};
    request.peer = "127.0.0.1";
    if (!user.empty()) {
      request.headers = {{"authorization", "Bearer " + tokens_.at(user)}};
    }
    return router_->handle(request);
  }

  std::string submit(const std::string& user) {
    const auto response =
        ask(user, "POST", "/v1/jobs", "{\"recipe\": " + test::short_recipe(5) + "}");
    EXPECT_EQ(response.status, 201) << response.body;
    return Json::parse(response.body).at("id").get<std::string>();
  }

  // The id of a new thing of the kind that a path is about; nothing: of none.
  std::optional<std::string> thing_of_ada(const std::string& path) {
    const auto made = [&](const std::string& target, const std::string& body) {
      return Json::parse(ask("ada", "POST", target, body).body)
          .at("id")
          .get<std::string>();
    };
    const auto is_about = [&](const char* what) { return path.rfind(what, 0) == 0; };
    if (is_about("/v1/jobs/{id}") || is_about("/v1/runs/{id}")) return submit("ada");
    if (is_about("/v1/plans/{id}")) {
      return made("/v1/plans", "{\"recipe\": " + test::short_recipe(5) + "}");
    }
    if (!is_about("/v1/files/{id}")) return std::nullopt;
    return made("/v1/files", R"({"kind": "txt", "bytes": 3, "sha256": ")" +
                                 std::string(64, 'a') + "\"}");
  }

  files::TemporaryDirectory state_;
  std::unique_ptr<service::Service> service_;
  std::unique_ptr<Router> router_;
  std::map<std::string, std::string> tokens_;
};

// The path of a route, with something in the place of its variables.
std::string filled(std::string path, const std::string& id) {
  for (auto open = path.find('{'); open != std::string::npos; open = path.find('{')) {
    const auto close = path.find('}');
    const auto name = path.substr(open + 1, close - open - 1);
    path.replace(open, close - open + 1, name == "id" ? id : "1");
  }
  return path;
}

TEST_F(RouterTest, NothingChangesAndNothingIsToldWithoutAToken) {
  int open = 0;
  for (const auto& route : router_->routes()) {
    if (route.is_open) {
      ++open;
      EXPECT_FALSE(route.changes) << route.path;
      continue;
    }
    const auto response = ask("", route.method, filled(route.path, "job-1"), "{}");
    EXPECT_EQ(response.status, 401) << route.method << " " << route.path;
    Request wrong{.method = route.method, .target = filled(route.path, "job-1")};
    wrong.headers = {{"authorization", "Bearer lst_" + std::string(64, '0')}};
    EXPECT_EQ(router_->handle(wrong).status, 401) << route.path;
  }
  EXPECT_EQ(open, 3);  // healthz, readyz, openapi.json
  EXPECT_EQ(ask("", "GET", "/v1/nothing").status, 401);
}

TEST_F(RouterTest, EveryRouteIsInTheDocumentAndNothingElseIs) {
  const auto document = Json::parse(router_->openapi());
  EXPECT_EQ(document["openapi"], "3.1.0");
  std::set<std::string> operations;
  std::size_t described = 0;
  for (const auto& [path, methods] : document["paths"].items()) {
    described += methods.size();
  }
  for (const auto& route : router_->routes()) {
    std::string method = route.method;
    for (auto& c : method) c = static_cast<char>(std::tolower(c));
    const auto& operation = document["paths"][route.path][method];
    ASSERT_FALSE(operation.is_null()) << route.path;
    EXPECT_EQ(operation["operationId"], route.operation);
    EXPECT_TRUE(operations.insert(route.operation).second) << route.operation;
    EXPECT_EQ(operation["security"].empty(), route.is_open) << route.path;
  }
  EXPECT_EQ(described, router_->routes().size());
}

TEST_F(RouterTest, BothFamiliesAreThere) {
  int multigpu = 0;
  for (const auto& route : router_->routes()) {
    if (route.path.rfind("/multigpu/", 0) == 0) ++multigpu;
  }
  EXPECT_EQ(multigpu, 15);
  EXPECT_EQ(ask("ada", "GET", "/multigpu/health").status, 200);
  const auto other = ask("ada", "PUT", "/multigpu/config");
  EXPECT_EQ(other.status, 405);
  EXPECT_EQ(other.headers, (Headers{{"Allow", "GET, POST"}}));
  EXPECT_EQ(ask("ada", "GET", "/api/v1/multigpu/health").status, 200);
}

// Who may do what with a thing of whom, over all routes of things.
TEST_F(RouterTest, RolesAndOwnersOverAllRoutes) {
  for (const auto& route : router_->routes()) {
    const auto thing = thing_of_ada(route.path);
    if (route.is_open) continue;
    const auto target = filled(route.path, thing.value_or("none-1"));
    const auto place = route.method + " " + route.path;
    const auto status = [&](const std::string& user) {
      const bool is_part = route.operation == "addPart";
      return ask(user, route.method, target + (is_part ? "?offset=0" : ""), "{}")
          .status;
    };
    if (route.for_admins) {
      for (const auto* user : {"ada", "eve", "vic"})
        EXPECT_EQ(status(user), 403) << place;
      EXPECT_NE(status("root"), 403) << place;
      continue;
    }
    if (route.changes) {
      EXPECT_EQ(status("vic"), 403) << place;
      EXPECT_EQ(status("ada-viewer"), 403) << place;
    }
    if (thing) {
      EXPECT_EQ(status("eve"), 404) << place;
      if (!route.changes) {
        EXPECT_EQ(status("vic"), 404) << place;
        EXPECT_EQ(status("ada-viewer"), status("ada")) << place;
      }
      EXPECT_NE(status("root"), 403) << place;
    }
    EXPECT_NE(status("ada"), 403) << place;
  }
}

TEST_F(RouterTest, EveryAnswerIsAsTheDocumentSays) {
  const auto id = submit("ada");
  for (const auto& route : router_->routes()) {
    if (route.changes && !route.for_admins && route.method == "DELETE") continue;
    const auto target = filled(route.path, id);
    auto response = ask("root", route.method, target, "{}");
    if (response.stream) continue;
    EXPECT_LT(response.status, 600);
    EXPECT_NE(response.status, 500) << route.path << " " << response.body;
    EXPECT_EQ(router_->response_problem(route.method, route.path, response), "")
        << route.method << " " << route.path << " " << response.body;
  }
}

TEST_F(RouterTest, NoPathLeadsOut) {
  const auto id = submit("ada");
  for (const auto* way : {"..",
                          "%2e%2e",
                          "%252e%252e",
                          "..%2f..%2fetc%2fpasswd",
                          "%2fetc%2fpasswd",
                          "..;",
                          ";",
                          "%00",
                          "a%00b",
                          "..\\..",
                          "%5c..",
                          "file:%2f%2f%2fetc",
                          "....//",
                          "%c0%ae%c0%ae",
                          "%",
                          "%2",
                          "%zz",
                          "\xff",
                          "1%0d%0aX: y",
                          ".",
                          "~root"}) {
    const std::string word(way);
    for (const auto& target :
         {"/v1/jobs/" + word, "/v1/jobs/" + id + "/checkpoints/1/" + word,
          "/v1/jobs/" + id + "/checkpoints/" + word + "/manifest.json",
          "/v1/files/" + word, "/" + word + "/etc/passwd", "/v1/jobs/" + word + "/logs",
          "/v1/../" + word}) {
      const auto response = ask("root", "GET", target);
      EXPECT_EQ(response.status, 404) << target << " " << response.body;
      EXPECT_THAT(response.body, Not(HasSubstr("root:")));
      EXPECT_THAT(response.body, Not(HasSubstr(state_.path().string())));
    }
    const auto log = ask("root", "GET", "/v1/jobs/" + id + "/logs?rank=" + word);
    EXPECT_TRUE(log.status == 400 || log.status == 404) << word;
  }
}

TEST_F(RouterTest, ALinkInACheckpointIsNotFollowed) {
  const auto id = submit("ada");
  const auto folder = state_.path() / "jobs" / id / "run" / "checkpoints" / "step_1";
  std::filesystem::create_directories(folder);
  std::filesystem::create_symlink("/etc/passwd", folder / "secret");
  test::write_file(folder / "plain", "x");
  EXPECT_EQ(ask("ada", "GET", "/v1/jobs/" + id + "/checkpoints/1/secret").status, 404);
  EXPECT_TRUE(ask("ada", "GET", "/v1/jobs/" + id + "/checkpoints/1/plain").stream);
}

TEST_F(RouterTest, MarkedKnobsAreRefusedAndNothingIsQueued) {
  for (const auto* recipe : {"{\"data\": {\"dir\": \"/etc\"}}", "\"run: {dir: /tmp}\"",
                             "{\"model\": {\"weights\": \"/etc/passwd\"}}",
                             "{\"monitor\": {\"prometheus_address\": \"0.0.0.0\"}}"}) {
    const auto response =
        ask("ada", "POST", "/v1/jobs", std::string("{\"recipe\": ") + recipe + "}");
    EXPECT_EQ(response.status, 400) << recipe;
    EXPECT_THAT(response.body, HasSubstr("may not set"));
  }
  EXPECT_TRUE(service_->store().jobs({}).empty());
}

TEST_F(RouterTest, BodiesThatAreNoneAreRefusedClearly) {
  for (const auto& body :
       {std::string("{"), std::string("[]"), std::string("null"), std::string(),
        std::string(100'000, '['), std::string("{\"recipe\": 3}"),
        std::string("{\"recipe\": {}}"), std::string("{\"recipe\": \"\"}"),
        std::string("{\"recipe\": {\"train\": {\"steps\": 1}}, \"resources\": "
                    "{\"cores\": 4000}}"),
        std::string("{\"recipe\": {}, \"priority\": 1e300}"),
        std::string("{\"recipe\": {\"train\": {\"steps\": 1}}, \"sudo\": true}"),
        std::string("\xff\xfe{}")}) {
    const auto response = ask("ada", "POST", "/v1/jobs", body);
    EXPECT_EQ(response.status, 400) << body.substr(0, 60);
    EXPECT_EQ(response.type, "application/problem+json");
    EXPECT_FALSE(Json::parse(response.body).at("instance").empty());
  }
}

TEST_F(RouterTest, EveryChangeAndEveryTryIsInTheAuditLog) {
  const auto id = submit("ada");
  ask("eve", "POST", "/v1/jobs/" + id + "/cancel");
  ask("ada", "POST", "/v1/jobs/" + id + "/cancel");
  ask("ada", "GET", "/v1/jobs");
  const auto lines = service::audit(service_->store(), 0, 100);
  ASSERT_EQ(lines.size(), 3U);
  EXPECT_EQ(lines[0].target, id);
  EXPECT_EQ(lines[0].status, 201);
  EXPECT_EQ(lines[1].user, "eve");
  EXPECT_EQ(lines[1].status, 404);
  EXPECT_EQ(lines[2].status, 200);
  EXPECT_FALSE(service::first_altered(service_->store()));
}

TEST_F(RouterTest, ATokenThatAsksTooOftenIsToldToWait) {
  auto config = service_->config();
  config.limits.requests_per_minute = 1;
  service_->reload(config);
  int refused = 0;
  for (int i = 0; i < 10; ++i) {
    refused += ask("ada", "GET", "/v1/jobs").status == 429 ? 1 : 0;
  }
  EXPECT_EQ(refused, 9);
  EXPECT_EQ(ask("eve", "GET", "/v1/jobs").status, 200);
}

TEST_F(RouterTest, AnAddressThatGuessesTokensIsShutOut) {
  auto config = service_->config();
  config.limits.failed_logins_per_minute = 1;
  service_->reload(config);
  Request guess{.method = "GET", .target = "/v1/jobs"};
  guess.peer = "10.0.0.1";
  guess.headers = {{"authorization", "Bearer lst_x"}};
  int shut = 0;
  for (int i = 0; i < 10; ++i) shut += router_->handle(guess).status == 429 ? 1 : 0;
  EXPECT_EQ(shut, 9);
  EXPECT_EQ(ask("ada", "GET", "/v1/jobs").status, 200);
}

TEST_F(RouterTest, SettingsAreKeptForEachUser) {
  EXPECT_EQ(
      ask("ada", "POST", "/multigpu/config", "{\"batch_size_per_gpu\": 3}").status,
      200);
  EXPECT_EQ(
      Json::parse(ask("ada", "GET", "/multigpu/config").body)["batch_size_per_gpu"], 3);
  EXPECT_EQ(
      Json::parse(ask("eve", "GET", "/multigpu/config").body)["batch_size_per_gpu"], 8);
  EXPECT_EQ(ask("ada", "POST", "/multigpu/config", "{\"batch\": 3}").status, 400);
}

TEST_F(RouterTest, AModelThatIsNotThereIsNamed) {
  const auto response =
      ask("ada", "POST", "/multigpu/training/auto",
          R"({"model_name":"gpt2","dataset_config":{"texts":["a b c"],"max_length":16},
          "training_config":{"epochs":3,"learning_rate":5e-5,"batch_size_per_gpu":8},
          "training_type":"auto","world_size":2,"user_id":123})");
  EXPECT_EQ(response.status, 400);
  EXPECT_THAT(response.body, HasSubstr("gpt2"));
}

TEST_F(RouterTest, PrometheusTakesItsNumbers) {
  LOCKSTEP_NEEDS_ORACLE();
  submit("ada");
  const auto response = ask("root", "GET", "/metrics");
  ASSERT_EQ(response.status, 200);
  const auto page = state_.path() / "metrics.prom";
  test::write_file(page, response.body);
  test::expect_oracle_agrees("service_metrics.py", {page.string()});
}

TEST_F(RouterTest, PlansAreNoTrainings) {
  const auto response =
      ask("ada", "POST", "/v1/plans", "{\"recipe\": " + test::short_recipe(5) + "}");
  ASSERT_EQ(response.status, 201) << response.body;
  const auto id = Json::parse(response.body).at("id").get<std::string>();
  const auto training = submit("ada");
  const auto ids = [&](const std::string& target) {
    std::vector<std::string> all;
    const auto page = Json::parse(ask("ada", "GET", target).body);
    for (const auto& item : page["items"]) all.push_back(item["id"]);
    return all;
  };
  EXPECT_EQ(ids("/v1/plans"), std::vector<std::string>{id});
  EXPECT_EQ(ids("/v1/jobs"), std::vector<std::string>{training});
  EXPECT_EQ(ask("ada", "GET", "/v1/plans/" + training).status, 404);
  EXPECT_EQ(ask("eve", "GET", "/v1/plans/" + id).status, 404);
  const auto plan = Json::parse(ask("ada", "GET", "/v1/plans/" + id).body);
  EXPECT_EQ(plan["plan"], nullptr);
  // What names something of this machine is left out of what a plan has chosen.
  const auto folder = state_.path() / "jobs" / id;
  std::filesystem::create_directories(folder);
  test::write_file(folder / "plan.json",
                   R"({"choices": [{"key": "run.dir", "value": "/srv"},
                                   {"key": "batch.micro", "value": "8"}]})");
  const auto made = Json::parse(ask("ada", "GET", "/v1/plans/" + id).body)["plan"];
  ASSERT_EQ(made["choices"].size(), 1U);
  EXPECT_EQ(made["choices"][0]["key"], "batch.micro");
}

TEST_F(RouterTest, ARunHasTheIdOfItsJobAndBothPaths) {
  const auto id = submit("ada");
  submit("ada");  // has no run, and is not in the list
  EXPECT_EQ(ask("ada", "GET", "/v1/runs/" + id).status, 404);  // there is none yet
  std::filesystem::create_directories(state_.path() / "jobs" / id);
  const auto run =
      run::RunDirectory::create(state_.path() / "jobs" / id, {.name = "run"});
  test::write_file(run.metrics(), R"({"step":3,"split":"train","loss":0.5})"
                                  "\n");
  const auto one = Json::parse(ask("ada", "GET", "/v1/runs/" + id).body);
  EXPECT_EQ(one["id"], id);
  EXPECT_EQ(one["job_state"], "queued");
  EXPECT_FALSE(one["run"].contains("path"));
  const auto page = Json::parse(ask("ada", "GET", "/v1/runs").body);
  ASSERT_EQ(page["items"].size(), 1U);
  EXPECT_EQ(page["items"][0]["id"], id);
  EXPECT_EQ(page["items"][0]["run"]["step"], 3);
  EXPECT_TRUE(Json::parse(ask("eve", "GET", "/v1/runs").body)["items"].empty());
  const auto metrics = ask("ada", "GET", "/v1/runs/" + id + "/metrics").body;
  EXPECT_EQ(Json::parse(metrics)["items"][0]["step"], 3);
  EXPECT_EQ(ask("ada", "GET", "/v1/jobs/" + id + "/metrics").body, metrics);
}

TEST_F(RouterTest, ADefectIsAnIdForTheClientAndALineForTheLog) {
  service_->store().database().execute("DROP TABLE history");
  const auto response =
      ask("ada", "POST", "/v1/jobs", "{\"recipe\": " + test::short_recipe(5) + "}");
  EXPECT_EQ(response.status, 500);
  EXPECT_THAT(response.body, Not(HasSubstr("history")));
  EXPECT_THAT(response.body, HasSubstr("urn:lockstep:problem:"));
}

}  // namespace
}  // namespace lockstep::server
