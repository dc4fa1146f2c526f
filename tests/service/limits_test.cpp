// What is kept and for how long, what a user may have, and jobs that only plan.
#include <csignal>

#include <nlohmann/json.hpp>

#include "lockstep/service/detail/migrations.h"
#include "tests/service/rig.h"

namespace lockstep::service {
namespace {

using ::testing::HasSubstr;

class LimitsTest : public test::ServiceRig {
 protected:
  LimitsTest() { serve({}); }

  void serve(config::ServerConfig config, int gpus = 0) {
    config.queue.cores = 2;
    ServiceRig::serve(std::move(config), gpus);
  }

  Upload upload(const std::string& text) {
    add_user(service_->store(), "ada");
    const auto made = service_->uploads().create(
        ada_, {.kind = "jsonl",
               .bytes = static_cast<std::int64_t>(text.size()),
               .sha256 = sha256(text)});
    return service_->uploads().add_part(ada_, made.id, {0, text});
  }
};

TEST_F(LimitsTest, WhatWasKeptLongEnoughIsRemovedAndNothingElse) {
  const auto old = submit(5);
  ASSERT_TRUE(reaches(old, JobState::done));
  const auto folder = service_->folder(admin_, old).path();
  const auto living = submit(test::kEndless);
  ASSERT_TRUE(reaches(living, JobState::running));
  EXPECT_EQ(service_->clean_up(), 0);  // nothing is said of how long
  config::ServerConfig config;
  config.store.keep_runs = units::Duration(std::chrono::hours(1));
  service_->reload(config);
  EXPECT_EQ(service_->clean_up(), 0);
  config.store.keep_runs = units::Duration(1);
  service_->reload(config);
  ASSERT_TRUE(test::eventually([&] { return service_->clean_up() == 1; }));
  EXPECT_FALSE(service_->store().find_job(old));
  EXPECT_FALSE(std::filesystem::exists(folder));
  EXPECT_EQ(job(living).state, JobState::running);
}

// Out of the way at once; the bytes of this server and of one that was killed go later.
TEST_F(LimitsTest, WhatIsRemovedGoesWhenNobodyWaits) {
  const auto id = submit(5);
  ASSERT_TRUE(reaches(id, JobState::done));
  const auto removed = state_.path() / "removed";
  std::filesystem::create_directories(removed / "job-of-before" / "run");
  const auto folder = service_->folder(admin_, id).path();
  service_->remove(ada_, id);
  EXPECT_FALSE(std::filesystem::exists(folder));
  EXPECT_TRUE(test::eventually([&] { return std::filesystem::is_empty(removed); }));
}

TEST_F(LimitsTest, UsersDoNotPutTheirJobsBeforeThoseOfOthers) {
  const auto ask = [&](const Identity& who, int priority) {
    service_->submit(who,
                     {.recipe = {.text = test::short_recipe(1)}, .priority = priority});
  };
  EXPECT_NO_THROW(ask(ada_, 0));
  EXPECT_NO_THROW(ask(ada_, -5));
  const auto text = test::error_text(Fault::config, [&] { ask(ada_, 1); });
  EXPECT_THAT(text, HasSubstr("quota.highest_priority=0"));
  EXPECT_NO_THROW(ask(admin_, 100));
  config::ServerConfig config;
  config.quota.highest_priority = 5;
  service_->reload(config);
  EXPECT_NO_THROW(ask(ada_, 5));
  EXPECT_THROW(ask(ada_, 6), Refusal);
}

TEST_F(LimitsTest, AJobThatIsResumedCountsAsANewOne) {
  config::ServerConfig config;
  config.quota.jobs_per_user = 1;
  service_->reload(config);
  const auto first = submit(test::kEndless);
  service_->cancel(ada_, first);
  ASSERT_TRUE(reaches(first, JobState::cancelled));
  const auto second = submit(test::kEndless);
  const auto text =
      test::error_text(Fault::config, [&] { service_->resume(ada_, first, {}); });
  EXPECT_THAT(text, HasSubstr("quota.jobs_per_user"));
  EXPECT_EQ(job(first).state, JobState::cancelled);
  // One that is only paused was never over.
  service_->pause(ada_, second);
  ASSERT_TRUE(reaches(second, JobState::paused));
  EXPECT_NO_THROW(service_->resume(ada_, second, {}));
}

// The server was killed when all bytes were there, and before it had said so.
TEST_F(LimitsTest, AnUploadWithAllItsBytesIsCompletedByAnEmptyPart) {
  const std::string text = "{\"text\": \"to be\"}\n";
  const auto bytes = static_cast<std::int64_t>(text.size());
  const auto made = service_->uploads().create(
      ada_, {.kind = "jsonl", .bytes = bytes, .sha256 = sha256(text)});
  EXPECT_THROW(service_->uploads().add_part(ada_, made.id, {0, ""}), Refusal);
  test::write_file(service_->uploads().path_of(made), text);
  EXPECT_FALSE(service_->uploads().find(ada_, made.id).complete);
  EXPECT_TRUE(service_->uploads().add_part(ada_, made.id, {bytes, ""}).complete);
}

TEST_F(LimitsTest, AnUploadIsKeptWhileAJobNamesIt) {
  const auto used = upload("{\"text\": \"to be\"}\n");
  const auto unused = upload("{\"text\": \"or not to be\"}\n");
  service_->store().transaction([&] {
    service_->store().add_job(
        {.user = "ada",
         .recipe = test::short_recipe(1),
         .overrides = {{"data.dir", service_->uploads().path_of(used).string()}}});
  });
  config::ServerConfig config;
  config.store.keep_uploads = units::Duration(1);
  service_->reload(config);
  ASSERT_TRUE(test::eventually([&] { return service_->clean_up() == 1; }));
  EXPECT_EQ(service_->uploads().list(ada_).size(), 1U);
  EXPECT_EQ(service_->uploads().list(ada_).at(0).id, used.id);
  EXPECT_FALSE(
      std::filesystem::exists(service_->uploads().path_of(unused).parent_path()));
}

TEST_F(LimitsTest, RunsAndUploadsCountTowardsTheDisk) {
  const auto done = submit(50);
  ASSERT_TRUE(reaches(done, JobState::done));
  EXPECT_GT(job(done).bytes, 0);
  EXPECT_LE(job(done).bytes, bytes_below(service_->folder(admin_, done).path()));
  const auto bytes = service_->store().bytes_of("ada");
  config::ServerConfig config;
  config.quota.disk_bytes_per_user = bytes + 100;
  service_->reload(config);
  EXPECT_NO_THROW(service_->check_disk("ada", 100));
  const auto text =
      test::error_text(Fault::config, [&] { service_->check_disk("ada", 101); });
  EXPECT_THAT(text, HasSubstr("quota.disk_bytes_per_user"));
  EXPECT_NO_THROW(service_->check_disk("eve", 100));
  config.quota.disk_bytes_per_user = bytes;
  service_->reload(config);
  EXPECT_THROW(submit(1), Refusal);
  service_->remove(ada_, done);
  EXPECT_NO_THROW(submit(1));
}

// A job that never ran has no folder: what was sent for it is kept all the same.
TEST_F(LimitsTest, WhatIsKeptOfRequestsCountsTowardsTheDisk) {
  config::ServerConfig config;
  config.quota.disk_bytes_per_user = 100'000;
  service_->reload(config);
  Submission large{.request = std::string(60'000, 'x')};
  large.recipe.text = test::short_recipe(test::kEndless) + std::string(60'000, ' ');
  const auto id = service_->submit(ada_, large).id;
  service_->cancel(ada_, id);
  EXPECT_THROW(submit(1), Refusal);
  ASSERT_TRUE(reaches(id, JobState::cancelled));
  service_->remove(ada_, id);
  EXPECT_NO_THROW(submit(1));
}

TEST_F(LimitsTest, TextsOfAJobThatIsRefusedAreNotKept) {
  Submission wanted{.texts = {"to be", "or not to be"}};
  wanted.recipe = {.text = "{\"model\": {\"name\": \"gpt\"}}",
                   .inputs = {{"model.weights", "no-such-model"}}};
  EXPECT_THROW(service_->submit(ada_, wanted), Refusal);
  EXPECT_TRUE(std::filesystem::is_empty(state_.path() / "files"));
  EXPECT_TRUE(service_->uploads().list(admin_).empty());
  // They count before they are kept.
  config::ServerConfig config;
  config.quota.disk_bytes_per_user = 10;
  service_->reload(config);
  const auto text =
      test::error_text(Fault::config, [&] { service_->submit(ada_, wanted); });
  EXPECT_THAT(text, HasSubstr("quota.disk_bytes_per_user"));
}

// What a killed server or a change that was taken back has left.
TEST_F(LimitsTest, BytesThatAreNoUploadAreRemovedAfterAnHour) {
  const auto kept = upload("{\"text\": \"to be\"}\n");
  const auto files = state_.path() / "files";
  const auto age = [&](const files::Path& path) {
    std::filesystem::last_write_time(
        path, std::filesystem::file_time_type::clock::now() - std::chrono::hours(2));
  };
  for (const auto* name : {"file-old", "file-new"}) {
    std::filesystem::create_directories(files / name);
    test::write_file(files / name / "data.bin", "x");
  }
  age(files / "file-old");
  age(files / kept.id);
  service_->clean_up();
  EXPECT_FALSE(std::filesystem::exists(files / "file-old"));
  EXPECT_TRUE(std::filesystem::exists(files / "file-new"));
  EXPECT_TRUE(std::filesystem::exists(service_->uploads().path_of(kept)));
}

// Each is a process: a thousand of them on one core take the memory of all others.
TEST_F(LimitsTest, AJobHasNoMoreRanksThanDevices) {
  const auto ask = [&](int ranks, const Resources& resources,
                       JobKind kind = JobKind::training) {
    Submission wanted{.kind = kind, .resources = resources};
    wanted.recipe.text = test::held_recipe(20);
    const std::string one = "\"ranks\": 1}";
    wanted.recipe.text.replace(wanted.recipe.text.find(one), one.size(),
                               str("\"ranks\": ", ranks, "}"));
    return service_->submit(ada_, wanted).id;
  };
  const auto text = test::error_text(Fault::config, [&] { ask(1000, {.cores = 1}); });
  EXPECT_THAT(text, HasSubstr("parallel.ranks=1000"));
  EXPECT_THAT(text, HasSubstr("resources.cores"));
  EXPECT_THROW(ask(2, {.cores = 1}), Refusal);
  EXPECT_NO_THROW(ask(1000, {.cores = 1}, JobKind::plan));
  const auto id = ask(2, {.cores = 2});
  service_->pause(ada_, id);
  ASSERT_TRUE(reaches(id, JobState::paused));
  EXPECT_EQ(service_->resume(ada_, id, Resources{.cores = 1}).resources.cores, 1);
}

TEST_F(LimitsTest, NamesHaveNoLinesOfTheirOwn) {
  const auto text = test::error_text(
      Fault::config, [&] { submit(1, {.name = "a\njob-0  root  all is well"}); });
  EXPECT_THAT(text, HasSubstr("control characters"));
  EXPECT_THROW(Uploads::check({.name = "\x1b[2J",
                               .kind = "bin",
                               .bytes = 1,
                               .sha256 = std::string(64, 'a')}),
               Refusal);
}

TEST_F(LimitsTest, WhatARunningJobWritesCountsAtOnce) {
  const auto id = submit(test::kEndless);
  ASSERT_TRUE(reaches(id, JobState::running));
  test::write_file(service_->folder(admin_, id).run() / "large",
                   std::string(100'000, 'x'));
  config::ServerConfig config;
  config.quota.disk_bytes_per_user = 100'000;
  service_->reload(config);
  EXPECT_THROW(service_->check_disk("ada", 1), Refusal);
}

TEST_F(LimitsTest, APlanIsMadeAndNothingIsTrained) {
  const auto id = submit(5, {.kind = JobKind::plan});
  ASSERT_TRUE(reaches(id, JobState::done)) << job(id).reason;
  const auto plan = service_->plan(ada_, id);
  ASSERT_TRUE(plan);
  EXPECT_TRUE(nlohmann::json::parse(*plan).contains("choices"));
  EXPECT_FALSE(std::filesystem::exists(service_->folder(admin_, id).run()));
  EXPECT_THROW(service_->plan(test::as("eve"), id), Refusal);
}

// A job that nobody has trained yet takes as long as its plan has predicted.
TEST_F(LimitsTest, AStartIsExpectedFromWhatAPlanPredicts) {
  Submission planned{.kind = JobKind::plan};
  planned.recipe.text = test::short_recipe(5000);
  planned.recipe.text.insert(1, "\"optim\": {\"lr\": 15}, ");
  const auto plan = service_->submit(ada_, planned).id;
  ASSERT_TRUE(reaches(plan, JobState::done)) << job(plan).reason;
  const auto json = nlohmann::json::parse(*service_->plan(ada_, plan));
  const auto seconds = json.at("prediction").at("seconds").get<double>();
  ASSERT_GT(seconds, 0);

  const auto held = submit_held(1000, {.resources = {.cores = 2}});
  ASSERT_TRUE(
      test::eventually([&] { return service_->runs().view(folder(held)) != ""; }));
  ASSERT_TRUE(reaches(held, JobState::running));
  planned.kind = JobKind::training;
  planned.resources.cores = 2;
  service_->submit(ada_, planned);
  submit(1, {.resources = {.cores = 2}});
  // Held as it is, it has a step after a moment.
  ASSERT_TRUE(test::eventually(
      [&] { return service_->queue()->at(0).starts_in_seconds.has_value(); }));
  const auto queue = service_->queue();
  ASSERT_EQ(queue->size(), 2U);
  ASSERT_TRUE(queue->at(1).starts_in_seconds);
  EXPECT_NEAR(*queue->at(1).starts_in_seconds - *queue->at(0).starts_in_seconds,
              seconds,
              1e-6 * seconds);  // sums of other times are in both
}

TEST_F(LimitsTest, APlanDoesNotWaitForGpusThatOthersHave) {
  config::ServerConfig config;
  serve(config, 1);
  service_->store().transaction([&] {
    add_user(service_->store(), "eve");
    service_->store().add_leases(std::vector<Lease>{
        {.job = "job-of-eve", .is_gpu = true, .unit = 0, .share = 1}});
  });
  const auto id =
      submit(5, {.kind = JobKind::plan, .resources = {.cores = 1, .gpus = 1}});
  EXPECT_TRUE(reaches(id, JobState::done)) << job(id).reason;
  EXPECT_EQ(job(id).gpu_seconds, 0);
}

TEST_F(LimitsTest, APlanThatIsNotPossibleSaysWhy) {
  Submission wanted{.kind = JobKind::plan};
  wanted.recipe.text =
      R"({"model": {"name": "mlp"}, "data": {"name": "synthetic", "shape": [4]},
          "train": {"steps": 5}, "parallel": {"device": "cuda"}})";
  const auto id = service_->submit(ada_, wanted).id;
  ASSERT_TRUE(reaches(id, JobState::failed));
  EXPECT_THAT(job(id).reason, HasSubstr("GPU"));
  EXPECT_FALSE(service_->plan(ada_, id));
}

TEST(Migrations, AnEarlierLayoutIsBroughtToThisOne) {
  const files::TemporaryDirectory folder;
  const auto file = folder.path() / "a.db";
  {
    Database database(file);
    migrate(database, 1);
    database.execute(
        "INSERT INTO users (name, created) VALUES ('ada', 1); INSERT INTO jobs (id, "
        "user, name, state, reason, priority, created, changed, max_retries, "
        "time_limit, cores, gpus, gpu_ids, min_memory, memory_fraction, needs, "
        "request, "
        "recipe, overrides) VALUES ('job-1', 'ada', 'old', 'done', '', 0, 1, 1, 0, 0, "
        "1, 0, '[]', 0, 0, '[]', '', '{}', '[]')");
  }
  Store store(file);
  const auto job = store.find_job("job-1");
  ASSERT_TRUE(job);
  EXPECT_EQ(job->kind, JobKind::training);
  EXPECT_EQ(job->bytes, 0);
}

}  // namespace
}  // namespace lockstep::service
