#pragma once

#include <condition_variable>
#include <filesystem>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "lockstep/config/config.h"
#include "lockstep/jobs/caller.h"

namespace lockstep::jobs {

// Sends what the mlflow sink has written (mlflow.jsonl) to an MLflow tracking server,
// now and then while the run goes on and once more at its end. How far it has come is
// in mlflow.json of the run directory, so that a run which is taken up again is one run
// there, too.
//
// The server is monitor.mlflow_uri, or MLFLOW_TRACKING_URI; who asks is in
// MLFLOW_TRACKING_TOKEN, or MLFLOW_TRACKING_USERNAME and _PASSWORD, as with MLflow's
// own client.
//
// Threads: has one of its own. Make it after launcher::Signals.
class MlflowSync {
 public:
  // Does nothing without the sink. Throws Fault::config if there is one and no server
  // is named.
  MlflowSync(const std::filesystem::path& run, const config::MonitorConfig& config,
             const Caller& caller);
  ~MlflowSync();

  // Sends the rest. Returns what a user should know, "" if nothing. `failed`: the run
  // has ended without saying how.
  std::string finish(bool failed);

 private:
  void loop(const std::stop_token& stop);
  void send_new();
  void send_line(const std::string& line);
  void open_run();
  std::string experiment();
  std::string ask(const std::string& path, const std::string& body);
  void keep() const;

  const std::filesystem::path run_;
  const Caller& caller_;
  std::string uri_;  // "": there is nothing to do
  std::string experiment_;
  std::chrono::milliseconds every_{0};

  std::mutex mutex_;  // guards the rest: the thread and finish() send
  std::string run_id_;
  std::int64_t sent_bytes_ = 0;
  bool is_open_ = false;  // the server takes the run for running
  std::string problem_;   // of the last try
  std::condition_variable_any wake_;
  std::jthread thread_;  // last: ends before what it uses
};

}  // namespace lockstep::jobs
