#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace lockstep::report {

struct ChartLine {
  std::string name;
  std::vector<std::pair<double, double>>
      points;  // x grows; a y that is no number is a gap
};

struct Chart {
  std::string title;
  std::string unit;  // of y, "" for a pure number
  std::vector<ChartLine> lines;
  bool logarithmic = false;  // y; where a value is not above 0, it is not
};

// Returns one <svg> that needs nothing else: axes with round numbers, a line in its own
// colour for each, a legend for several. Long lines are thinned for a screen, extremes
// kept. "" if there is nothing to draw.
std::string svg_of(const Chart& chart);

// Escapes text from any source for HTML.
std::string html_text(std::string_view text);

}  // namespace lockstep::report
