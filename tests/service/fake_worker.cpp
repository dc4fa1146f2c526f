// Stands for lockstep_worker where the service is tested: beats, writes metrics and
// events, stops when asked to, and goes on where it was. It computes nothing.
//
// train.steps of its config says how long it takes; a step is a millisecond, or
// train.log_every of them. optim.lr=13 is a failure; optim.lr=14 holds it: it goes as
// far as the file `until` beside its run says, and without one to the tenth step, and
// prints each; optim.lr=15 is a model that can be described, so that its plan is
// compared; optim.lr=16 does not stop when it is asked to.
#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <string>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <unistd.h>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/monitor/metrics.h"
#include "lockstep/run/events.h"
#include "lockstep/run/heartbeat.h"
#include "lockstep/run/knobs.h"
#include "lockstep/run/model_description.h"
#include "lockstep/run/rank_environment.h"
#include "lockstep/run/run_directory.h"

namespace {

using namespace lockstep;  // NOLINT: a small program

volatile std::sig_atomic_t asked = 0;

long long number(const std::map<std::string, std::string>& knobs, const char* key) {
  const auto found = knobs.find(key);
  return found == knobs.end() ? 0 : text::to_integer(found->second).value_or(0);
}

std::int64_t steps_before(const run::RunDirectory& directory) {
  const auto last = monitor::last_metrics(directory.metrics(), monitor::Split::train);
  return last ? last->step : 0;
}

constexpr std::int64_t kHeldAt = 10;

// Returns the step that it may not go beyond.
std::int64_t limit_of(const run::RunDirectory& directory, std::int64_t total,
                      bool is_held) {
  if (!is_held) return total;
  const auto until = directory.path().parent_path() / "until";
  if (!std::filesystem::exists(until)) return std::min(kHeldAt, total);
  return std::min<std::int64_t>(
      text::to_integer(text::trim(files::read(until, 64))).value_or(kHeldAt), total);
}

// Two at a time on one run are what must never be.
void be_alone(const run::RunDirectory& directory) {
  const auto path = directory.path() / "alone";
  static files::Descriptor file(
      ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  struct flock lock {};
  lock.l_type = F_WRLCK;
  if (::fcntl(file.get(), F_OFD_SETLK, &lock) == 0) return;
  run::EventWriter(directory.events()).write("two_at_a_time");
  std::exit(70);
}

int train(const std::string& path) {
  const auto directory = run::RunDirectory::open(path);
  const auto knobs = run::read_knobs(directory.config());
  const auto environment = run::detect(run::process_variables());
  if (environment.rank != 0) {
    // The launcher takes the end of a rank for good once it has said so.
    run::HeartbeatWriter(directory.heartbeat(),
                         {.rank = environment.rank, .ranks = environment.world_size})
        .beat(0, run::Phase::finished);
    return 0;
  }
  be_alone(directory);
  const auto total = number(knobs, "train.steps");
  const auto pause = std::chrono::milliseconds(number(knobs, "train.log_every"));
  run::HeartbeatWriter heartbeat(directory.heartbeat(),
                                 {.rank = 0, .ranks = environment.world_size});
  heartbeat.beat(0, run::Phase::starting);
  run::EventWriter events(directory.events());
  monitor::MetricsWriter metrics(directory.metrics());
  auto step = steps_before(directory);
  events.write("started",
               {{"rank", std::int64_t{0}}, {"total_steps", std::int64_t{total}}});
  if (knobs.at("optim.lr") == "16") ::signal(SIGTERM, SIG_IGN);
  if (knobs.at("optim.lr") == "13") return exit_status(Fault::io);
  const bool is_held = knobs.at("optim.lr") == "14";
  while (step < total && asked == 0) {
    std::this_thread::sleep_for(pause);
    if (step >= limit_of(directory, total, is_held)) {
      heartbeat.beat(step, run::Phase::training);
      continue;
    }
    ++step;
    if (is_held) std::cout << "step " << step << std::endl;
    heartbeat.beat(step, run::Phase::training);
    metrics.write({.step = step,
                   .split = monitor::Split::train,
                   .loss = 1.0 / static_cast<double>(step),
                   .more = {{"samples_per_second", 1000.0}, {"step_seconds", 1e-3}},
                   .attempt = 1});
  }
  heartbeat.beat(step, run::Phase::finished);
  const bool stopped = step < total;
  events.write(stopped ? "stopped" : "done",
               {{"steps", step}, {"reason", std::string("done")}, {"over", !stopped}});
  return stopped ? kExitStopped : kExitOk;
}

int describe(const std::string& config) {
  if (run::read_knobs(config).at("optim.lr") != "15") return 2;
  run::ModelDescription model;
  model.name = "made up";
  model.source = "fake_worker";
  model.sample_bytes = 16;
  model.units.push_back({.name = "all", .forward_flops = 1000});
  std::cout << run::to_json(model);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> words(argv + 1, argv + argc);
  ::signal(SIGTERM, [](int) { asked = 1; });
  if (words.size() == 2 && words[0] == "--run-dir") return train(words[1]);
  if (words.size() == 2 && words[0] == "--describe") return describe(words[1]);
  return 2;
}
