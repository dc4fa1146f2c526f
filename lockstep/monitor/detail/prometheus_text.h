#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

namespace lockstep::monitor::detail {

using Labels = std::vector<std::pair<std::string, std::string>>;

// The newest value of every metric, as Prometheus reads it: families in order of their
// names, each with its help and its type once.
class PrometheusText {
 public:
  struct Family {
    std::string name;
    std::string help;
    std::string type;  // "gauge", "counter"
  };

  void set(const Family& family, const Labels& labels, double value);
  std::string render() const;

 private:
  struct Sample {
    Family family;
    std::map<std::string, double> values;  // by the labels' text
  };
  std::map<std::string, Sample> entries_;
};

}  // namespace lockstep::monitor::detail
