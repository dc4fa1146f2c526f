// trace.json: Google's Trace Event Format, as chrome://tracing and Perfetto read it.
#include <algorithm>
#include <cmath>
#include <map>

#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/json_problem.h"
#include "lockstep/monitor/timeline.h"

namespace lockstep::monitor {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kStepTrack = 0;
constexpr int kTravelTrack = 1;

struct Track {
  int rank;
  int number = 0;
};

Json named(const char* what, const Track& track, const std::string& name) {
  return {{"ph", "M"},
          {"name", what},
          {"pid", track.rank},
          {"tid", track.number},
          {"args", {{"name", name}}}};
}

const char* category_of(Span::Kind kind) {
  switch (kind) {
    case Span::Kind::step:
      return "step";
    case Span::Kind::phase:
      return "phase";
    case Span::Kind::gradients:
      return "gradients";
    default:
      return "parameters";
  }
}

std::string name_of_span(const Span& span) {
  switch (span.kind) {
    case Span::Kind::step:
      return str("step ", span.step);
    case Span::Kind::phase:
      return std::string(name_of(span.phase));
    default:
      return str(category_of(span.kind), " ", span.index);
  }
}

bool is_of_steps(const Span& span) {
  return span.kind == Span::Kind::step || span.kind == Span::Kind::phase;
}

// Returns what its index means.
const char* counted_by(const Span& span) {
  return span.kind == Span::Kind::step ? "samples" : "bucket";
}

// Times are nanoseconds, so that spans that touch do so in the file, too.
std::int64_t nanoseconds(double seconds) {
  return std::llround(seconds * 1e9);
}

double microseconds(std::int64_t nanoseconds) {
  return static_cast<double>(nanoseconds) / 1e3;
}

Json event_of(const Span& span, int rank, double zero) {
  const auto begin = nanoseconds(span.begin - zero);
  const auto end = nanoseconds(span.end - zero);
  Json arguments{{"step", span.step}};
  if (span.kind != Span::Kind::phase) arguments[counted_by(span)] = span.index;
  return {{"ph", "X"},
          {"name", name_of_span(span)},
          {"cat", category_of(span.kind)},
          {"pid", rank},
          {"tid", is_of_steps(span) ? kStepTrack : kTravelTrack},
          {"ts", microseconds(begin)},
          {"dur", microseconds(end - begin)},
          {"args", std::move(arguments)}};
}

// Returns spans in the order in which they begin, those that contain others first. A
// bucket that travels begins where the one before it has ended.
std::vector<Span> drawn(std::vector<Span> spans) {
  std::stable_sort(spans.begin(), spans.end(), [](const Span& a, const Span& b) {
    if (a.begin != b.begin) return a.begin < b.begin;
    return a.kind == Span::Kind::step && b.kind != Span::Kind::step;
  });
  double free_from = -INFINITY;
  for (auto& span : spans) {
    if (is_of_steps(span)) continue;
    span.begin = std::max(span.begin, free_from);
    span.end = std::max(span.end, span.begin);
    free_from = span.end;
  }
  return spans;
}

void add_rank(Json& events, const Timeline& timeline, int rank) {
  const auto zero = timeline.begin();
  events.push_back(
      named("process_name", {rank}, str("rank ", rank, " (", timeline.device, ")")));
  events.push_back({{"ph", "M"},
                    {"name", "process_sort_index"},
                    {"pid", rank},
                    {"args", {{"sort_index", rank}}}});
  events.push_back(named("thread_name", {rank, kStepTrack}, "steps"));
  events.push_back(named("thread_name", {rank, kTravelTrack}, "communication"));
  for (const auto& span : drawn(timeline.ranks[static_cast<std::size_t>(rank)].spans)) {
    events.push_back(event_of(span, rank, zero));
  }
}

// The numbers of a span are in its arguments; its phase is only in its name.
Span span_of(const nlohmann::json& event, double zero) {
  static const std::map<std::string, Span::Kind> kKinds{
      {"step", Span::Kind::step},
      {"phase", Span::Kind::phase},
      {"gradients", Span::Kind::gradients},
      {"parameters", Span::Kind::parameters}};
  Span span;
  span.kind = kKinds.at(event.at("cat").get<std::string>());
  const auto name = event.at("name").get<std::string>();
  for (std::size_t p = 0; p < kNumPhases; ++p) {
    if (name == name_of(static_cast<StepPhase>(p))) {
      span.phase = static_cast<StepPhase>(p);
    }
  }
  span.step = event.at("args").at("step").get<std::int64_t>();
  span.index = event.at("args").value(counted_by(span), std::int64_t{0});
  span.begin = zero + event.at("ts").get<double>() / 1e6;
  span.end = span.begin + event.at("dur").get<double>() / 1e6;
  return span;
}

Timeline timeline_of(const nlohmann::json& json) {
  const auto& more = json.at("otherData");
  const auto zero = more.at("clock_seconds").get<double>();
  Timeline timeline{.device = more.at("device").get<std::string>(),
                    .backend = more.at("backend").get<std::string>()};
  for (const auto& rank : more.at("ranks")) {
    timeline.ranks.push_back(
        {.spans = {},
         .cpu_seconds = rank.at("cpu_seconds").get<double>(),
         .peak_memory_bytes = rank.at("peak_memory_bytes").get<std::int64_t>()});
  }
  for (const auto& event : json.at("traceEvents")) {
    if (event.at("ph") != "X") continue;
    timeline.ranks.at(event.at("pid").get<std::size_t>())
        .spans.push_back(span_of(event, zero));
  }
  return timeline;
}

}  // namespace

std::string to_chrome_trace(const Timeline& timeline) {
  Json events = Json::array();
  Json ranks = Json::array();
  const auto zero = timeline.begin();
  for (std::size_t r = 0; r < timeline.ranks.size(); ++r) {
    add_rank(events, timeline, static_cast<int>(r));
    ranks.push_back({{"rank", r},
                     {"cpu_seconds", timeline.ranks[r].cpu_seconds},
                     {"peak_memory_bytes", timeline.ranks[r].peak_memory_bytes}});
  }
  return Json{{"displayTimeUnit", "ms"},
              {"otherData",
               {{"device", timeline.device},
                {"backend", timeline.backend},
                {"clock_seconds", zero},
                {"ranks", std::move(ranks)}}},
              {"traceEvents", std::move(events)}}
             .dump() +
         "\n";
}

Timeline read_chrome_trace(const files::Path& path) {
  constexpr std::int64_t kMostBytes = std::int64_t{1} << 30;
  const auto text = files::read(path, kMostBytes);
  try {
    return timeline_of(nlohmann::json::parse(text));
  } catch (const std::exception& error) {
    throw Error(Fault::io, path.string(),
                ": is not a trace of a training run: ", json_problem(error));
  }
}

}  // namespace lockstep::monitor
