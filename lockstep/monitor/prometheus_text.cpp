#include "lockstep/monitor/detail/prometheus_text.h"

#include <cmath>

#include "lockstep/base/str.h"
#include "lockstep/base/text.h"

namespace lockstep::monitor::detail {
namespace {

std::string escaped(const std::string& text, bool in_quotes) {
  std::string result;
  for (const char c : text) {
    if (c == '\\') {
      result += "\\\\";
    } else if (c == '\n') {
      result += "\\n";
    } else if (c == '"' && in_quotes) {
      result += "\\\"";
    } else {
      result += c;
    }
  }
  return result;
}

std::string number(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "+Inf" : "-Inf";
  return text::from_double(value);
}

std::string text_of(const Labels& labels) {
  std::string text;
  for (const auto& [name, value] : labels) {
    text += str(text.empty() ? "{" : ",", name, "=\"", escaped(value, true), "\"");
  }
  return text.empty() ? text : text + "}";
}

}  // namespace

void PrometheusText::set(const Family& family, const Labels& labels, double value) {
  auto& entry = entries_[family.name];
  entry.family = family;
  entry.values[text_of(labels)] = value;
}

std::string PrometheusText::render() const {
  std::string text;
  for (const auto& [name, entry] : entries_) {
    text += str("# HELP ", name, " ", escaped(entry.family.help, false), "\n# TYPE ",
                name, " ", entry.family.type, "\n");
    for (const auto& [labels, value] : entry.values) {
      text += str(name, labels, " ", number(value), "\n");
    }
  }
  return text;
}

}  // namespace lockstep::monitor::detail
