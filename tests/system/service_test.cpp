// The service with the real worker: a CNN on the CPU, submitted, paused, resumed, done,
// while the server is killed under it.
#include <chrono>
#include <csignal>
#include <functional>
#include <thread>

#include <nlohmann/json.hpp>
#include <unistd.h>

#include "lockstep/base/files.h"
#include "lockstep/run/knobs.h"
#include "tests/system/command.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;
using Json = nlohmann::ordered_json;

class ServiceSystem : public ::testing::Test {
 protected:
  // No test leaves a training behind.
  ~ServiceSystem() override {
    if (!server_) return;
    for (const auto& id : submitted_) {
      if (command({"cancel", id}).end.ok()) reaches(id, "cancelled");
    }
  }

  void start() {
    server_.emplace(process::Child::start(
        {.arguments = {test::binary("lockstep").string(), "serve", "--insecure-local",
                       "http.port=0", "limits.requests_per_minute=1000000",
                       "store.dir=" + folder_.path().string(),
                       "provided.models_dir=" + models().string()},
         .out = process::StreamMode::pipe,
         .err = process::StreamMode::discard}));
    url_.clear();
    char c = 0;
    while (::read(server_->out().get(), &c, 1) == 1 && c != '\n') url_ += c;
    ASSERT_FALSE(url_.empty());
  }

  void kill() {
    server_->signal(SIGKILL);
    server_->wait();
    server_.reset();
  }

  files::Path models() const { return folder_.path() / "models"; }

  // A GPT-2 that was trained for some steps here, under the name of the real one.
  void make_gpt2() {
    const auto at = [&](const char* name) { return (folder_.path() / name).string(); };
    std::string text;
    for (int i = 0; i < 400; ++i) text += "the king went up to the city and spoke\n";
    std::filesystem::create_directories(at("corpus"));
    test::write_file(at("corpus/train.txt"), text);
    test::write_file(at("corpus/val.txt"), text.substr(0, 2000));
    const auto run = [&](std::vector<std::string> words) {
      const auto output = test::lockstep_command(std::move(words), folder_.path());
      ASSERT_TRUE(output.end.ok()) << output.err;
    };
    run({"tokenizer", "train", at("corpus/train.txt"), "--vocab-size", "280", "-o",
         at("words")});
    test::write_file(
        at("tiny.yaml"),
        "model: {name: gpt, hidden: 16, layers: 1, heads: 2, context: 64}\n"
        "data: {name: text, sequence: 32, dir: '" +
            at("corpus") + "', tokenizer: '" + at("words") +
            "'}\nbatch: {global: 4}\ntrain: {steps: 3}\neval: {every: 0}\n"
            "parallel: {device: cpu, ranks: 1, threads: 1}\n");
    run({"train", at("tiny.yaml"), "--run-dir", at("tiny")});
    run({"checkpoint", "export", at("tiny"), "--format", "hf", "--to", at("hf")});
    std::filesystem::create_directories(models());
    std::filesystem::copy(at("hf"), models() / "gpt2");
  }

  // A request as any client sends it.
  Json post(const std::string& target, const std::string& body) {
    const auto output = test::run({"curl", "-sS", "-d", body, url_ + target});
    EXPECT_TRUE(output.end.ok()) << output.err;
    return Json::parse(output.out);
  }

  process::Output command(std::vector<std::string> words) {
    words.insert(words.end(), {"--server", url_});
    return test::lockstep_command(std::move(words), folder_.path());
  }

  Json job(const std::string& id) {
    return Json::parse(command({"jobs", id, "--json"}).out);
  }

  // A training on busy cores takes its time, and asking all the time makes it longer.
  bool becomes(const std::string& id, const std::function<bool(const Json&)>& is_so) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::minutes(3);
    while (!is_so(job(id))) {
      if (std::chrono::steady_clock::now() >= deadline) return false;
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
    return true;
  }
  bool reaches(const std::string& id, const std::string& state) {
    return becomes(id, [&](const Json& job) {
      const auto now = job.at("state");
      return now == state || now == "done" || now == "failed";
    });
  }
  bool passes(const std::string& id, int step) {
    return becomes(id, [&](const Json& job) {
      const auto run = job.value("run", Json());
      return run.is_object() && run.value("step", Json()).is_number() &&
             run["step"].get<int>() > step;
    });
  }

  // A CNN on the CPU; returns its id.
  std::string submit(const std::vector<std::string>& knobs) {
    std::vector<std::string> words{"submit", test::quick_recipe(),
                                   "parallel.device=cpu", "--name", "cnn"};
    words.insert(words.begin() + 2, knobs.begin(), knobs.end());
    const auto submitted = command(std::move(words));
    EXPECT_TRUE(submitted.end.ok()) << submitted.err;
    submitted_.push_back(submitted.out.substr(0, submitted.out.find('\n')));
    return submitted_.back();
  }

  std::vector<double> losses_of(const std::string& id) {
    return test::losses_in(folder_.path() / "jobs" / id / "run");
  }

  files::TemporaryDirectory folder_;
  std::vector<std::string> submitted_;
  std::optional<process::Child> server_;
  std::string url_;
};

TEST_F(ServiceSystem, ATrainingOutlivesItsServerPausesAndGoesOn) {
  start();
  // More steps than it has the time for: it is cancelled in the end.
  const auto id = submit({"train.steps=1000000", "checkpoint.keep=1", "--cores", "2",
                          "parallel.ranks=2", "batch.per_rank=32"});
  ASSERT_TRUE(passes(id, 3));
  kill();
  start();
  EXPECT_EQ(job(id).at("attempt"), 1);
  ASSERT_TRUE(command({"pause", id}).end.ok());
  ASSERT_TRUE(reaches(id, "paused"));
  ASSERT_EQ(job(id).at("state"), "paused") << job(id).dump();
  const auto before = losses_of(id).size();
  ASSERT_TRUE(command({"resume", id, "--cores", "1"}).end.ok());
  ASSERT_TRUE(passes(id, static_cast<int>(before) + 2));
  ASSERT_TRUE(command({"cancel", id}).end.ok());
  ASSERT_TRUE(reaches(id, "cancelled"));
  ASSERT_EQ(job(id).at("state"), "cancelled") << job(id).dump();
  EXPECT_EQ(job(id).at("attempt"), 2);
  EXPECT_GT(losses_of(id).size(), before);
  // On half of the cores it has half of the ranks, and the batch that it began with.
  const auto knobs =
      run::read_knobs(folder_.path() / "jobs" / id / "run" / "config.yaml");
  EXPECT_EQ(knobs.at("parallel.ranks"), "1");
  EXPECT_EQ(knobs.at("batch.global"), "64");
}

TEST_F(ServiceSystem, ATrainingIsDoneAndItsLogSaysHowWell) {
  start();
  const auto id = submit({"train.steps=60"});
  ASSERT_TRUE(reaches(id, "done"));
  ASSERT_EQ(job(id).at("state"), "done") << job(id).dump();
  const auto losses = losses_of(id);
  EXPECT_GE(losses.size(), 60U);
  EXPECT_LT(losses.back(), losses.front());
  EXPECT_THAT(command({"logs", id}).out, HasSubstr("accuracy"));
}

// The body of a user, with the learning rate and lengths of a small model.
TEST_F(ServiceSystem, TheBodyOfAUserTrainsAGpt2OnTwoRanks) {
  make_gpt2();
  start();
  std::string texts = "\"the king went up to the city and spoke\"";
  for (int i = 0; i < 63; ++i) texts += ",\"the king spoke of the city\"";
  const auto answer = post(
      "/multigpu/training/auto",
      "{\"model_name\":\"gpt2\",\"dataset_config\":{\"texts\":[" + texts +
          "],\"max_length\":32},\"training_config\":{\"epochs\":3,\"learning_rate\":"
          "5e-3,\"batch_size_per_gpu\":4},\"training_type\":\"auto\",\"world_size\":2,"
          "\"user_id\":123}");
  ASSERT_TRUE(answer.contains("job_id")) << answer.dump();
  const auto id = answer["job_id"].get<std::string>();
  ASSERT_TRUE(reaches(id, "done"));
  EXPECT_EQ(job(id).at("state"), "done") << job(id).dump();
  const auto losses = losses_of(id);
  ASSERT_GE(losses.size(), 3U);
  EXPECT_LT(losses.back(), losses.front());
}

}  // namespace
}  // namespace lockstep
