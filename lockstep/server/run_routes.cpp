// /v1/runs: what has come of trainings. A run has the id of its job.
#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/monitor/metrics.h"
#include "lockstep/run/events.h"
#include "lockstep/server/detail/kept_texts.h"
#include "lockstep/server/detail/route.h"
#include "lockstep/server/sse.h"
#include "lockstep/service/job_files.h"
#include "lockstep/storage/catalog.h"

namespace lockstep::server {
namespace {

using service::JobFile;
using service::JobSubfolder;
using service::Refusal;
using service::Refused;

constexpr std::int64_t kMostPoints = 10'000;
constexpr std::int64_t kLogTail = 256 << 10;
constexpr std::int64_t kMostRank = 4096;

Json run_of(service::Service& service, const service::Job& job) {
  auto json = run_json(service, service.folder_of(job));
  if (json.is_null()) return nullptr;
  return {{"id", job.id},
          {"number", job.number},
          {"user", job.user},
          {"name", job.name},
          {"job_state", service::name_of(job.state)},
          {"attempt", job.attempt},
          {"run", std::move(json)}};
}

Response list_runs(service::Service& service, const Call& call) {
  Json items = Json::array();
  for (const auto& job : service.jobs(call.who, page_of(call))) {
    auto json = run_of(service, job);
    if (!json.is_null()) items.push_back(std::move(json));
  }
  return json_response({{"items", std::move(items)}});
}

Response one_run(service::Service& service, const Call& call) {
  const auto job = service.job(call.who, call.id());
  const auto json = run_of(service, job);
  if (json.is_null()) throw Refusal(Refused::unknown, "the job has no run yet");
  return json_response(json);
}

std::string metrics_line(const monitor::Metrics& metrics) {
  std::vector<run::NamedValue> fields{{"step", metrics.step},
                                      {"split", std::string(name_of(metrics.split))},
                                      {"loss", metrics.loss},
                                      {"time", metrics.time}};
  fields.insert(fields.end(), metrics.more.begin(), metrics.more.end());
  return run::to_json_line(fields);
}

// Keeps the first and the last of many, and others at even distances.
std::vector<const monitor::Metrics*> thinned(std::vector<const monitor::Metrics*> all,
                                             std::size_t most) {
  if (all.size() <= most || most < 2) return all;
  std::vector<const monitor::Metrics*> kept;
  for (std::size_t i = 0; i < most; ++i) {
    kept.push_back(all[i * (all.size() - 1) / (most - 1)]);
  }
  return kept;
}

using MetricsLines = std::vector<monitor::Metrics>;
using MetricsTexts = KeptTexts<MetricsLines>;

std::string metrics_text(const MetricsLines& lines, const Call& call) {
  const auto from = call.number("from", 0);
  const auto to = call.number("to", INT64_MAX);
  const auto split = call.query.find("split");
  std::vector<const monitor::Metrics*> wanted;
  for (const auto& line : lines) {
    if (line.step < from || line.step > to) continue;
    if (split != call.query.end() && name_of(line.split) != split->second) continue;
    wanted.push_back(&line);
  }
  const auto most = static_cast<std::size_t>(
      std::clamp<std::int64_t>(call.number("points", 1000), 2, kMostPoints));
  std::string text = "{\"items\":[";
  for (const auto* line : thinned(std::move(wanted), most)) {
    if (text.back() != '[') text += ',';
    text += metrics_line(*line);
  }
  return text + "]}";
}

Response metrics_of(service::Service& service, const Call& call, MetricsTexts& texts) {
  const auto lines = service.runs().metrics(service.folder(call.who, call.id()));
  Response response;
  response.body =
      texts.of(call.request.target, lines, [&] { return metrics_text(*lines, call); });
  return response;
}

Response events_of(service::Service& service, const Call& call) {
  const JobFile file(service.folder(call.who, call.id()), "run/events.jsonl");
  const auto most =
      std::clamp<std::int64_t>(call.number("limit", 1000), 1, kMostPoints);
  Json items = Json::array();
  for (const auto& event :
       run::last_events(file.path(), static_cast<std::size_t>(most))) {
    auto json = Json::parse(run::to_json_line(event.fields));
    json["time"] = event.time;
    json["event"] = event.kind;
    items.push_back(std::move(json));
  }
  return json_response({{"items", std::move(items)}});
}

// A job that waits for its turn has not begun its first attempt, which is followed.
std::int64_t attempt_of(service::Service& service, const Call& call) {
  const auto job = service.job(call.who, call.id());
  return call.number("attempt", std::max(1, job.attempt));
}

// Which log: that of a rank, or of the attempt (rank 0's terminal). Both parts of the
// name are numbers. Below the folder of the job.
files::Path log_file(service::Service& service, const Call& call) {
  if (!call.query.contains("rank")) {
    return files::Path("attempts") / str(attempt_of(service, call), ".log");
  }
  const auto rank = call.number("rank", 0);
  if (rank > kMostRank) throw Refusal(Refused::unknown, "there is no such rank");
  return files::Path("run") / "logs" / str("rank_", rank, ".log");
}

Response logs_of(service::Service& service, const Call& call) {
  Response response;
  response.type = "text/plain; charset=utf-8";
  const JobFile file(service.folder(call.who, call.id()), log_file(service, call));
  response.body = files::read_tail(file.path(), kLogTail);
  return response;
}

// Where a client goes on: behind the last event that it has seen.
std::int64_t first_byte(const Call& call) {
  const auto last = call.request.header("last-event-id");
  if (last.empty()) return call.number("from_byte", 0);
  const auto number = text::to_integer(last);
  if (!number || *number < 0) {
    throw Refusal(Refused::invalid, "Last-Event-ID: is none of this stream");
  }
  return *number;
}

// A file of a run whose lines are sent as events of this name.
struct StreamedFile {
  files::Path path;  // below the folder of the job
  std::string event;
  std::int64_t attempt = INT64_MAX;  // that it belongs to; else to all
};

Response stream_of(service::Service& service, const Call& call,
                   const StreamedFile& file) {
  Response response;
  response.type = "text/event-stream";
  const auto folder = service.folder(call.who, call.id());
  response.stream = tail_events(
      {.file = folder.path() / file.path,
       .open = [folder, name = file.path] { return JobFile(folder, name).take(); },
       .event = file.event,
       .offset = first_byte(call),
       .is_over =
           [&service, id = call.id(), attempt = file.attempt] {
             const auto known = service.store().job_now(id);
             if (!known || known->job.attempt > attempt) return true;
             const auto state = known->job.state;
             return service::is_over(state) || state == service::JobState::paused ||
                    state == service::JobState::interrupted;
           }});
  return response;
}

const files::Path kCheckpoints = "run/checkpoints";

// The regular files in a folder of a checkpoint, with their sizes.
std::vector<std::pair<std::string, std::uintmax_t>> files_of(
    const service::JobFolder& folder, const files::Path& step) {
  std::vector<std::pair<std::string, std::uintmax_t>> found;
  const JobSubfolder place(folder, kCheckpoints / step);
  if (!place) return found;
  std::error_code ignored;
  for (std::filesystem::directory_iterator it(place.path(), ignored), end; it != end;
       it.increment(ignored)) {
    if (it->is_symlink(ignored) || !it->is_regular_file(ignored)) continue;
    found.emplace_back(it->path().filename().string(), it->file_size(ignored));
  }
  return found;
}

std::vector<storage::StepEntry> steps_of(const service::JobFolder& folder) {
  const JobSubfolder place(folder, kCheckpoints);
  if (!place) return {};
  return storage::list_steps(place.path());
}

Response checkpoints_of(service::Service& service, const Call& call) {
  const auto folder = service.folder(call.who, call.id());
  Json items = Json::array();
  for (const auto& step : steps_of(folder)) {
    Json files = Json::array();
    for (const auto& [name, bytes] : files_of(folder, step.path.filename())) {
      files.push_back({{"name", name}, {"bytes", bytes}});
    }
    items.push_back({{"step", step.step}, {"files", std::move(files)}});
  }
  return json_response({{"items", std::move(items)}});
}

// A name from a client is compared with the names that are there, and never used as
// one.
Response checkpoint_file(service::Service& service, const Call& call) {
  const auto folder = service.folder(call.who, call.id());
  const auto wanted = text::to_integer(call.path.at("step"));
  for (const auto& step : steps_of(folder)) {
    if (!wanted || step.step != *wanted) continue;
    for (const auto& [name, bytes] : files_of(folder, step.path.filename())) {
      if (name != call.path.at("file")) continue;
      JobFile file(folder, kCheckpoints / step.path.filename() / name);
      if (!file) continue;
      Response response;
      response.type = "application/octet-stream";
      response.stream = file_bytes(file.take());
      return response;
    }
  }
  throw Refusal(Refused::unknown, "there is no such file of a checkpoint");
}

Response weights(service::Service& service, const Call& call) {
  JobFile file(service.folder(call.who, call.id()), "run/model.safetensors");
  if (!file) throw Refusal(Refused::unknown, "the job has no weights yet");
  Response response;
  response.type = "application/octet-stream";
  response.stream = file_bytes(file.take());
  return response;
}

Json whole_number() {
  return {{"type", "integer"}, {"minimum", 0}};
}

// A route that reads a run; its path is below that of the run.
struct RunRoute {
  std::string path;
  std::string operation;
  std::string summary;
};

Route reading(const RunRoute& names, std::function<Response(Call&)> answer) {
  Route route;
  route.method = "GET";
  route.path = "/v1/runs/{id}" + names.path;
  route.operation = names.operation;
  route.summary = names.summary;
  route.response = list_of({{"type", "object"}});
  route.answer = std::move(answer);
  return route;
}

Route streaming(const RunRoute& names, std::function<Response(Call&)> answer) {
  auto route = reading(names, std::move(answer));
  route.response_type = "text/event-stream";
  route.response = {{"description", "Server-sent events with id, event and data."}};
  route.query = {{"from_byte",
                  "Byte offset to start at, or after; Last-Event-ID takes precedence.",
                  whole_number()}};
  return route;
}

std::vector<Parameter> log_parameters() {
  return {
      {"rank", "Rank whose log to read; default: what rank 0 printed.", whole_number()},
      {"attempt", "Attempt to read; default: the last.", whole_number()}};
}

}  // namespace

Json run_json(service::Service& service, const service::JobFolder& folder) {
  const auto text = service.runs().view(folder);
  if (text.empty()) return nullptr;
  return Json::parse(text);
}

std::vector<Route> run_routes(service::Service& service) {
  std::vector<Route> routes;
  routes.push_back(
      {.method = "GET",
       .path = "/v1/runs",
       .operation = "listRuns",
       .summary = "List your runs, newest first; an admin sees those of all users.",
       .response = list_of(ref("Run")),
       .query = page_parameters(),
       .answer = [&service](Call& call) { return list_runs(service, call); }});
  auto one = reading({"", "getRun", "Get a run: progress and newest metrics."},
                     [&service](Call& call) { return one_run(service, call); });
  one.response = ref("Run");
  routes.push_back(std::move(one));
  auto metrics = reading({"/metrics", "getMetrics", "Get metrics over steps."},
                         [&service, texts = std::make_shared<MetricsTexts>()](
                             Call& call) { return metrics_of(service, call, *texts); });
  metrics.query = {
      {"from", "First step to return.", whole_number()},
      {"to", "The last step.", whole_number()},
      {"points", "Maximum number of points, evenly spaced.", whole_number()},
      {"split",
       "Only metrics of training (train) or evaluation (eval).",
       {{"type", "string"}}}};
  routes.push_back(std::move(metrics));
  auto events =
      reading({"/events", "getEvents", "List the events of a run, newest last."},
              [&service](Call& call) { return events_of(service, call); });
  events.query = {{"limit", "Maximum number of results.", whole_number()}};
  routes.push_back(std::move(events));
  auto logs = reading({"/logs", "getLogs", "Get the end of a log."},
                      [&service](Call& call) { return logs_of(service, call); });
  logs.response_type = "text/plain";
  logs.response = {{"type", "string"}};
  logs.query = log_parameters();
  routes.push_back(std::move(logs));
  routes.push_back(streaming(
      {"/metrics/stream", "streamMetrics", "Stream metrics as they are written."},
      [&service](Call& call) {
        return stream_of(service, call, {"run/metrics.jsonl", "metrics"});
      }));
  routes.push_back(streaming(
      {"/events/stream", "streamEvents", "Stream events as they are written."},
      [&service](Call& call) {
        return stream_of(service, call, {"run/events.jsonl", "event"});
      }));
  auto follow =
      streaming({"/logs/stream", "streamLogs", "Stream a log as it is written."},
                [&service](Call& call) {
                  StreamedFile file{log_file(service, call), "log"};
                  if (!call.query.contains("rank"))
                    file.attempt = attempt_of(service, call);
                  return stream_of(service, call, file);
                });
  for (auto& parameter : log_parameters()) follow.query.push_back(std::move(parameter));
  routes.push_back(std::move(follow));
  routes.push_back(
      reading({"/checkpoints", "listCheckpoints", "List the checkpoints of a run."},
              [&service](Call& call) { return checkpoints_of(service, call); }));
  auto file =
      reading({"/checkpoints/{step}/{file}", "getCheckpointFile",
               "Download a file of a checkpoint."},
              [&service](Call& call) { return checkpoint_file(service, call); });
  file.response_type = "application/octet-stream";
  file.response = {{"type", "string"}, {"format", "binary"}};
  routes.push_back(std::move(file));
  auto final =
      reading({"/weights", "getWeights", "Download the trained weights (safetensors)."},
              [&service](Call& call) { return weights(service, call); });
  final.response_type = "application/octet-stream";
  final.response = {{"type", "string"}, {"format", "binary"}};
  routes.push_back(std::move(final));
  return routes;
}

}  // namespace lockstep::server
