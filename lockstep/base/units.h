#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace lockstep::units {

using Duration = std::chrono::milliseconds;

// Parses "512", "64kB", "25MB" (powers of 1000), "1.5GiB" (powers of 1024); "25M" is
// refused, because half of its readers would be wrong about it. Case of the letters is
// free.
std::optional<std::int64_t> parse_bytes(std::string_view text);

// Parses "250ms", "30s", "5min" or "5m", "2h", "1d", and sums of them: "1h30m". A bare
// number is seconds. At most a hundred years.
std::optional<Duration> parse_duration(std::string_view text);

// Formats 26214400 as "25.0 MiB", for users.
std::string format_bytes(std::int64_t bytes);

// Formats 5025 s as "1:23:45" and 83 s as "01:23", for users.
std::string format_clock(std::chrono::seconds duration);

// Formats for files: reads back to the same value ("25MiB", "1500B"; "90s", "250ms").
std::string exact_bytes(std::int64_t bytes);
std::string exact_duration(Duration duration);

// Formats a rate for users: 1234.5 as "1,235", 12.345 as "12.3", 1234567 as "1.23M".
std::string format_rate(double per_second);

}  // namespace lockstep::units
