// A server in operation: reloads, backups under load, logs that are rotated.
#include <csignal>
#include <thread>

#include "lockstep/base/text.h"
#include "lockstep/service/audit.h"
#include "tests/server/support/served.h"

namespace lockstep::server {
namespace {

using ::testing::HasSubstr;
using Json = nlohmann::ordered_json;

class OperationTest : public ::testing::Test {
 protected:
  std::string file(const std::string& name) const {
    return (folder_.path() / name).string();
  }

  // A certificate for localhost that vouches for itself.
  void make_certificate(const std::string& key, const std::string& certificate) {
    const auto made = test::run({"openssl", "req", "-x509", "-newkey", "rsa:2048",
                                 "-nodes", "-keyout", key, "-out", certificate, "-days",
                                 "2", "-subj", "/CN=localhost", "-addext",
                                 "subjectAltName=DNS:localhost,IP:127.0.0.1"});
    ASSERT_TRUE(made.end.ok()) << made.err;
  }

  bool answers() {
    return !test::error_of([&] { served_.ask("GET", "/healthz"); });
  }

  files::TemporaryDirectory folder_;
  test::Served served_;
};

TEST_F(OperationTest, SighupReadsCertificatesAndLimitsAgain) {
  const auto key = file("key.pem");
  const auto certificate = file("certificate.pem");
  make_certificate(key, certificate);
  test::write_file(file("server.yaml"), "limits: {json_depth: 32}\n");
  served_.authority = file("first.pem");
  std::filesystem::copy_file(certificate, served_.authority);
  served_.start({"--config", file("server.yaml"), "http.certificate=" + certificate,
                 "http.key=" + key});
  ASSERT_TRUE(answers());
  const std::string deep =
      "{\"recipe\": " + std::string(10, '[') + "1" + std::string(10, ']') + "}";
  EXPECT_THAT(served_.ask("POST", "/v1/jobs", deep).body,
              ::testing::Not(HasSubstr("levels")));

  make_certificate(key, certificate);
  test::write_file(file("server.yaml"), "limits: {json_depth: 8}\n");
  served_.signal(SIGHUP);
  // The old certificate is not shown any more, and the new one is.
  ASSERT_TRUE(test::eventually([&] { return !answers(); }));
  served_.authority = certificate;
  ASSERT_TRUE(answers());
  EXPECT_THAT(served_.ask("POST", "/v1/jobs", deep).body,
              HasSubstr("more than 8 levels"));
}

TEST_F(OperationTest, WhatCanNotBeReadAgainLeavesEverythingAsItWas) {
  const auto key = file("key.pem");
  const auto certificate = file("certificate.pem");
  make_certificate(key, certificate);
  served_.authority = file("first.pem");
  std::filesystem::copy_file(certificate, served_.authority);
  test::write_file(file("server.yaml"), "limits: {json_depth: 32}\n");
  served_.start({"--config", file("server.yaml"), "http.certificate=" + certificate,
                 "http.key=" + key, "store.log=" + file("log")});
  test::write_file(certificate, "broken");
  test::write_file(file("server.yaml"), "limits: {json_depth: 8}\n");
  served_.signal(SIGHUP);
  ASSERT_TRUE(test::eventually([&] {
    return test::read_file(file("log")).find("kept the settings from before") !=
           std::string::npos;
  }));
  ASSERT_TRUE(answers());
  // Neither half of the change holds: limits and certificate belong together.
  const std::string deep =
      "{\"recipe\": " + std::string(10, '[') + "1" + std::string(10, ']') + "}";
  EXPECT_THAT(served_.ask("POST", "/v1/jobs", deep).body,
              ::testing::Not(HasSubstr("levels")));
}

TEST_F(OperationTest, ABackupUnderLoadIsWholeAndCanBeRestored) {
  test::write_file(file("server.yaml"),
                   "store: {dir: '" + served_.state().string() + "'}\n");
  served_.start();
  std::vector<std::string> early;
  {
    std::jthread load([&](const std::stop_token& stop) {
      // Fewer than quota.jobs_per_user, however slowly they run.
      for (int i = 0; i < 900 && !stop.stop_requested(); ++i) served_.submit(1);
    });
    const auto jobs_now = [&] {
      return Json::parse(served_.ask("GET", "/v1/jobs?limit=1000").body)["items"];
    };
    for (int i = 0; i < 5; ++i) {
      // Each copy sees more than the one before it.
      ASSERT_TRUE(test::eventually(
          [&] { return static_cast<int>(jobs_now().size()) > 3 * i; }));
      const auto copy = file("backup-" + std::to_string(i));
      const auto output =
          served_.command({"backup", copy, "--config", file("server.yaml")});
      ASSERT_TRUE(output.end.ok()) << output.err;
      service::Store store(copy);
      EXPECT_FALSE(service::first_altered(store));
      const auto jobs = store.jobs({.limit = 100'000});
      // A job and its line in the audit log are one transaction: never one of them.
      EXPECT_EQ(jobs.size(), service::audit(store, 0, 100'000).size());
      for (const auto& job : jobs) EXPECT_FALSE(store.history(job.id).empty());
      if (i == 0) {
        for (const auto& job : jobs) early.push_back(job.id);
      }
    }
  }
  ASSERT_FALSE(early.empty());
  const auto refused =
      served_.command({"restore", file("backup-0"), "--config", file("server.yaml")});
  EXPECT_FALSE(refused.end.ok());
  EXPECT_THAT(refused.err, HasSubstr("stop it first"));
  served_.signal(SIGTERM);
  EXPECT_TRUE(served_.wait().ok());
  const auto restored =
      served_.command({"restore", file("backup-0"), "--config", file("server.yaml")});
  ASSERT_TRUE(restored.end.ok()) << restored.err;
  served_.start();
  const auto list = Json::parse(served_.ask("GET", "/v1/jobs?limit=1000").body);
  EXPECT_EQ(list["items"].size(), early.size());
  for (const auto& id : early) EXPECT_TRUE(served_.reaches(id, "done")) << id;
}

TEST_F(OperationTest, ABackupThatWasChangedIsNotRestored) {
  test::write_file(file("server.yaml"),
                   "store: {dir: '" + served_.state().string() + "'}\n");
  served_.start();
  ASSERT_TRUE(served_.reaches(served_.submit(1), "done"));
  served_.signal(SIGTERM);
  served_.wait();
  const auto copy = file("backup");
  const auto made = served_.command({"backup", copy, "--config", file("server.yaml")});
  ASSERT_TRUE(made.end.ok()) << made.err;
  // Kept elsewhere, it tells of lines that are cut off.
  service::Store kept(copy);
  EXPECT_THAT(made.err, HasSubstr(service::last_audit(kept)->hash));
  service::Store(copy).database().execute("UPDATE audit SET user = 'eve'");
  const auto output =
      served_.command({"restore", copy, "--config", file("server.yaml")});
  EXPECT_FALSE(output.end.ok());
  EXPECT_THAT(output.err, HasSubstr("line 1 of the audit log"));
}

TEST_F(OperationTest, TheLogIsRotatedAndItsLinesAreWhole) {
  const auto log = file("server.log");
  served_.start({"store.log=" + log, "store.log_bytes=4096"});
  // Each job that is cancelled while it waits is two lines; two that run hold it up.
  for (int i = 0; i < 2; ++i) served_.submit(test::kEndless);
  int jobs = 0;
  const auto cancel_one = [&] {
    served_.ask("POST", "/v1/jobs/" + served_.submit(1) + "/cancel");
    ++jobs;
  };
  while (!std::filesystem::exists(log + ".3") && jobs < 2000) cancel_one();
  ASSERT_TRUE(std::filesystem::exists(log + ".3")) << "the log is not rotated";
  for (int i = 0; i < 60; ++i) cancel_one();
  EXPECT_FALSE(std::filesystem::exists(log + ".4"));
  for (const auto* ending : {".1", ".2", ".3"}) {
    const auto text = test::read_file(log + ending);
    EXPECT_EQ(text.back(), '\n');
    // One line more than the limit at most.
    EXPECT_LT(text.size(), 4096U + 1024U);
    for (const auto& line : text::split(text.substr(0, text.size() - 1), '\n')) {
      EXPECT_TRUE(line.size() > 2 && line[1] == ' ') << line;
    }
  }
}

TEST_F(OperationTest, SigtermEndsTheServerAndJobsGoOn) {
  served_.start();
  const auto id = served_.submit_held(30);
  ASSERT_TRUE(served_.reaches(id, "running"));
  served_.signal(SIGTERM);
  EXPECT_TRUE(served_.wait().ok());
  EXPECT_EQ(service::look_at_attempt(served_.folder(id), 1).status,
            service::AttemptStatus::alive);
  served_.start();
  test::let_go(served_.folder(id));
  ASSERT_TRUE(served_.reaches(id, "done"));
  EXPECT_EQ(Json::parse(served_.ask("GET", "/v1/jobs/" + id).body)["attempt"], 1);
}

// Whoever follows a log sees all of it once: of a job that still waits when it begins,
// under a server that ends and one that comes after it.
TEST_F(OperationTest, ALogIsFollowedFromTheQueueOverARestart) {
  served_.start();
  const auto port = served_.url().substr(served_.url().rfind(':') + 1);
  const auto before = served_.submit_held(20);
  const auto beside = served_.submit_held(20);
  const auto id = served_.submit_held(20);
  auto reader = served_.begin({"logs", "-f", id, "--server", served_.url()});
  ASSERT_EQ(served_.state_of(id), "queued");
  test::let_go(served_.folder(before));
  ASSERT_TRUE(served_.reaches(id, "running"));
  served_.kill();
  served_.start({"http.port=" + port});
  test::let_go(served_.folder(id));
  test::let_go(served_.folder(beside));
  ASSERT_TRUE(served_.reaches(id, "done"));
  std::string seen;
  std::string piece(4096, '\0');
  for (auto got = ::read(reader.out().get(), piece.data(), piece.size()); got > 0;
       got = ::read(reader.out().get(), piece.data(), piece.size())) {
    seen.append(piece, 0, static_cast<std::size_t>(got));
  }
  EXPECT_TRUE(reader.wait().ok());
  const auto log = test::read_file(served_.folder(id).log(1));
  EXPECT_FALSE(log.empty());
  EXPECT_EQ(seen, log);
}

TEST_F(OperationTest, WhatIsWrittenIsItsOwnersOnly) {
  const auto log = served_.state() / "server.log";
  served_.start({"store.log=" + log.string()});
  ASSERT_TRUE(served_.reaches(served_.submit(3), "done"));
  int files = 0;
  for (const auto& entry :
       std::filesystem::recursive_directory_iterator(served_.state())) {
    if (!entry.is_regular_file()) continue;
    ++files;
    using std::filesystem::perms;
    const auto others = perms::group_all | perms::others_all;
    EXPECT_EQ(entry.status().permissions() & others, perms::none) << entry.path();
  }
  EXPECT_GT(files, 10);
}

TEST_F(OperationTest, ATokenThatHasExpiredIsNoneForAnotherAddress) {
  {
    service::Store store(served_.state() / "lockstep.db");
    add_token(store, {.user = "ada", .expires = 1});
  }
  const auto refused = served_.command({"serve", "http.port=0", "http.address=0.0.0.0",
                                        "http.behind_proxy=true",
                                        "store.dir=" + served_.state().string()});
  EXPECT_FALSE(refused.end.ok());
  EXPECT_THAT(refused.err, HasSubstr("lockstep token create"));
}

TEST_F(OperationTest, TwoServersDoNotWorkInOneFolder) {
  served_.start();
  const auto second = served_.command({"serve", "--insecure-local", "http.port=0",
                                       "store.dir=" + served_.state().string()});
  EXPECT_FALSE(second.end.ok());
  EXPECT_THAT(second.err, HasSubstr("another server works in"));
}

// Whoever opens the database of a server that was started before and closes it again is
// not the last to have it open.
TEST_F(OperationTest, ACommandBesideAServerThatWasRestartedLosesNothing) {
  test::write_file(file("server.yaml"),
                   "store: {dir: '" + served_.state().string() + "'}\n");
  served_.start();
  served_.signal(SIGTERM);
  served_.wait();
  served_.start();
  ASSERT_TRUE(
      served_.command({"token", "list", "--config", file("server.yaml")}).end.ok());
  const auto id = served_.submit(1);
  const auto seen =
      served_.command({"jobs", id, "--as", "local", "--config", file("server.yaml")});
  EXPECT_THAT(seen.out, HasSubstr(id)) << seen.err;
  served_.kill();
  served_.start();
  EXPECT_TRUE(served_.reaches(id, "done"));
}

// The same commands on the machine of the server, and from afar with a token.
TEST_F(OperationTest, TokensAndUsersAreMadeHereAndFromAfar) {
  test::write_file(file("server.yaml"),
                   "store: {dir: '" + served_.state().string() + "'}\n");
  const auto here = served_.command({"token", "create", "--role", "admin", "--user",
                                     "root", "--config", file("server.yaml")});
  ASSERT_TRUE(here.end.ok()) << here.err;
  const auto admin = text::trim(here.out);
  served_.use_token(std::string(admin));
  served_.start();
  const auto command = [&](const std::string& token, std::vector<std::string> words) {
    served_.environment = {{"LOCKSTEP_SERVER", served_.url()},
                           {"LOCKSTEP_TOKEN", token}};
    return served_.command(std::move(words));
  };
  const std::string secret(admin);
  const auto made = command(secret, {"token", "create", "--user", "eve"});
  ASSERT_TRUE(made.end.ok()) << made.err;
  const std::string eve(text::trim(made.out));
  EXPECT_TRUE(command(secret, {"user", "add", "bob"}).end.ok());
  EXPECT_THAT(command(secret, {"user", "list"}).out,
              ::testing::AllOf(HasSubstr("eve"), HasSubstr("bob")));
  EXPECT_THAT(command(eve, {"token", "create", "--user", "eve"}).err,
              HasSubstr("needs admin"));
  EXPECT_THAT(command(eve, {"user", "add", "mallory"}).err, HasSubstr("needs admin"));
  EXPECT_TRUE(command(eve, {"jobs"}).end.ok());
  std::string id;
  const auto all = Json::parse(command(secret, {"token", "list", "--json"}).out);
  for (const auto& token : all["items"]) {
    if (token["user"] == "eve") id = token["id"];
  }
  EXPECT_TRUE(command(secret, {"token", "revoke", id}).end.ok());
  EXPECT_THAT(command(eve, {"jobs"}).err, HasSubstr("revoked"));
  EXPECT_THAT(command(secret, {"token", "revoke", "tok-none"}).err,
              HasSubstr("there is no such token"));
}

TEST_F(OperationTest, TheUnitOfSystemdIsValid) {
  const auto source = test::source_root() / "scripts" / "lockstep.service";
  auto text = test::read_file(source);
  const std::string installed = "/usr/local/bin/lockstep";
  const auto at = text.find(installed);
  ASSERT_NE(at, std::string::npos);
  text.replace(at, installed.size(), test::binary("lockstep").string());
  test::write_file(file("lockstep.service"), text);
  const auto output =
      test::run({"systemd-analyze", "verify", "--man=no", file("lockstep.service")});
  EXPECT_TRUE(output.end.ok()) << output.err;
  EXPECT_EQ(output.err, "");
}

}  // namespace
}  // namespace lockstep::server
