#pragma once

#include <cstdint>
#include <cstdlib>
#include <map>
#include <string>

namespace lockstep {

// The words `name=value` of a command line.
class Words {
 public:
  Words(int argc, char** argv) {
    for (int i = 1; i < argc; ++i) {
      const std::string word = argv[i];
      const auto at = word.find('=');
      if (at == std::string::npos) continue;
      values_[word.substr(0, at)] = word.substr(at + 1);
    }
  }

  std::string text(const std::string& name, const std::string& otherwise) const {
    const auto found = values_.find(name);
    return found == values_.end() ? otherwise : found->second;
  }
  double number(const std::string& name, double otherwise) const {
    const auto found = values_.find(name);
    return found == values_.end() ? otherwise : std::atof(found->second.c_str());
  }
  std::int64_t whole(const std::string& name, std::int64_t otherwise) const {
    return static_cast<std::int64_t>(number(name, static_cast<double>(otherwise)));
  }

 private:
  std::map<std::string, std::string> values_;
};

}  // namespace lockstep
