#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace lockstep::units {

using Duration = std::chrono::milliseconds;

// "512", "64kB", "25MB" (powers of 1000), "1.5GiB" (powers of 1024); "25M" is refused,
// because half of its readers would be wrong about it. Case of the letters is free.
std::optional<std::int64_t> parse_bytes(std::string_view text);

// "250ms", "30s", "5min" or "5m", "2h", "1d", and sums of them: "1h30m". A bare number
// is seconds. At most a hundred years.
std::optional<Duration> parse_duration(std::string_view text);

// 26214400 -> "25.0 MiB": for people.
std::string format_bytes(std::int64_t bytes);

// 5025 s -> "1:23:45", 83 s -> "01:23": for people.
std::string format_clock(std::chrono::seconds duration);

// For files: reads back to the same value ("25MiB", "1500B"; "90s", "250ms").
std::string exact_bytes(std::int64_t bytes);
std::string exact_duration(Duration duration);

// 1234.5 -> "1,235", 12.345 -> "12.3", 1234567 -> "1.23M": a rate for people.
std::string format_rate(double per_second);

}  // namespace lockstep::units
