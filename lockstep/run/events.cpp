#include "lockstep/run/events.h"

#include <limits>

#include "lockstep/base/text.h"

namespace lockstep::run {
namespace {

constexpr std::int64_t kTailBytes = 64 << 10;

std::optional<Event> event_of(const std::string& line) {
  auto fields = parse_json_line(line);
  if (!fields || fields->size() < 2) return std::nullopt;
  const auto time = number_of((*fields)[0]);
  const auto* kind = std::get_if<std::string>(&(*fields)[1].value);
  if ((*fields)[0].name != "time" || !time) return std::nullopt;
  if ((*fields)[1].name != "event" || kind == nullptr) return std::nullopt;
  Event event{.time = *time, .kind = *kind, .fields = {}};
  event.fields.assign(fields->begin() + 2, fields->end());
  return event;
}

}  // namespace

EventWriter::EventWriter(const files::Path& path, const Clock& clock)
    : lines_(path), clock_(clock) {}

void EventWriter::write(std::string_view kind, std::span<const NamedValue> fields) {
  std::vector<NamedValue> line{{"time", unix_seconds(clock_.wall())},
                               {"event", std::string(kind)}};
  line.insert(line.end(), fields.begin(), fields.end());
  lines_.write(to_json_line(line));
  lines_.sync();
}

void EventWriter::write(std::string_view kind,
                        std::initializer_list<NamedValue> fields) {
  write(kind, std::span<const NamedValue>(fields.begin(), fields.size()));
}

std::vector<Event> last_events(const files::Path& path, std::size_t count) {
  std::vector<Event> events;
  for (const auto& line : text::split(files::read_tail(path, kTailBytes), '\n')) {
    if (auto event = event_of(line)) events.push_back(std::move(*event));
  }
  if (events.size() > count) {
    events.erase(events.begin(), events.end() - static_cast<std::ptrdiff_t>(count));
  }
  return events;
}

std::optional<RunDone> last_done(const files::Path& events) {
  std::optional<RunDone> done;
  for (const auto& event :
       last_events(events, std::numeric_limits<std::size_t>::max())) {
    if (event.kind == "started" || event.kind == "stopped") done.reset();
    if (event.kind != "done") continue;
    done.emplace();
    for (const auto& field : event.fields) {
      if (const auto* steps = std::get_if<std::int64_t>(&field.value)) {
        if (field.name == "steps") done->steps = *steps;
      } else if (const auto* reason = std::get_if<std::string>(&field.value)) {
        if (field.name == "reason") done->reason = *reason;
      } else if (const auto* over = std::get_if<bool>(&field.value)) {
        if (field.name == "over") done->over = *over;
      }
    }
  }
  return done;
}

std::int64_t count_events(const files::Path& path, std::string_view kind) {
  const auto whole = files::read_tail(path, std::numeric_limits<std::int64_t>::max());
  std::int64_t count = 0;
  for (const auto& line : text::split(whole, '\n')) {
    if (line.find(kind) == std::string::npos) continue;  // parsing costs more
    const auto event = event_of(line);
    count += event && event->kind == kind ? 1 : 0;
  }
  return count;
}

}  // namespace lockstep::run
