// /multigpu with the bodies that users send: jobs that train to their end, with a
// worker that computes nothing, and the test of GPUs.
#include <future>

#include <nlohmann/json.hpp>
#include <sys/stat.h>

#include "lockstep/server/router.h"
#include "lockstep/tokenizer/files.h"
#include "tests/hf/support/gpt2_folder.h"
#include "tests/service/rig.h"
#include "tests/tokenizer/support/small.h"

namespace lockstep::server {
namespace {

using ::testing::HasSubstr;
using Json = nlohmann::ordered_json;

// As it stands in the issue of a user, with texts.
const std::string kTrainingBody =
    R"({"model_name":"gpt2","dataset_config":{"texts":["the theme of the thesis",
    "is that the other bathe there"],"max_length":512},"training_config":{"epochs":3,
    "learning_rate":5e-5,"batch_size_per_gpu":8,"gradient_accumulation_steps":2,
    "warmup_steps":1,"weight_decay":0.01,"max_grad_norm":1.0},"training_type":"auto",
    "world_size":2,"user_id":123})";

const std::string kSettingsBody =
    R"({"use_multi_gpu":true,"gpu_ids":[0,1],"distributed_training":true,
    "backend":"gloo","batch_size_per_gpu":4,"gradient_accumulation_steps":1,
    "sync_batch_norm":true,"mixed_precision":true,"memory_fraction":0.9,
    "find_unused_parameters":true,"timeout_minutes":30})";

class MultiGpuTest : public ::testing::Test {
 protected:
  void serve(const std::string& program, int gpus = 0) {
    serve(program, test::machine_with(gpus));
  }

  void serve(const std::string& program, const hardware::Machine& machine) {
    config::ServerConfig config;
    config.queue.cores = 2;
    config.provided.models_dir = models().string();
    service_ = std::make_unique<service::Service>(
        service::ServiceOptions{.config = config,
                                .state = state_.path(),
                                .caller = test::quiet_caller(program),
                                .machine = [machine] { return machine; }});
    router_ = std::make_unique<Router>(*service_, RouterOptions{});
  }

  files::Path models() const { return folder_.path() / "models"; }

  // A GPT-2 of a few thousand parameters with a tokenizer, under the name of the real
  // one.
  void add_model() const {
    const test::Gpt2Folder made(
        {.vocabulary = 300, .context = 512, .hidden = 8, .layers = 2, .heads = 2});
    std::filesystem::create_directories(models());
    std::filesystem::copy(made.path(), models() / "gpt2");
    test::write_file(models() / "gpt2" / "tokenizer.json",
                     tokenizer::tokenizer_json(test::small_tokenizer().vocabulary()));
  }

  Response ask(const std::string& method, const std::string& target,
               const std::string& body = "") {
    return router_->handle_as({.method = method, .target = target, .body = body},
                              test::as("ada"));
  }

  service::Job job(const std::string& id) { return service_->job(test::as("ada"), id); }

  bool reaches(const std::string& id, service::JobState state) {
    return test::eventually([&] { return job(id).state == state; });
  }

  files::TemporaryDirectory folder_;
  files::TemporaryDirectory state_;
  std::unique_ptr<service::Service> service_;
  std::unique_ptr<Router> router_;
};

TEST_F(MultiGpuTest, TheBodiesOfUsersTrainToTheirEnd) {
  const test::FakeInstallation installation;
  add_model();
  serve(installation.program());
  service_->start();
  for (const auto* type : {"auto", "distributed", "dataparallel"}) {
    const auto response =
        ask("POST", std::string("/multigpu/training/") + type, kTrainingBody);
    ASSERT_EQ(response.status, 201) << type << " " << response.body;
    const auto json = Json::parse(response.body);
    EXPECT_EQ(json["status"], "queued");
    const auto id = json["job_id"].get<std::string>();
    ASSERT_TRUE(reaches(id, service::JobState::done)) << type << " " << job(id).reason;
    EXPECT_EQ(job(id).resources.cores, 2);
  }
  const auto history = Json::parse(ask("GET", "/multigpu/training/history").body);
  EXPECT_EQ(history["items"].size(), 3U);
}

// Somebody who has never been seen: without tokens everybody is.
TEST_F(MultiGpuTest, AFirstRequestMayBeAnUpload) {
  serve("/nonexistent/lockstep");
  const auto response =
      ask("POST", "/v1/files",
          R"({"kind": "txt", "bytes": 3, "sha256": ")" + std::string(64, 'a') + "\"}");
  EXPECT_EQ(response.status, 201) << response.body;
}

TEST_F(MultiGpuTest, AllSettingsOfUsersAreKept) {
  serve("/nonexistent/lockstep", 2);
  for (const auto* path : {"/multigpu/config", "/api/v1/multigpu/training/config"}) {
    const auto response = ask("POST", path, kSettingsBody);
    ASSERT_EQ(response.status, 200) << response.body;
    const auto kept = Json::parse(ask("GET", "/multigpu/config").body);
    const auto wanted = Json::parse(kSettingsBody);
    for (const auto& [name, value] : wanted.items())
      EXPECT_EQ(kept[name], value) << name;
  }
}

TEST_F(MultiGpuTest, SettingsHoldForTheNextJob) {
  add_model();
  serve("/nonexistent/lockstep", 2);
  ASSERT_EQ(ask("POST", "/multigpu/config", kSettingsBody).status, 200);
  const auto response = ask("POST", "/multigpu/training/auto", kTrainingBody);
  ASSERT_EQ(response.status, 201) << response.body;
  const auto made = job(Json::parse(response.body)["job_id"]);
  EXPECT_EQ(made.resources.gpu_ids, (std::vector<int>{0, 1}));
  EXPECT_DOUBLE_EQ(made.resources.memory_fraction, 0.9);
  const auto recipe = Json::parse(made.recipe);
  EXPECT_EQ(recipe["comm"]["backend"], "gloo");
  EXPECT_EQ(recipe["precision"]["mode"], "bf16");
  EXPECT_EQ(recipe["parallel"]["sync_batch_norm"], true);
  EXPECT_EQ(recipe["parallel"]["find_unused_parameters"], true);
  // What the request says wins over what was kept.
  EXPECT_EQ(recipe["batch"]["per_rank"], 16);
  EXPECT_EQ(recipe["batch"]["accumulation"], 2);
}

// What one request says holds for it alone, and what nobody here knows is said.
TEST_F(MultiGpuTest, SettingsInARequestHoldAndUnknownOnesAreNamed) {
  add_model();
  serve("/nonexistent/lockstep", 2);
  const auto response =
      ask("POST", "/multigpu/training/auto",
          R"({"model_name":"gpt2","dataset_config":{"texts":["a","b"],"shuffle":true},
          "training_config":{"epochs":1,"mixed_precision":true,"optimizer":"sgd",
          "sync_batch_norm":true,"distributed_training":false},"user_id":1,"x":2})");
  ASSERT_EQ(response.status, 201) << response.body;
  const auto json = Json::parse(response.body);
  EXPECT_EQ(json["ignored"],
            Json({"x", "dataset_config.shuffle", "training_config.optimizer"}));
  const auto recipe = Json::parse(job(json["job_id"]).recipe);
  EXPECT_EQ(recipe["precision"]["mode"], "bf16");
  EXPECT_EQ(recipe["parallel"]["sync_batch_norm"], true);
  EXPECT_EQ(recipe["parallel"]["strategy"], "data_parallel");
  EXPECT_EQ(Json::parse(ask("GET", "/multigpu/config").body)["mixed_precision"], false);
  EXPECT_EQ(ask("POST", "/multigpu/training/auto",
                R"({"model_name":"gpt2","dataset_config":{"texts":["a"]},
                    "training_config":{"mixed_precision":"yes"}})")
                .status,
            400);
}

TEST_F(MultiGpuTest, OfFewTextsOneIsHeldBack) {
  add_model();
  serve("/nonexistent/lockstep");
  for (const auto& [texts, share] :
       {std::pair(1, 0.6), std::pair(3, 0.4), std::pair(40, 0.1)}) {
    std::string list;
    for (int i = 0; i < texts; ++i) list += i == 0 ? "\"a\"" : ",\"a\"";
    const auto response =
        ask("POST", "/multigpu/training/auto",
            R"({"model_name":"gpt2","dataset_config":{"texts":[)" + list + "]}}");
    ASSERT_EQ(response.status, 201) << response.body;
    const auto recipe = Json::parse(job(Json::parse(response.body)["job_id"]).recipe);
    EXPECT_DOUBLE_EQ(recipe["data"]["split"], share);
  }
}

TEST_F(MultiGpuTest, ATestOfGpusTellsWhatTheProgramSaid) {
  const auto program = (folder_.path() / "lockstep").string();
  test::write_file(program,
                   "#!/bin/sh\n[ \"$*\" = 'gpus test --json' ] || exit 2\n"
                   "echo '{\"gpus\": [{\"gpu\": 0, \"passed\": true}]}'\n");
  std::filesystem::permissions(program, std::filesystem::perms(0755));
  serve(program, 1);
  const auto good = Json::parse(ask("POST", "/multigpu/gpu/test").body);
  EXPECT_EQ(good["passed"], true);
  EXPECT_EQ(good["result"]["gpus"][0]["passed"], true);
  test::write_file(program,
                   "#!/bin/sh\necho '{\"gpus\": [{\"gpu\": 0, \"passed\": false}]}'\n"
                   "exit 1\n");
  std::filesystem::permissions(program, std::filesystem::perms(0755));
  const auto bad = Json::parse(ask("POST", "/multigpu/gpu/test").body);
  EXPECT_EQ(bad["passed"], false);
  EXPECT_EQ(bad["result"]["gpus"][0]["passed"], false);
  EXPECT_THAT(bad["problem"].get<std::string>(), HasSubstr("exit status 1"));
}

TEST_F(MultiGpuTest, HealthAndRecommendationsNameTheGpuTheNumberAndTheRemedy) {
  auto machine = test::machine_with(3);
  machine.gpus[1].status.temperature_celsius = 97;
  machine.gpus[2].status.memory_used_bytes = machine.gpus[2].memory_total_bytes - 1;
  serve("/nonexistent/lockstep", machine);
  const auto health = Json::parse(ask("GET", "/multigpu/health").body);
  EXPECT_EQ(health["status"], "degraded");
  ASSERT_EQ(health["problems"].size(), 1U);
  EXPECT_EQ(health["problems"][0]["gpu_id"], 1);
  EXPECT_THAT(health["problems"][0]["problem"].get<std::string>(),
              ::testing::AllOf(HasSubstr("97 C"), HasSubstr("queue.max_gpu_celsius"),
                               HasSubstr("look at its cooling")));
  const auto items =
      Json::parse(ask("GET", "/multigpu/gpu/recommendations").body)["items"];
  ASSERT_EQ(items.size(), 2U);
  EXPECT_EQ(items[0]["gpu_id"], 1);
  EXPECT_EQ(items[1]["gpu_id"], 2);
  EXPECT_THAT(items[1]["recommendation"].get<std::string>(),
              ::testing::AllOf(HasSubstr("17179869183 of 17179869184 bytes"),
                               HasSubstr("batch_size_per_gpu")));
  const auto stats = Json::parse(ask("GET", "/multigpu/gpu/1/stats").body);
  EXPECT_EQ(stats["healthy"], false);
  EXPECT_EQ(stats["temperature_celsius"], 97);
  EXPECT_EQ(Json::parse(ask("GET", "/multigpu/gpu/0/stats").body)["healthy"], true);
  EXPECT_EQ(ask("GET", "/multigpu/gpu/3/stats").status, 404);
}

// It computes for a minute: those of others' jobs are left alone.
TEST_F(MultiGpuTest, OnlyGpusThatNoJobHasAreTested) {
  const auto program = (folder_.path() / "lockstep").string();
  test::write_file(program, "#!/bin/sh\necho \"[\\\"$CUDA_VISIBLE_DEVICES\\\"]\"\n");
  std::filesystem::permissions(program, std::filesystem::perms(0755));
  serve(program, 2);
  service_->store().add_leases(std::vector<service::Lease>{
      {.job = "job-of-eve", .is_gpu = true, .unit = 0, .share = 0.5}});
  const auto json = Json::parse(ask("POST", "/multigpu/gpu/test").body);
  EXPECT_EQ(json["gpu_ids"], Json({1}));
  EXPECT_EQ(json["result"], Json({"1"}));
  service_->store().add_leases(std::vector<service::Lease>{
      {.job = "job-of-eve", .is_gpu = true, .unit = 1, .share = 1}});
  const auto none = Json::parse(ask("POST", "/multigpu/gpu/test").body);
  EXPECT_EQ(none["passed"], false);
  EXPECT_THAT(none["problem"].get<std::string>(), HasSubstr("jobs have all GPUs"));
}

// Each holds up a thread that others' changes wait for.
TEST_F(MultiGpuTest, GpusAreTestedOneRequestAtATime) {
  const auto program = (folder_.path() / "lockstep").string();
  const auto begun = folder_.path() / "begun";
  const auto pipe = folder_.path() / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  test::write_file(program, "#!/bin/sh\n: > " + begun.string() + "\nread line < " +
                                pipe.string() + "\necho '{}'\n");
  std::filesystem::permissions(program, std::filesystem::perms(0755));
  serve(program, 1);
  auto first = std::async(std::launch::async,
                          [&] { return ask("POST", "/multigpu/gpu/test").status; });
  EXPECT_TRUE(test::eventually([&] { return std::filesystem::exists(begun); }));
  EXPECT_EQ(ask("POST", "/multigpu/gpu/test").status, 429);
  test::write_file(pipe, "go\n");
  EXPECT_EQ(first.get(), 200);
  std::filesystem::remove(begun);
  test::write_file(program, "#!/bin/sh\necho '{}'\n");
  EXPECT_EQ(ask("POST", "/multigpu/gpu/test").status, 200);
}

TEST_F(MultiGpuTest, WithoutGpusTheTestSaysSo) {
  serve("/nonexistent/lockstep");
  const auto json = Json::parse(ask("POST", "/multigpu/gpu/test").body);
  EXPECT_EQ(json["passed"], false);
  EXPECT_THAT(json["problem"].get<std::string>(), HasSubstr("no NVIDIA driver"));
}

}  // namespace
}  // namespace lockstep::server
