#include "lockstep/jobs/mlflow_sync.h"

#include <algorithm>
#include <fstream>

#include <nlohmann/json.hpp>

#include "lockstep/base/clock.h"
#include "lockstep/base/error.h"
#include "lockstep/base/files.h"
#include "lockstep/base/text.h"
#include "lockstep/run/run_directory.h"

namespace lockstep::jobs {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kOk = 200;
constexpr int kNotFound = 404;
constexpr std::int64_t kLargestState = 1 << 16;

bool has_mlflow(const config::MonitorConfig& config) {
  return std::find(config.sinks.begin(), config.sinks.end(), config::Sink::mlflow) !=
         config.sinks.end();
}

std::string base64(std::string_view bytes) {
  constexpr std::string_view kLetters =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    unsigned group = 0;
    for (std::size_t k = 0; k < 3; ++k) {
      group = group << 8U |
              (i + k < bytes.size() ? static_cast<unsigned char>(bytes[i + k]) : 0U);
    }
    for (std::size_t k = 0; k < 4; ++k) {
      const bool is_there = i + k <= bytes.size();
      text += is_there ? kLetters[group >> (18U - 6U * k) & 63U] : '=';
    }
  }
  return text;
}

std::optional<std::string> authorization(const Caller& caller) {
  const auto token = caller.variable("MLFLOW_TRACKING_TOKEN").value_or("");
  if (!token.empty()) return "Bearer " + token;
  const auto user = caller.variable("MLFLOW_TRACKING_USERNAME").value_or("");
  if (user.empty()) return std::nullopt;
  return "Basic " +
         base64(user + ":" + caller.variable("MLFLOW_TRACKING_PASSWORD").value_or(""));
}

std::string in_query(std::string_view text) {
  constexpr std::string_view kDigits = "0123456789ABCDEF";
  std::string encoded;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (std::isalnum(byte) != 0 || c == '-' || c == '_' || c == '.') {
      encoded += c;
    } else {
      encoded += {'%', kDigits[byte >> 4U], kDigits[byte & 15U]};
    }
  }
  return encoded;
}

Json tag(const char* key, const std::string& value) {
  return {{"key", key}, {"value", value}};
}

std::int64_t now_ms() {
  return static_cast<std::int64_t>(unix_seconds(Clock::system().wall()) * 1000);
}

// Returns the whole lines behind `from`, at most a few MB of them.
std::string lines_behind(const std::filesystem::path& file, std::int64_t from) {
  constexpr std::size_t kAtOnce = 4 << 20;
  std::ifstream in(file, std::ios::binary);
  if (!in.seekg(from)) return "";
  std::string text(kAtOnce, '\0');
  in.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(in.gcount()));
  text.resize(text.rfind('\n') == std::string::npos ? 0 : text.rfind('\n') + 1);
  return text;
}

}  // namespace

MlflowSync::MlflowSync(const std::filesystem::path& run,
                       const config::MonitorConfig& config, const Caller& caller)
    : run_(run), caller_(caller) {
  if (!has_mlflow(config) || !caller.ask_http) return;
  uri_ = !config.mlflow_uri.empty()
             ? config.mlflow_uri
             : caller.variable("MLFLOW_TRACKING_URI").value_or("");
  if (!text::starts_with(uri_, "http://") && !text::starts_with(uri_, "https://")) {
    throw Error(
        Fault::config, "monitor.mlflow_uri: '", uri_,
        "' is not the address of a tracking server; set it, or MLFLOW_TRACKING_URI, to "
        "http://HOST:PORT, or take mlflow out of monitor.sinks");
  }
  if (uri_.find('@') != std::string::npos) {
    throw Error(
        Fault::config,
        "monitor.mlflow_uri: has a user in it; set MLFLOW_TRACKING_USERNAME and "
        "MLFLOW_TRACKING_PASSWORD, which are not written down");
  }
  while (uri_.back() == '/') uri_.pop_back();
  experiment_ = config.mlflow_experiment;
  every_ = config.mlflow_sync_every;
  std::error_code ignored;
  const auto state = run_ / "mlflow.json";
  if (std::filesystem::exists(state, ignored)) {
    const auto json = Json::parse(files::read(state, kLargestState), nullptr, false);
    // Another server knows nothing of what this one was told.
    if (json.is_object() && json.value("uri", "") == uri_) {
      run_id_ = json.value("run_id", "");
      sent_bytes_ = json.value("sent_bytes", std::int64_t{0});
    }
  }
  if (every_.count() <= 0) return;
  thread_ = std::jthread([this](const std::stop_token& stop) { loop(stop); });
}

MlflowSync::~MlflowSync() = default;

void MlflowSync::loop(const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  while (true) {
    wake_.wait_for(lock, stop, every_, [] { return false; });
    if (stop.stop_requested()) return;
    try {
      send_new();
      problem_.clear();
    } catch (const std::exception& error) {
      // Said once: a server that is away for an hour is no reason for 360 lines.
      if (problem_.empty()) {
        caller_.warn(str("mlflow: ", error.what(), "; tried again while it trains"));
      }
      problem_ = error.what();
    }
  }
}

std::string MlflowSync::finish(bool failed) {
  if (uri_.empty()) return "";
  thread_.request_stop();
  if (thread_.joinable()) thread_.join();
  const std::lock_guard lock(mutex_);
  try {
    send_new();
    if (is_open_) {
      send_line(Json({{"status", failed ? "FAILED" : "FINISHED"}}).dump());
    }
    return "";
  } catch (const std::exception& error) {
    return str(error.what(), "; the rest is in ", (run_ / "mlflow.jsonl").string(),
               " and is sent when the run resumes");
  }
}

void MlflowSync::send_new() {
  while (true) {
    const auto text = lines_behind(run_ / "mlflow.jsonl", sent_bytes_);
    if (text.empty()) return;
    for (const auto& line : text::split(text.substr(0, text.size() - 1), '\n')) {
      if (!is_open_) open_run();
      send_line(line);
      sent_bytes_ += static_cast<std::int64_t>(line.size()) + 1;
    }
    keep();
  }
}

void MlflowSync::send_line(const std::string& line) {
  auto json = Json::parse(line, nullptr, false);
  if (!json.is_object()) return;  // torn by a crash
  json["run_id"] = run_id_;
  const bool is_end = json.contains("status");
  if (is_end) json["end_time"] = now_ms();
  ask(is_end ? "runs/update" : "runs/log-batch", json.dump());
  is_open_ = !is_end;
}

void MlflowSync::open_run() {
  if (!run_id_.empty()) {
    ask("runs/update", Json({{"run_id", run_id_}, {"status", "RUNNING"}}).dump());
    is_open_ = true;
    return;
  }
  const auto record = run::RunDirectory::open(run_).read_record();
  const auto user = caller_.variable("USER").value_or("");
  const Json wanted = {
      {"experiment_id", experiment()},
      {"run_name", record.id},
      {"start_time", now_ms()},
      {"tags",
       {tag("mlflow.runName", record.id), tag("mlflow.source.name", "lockstep"),
        tag("mlflow.source.type", "JOB"), tag("mlflow.user", user),
        tag("lockstep.host", record.host)}}};
  const auto made = Json::parse(ask("runs/create", wanted.dump()));
  run_id_ = made.at("run").at("info").at("run_id").get<std::string>();
  is_open_ = true;
  keep();
}

std::string MlflowSync::experiment() {
  const auto found =
      ask("experiments/get-by-name?experiment_name=" + in_query(experiment_), "");
  if (!found.empty()) {
    return Json::parse(found).at("experiment").at("experiment_id").get<std::string>();
  }
  const auto made = ask("experiments/create", Json({{"name", experiment_}}).dump());
  return Json::parse(made).at("experiment_id").get<std::string>();
}

// A question without a body is a GET; "" is the answer to one about nothing.
std::string MlflowSync::ask(const std::string& path, const std::string& body) {
  HttpQuestion question{.method = body.empty() ? "GET" : "POST",
                        .url = uri_ + "/api/2.0/mlflow/" + path,
                        .headers = {{"Content-Type", "application/json"}},
                        .body = body};
  if (const auto secret = authorization(caller_)) {
    question.headers.emplace_back("Authorization", *secret);
  }
  const auto answer = caller_.ask_http(question);
  if (answer.status == kOk) return answer.body;
  if (answer.status == kNotFound && body.empty()) return "";
  constexpr std::size_t kMost = 300;
  throw Error(Fault::io, uri_, " answers ", path.substr(0, path.find('?')), " with ",
              answer.status, ": ", answer.body.substr(0, kMost));
}

void MlflowSync::keep() const {
  files::write_atomically(
      run_ / "mlflow.json",
      Json({{"uri", uri_}, {"run_id", run_id_}, {"sent_bytes", sent_bytes_}}).dump());
}

}  // namespace lockstep::jobs
