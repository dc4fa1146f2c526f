#pragma once

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "lockstep/launcher/detail/notes.h"
#include "lockstep/launcher/job.h"
#include "lockstep/run/heartbeat.h"

namespace lockstep::launcher {

// The parts that the attempts of a job share.
struct AttemptContext {
  const run::RunDirectory& run;
  const Job& job;           // complete: with address, port and token
  const std::string& mark;  // sweep.h
  LogPump* pump;            // none if all ranks own the terminal
  Notes& notes;
  Signals& signals;
  HangJudge* hang;  // none if ranks are not watched
  const Clock& clock;
};

// One life of all ranks, from their start to the end of the last of them.
class Attempt {
 public:
  // Starts them. `number` counts from 0.
  Attempt(const AttemptContext& scene, int number);
  ~Attempt();  // nothing of them is left
  Attempt(const Attempt&) = delete;
  Attempt& operator=(const Attempt&) = delete;

  // Returns the ends by local rank. When it returns no process of the job is left, and
  // the logs have all that they printed.
  std::vector<RankEnd> until_end();

 private:
  struct Rank {
    process::Child child;
    RankEnd end;
    bool running = true;
    // These are its last seen activity; zero until it is quiet enough to be asked.
    std::optional<SteadyTime> evidence_at = {};
    std::optional<Activity> activity = Activity{};
    std::optional<bool> gpu_busy = false;
  };

  void start_rank(int local_rank, int number);
  void wait_for_something();
  int wait_limit_ms() const;
  void reap();
  bool reap_once(double time);
  void finish(Rank& rank, const process::End& end, double time);
  bool is_early(const Rank& rank, const process::End& end);
  void pass_on_stop();
  void receive(int number);
  void interrupt();
  void stop(int number);
  void quit();
  void pause();
  void give_up();
  void abandon();
  void kill_running();
  void look_for_hang();
  RankLook look_at(Rank& rank);
  void tell_slow(const SlowRank& slow);
  void look_after_run();
  bool is_taken_over();
  bool is_homeless();
  const run::HeartbeatReader* heartbeat();
  void fail(const Rank& rank);
  void sweep_up();
  bool beats() const { return scene_.job.is_ours(); }

  const AttemptContext scene_;
  std::vector<Rank> ranks_;
  int running_ = 0;
  GpuWatch gpus_;
  std::optional<run::HeartbeatReader> heartbeat_;
  std::optional<SteadyTime> next_look_;
  std::optional<SteadyTime> next_run_look_;
  bool seems_gone_ = false;  // the run directory, when it was last looked for
  int asked_by_ = 0;         // the first signal that asked to stop
  bool user_asked_ = false;  // by SIGUSR1, which is always passed on
  bool told_ = false;        // to end, because one failed
  std::optional<SteadyTime> deadline_;     // then all are killed, or left
  bool is_dying_ = false;                  // all that run have had SIGKILL
  std::chrono::milliseconds allowed_{};    // the time up to it, for the user
  std::optional<SteadyTime> interrupted_;  // by the first SIGINT
  std::set<int> passed_on_;                // signals that asked the ranks to stop
  bool swept_ = false;
};

// Returns the environment of a rank, over ours.
std::vector<std::pair<std::string, std::string>> rank_variables(
    const AttemptContext& scene, int local_rank, int attempt);

}  // namespace lockstep::launcher
