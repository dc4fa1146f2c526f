#include "lockstep/base/units.h"

#include <array>
#include <cmath>

#include <fmt/format.h>

#include "lockstep/base/text.h"

namespace lockstep::units {
namespace {

struct Unit {
  std::string_view name;
  double factor;
};

constexpr std::array kByteUnits = {
    Unit{"b", 1},           Unit{"kb", 1e3},           Unit{"mb", 1e6},
    Unit{"gb", 1e9},        Unit{"tb", 1e12},          Unit{"kib", 1024.0},
    Unit{"mib", 1048576.0}, Unit{"gib", 1073741824.0}, Unit{"tib", 1099511627776.0},
};

constexpr std::array kTimeUnits = {
    Unit{"ms", 1},     Unit{"s", 1e3},    Unit{"sec", 1e3},   Unit{"m", 60e3},
    Unit{"min", 60e3}, Unit{"h", 3600e3}, Unit{"d", 86400e3},
};

template <std::size_t N>
std::optional<double> factor_of(const std::array<Unit, N>& units,
                                std::string_view name) {
  const auto wanted = text::lower(name);
  for (const auto& unit : units) {
    if (unit.name == wanted) return unit.factor;
  }
  return std::nullopt;
}

// One "12.5unit" at the front of `text`, which is shortened by it.
struct Quantity {
  double number;
  std::string_view unit;
};

std::optional<Quantity> take_quantity(std::string_view& text) {
  const auto digits = text.find_first_not_of("0123456789.");
  const auto number = text::to_double(text.substr(0, digits));
  if (!number) return std::nullopt;
  text.remove_prefix(digits == std::string_view::npos ? text.size() : digits);
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  const auto letters = text.find_first_of("0123456789. ");
  Quantity quantity{*number, text.substr(0, letters)};
  text.remove_prefix(letters == std::string_view::npos ? text.size() : letters);
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  return quantity;
}

constexpr double kLargest = 9.0e18;  // below 2^63
// A hundred years: in nanoseconds it still fits 64 bits, so that times can be added.
constexpr double kLongestMs = 100 * 365.25 * 86400e3;

}  // namespace

std::optional<std::int64_t> parse_bytes(std::string_view text) {
  text = text::trim(text);
  if (const auto plain = text::to_integer(text)) {
    return *plain >= 0 ? std::optional<std::int64_t>(*plain) : std::nullopt;
  }
  const auto quantity = take_quantity(text);
  if (!quantity || !text.empty()) return std::nullopt;
  const auto factor = factor_of(kByteUnits, quantity->unit);
  if (!factor || quantity->number * *factor > kLargest) return std::nullopt;
  return std::llround(quantity->number * *factor);
}

std::optional<Duration> parse_duration(std::string_view text) {
  text = text::trim(text);
  if (const auto seconds = text::to_double(text)) {
    if (!(*seconds >= 0) || *seconds * 1e3 > kLongestMs) return std::nullopt;
    return Duration(std::llround(*seconds * 1e3));
  }
  double total = 0;
  while (!text.empty()) {
    const auto quantity = take_quantity(text);
    if (!quantity) return std::nullopt;
    const auto factor = factor_of(kTimeUnits, quantity->unit);
    if (!factor) return std::nullopt;
    total += quantity->number * *factor;
  }
  if (total > kLongestMs) return std::nullopt;
  return Duration(std::llround(total));
}

std::string format_bytes(std::int64_t bytes) {
  constexpr std::array<std::string_view, 5> kNames = {"B", "KiB", "MiB", "GiB", "TiB"};
  auto value = static_cast<double>(bytes);
  std::size_t i = 0;
  while (value >= 1024 && i + 1 < kNames.size()) {
    value /= 1024;
    ++i;
  }
  return i == 0 ? fmt::format("{} B", bytes)
                : fmt::format("{:.1f} {}", value, kNames[i]);
}

std::string format_clock(std::chrono::seconds duration) {
  const auto total = duration.count();
  const auto hours = total / 3600;
  if (hours > 0)
    return fmt::format("{}:{:02}:{:02}", hours, total / 60 % 60, total % 60);
  return fmt::format("{:02}:{:02}", total / 60, total % 60);
}

std::string exact_bytes(std::int64_t bytes) {
  for (auto unit = kByteUnits.rbegin(); unit != kByteUnits.rbegin() + 4; ++unit) {
    const auto factor = static_cast<std::int64_t>(unit->factor);
    if (bytes != 0 && bytes % factor == 0) {
      std::string name(unit->name);
      name[0] = static_cast<char>(name[0] - 'a' + 'A');
      name[2] = 'B';
      return fmt::format("{}{}", bytes / factor, name);
    }
  }
  return fmt::format("{}B", bytes);
}

std::string exact_duration(Duration duration) {
  const auto ms = duration.count();
  if (ms % 1000 != 0) return fmt::format("{}ms", ms);
  return fmt::format("{}s", ms / 1000);
}

std::string format_rate(double per_second) {
  if (per_second >= 1e6) return fmt::format("{:.2f}M", per_second / 1e6);
  if (per_second >= 100) return text::with_commas(std::llround(per_second));
  return fmt::format("{:.1f}", per_second);
}

}  // namespace lockstep::units
