#include "lockstep/report/chart.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include <fmt/format.h>

namespace lockstep::report {
namespace {

constexpr double kWidth = 640, kHeight = 280;
constexpr double kLeft = 64, kRight = 12, kTop = 28, kBottom = 46;
constexpr std::size_t kMostPoints = 800;

// Most eyes can tell these colours apart, on white and on black.
constexpr std::array<const char*, 8> kColors = {"#3b76c4", "#d9822b", "#3a9c5f",
                                                "#c4453b", "#8465b5", "#8a6d4f",
                                                "#c76ba8", "#7a7a7a"};

struct Span {
  double low = std::numeric_limits<double>::infinity();
  double high = -std::numeric_limits<double>::infinity();

  void take(double value) {
    low = std::min(low, value);
    high = std::max(high, value);
  }
  bool empty() const { return low > high; }
  void widen() {  // a flat line has a height, too
    if (high > low) return;
    const double by = low == 0 ? 1 : std::abs(low) * 0.1;
    low -= by;
    high += by;
  }
};

using Points = std::vector<std::pair<double, double>>;

// Returns the lowest and the highest point of every stretch, in their order.
Points thinned(const Points& points) {
  if (points.size() <= kMostPoints) return points;
  Points result;
  const auto stretch = (points.size() + kMostPoints / 2 - 1) / (kMostPoints / 2);
  for (std::size_t at = 0; at < points.size(); at += stretch) {
    const auto begin = points.begin() + static_cast<std::ptrdiff_t>(at);
    const auto end = points.begin() +
                     static_cast<std::ptrdiff_t>(std::min(points.size(), at + stretch));
    const auto [low, high] = std::minmax_element(
        begin, end, [](const auto& a, const auto& b) { return a.second < b.second; });
    result.push_back(*std::min(low, high));
    if (low != high) result.push_back(*std::max(low, high));
  }
  return result;
}

// Returns 1, 2 or 5 times a power of ten, so that about `count` of them fit.
double round_step(double length, int count) {
  const double raw = length / count;
  const double power = std::pow(10, std::floor(std::log10(raw)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (raw <= factor * power) return factor * power;
  }
  return 10 * power;
}

std::string number(double value) {
  const double size = std::abs(value);
  if (size < 1e-12) return "0";
  if (size >= 1e12 || size < 1e-3) return fmt::format("{:.3g}", value);
  constexpr std::array<std::pair<double, const char*>, 3> kUnits = {
      {{1e9, "G"}, {1e6, "M"}, {1e3, "k"}}};
  for (const auto& [unit, letter] : kUnits) {
    if (size >= unit) return fmt::format("{:.4g}{}", value / unit, letter);
  }
  return fmt::format("{:.4g}", value);
}

class Drawing {
 public:
  explicit Drawing(const Chart& chart)
      : chart_(chart), logarithmic_(chart.logarithmic) {
    for (const auto& line : chart.lines) lines_.push_back(thinned(line.points));
    for (const auto& points : lines_) {
      for (const auto& [px, py] : points) {
        if (!std::isfinite(px) || !std::isfinite(py)) continue;
        x_.take(px);
        y_.take(py);
      }
    }
    if (!y_.empty() && y_.low <= 0) logarithmic_ = false;
    if (logarithmic_) y_ = {std::log10(y_.low), std::log10(y_.high)};
  }

  std::string text() {
    if (x_.empty()) return "";
    x_.widen();
    y_.widen();
    if (lines_.size() > 1) draw_legend();
    out_ = fmt::format(
        "<svg viewBox=\"0 0 {} {}\" role=\"img\" aria-label=\"{}\"{}><text "
        "class=\"title\" "
        "x=\"{}\" y=\"16\">{}</text>",
        kWidth, height_, html_text(chart_.title), scales(), kLeft, html_text(title()));
    draw_axes();
    for (std::size_t i = 0; i < lines_.size(); ++i) draw_line(i);
    return out_ + legend_ + "</svg>\n";
  }

 private:
  std::string title() const {
    auto title = chart_.title;
    if (!chart_.unit.empty()) title += ", " + chart_.unit;
    return logarithmic_ ? title + " (log scale)" : title;
  }

  // Returns the attributes by which kTooltips turns places back into values.
  std::string scales() const {
    return fmt::format(
        " data-frame=\"{} {} {} {}\" data-x=\"{} {}\" data-y=\"{} {}\" data-log=\"{}\" "
        "data-xname=\"{}\"",
        kLeft, kWidth - kRight, kTop, kHeight - kBottom, x_.low, x_.high, y_.low,
        y_.high, logarithmic_ ? 1 : 0, html_text(chart_.x_name));
  }
  double at_x(double x) const {
    return kLeft + (x - x_.low) / (x_.high - x_.low) * (kWidth - kLeft - kRight);
  }
  double at_y(double y) const {
    const double value = logarithmic_ ? std::log10(y) : y;
    return at_scaled(value);
  }
  double at_scaled(double value) const {
    return kHeight - kBottom -
           (value - y_.low) / (y_.high - y_.low) * (kHeight - kTop - kBottom);
  }

  // Returns 1, 2 and 5 times powers of ten, as logarithms; few enough to be read.
  std::vector<double> logarithmic_ticks() const {
    std::vector<double> ticks;
    for (double power = std::floor(y_.low); power <= y_.high; ++power) {
      for (const double factor : {1.0, 2.0, 5.0}) {
        const double tick = power + std::log10(factor);
        const bool is_wanted = factor == 1 || y_.high - y_.low < 3;
        if (is_wanted && tick >= y_.low && tick <= y_.high) ticks.push_back(tick);
      }
    }
    return ticks;
  }

  std::vector<double> ticks() const {
    if (logarithmic_ && y_.high - y_.low > 0.5) return logarithmic_ticks();
    std::vector<double> ticks;
    const double step = round_step(y_.high - y_.low, 5);
    for (double y = std::ceil(y_.low / step) * step; y <= y_.high + step * 1e-9;
         y += step) {
      ticks.push_back(y);
    }
    return ticks;
  }

  void draw_axes() {
    for (const double y : ticks()) {
      const double height = at_scaled(y);
      out_ += fmt::format(
          "<line class=\"grid\" x1=\"{0}\" x2=\"{1}\" y1=\"{2:.1f}\" "
          "y2=\"{2:.1f}\"/><text "
          "class=\"tick\" text-anchor=\"end\" x=\"{3}\" y=\"{4:.1f}\">{5}</text>",
          kLeft, kWidth - kRight, height, kLeft - 6, height + 4,
          number(logarithmic_ ? std::pow(10, y) : y));
    }
    const double along = round_step(x_.high - x_.low, 6);
    for (double x = std::ceil(x_.low / along) * along; x <= x_.high + along * 1e-9;
         x += along) {
      out_ += fmt::format(
          "<text class=\"tick\" text-anchor=\"middle\" x=\"{:.1f}\" y=\"{}\">{}</text>",
          at_x(x), kHeight - kBottom + 16, number(x));
    }
    if (chart_.x_name.empty()) return;
    out_ += fmt::format(
        "<text class=\"tick\" text-anchor=\"middle\" x=\"{}\" y=\"{}\">{}</text>",
        (kLeft + kWidth - kRight) / 2, kHeight - kBottom + 30,
        html_text(chart_.x_name));
  }

  const char* color_of(std::size_t which) const {
    return kColors[chart_.lines[which].color % kColors.size()];
  }

  void draw_line(std::size_t which) {
    std::string path;
    bool pen_is_down = false;
    for (const auto& [x, y] : lines_[which]) {
      if (!std::isfinite(x) || !std::isfinite(y)) {
        pen_is_down = false;
        continue;
      }
      path += fmt::format("{}{:.1f},{:.1f}", pen_is_down ? "L" : "M", at_x(x), at_y(y));
      if (!pen_is_down) path += "h0.1";  // a lonely point shows
      pen_is_down = true;
    }
    out_ += fmt::format(
        "<path fill=\"none\" stroke=\"{}\"{} d=\"{}\" data-name=\"{}\"/>",
        color_of(which), chart_.lines[which].dashed ? " stroke-dasharray=\"6 4\"" : "",
        path, html_text(chart_.lines[which].name));
    draw_points(which);
  }

  // Evaluations are few beside steps: a line alone would hide them, and a single one
  // altogether.
  void draw_points(std::size_t which) {
    constexpr std::size_t kFew = 40;
    std::size_t longest = 0;
    for (const auto& line : lines_) longest = std::max(longest, line.size());
    if (lines_[which].size() > std::min(kFew, longest / 2)) return;
    for (const auto& [x, y] : lines_[which]) {
      if (!std::isfinite(x) || !std::isfinite(y)) continue;
      out_ += fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3\" fill=\"{}\"/>",
                          at_x(x), at_y(y), color_of(which));
    }
  }

  // Draws it below the axis, in as many rows as it takes.
  void draw_legend() {
    double x = kLeft;
    for (std::size_t i = 0; i < lines_.size(); ++i) {
      const double width = 7.0 * static_cast<double>(chart_.lines[i].name.size()) + 16;
      if (x > kLeft && x + width > kWidth) {
        x = kLeft;
        height_ += 14;
      }
      legend_ +=
          fmt::format("<text class=\"tick\" x=\"{}\" y=\"{}\" fill=\"{}\">{}</text>", x,
                      height_ - 2, color_of(i), html_text(chart_.lines[i].name));
      x += width;
    }
  }

  const Chart& chart_;
  bool logarithmic_;
  std::vector<Points> lines_;
  Span x_, y_;
  double height_ = kHeight;
  std::string out_, legend_;
};

}  // namespace

// It reads the drawn paths: the page holds every value once.
const std::string_view kTooltips = R"(<script>
for (const svg of document.querySelectorAll('svg[data-x]')) {
  const numbers = name => svg.dataset[name].split(' ').map(Number);
  const [left, right, top, bottom] = numbers('frame');
  const [x0, x1] = numbers('x'), [y0, y1] = numbers('y');
  const lines = [...svg.querySelectorAll('path[data-name]')].map(path => ({
    name: path.dataset.name, color: path.getAttribute('stroke'),
    points: path.getAttribute('d').split(/[ML]/).slice(1)
      .map(pair => pair.split('h')[0].split(',').map(Number))}));
  const mark = document.createElementNS(svg.namespaceURI, 'g');
  svg.append(mark);
  const show = value => Number(value.toPrecision(4)).toString();
  const nearest = (points, x) => points.reduce((best, point) =>
    Math.abs(point[0] - x) < Math.abs(best[0] - x) ? point : best);
  svg.onmouseleave = () => mark.replaceChildren();
  svg.onmousemove = event => {
    const x = event.offsetX * svg.viewBox.baseVal.width / svg.clientWidth;
    if (x < left || x > right || lines.length === 0) return mark.replaceChildren();
    const all = lines.map(line => [line, nearest(line.points, x)]);
    const at = all.reduce((best, one) =>
      Math.abs(one[1][0] - x) < Math.abs(best[1][0] - x) ? one : best)[1][0];
    const here = all.filter(one => Math.abs(one[1][0] - at) < 3);
    const rows = [[svg.dataset.xname + ' ' + show(x0 + (at - left) / (right - left) * (x1 - x0)), '']];
    for (const [line, [, py]] of here) {
      const scaled = y0 + (bottom - py) / (bottom - top) * (y1 - y0);
      rows.push([line.name + ' ' + show(svg.dataset.log === '1' ? 10 ** scaled : scaled), line.color]);
    }
    const element = (name, attributes, text = '') => {
      const made = document.createElementNS(svg.namespaceURI, name);
      for (const key in attributes) made.setAttribute(key, attributes[key]);
      made.textContent = text;
      return made;
    };
    const width = 7 * Math.max(...rows.map(row => row[0].length)) + 12;
    const tx = at + 8 + width > right ? at - 8 - width : at + 8;
    mark.replaceChildren(
      element('line', {class: 'grid', x1: at, x2: at, y1: top, y2: bottom}),
      ...here.map(([line, [px, py]]) => element('circle', {cx: px, cy: py, r: 3, fill: line.color})),
      element('rect', {class: 'tip', x: tx, y: top, width, height: 15 * rows.length + 6, rx: 3}),
      ...rows.map(([text, color], i) => element('text',
        Object.assign({class: 'tick', x: tx + 6, y: top + 15 * (i + 1)}, color ? {fill: color} : {}), text)));
  };
}
</script>
)";

std::string svg_of(const Chart& chart) {
  return Drawing(chart).text();
}

std::string html_text(std::string_view text) {
  std::string result;
  for (const char c : text) {
    switch (c) {
      case '&':
        result += "&amp;";
        break;
      case '<':
        result += "&lt;";
        break;
      case '>':
        result += "&gt;";
        break;
      case '"':
        result += "&quot;";
        break;
      default:
        // Control characters have no place in a page, and not every byte is a letter.
        result +=
            static_cast<unsigned char>(c) < 0x20 && c != '\n' && c != '\t' ? ' ' : c;
    }
  }
  return result;
}

}  // namespace lockstep::report
