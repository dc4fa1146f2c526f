#include "lockstep/monitor/timeline.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include <fmt/format.h>

#include "lockstep/base/text.h"

namespace lockstep::monitor {
namespace {

// Returns the sum of spans that do not overlap: of one kind, or of all that travels.
double total_seconds(const std::vector<Span>& spans, bool (*counts)(const Span&)) {
  double sum = 0;
  for (const auto& span : spans) sum += counts(span) ? span.end - span.begin : 0;
  return sum;
}

bool is_step(const Span& span) {
  return span.kind == Span::Kind::step;
}

bool travels(const Span& span) {
  return span.kind == Span::Kind::gradients || span.kind == Span::Kind::parameters;
}

// Returns the time in which at least one of them was under way.
double union_seconds(std::vector<Span> spans) {
  std::erase_if(spans, [](const Span& span) { return !travels(span); });
  std::sort(spans.begin(), spans.end(),
            [](const Span& a, const Span& b) { return a.begin < b.begin; });
  double sum = 0;
  double covered = -std::numeric_limits<double>::infinity();
  for (const auto& span : spans) {
    sum += std::max(0.0, span.end - std::max(span.begin, covered));
    covered = std::max(covered, span.end);
  }
  return sum;
}

std::string milliseconds(double seconds) {
  return fmt::format("{:.3f}", 1e3 * seconds);
}

}  // namespace

std::string_view name_of(StepPhase phase) noexcept {
  constexpr std::array<std::string_view, kNumPhases> kNames{
      "data", "forward", "backward", "communication", "optimizer"};
  return kNames[static_cast<std::size_t>(phase)];
}

double Timeline::begin() const {
  double first = std::numeric_limits<double>::infinity();
  for (const auto& rank : ranks) {
    for (const auto& span : rank.spans) first = std::min(first, span.begin);
  }
  return first;
}

double Timeline::end() const {
  double last = -std::numeric_limits<double>::infinity();
  for (const auto& rank : ranks) {
    for (const auto& span : rank.spans) last = std::max(last, span.end);
  }
  return last;
}

double PhaseSplit::other_seconds() const {
  return step_seconds - std::accumulate(phases.begin(), phases.end(), 0.0);
}

PhaseSplit split_of(const Timeline& timeline) {
  PhaseSplit split{.ranks = static_cast<int>(timeline.ranks.size())};
  std::int64_t count = 0;
  for (const auto& rank : timeline.ranks) {
    const auto steps = std::count_if(rank.spans.begin(), rank.spans.end(), is_step);
    split.steps = std::max<std::int64_t>(split.steps, steps);
    count += steps;
    split.step_seconds += total_seconds(rank.spans, is_step);
    split.travel_seconds += union_seconds(rank.spans);
    for (const auto& span : rank.spans) {
      if (span.kind != Span::Kind::phase) continue;
      split.phases[static_cast<std::size_t>(span.phase)] += span.end - span.begin;
    }
  }
  const auto divisor = static_cast<double>(std::max<std::int64_t>(count, 1));
  split.step_seconds /= divisor;
  split.travel_seconds /= divisor;
  for (auto& phase : split.phases) phase /= divisor;
  return split;
}

std::string to_table(const PhaseSplit& split) {
  std::vector<std::vector<std::string>> rows{{"phase", "ms a step", "share", ""}};
  const auto add = [&](std::string_view name, double seconds, std::string note = "") {
    const auto share = split.step_seconds > 0 ? 100 * seconds / split.step_seconds : 0;
    rows.push_back({std::string(name), milliseconds(seconds),
                    fmt::format("{:.1f} %", share), std::move(note)});
  };
  for (std::size_t p = 0; p < kNumPhases; ++p) {
    const auto phase = static_cast<StepPhase>(p);
    const bool exposed = phase == StepPhase::communication && split.travel_seconds > 0;
    add(name_of(phase), split.phases[p],
        exposed ? fmt::format("exposed; {} ms in all, the rest behind other phases",
                              milliseconds(split.travel_seconds))
                : "");
  }
  add("other", split.other_seconds());
  add("step", split.step_seconds,
      fmt::format("mean of {} steps, {} {}", split.steps, split.ranks,
                  split.ranks == 1 ? "rank" : "ranks"));
  return text::table(rows, {1, 2});
}

std::vector<std::vector<double>> step_seconds(const Timeline& timeline) {
  std::vector<std::vector<double>> all;
  for (const auto& rank : timeline.ranks) {
    auto& own = all.emplace_back();
    for (const auto& span : rank.spans) {
      if (is_step(span)) own.push_back(span.end - span.begin);
    }
  }
  return all;
}

}  // namespace lockstep::monitor
