// The service with the real worker: a CNN on the CPU, submitted, paused, resumed, done,
// while the server is killed under it.
#include <csignal>

#include <nlohmann/json.hpp>
#include <unistd.h>

#include "lockstep/base/files.h"
#include "tests/system/command.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;
using Json = nlohmann::ordered_json;

class ServiceSystem : public ::testing::Test {
 protected:
  void start() {
    server_.emplace(process::Child::start(
        {.arguments = {test::binary("lockstep").string(), "serve", "--insecure-local",
                       "http.port=0", "store.dir=" + folder_.path().string()},
         .out = process::Stream::pipe,
         .err = process::Stream::discard}));
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

  process::Output command(std::vector<std::string> words) {
    words.insert(words.end(), {"--server", url_});
    return test::lockstep_command(std::move(words), folder_.path());
  }

  Json job(const std::string& id) {
    return Json::parse(command({"jobs", id, "--json"}).out);
  }

  bool reaches(const std::string& id, const std::string& state) {
    return test::eventually([&] { return job(id).at("state") == state; });
  }

  files::TemporaryDirectory folder_;
  std::optional<process::Child> server_;
  std::string url_;
};

TEST_F(ServiceSystem, ATrainingOutlivesItsServerPausesAndGoesOn) {
  start();
  const auto submitted = command({"submit", test::quick_recipe(), "train.steps=60",
                                  "parallel.device=cpu", "--name", "cnn"});
  ASSERT_TRUE(submitted.end.ok()) << submitted.err;
  const auto id = submitted.out.substr(0, submitted.out.find('\n'));
  ASSERT_TRUE(test::eventually([&] {
    const auto run = job(id).value("run", Json());
    return run.is_object() && run.value("step", Json()).is_number() &&
           run["step"].get<int>() > 3;
  }));
  kill();
  start();
  EXPECT_EQ(job(id).at("attempt"), 1);
  ASSERT_TRUE(command({"pause", id}).end.ok());
  ASSERT_TRUE(reaches(id, "paused") || job(id).at("state") == "done");
  if (job(id).at("state") == "paused") {
    ASSERT_TRUE(command({"resume", id, "--cores", "1"}).end.ok());
  }
  ASSERT_TRUE(reaches(id, "done")) << job(id).dump();
  const auto losses = test::losses_in(folder_.path() / "jobs" / id / "run");
  EXPECT_GE(losses.size(), 60U);
  EXPECT_LT(losses.back(), losses.front());
  EXPECT_THAT(command({"logs", id}).out, HasSubstr("accuracy"));
}

}  // namespace
}  // namespace lockstep
