#include "lockstep/cli/detail/output.h"

#include <algorithm>
#include <ostream>

#include "lockstep/base/str.h"
#include "lockstep/base/text.h"
#include "lockstep/config/load.h"
#include "lockstep/server/http.h"

namespace lockstep::cli {
namespace {

std::string_view code_of(Tone tone) {
  switch (tone) {
    case Tone::bold:
      return "1";
    case Tone::dim:
      return "2";
    case Tone::red:
      return "1;31";
    case Tone::green:
      return "32";
    case Tone::yellow:
      return "33";
    default:
      return "0";
  }
}

// Returns true for "LOCKSTEP_OPTIM_LR", of optim.lr.
bool sets_a_knob(const std::string& variable) {
  constexpr std::string_view kPrefix = "LOCKSTEP_";
  if (!text::starts_with(variable, kPrefix)) return false;
  const auto rest = text::lower(std::string_view(variable).substr(kPrefix.size()));
  for (auto key : config::keys()) {
    std::replace(key.begin(), key.end(), '.', '_');
    if (key == rest) return true;
  }
  return false;
}

}  // namespace

std::string toned(std::string_view text, Tone tone, bool color) {
  if (!color || tone == Tone::plain) return std::string(text);
  return str("\x1b[", code_of(tone), "m", text, "\x1b[0m");
}

std::string printable(std::string_view text) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string result;
  auto odd = text::first_invalid_utf8(text);
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto c = static_cast<unsigned char>(text[i]);
    if (odd == i) {  // no terminal knows what to do with it
      result += str("\\x", kDigits[c >> 4], kDigits[c & 15]);
      const auto next = text::first_invalid_utf8(text.substr(i + 1));
      odd = next ? std::optional(i + 1 + *next) : std::nullopt;
      continue;
    }
    // U+0080 to U+009F, in UTF-8, are control characters, too.
    const bool leads_control = c == 0xC2 && i + 1 < text.size() &&
                               static_cast<unsigned char>(text[i + 1]) < 0xA0;
    const bool control = c < 0x20 || c == 0x7F || leads_control;
    if (!control || c == '\n' || c == '\t') {
      result += text[i];
      continue;
    }
    const auto code = leads_control ? static_cast<unsigned char>(text[++i]) : c;
    result += str("\\x", kDigits[code >> 4], kDigits[code & 15]);
  }
  return result;
}

void print_error(Context& context, std::string_view message) {
  context.err << "lockstep: " << toned("error:", Tone::red, context.color_err) << " "
              << printable(message) << "\n";
}

jobs::Caller caller_of(const Context& context) {
  jobs::Caller caller;
  caller.environment = context.environment;
  caller.executable = context.executable;
  caller.command_line = context.command_line;
  caller.say = [&context](std::string_view sentence) {
    context.err << "lockstep: " << printable(sentence) << std::endl;
  };
  caller.warn = [&context](std::string_view sentence) {
    context.err << "lockstep: " << toned("warning:", Tone::yellow, context.color_err)
                << " " << printable(sentence) << "\n";
  };
  caller.ask_http = [](const jobs::HttpQuestion& question) {
    // "https://host:443/path": the path begins at the third slash.
    const auto path = question.url.find('/', question.url.find("://") + 3);
    const auto answer = server::send_request(
        {.url = question.url.substr(0, path), .patience = std::chrono::seconds(20)},
        {.method = question.method,
         .target = path == std::string::npos ? "/" : question.url.substr(path),
         .headers = question.headers,
         .body = question.body});
    return jobs::HttpAnswer{answer.status, answer.body};
  };
  return caller;
}

std::string shell_word(std::string_view word) {
  constexpr std::string_view kSafe =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.,:=/@%+-";
  if (!word.empty() && word.find_first_not_of(kSafe) == std::string_view::npos) {
    return std::string(word);
  }
  std::string quoted = "'";
  for (const char c : word) {
    if (c == '\'') {
      quoted += "'\\''";
    } else {
      quoted += c;
    }
  }
  return quoted + "'";
}

std::string command_line(
    const std::string& program, const std::vector<std::string>& words,
    const std::vector<std::pair<std::string, std::string>>& environment) {
  std::string line;
  for (const auto& [name, value] : environment) {
    if (!value.empty() && sets_a_knob(name)) {
      line += str(name, "=", shell_word(value), " ");
    }
  }
  line += shell_word(program);
  for (const auto& word : words) line += " " + shell_word(word);
  return line;
}

}  // namespace lockstep::cli
