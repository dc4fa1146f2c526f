// Jobs that run as other Unix users. Most of it needs root.
#include "lockstep/service/unix_users.h"

#include <algorithm>

#include <sys/stat.h>
#include <unistd.h>

#include "lockstep/run/run_lock.h"
#include "lockstep/service/executor.h"
#include "lockstep/service/job_files.h"
#include "tests/service/rig.h"

namespace lockstep::service {
namespace {

using ::testing::HasSubstr;

constexpr const char* kAda = "nobody";
constexpr const char* kEve = "daemon";

uid_t owner(const files::Path& path) {
  struct stat info {};
  EXPECT_EQ(::lstat(path.c_str(), &info), 0) << path;
  return info.st_uid;
}

mode_t mode(const files::Path& path) {
  struct stat info {};
  EXPECT_EQ(::lstat(path.c_str(), &info), 0) << path;
  return info.st_mode & 0777;
}

#define LOCKSTEP_NEEDS_ROOT() \
  if (::geteuid() != 0) GTEST_SKIP() << "only root may start jobs as others"

class UnixUsersTest : public test::ServiceRig {
 protected:
  UnixUsersTest() {
    // As /var/lib would be; folders for tests are closed to others.
    ::chmod(state_.path().c_str(), 0755);
    ::chmod(programs_.path().c_str(), 0755);
    for (const auto* name : {"lockstep", "lockstep_worker"}) {
      std::filesystem::copy_file(
          files::Path(installation_.program()).parent_path() / name,
          programs_.path() / name);
    }
  }

  void restart(std::map<std::string, std::string> users) {
    service_.reset();
    config_.queue.cores = 2;
    config_.queue.unix_users = std::move(users);
    service_ = std::make_unique<Service>(ServiceOptions{
        .config = config_,
        .state = state_.path() / "server",
        .caller = test::quiet_caller((programs_.path() / "lockstep").string()),
        .machine = [] { return test::machine_with(0); }});
    service_->start();
  }

  static UnixUser user(const std::string& name) {
    config::QueueConfig queue;
    queue.unix_users = {{"x", name}};
    return *unix_user_of(queue, "x");
  }

  const Identity eve_ = test::as("eve");
  files::TemporaryDirectory programs_;
  config::ServerConfig config_;
};

// The values of a line of /proc/<pid>/status.
std::string status_line(int pid, const std::string& name) {
  const auto status = test::read_file("/proc/" + std::to_string(pid) + "/status");
  const auto at = status.find("\n" + name + ":") + 1;
  return status.substr(at, status.find('\n', at) - at);
}

TEST_F(UnixUsersTest, JobsOfDifferentUsersRunAsDifferentUnixUsers) {
  LOCKSTEP_NEEDS_ROOT();
  restart({{"ada", kAda}, {"*", kEve}});
  const auto ada = submit_held(30);
  const auto eve =
      service_->submit(eve_, {.recipe = {.text = test::held_recipe(30)}}).id;
  for (const auto& [id, name] : {std::pair(ada, kAda), std::pair(eve, kEve)}) {
    ASSERT_TRUE(reaches(id, JobState::running)) << job(id).reason;
    const auto place = folder(id);
    // `running` begins before the first file of the worker.
    ASSERT_TRUE(test::eventually(
        [&] { return service_->runs().metrics(place)->size() >= 10; }));
    const auto uid = user(name).uid;
    const auto view = look_at_attempt(place, 1);
    ASSERT_EQ(view.status, AttemptStatus::alive);
    const auto number = std::to_string(uid);
    EXPECT_EQ(status_line(view.supervisor->pid, "Uid"),
              "Uid:\t" + number + "\t" + number + "\t" + number + "\t" + number);
    EXPECT_EQ(status_line(view.supervisor->pid, "CapPrm"), "CapPrm:\t0000000000000000");
    EXPECT_EQ(status_line(view.supervisor->pid, "NoNewPrivs"), "NoNewPrivs:\t1");
    EXPECT_EQ(owner(place.path()), uid);
    EXPECT_EQ(mode(place.path()), 0700U);
    for (const auto& file :
         std::filesystem::recursive_directory_iterator(place.path())) {
      EXPECT_EQ(owner(file.path()), uid) << file.path();
    }
    // The server reads it all the same.
    EXPECT_FALSE(service_->runs().view(place).empty());
    EXPECT_FALSE(service_->runs().metrics(place)->empty());
  }
  service_->pause(ada_, ada);
  ASSERT_TRUE(reaches(ada, JobState::paused)) << job(ada).reason;
  service_->cancel(eve_, eve);
  ASSERT_TRUE(reaches(eve, JobState::cancelled)) << job(eve).reason;
  service_->resume(ada_, ada, std::nullopt);
  test::write_file(folder(ada).path() / "until", "1000");
  ::chmod((folder(ada).path() / "until").c_str(), 0644);
  ASSERT_TRUE(reaches(ada, JobState::done)) << job(ada).reason;
  EXPECT_EQ(service_->runs().metrics(folder(ada))->size(), 30U);
  service_->remove(ada_, ada);
  EXPECT_FALSE(std::filesystem::exists(state_.path() / "server" / "jobs" / ada));
}

TEST_F(UnixUsersTest, AnUploadIsForJobsOfItsUserOnly) {
  LOCKSTEP_NEEDS_ROOT();
  restart({{"ada", kAda}, {"eve", kEve}, {"root", kEve}});
  const std::string bytes = "{\"text\": \"a b c d\"}\n";
  const auto upload = service_->uploads().create(
      ada_, {.kind = "jsonl",
             .bytes = static_cast<std::int64_t>(bytes.size()),
             .sha256 = sha256(bytes)});
  service_->uploads().add_part(ada_, upload.id, {0, bytes});
  const auto place = service_->uploads().path_of(upload);
  EXPECT_EQ(owner(place), 0U);
  Submission wanted;
  wanted.recipe = {.text = test::short_recipe(3),
                   .inputs = {{"data.tokenizer", upload.id}}};
  EXPECT_THROW(service_->submit(eve_, wanted), Refusal);  // not hers
  try {
    service_->submit(ada_, wanted);
  } catch (const Refusal&) {  // of the recipe, which has no use for it
  }
  EXPECT_EQ(owner(place), user(kAda).uid);
  EXPECT_EQ(mode(place), 0400U);
  // Who may see it may not give it to jobs of a second Unix user.
  EXPECT_THROW(service_->submit(admin_, wanted), Refusal);
  EXPECT_EQ(owner(place), user(kAda).uid);
}

TEST_F(UnixUsersTest, WhoHasNoUnixUserIsRefused) {
  LOCKSTEP_NEEDS_ROOT();
  restart({{"ada", kAda}});
  try {
    service_->submit(eve_, {.recipe = {.text = test::short_recipe(3)}});
    FAIL() << "was taken";
  } catch (const Refusal& refusal) {
    EXPECT_EQ(refusal.kind(), Refused::not_allowed);
    EXPECT_THAT(refusal.what(), HasSubstr("queue.unix_users"));
  }
}

TEST_F(UnixUsersTest, AFolderIsNotTakenOverByAnotherUser) {
  LOCKSTEP_NEEDS_ROOT();
  const JobFolder mine(state_.path() / "job-1");
  make_job_folder(mine, user(kAda));
  EXPECT_EQ(owner(mine.path()), user(kAda).uid);
  make_job_folder(mine, user(kAda));
  EXPECT_THROW(make_job_folder(mine, user(kEve)), Error);
  EXPECT_THROW(make_job_folder(mine, std::nullopt), Error);
  const JobFolder ran(state_.path() / "job-2");
  make_job_folder(ran, std::nullopt);
  std::filesystem::create_directories(ran.path() / "attempts");
  EXPECT_THROW(make_job_folder(ran, user(kAda)), Error);
  EXPECT_EQ(owner(ran.path()), 0U);
}

TEST_F(UnixUsersTest, AnAttemptThatNeverBeganIsEndedByItsUser) {
  LOCKSTEP_NEEDS_ROOT();
  const JobFolder place(state_.path() / "job-1");
  make_job_folder(place, user(kAda));
  const auto executor =
      make_local_executor(test::quiet_caller((programs_.path() / "lockstep").string()));
  executor->stop(place, 1, /*now=*/false);
  ASSERT_TRUE(test::eventually(
      [&] { return look_at_attempt(place, 1).status == AttemptStatus::ended; }));
  EXPECT_EQ(owner(place.ended(1)), user(kAda).uid);
}

// What says which process is the supervisor, the job's user may have written.
TEST_F(UnixUsersTest, NoProcessOfAnybodyElseIsStopped) {
  LOCKSTEP_NEEDS_ROOT();
  const JobFolder place(state_.path() / "job-1");
  std::filesystem::create_directories(place.path() / "attempts");
  const auto lock = JobLock::take(place);
  ASSERT_TRUE(begin_attempt(place, 1));  // names this process
  EXPECT_TRUE(is_of_owner(place, *look_at_attempt(place, 1).supervisor));
  for (const auto& path :
       {place.path(), place.path() / "attempts", place.started(1), place.lock()}) {
    ASSERT_EQ(::lchown(path.c_str(), user(kAda).uid, user(kAda).gid), 0);
  }
  const auto view = look_at_attempt(place, 1);
  ASSERT_EQ(view.status, AttemptStatus::alive);
  EXPECT_FALSE(is_of_owner(place, *view.supervisor));
  // Would end this test.
  make_local_executor(test::quiet_caller("/nonexistent"))->stop(place, 1, true);
}

// A user's folder with things in it that are not the user's, or no files.
class HostileFolderTest : public UnixUsersTest {
 protected:
  HostileFolderTest() {
    if (::geteuid() != 0) return;
    test::write_file(secret_, "{\"step\": 1, \"split\": \"train\", \"loss\": 4711}\n");
    ::chmod(secret_.c_str(), 0600);
    std::filesystem::create_directories(secret_folder_);
    std::filesystem::create_hard_link(secret_, secret_folder_ / "metrics.jsonl");
    make_job_folder(folder_, user(kAda));
    make(folder_.path() / "run");
    make(folder_.path() / "attempts");
  }

  void make(const files::Path& path) const {
    std::filesystem::create_directories(path);
    give(path);
  }

  static void give(const files::Path& path) {
    ASSERT_EQ(::lchown(path.c_str(), user(kAda).uid, user(kAda).gid), 0) << path;
  }

  const files::Path secret_ = state_.path() / "secret";
  const files::Path secret_folder_ = state_.path() / "private";
  const JobFolder folder_{state_.path() / "job-1"};
};

TEST_F(HostileFolderTest, OnlyRegularFilesOfItsUserAreOpened) {
  LOCKSTEP_NEEDS_ROOT();
  const auto file = folder_.run() / "metrics.jsonl";
  const auto opens = [&] { return bool(JobFile(folder_, "run/metrics.jsonl")); };
  test::write_file(file, "x");
  EXPECT_FALSE(opens()) << "a file of root";
  give(file);
  EXPECT_TRUE(opens());
  std::filesystem::remove(file);
  std::filesystem::create_hard_link(secret_, file);
  EXPECT_FALSE(opens()) << "a hard link";
  std::filesystem::remove(file);
  std::filesystem::create_symlink(secret_, file);
  give(file);
  EXPECT_FALSE(opens()) << "a link";
  std::filesystem::remove(file);
  ASSERT_EQ(::mkfifo(file.c_str(), 0666), 0);
  give(file);
  EXPECT_FALSE(opens()) << "a pipe";  // and does not wait for a writer
  std::filesystem::remove(file);
  make(file);
  EXPECT_FALSE(opens()) << "a folder";
  std::filesystem::remove_all(folder_.run());
  std::filesystem::create_symlink(secret_folder_, folder_.run());
  give(folder_.run());
  EXPECT_FALSE(opens()) << "below a link to a folder";
  EXPECT_FALSE(JobFile(folder_, "../secret"));
  EXPECT_FALSE(JobFile(folder_, secret_));
  EXPECT_FALSE(JobSubfolder(folder_, "run"));
}

TEST_F(HostileFolderTest, AnAttemptOfPipesAndLinksHoldsNobodyUp) {
  LOCKSTEP_NEEDS_ROOT();
  for (const auto& path : {folder_.lock(), folder_.started(1), folder_.ended(1)}) {
    ASSERT_EQ(::mkfifo(path.c_str(), 0666), 0);
    give(path);
  }
  EXPECT_EQ(look_at_attempt(folder_, 1).status, AttemptStatus::absent);
  RunCache cache;
  for (const auto* name : {"run.json", "config.yaml", "events.jsonl", "heartbeat"}) {
    ASSERT_EQ(::mkfifo((folder_.run() / name).c_str(), 0666), 0);
    give(folder_.run() / name);
  }
  EXPECT_EQ(cache.view(folder_), "");
  EXPECT_TRUE(cache.metrics(folder_)->empty());
}

// Paths are read through what is open: whoever puts another file in the place of one
// that was looked at does not get that read.
TEST_F(HostileFolderTest, WhatWasLookedAtIsWhatIsRead) {
  LOCKSTEP_NEEDS_ROOT();
  const auto file = folder_.run() / "metrics.jsonl";
  test::write_file(file, "mine");
  give(file);
  const JobFile open(folder_, "run/metrics.jsonl");
  std::filesystem::remove(file);
  std::filesystem::create_symlink(secret_, file);
  EXPECT_EQ(files::read(open.path(), 100), "mine");
  // Nor is a file that is cut short meanwhile more than a short one.
  EXPECT_THAT(test::read_file(secret_), HasSubstr("4711"));
}

TEST_F(HostileFolderTest, WhatASupervisorIsGivenIsWrittenAsItsUser) {
  LOCKSTEP_NEEDS_ROOT();
  std::filesystem::remove(folder_.path() / "attempts");
  std::filesystem::create_symlink(secret_folder_, folder_.path() / "attempts");
  ::chmod(secret_folder_.c_str(), 0700);
  Detached wanted;
  wanted.arguments = {"/bin/true"};
  wanted.user = user(kAda);
  wanted.folder = folder_.path();
  wanted.log = folder_.log(1);
  wanted.files = {{folder_.path() / "attempts" / "written", "x"}};
  EXPECT_THROW(start_detached(wanted), Error);
  EXPECT_FALSE(std::filesystem::exists(secret_folder_ / "written"));
  EXPECT_FALSE(std::filesystem::exists(secret_folder_ / "1.log"));
}

std::string refusal_of(const config::QueueConfig& queue, const files::Path& state) {
  try {
    prepare_unix_users(queue, state);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(UnixUsers, WhatTheServerCanNotDoIsRefusedAtTheStart) {
  const files::TemporaryDirectory state;
  config::QueueConfig queue;
  EXPECT_EQ(refusal_of(queue, state.path() / "s"), "");
  queue.unix_users = {{"ada", "nobody"}};
  if (::geteuid() != 0) {
    EXPECT_THAT(refusal_of(queue, state.path()), HasSubstr("root starts"));
    return;
  }
  EXPECT_THAT(refusal_of(queue, state.path() / "s"),
              HasSubstr("no other user can enter"));
  queue.unix_users = {{"ada", "no-such-user"}};
  EXPECT_THAT(refusal_of(queue, state.path()), HasSubstr("'no-such-user'"));
  queue.unix_users = {{"ada", "root"}};
  EXPECT_THAT(refusal_of(queue, state.path()), HasSubstr("may do everything"));
  queue.unix_users = {{"ada", "nobody"}};
  queue.executor = config::Executor::slurm;
  EXPECT_THAT(refusal_of(queue, state.path()), HasSubstr("Slurm"));
}

TEST(UnixUsers, ASupervisorHasTheHomeOfItsUserAndNothingOfOurs) {
  const UnixUser user{.name = "ada", .uid = 7, .gid = 7, .home = "/home/ada"};
  EXPECT_EQ(environment_of(user, {{"HOME", "/root"},
                                  {"XDG_STATE_HOME", "/var/lib"},
                                  {"TMPDIR", "/srv/tmp"},
                                  {"PATH", "/bin"}}),
            (std::vector<std::pair<std::string, std::string>>{{"HOME", "/home/ada"},
                                                              {"USER", "ada"},
                                                              {"LOGNAME", "ada"},
                                                              {"PATH", "/bin"}}));
}

}  // namespace
}  // namespace lockstep::service
