#pragma once

#include <string>
#include <vector>

#include "lockstep/base/files.h"
#include "lockstep/config/load.h"
#include "tests/support/support.h"

namespace lockstep::test {

// A recipe in a folder of its own, removed with it.
class RecipeFile {
 public:
  explicit RecipeFile(const std::string& content, const std::string& name = "x.yaml")
      : path_(directory_.path() / name) {
    write_file(path_, content);
  }

  const Path& path() const { return path_; }

  config::Loaded load(const std::vector<config::Override>& overrides = {},
                      const config::Environment& environment = {}) const {
    return config::load(path_, overrides, environment);
  }

  // The error of loading it, with the folder cut off from the places.
  std::string problem(Fault fault = Fault::config) const {
    auto text = error_text(fault, [&] { load(); });
    const auto folder = directory_.path().string() + "/";
    for (auto at = text.find(folder); at != std::string::npos; at = text.find(folder)) {
      text.erase(at, folder.size());
    }
    return text;
  }

 private:
  files::TemporaryDirectory directory_;
  Path path_;
};

// What loading `content` complains about.
inline std::string problem_of(const std::string& content) {
  return RecipeFile(content).problem();
}

// What setting one knob complains about.
inline std::string problem_with(const std::string& key, const std::string& value) {
  return error_text(Fault::config, [&] {
    const std::vector<config::Override> overrides = {{key, value}};
    config::defaults(overrides, {});
  });
}

inline config::Config with(const std::vector<config::Override>& overrides) {
  return config::defaults(overrides, {}).config;
}

}  // namespace lockstep::test
