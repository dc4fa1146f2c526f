#include <algorithm>
#include <array>
#include <cmath>

#include <fmt/format.h>

#include "lockstep/base/text.h"
#include "lockstep/base/units.h"
#include "lockstep/cli/detail/human_text.h"
#include "lockstep/cli/detail/output.h"
#include "lockstep/cli/detail/top.h"

namespace lockstep::cli {
namespace {

std::size_t width_of(const Screen& screen) {
  return static_cast<std::size_t>(std::max(1, screen.columns));
}

// Returns the text cut to `columns`, between letters.
std::string cut(std::string_view text, std::size_t columns) {
  std::string result;
  std::size_t used = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool begins = (static_cast<unsigned char>(text[i]) & 0xC0) != 0x80;
    if (begins && ++used > columns) break;
    result += text[i];
  }
  return result;
}

std::string bar(double share, std::size_t columns, const Screen& screen) {
  const auto full = static_cast<std::size_t>(
      std::lround(std::clamp(share, 0.0, 1.0) * static_cast<double>(columns)));
  std::string result;
  for (std::size_t i = 0; i < columns; ++i) {
    if (screen.utf8) {
      result += i < full ? "\u2588" : "\u2591";
    } else {
      result += i < full ? '#' : '.';
    }
  }
  return result;
}

std::string sparkline(const std::vector<double>& values, std::size_t columns,
                      const Screen& screen) {
  constexpr std::array kBlocks = {"\u2581", "\u2582", "\u2583", "\u2584",
                                  "\u2585", "\u2586", "\u2587", "\u2588"};
  constexpr std::string_view kAscii = "_.-:=+*#";
  const auto count = std::min(columns, values.size());
  const auto begin = values.end() - static_cast<std::ptrdiff_t>(count);
  double low = INFINITY, high = -INFINITY;
  for (auto at = begin; at != values.end(); ++at) {
    if (!std::isfinite(*at)) continue;
    low = std::min(low, *at);
    high = std::max(high, *at);
  }
  std::string line;
  for (auto at = begin; at != values.end(); ++at) {
    if (!std::isfinite(*at)) {
      line += '!';
      continue;
    }
    const double share = high > low ? (*at - low) / (high - low) : 0;
    const auto level = static_cast<std::size_t>(std::lround(share * 7));
    line += screen.utf8 ? kBlocks[level] : std::string(1, kAscii[level]);
  }
  return line;
}

std::string clock_text(double seconds) {
  return units::format_clock(
      std::chrono::seconds(static_cast<std::int64_t>(std::max(0.0, seconds))));
}

class Picture {
 public:
  Picture(const TopState& state, const Screen& screen)
      : state_(state), screen_(screen) {}

  std::vector<std::string> lines() {
    add_run();
    add_ranks();
    add_machine();
    add_gpus();
    add_events();
    lines_.resize(
        std::min(lines_.size(), static_cast<std::size_t>(std::max(1, screen_.rows))));
    return std::move(lines_);
  }

 private:
  void add(std::string_view text, Tone tone = Tone::plain) {
    lines_.push_back(
        toned(cut(printable(text), width_of(screen_)), tone, screen_.color));
  }

  void add_run() {
    if (!state_.run) return add(state_.note, Tone::bold);
    const auto& run = *state_.run;
    add(fmt::format("lockstep {}  {}  {}  {}", run.record.id, run.state_text(),
                    run.record.recipe, run.duration_text()),
        Tone::bold);
    if (run.step && run.total_steps && *run.total_steps > 0) {
      const double share =
          static_cast<double>(*run.step) / static_cast<double>(*run.total_steps);
      std::string left;
      if (run.duration_seconds && share > 0 && share < 1) {
        left = "  " + clock_text(*run.duration_seconds * (1 - share) / share) + " left";
      }
      add(fmt::format("step  {} {}/{} {:.0f} %{}", bar(share, 30, screen_), *run.step,
                      *run.total_steps, 100 * share, left));
    }
    if (run.train) {
      const auto rate = run.train->find("samples_per_second");
      const auto lr = run.train->find("lr");
      add(fmt::format("loss  {:.5g}{}{}  {}", run.train->loss,
                      lr ? fmt::format("  lr {:.3g}", *lr) : "",
                      rate ? "  " + units::format_rate(*rate) + " samples/s" : "",
                      sparkline(state_.losses, 30, screen_)));
    }
    if (run.eval) {
      const auto primary = monitor::primary_of(*run.eval);
      const bool shows = primary && primary->name != "loss";
      add(fmt::format(
          "eval  step {}  loss {:.5g}{}", run.eval->step, run.eval->loss,
          shows ? fmt::format("  {} {:.4f}", primary->name, primary->value) : ""));
    }
  }

  // Adds ranks behind the others, or all while there is room.
  void add_ranks() {
    constexpr std::size_t kMost = 8;
    for (std::size_t r = 0; r < std::min(kMost, state_.ranks.size()); ++r) {
      const auto& beat = state_.ranks[r];
      if (!beat) {
        add(fmt::format("rank {:<3} has not started", r));
        continue;
      }
      const double age = state_.time - beat->time;
      add(fmt::format("rank {:<3} step {:<8} {:<11} {:.1f} s ago", r, beat->step,
                      run::name_of(beat->phase), std::max(0.0, age)));
    }
    if (state_.ranks.size() > kMost) {
      add(fmt::format("... and {} more ranks", state_.ranks.size() - kMost), Tone::dim);
    }
  }

  void add_machine() {
    const double memory = state_.memory_total_bytes > 0
                              ? static_cast<double>(state_.memory_used_bytes) /
                                    static_cast<double>(state_.memory_total_bytes)
                              : 0;
    add(fmt::format("cpu   {} {:3.0f} %   memory {} {} of {}",
                    bar(state_.cpu_share, 12, screen_), 100 * state_.cpu_share,
                    bar(memory, 12, screen_),
                    units::format_bytes(state_.memory_used_bytes),
                    units::format_bytes(state_.memory_total_bytes)));
  }

  void add_gpus() {
    for (const auto& gpu : state_.gpus) {
      const auto& now = gpu.status;
      const double busy = now.utilization_percent.value_or(0) / 100.0;
      const double memory =
          gpu.memory_total_bytes > 0
              ? static_cast<double>(now.memory_used_bytes.value_or(0)) /
                    static_cast<double>(gpu.memory_total_bytes)
              : 0;
      const auto shown = [](const auto& value, const char* unit) {
        return value ? fmt::format("{:.0f} {}", static_cast<double>(*value), unit)
                     : std::string("n/a");
      };
      add(fmt::format("gpu {:<2}{} {:>5}   memory {} {:.0f} %  {:>5}  {:>6}  {}",
                      gpu.index, bar(busy, 12, screen_),
                      shown(now.utilization_percent, "%"), bar(memory, 12, screen_),
                      100 * memory, shown(now.temperature_celsius, "C"),
                      shown(now.power_watts, "W"), gpu.name));
    }
    if (!state_.gpus.empty()) return;
    add("gpu   none" + (state_.gpu_note.empty() ? "" : ": " + state_.gpu_note),
        Tone::dim);
  }

  std::vector<std::string> event_lines(const run::Event& event) const {
    constexpr std::size_t kIndent = 14;
    std::vector<std::string> pieces{
        fmt::format("{:>8} ago", clock_text(state_.time - event.time)), event.kind};
    for (const auto& field : event.fields) {
      pieces.push_back(printable(human_text(field)));
    }
    return wrapped(pieces, kIndent, width_of(screen_));
  }

  // Adds the newest events that there is room for, long ones on several lines.
  void add_events() {
    const auto rows = static_cast<std::size_t>(std::max(1, screen_.rows));
    const auto room = rows > lines_.size() + 1 ? rows - lines_.size() - 1 : 0;
    std::vector<std::vector<std::string>> shown;
    std::size_t used = 0;
    for (auto i = state_.events.size(); i-- > 0;) {
      auto lines = event_lines(state_.events[i]);
      if (used + lines.size() > room) break;
      used += lines.size();
      shown.push_back(std::move(lines));
    }
    for (auto i = shown.size(); i-- > 0;) {
      const auto& kind = state_.events[state_.events.size() - 1 - i].kind;
      const bool bad = kind == "alert" || kind == "failure";
      for (const auto& line : shown[i]) add(line, bad ? Tone::yellow : Tone::dim);
    }
  }

  const TopState& state_;
  const Screen& screen_;
  std::vector<std::string> lines_;
};

}  // namespace

std::vector<std::string> top_frame(const TopState& state, const Screen& screen) {
  return Picture(state, screen).lines();
}

}  // namespace lockstep::cli
