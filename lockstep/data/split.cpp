#include "lockstep/data/split.h"

#include <algorithm>
#include <array>
#include <string>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"

namespace lockstep::data {

std::int64_t sample_limit(const config::DataConfig& config, Split split) {
  return split == Split::train ? config.train_samples : config.eval_samples;
}

std::string require_folder(const config::DataConfig& config, std::string_view holds) {
  if (!config.dir.empty()) return config.dir;
  throw Error(Fault::config, "data.dir: the data set '", config.name, "' is ", holds,
              "; set data.dir to it");
}

bool names_eval(std::string_view path) {
  constexpr std::array<std::string_view, 6> kEval = {"val",  "valid", "validation",
                                                     "test", "eval",  "dev"};
  std::string word;
  bool is_eval = false;
  for (const char letter : text::lower(path) + "/") {
    if (letter >= 'a' && letter <= 'z') {
      word += letter;
      continue;
    }
    is_eval = is_eval || std::find(kEval.begin(), kEval.end(), word) != kEval.end();
    word.clear();
  }
  return is_eval;
}

}  // namespace lockstep::data
