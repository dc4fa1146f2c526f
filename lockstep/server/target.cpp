#include "lockstep/server/detail/target.h"

#include <algorithm>

#include "lockstep/base/text.h"

namespace lockstep::server {
namespace {

constexpr std::size_t kMostParameters = 32;
constexpr std::size_t kLongestId = 80;

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

// Decodes once: what is encoded twice stays encoded, and no id has a percent sign.
std::optional<std::string> decoded(std::string_view text, bool plus_is_space) {
  std::string result;
  for (std::size_t i = 0; i < text.size(); ++i) {
    char c = text[i];
    if (c == '+' && plus_is_space) c = ' ';
    if (c == '%') {
      if (i + 2 >= text.size()) return std::nullopt;
      const int high = hex_digit(text[i + 1]);
      const int low = hex_digit(text[i + 2]);
      if (high < 0 || low < 0) return std::nullopt;
      c = static_cast<char>(high * 16 + low);
      i += 2;
    }
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) return std::nullopt;
    result += c;
  }
  if (text::first_invalid_utf8(result)) return std::nullopt;
  return result;
}

bool is_plain_segment(const std::string& segment) {
  return segment != "." && segment != ".." &&
         segment.find_first_of("/\\;") == std::string::npos;
}

}  // namespace

bool is_id(std::string_view text) {
  return !text.empty() && text.size() <= kLongestId && text[0] != '.' &&
         std::all_of(text.begin(), text.end(), [](char c) {
           return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                  (c >= '0' && c <= '9') || c == '-' || c == '_' || c == '.';
         });
}

std::optional<Target> parse_target(std::string_view target) {
  if (target.empty() || target[0] != '/') return std::nullopt;
  Target result;
  const auto mark = target.find('?');
  for (const auto& part : text::split(target.substr(1, mark - 1), '/')) {
    auto segment = decoded(part, false);
    if (!segment || !is_plain_segment(*segment)) return std::nullopt;
    result.segments.push_back(std::move(*segment));
  }
  if (mark == std::string_view::npos) return result;
  for (const auto& part : text::split(target.substr(mark + 1), '&')) {
    if (part.empty()) continue;
    const auto equals = part.find('=');
    const auto name = decoded(part.substr(0, equals), true);
    const auto value = decoded(
        equals == std::string::npos ? "" : std::string_view(part).substr(equals + 1),
        true);
    if (!name || !value || result.query.size() >= kMostParameters) return std::nullopt;
    result.query[*name] = *value;
  }
  return result;
}

}  // namespace lockstep::server
