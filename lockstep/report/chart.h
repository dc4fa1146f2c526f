#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace lockstep::report {

struct ChartLine {
  std::string name;
  std::vector<std::pair<double, double>>
      points;  // x grows; a y that is not a number is a gap
  // The charts of a page give what is the same in them the same color.
  std::size_t color = 0;  // any number: there are a few, which repeat
  bool dashed = false;
};

struct Chart {
  std::string title;
  std::string unit;    // of y, "" for a pure number
  std::string x_name;  // "step", "minutes"
  std::vector<ChartLine> lines;
  bool logarithmic = false;  // y; where a value is not above 0, it is not
};

// Returns one <svg> that needs nothing else: axes with round numbers, a line in its own
// color for each, a legend for several. A pointer over it is shown the values there by
// kTooltips. Long lines are thinned for a screen, extremes
// kept. "" if there is nothing to draw.
std::string svg_of(const Chart& chart);

// A script for the end of a page, once for all its charts.
extern const std::string_view kTooltips;

// Escapes text from any source for HTML.
std::string html_text(std::string_view text);

}  // namespace lockstep::report
