#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "lockstep/service/recent.h"

namespace lockstep::server {

// The texts of answers that were asked for last. Each is made of a value that never
// changes, and holds for as long as the question leads to that very value.
//
// Threads: any.
template <typename Source>
class KeptTexts {
 public:
  std::string of(const std::string& question,
                 const std::shared_ptr<const Source>& source,
                 const std::function<std::string()>& make) {
    {
      const std::lock_guard lock(mutex_);
      const auto* kept = kept_.find(question);
      if (kept != nullptr && kept->source == source) return kept->text;
    }
    auto text = make();
    const std::lock_guard lock(mutex_);
    kept_.put(question, {source, text}, question.size() + text.size());
    return text;
  }

 private:
  struct Kept {
    std::shared_ptr<const Source> source;  // held: its address is no other's meanwhile
    std::string text;
  };

  static constexpr std::size_t kMostBytes = 8 << 20;

  std::mutex mutex_;  // guards kept_
  service::Recent<std::string, Kept> kept_{kMostBytes};
};

}  // namespace lockstep::server
