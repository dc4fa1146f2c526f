#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <signal.h>
#include <unistd.h>

#include "lockstep/base/text.h"
#include "lockstep/launcher/activity.h"
#include "lockstep/launcher/detail/sweep.h"
#include "lockstep/launcher/job.h"
#include "lockstep/launcher/port.h"
#include "lockstep/run/events.h"
#include "tests/support/support.h"

namespace lockstep::test {

// Jobs of real processes: ranks are tests/launcher/rank_program, which does what the
// words say.
class JobRig : public ::testing::Test {
 protected:
  void SetUp() override {
    // Whoever runs the tests in the background may have these ignored.
    for (const int number : {SIGINT, SIGTERM, SIGHUP}) ::signal(number, SIG_DFL);
  }

  static Path program() {
    return std::filesystem::read_symlink("/proc/self/exe").parent_path() /
           "rank_program";
  }

  launcher::Job job_of(int ranks, std::vector<std::string> words) {
    launcher::Job job;
    job.command = {program().string()};
    job.command.insert(job.command.end(), words.begin(), words.end());
    job.environment = {{"RUN", run_.path().string()}, {"NOTES", notes_.string()}};
    job.ranks.resize(static_cast<std::size_t>(ranks));
    job.first.world_size = ranks;
    job.grace = kPatience;
    job.restart_delay = std::chrono::milliseconds(1);
    job.say = [this](std::string_view sentence) { said_.emplace_back(sentence); };
    job.show = [this](launcher::StdStreams, std::string_view lines) {
      shown_ += lines;
    };
    return job;
  }

  // Ranks that beat.
  launcher::Job worker_job(int ranks, std::vector<std::string> words) {
    auto job = job_of(ranks, std::move(words));
    job.hang_limits.emplace();
    job.monitor_interval = std::chrono::milliseconds(10);
    return job;
  }

  launcher::JobResult run(launcher::Job job,
                          const std::function<void()>& meanwhile = {}) {
    job.clock = clock_;
    launcher::Signals signals;  // before the helper thread, which inherits the mask
    std::jthread helper;
    if (meanwhile) helper = std::jthread(meanwhile);
    auto result = launcher::run_job(run_, job, signals);
    if (helper.joinable()) helper.join();
    // Whatever happened, nobody is left, and nothing has to be waited for.
    EXPECT_EQ(launcher::processes_with(parent_.path().string()), std::vector<pid_t>());
    EXPECT_EQ(run_.read_record().state, result.state);
    EXPECT_EQ(run_.read_record().message, result.message);
    return result;
  }

  bool noted(const std::string& text) const {
    return eventually(
        [&] { return read_file(notes_).find(text) != std::string::npos; });
  }
  bool noted_by_all(const std::string& text, int ranks) const {
    for (int rank = 0; rank < ranks; ++rank) {
      if (!noted(std::to_string(rank) + " " + text)) return false;
    }
    return true;
  }
  // What follows `name` and a space or '=' in the notes.
  std::string found(const std::string& name) const {
    for (const auto& line : text::split(read_file(notes_), '\n')) {
      if (line.rfind(name, 0) == 0) return line.substr(name.size() + 1);
    }
    return "";
  }
  pid_t pid_noted(const std::string& name) const {
    return static_cast<pid_t>(text::to_integer(found(name)).value_or(-1));
  }
  static bool is_gone(pid_t pid) {
    const char state = launcher::process_state(pid);
    return state == 'X' || state == 'Z';
  }
  void go(const std::string& name) const { write_file(notes_.string() + name, ""); }

  std::vector<run::Event> events(const std::string& kind) const {
    auto all = run::last_events(run_.events(), 100);
    std::erase_if(all, [&](const run::Event& event) { return event.kind != kind; });
    return all;
  }
  static std::string value(const run::Event& event, const std::string& name) {
    const run::NamedValue* found = nullptr;
    for (const auto& field : event.fields) {
      if (field.name == name) found = &field;
    }
    if (found == nullptr) return "(none)";
    if (const auto* text = std::get_if<std::string>(&found->value)) return *text;
    if (const auto* whole = std::get_if<std::int64_t>(&found->value))
      return str(*whole);
    return str(run::number_of(*found).value_or(-1));
  }

  files::TemporaryDirectory parent_;
  Path notes_ = parent_.path() / "notes";
  run::RunDirectory run_ = run::RunDirectory::create(
      parent_.path() / "runs",
      {.name = "x", .record = {}, .config_yaml = "", .plan_json = ""});
  std::vector<std::string> said_;
  std::string shown_;
  const Clock* clock_ = &Clock::system();
};

}  // namespace lockstep::test
