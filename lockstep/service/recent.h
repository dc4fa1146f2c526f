#pragma once

#include <cstddef>
#include <list>
#include <map>
#include <utility>

namespace lockstep::service {

// The last few of many values. Each has a weight; when all together weigh too much,
// those go that have not been asked for longest.
//
// Threads: one at a time.
template <typename Key, typename Value>
class Recent {
 public:
  explicit Recent(std::size_t most) : most_(most) {}

  // Returns nullptr for one that is not kept. Holds until the next call.
  Value* find(const Key& key) {
    const auto found = places_.find(key);
    if (found == places_.end()) return nullptr;
    entries_.splice(entries_.begin(), entries_, found->second);
    return &found->second->value;
  }

  // Replaces what the key had. A value that is too heavy by itself is not kept.
  void put(const Key& key, Value value, std::size_t weight = 1) {
    erase(key);
    if (weight > most_) return;
    entries_.push_front({key, std::move(value), weight});
    places_[key] = entries_.begin();
    weight_ += weight;
    while (weight_ > most_) erase(Key(entries_.back().key));
  }

  void erase(const Key& key) {
    const auto found = places_.find(key);
    if (found == places_.end()) return;
    weight_ -= found->second->weight;
    entries_.erase(found->second);
    places_.erase(found);
  }

  std::size_t size() const noexcept { return entries_.size(); }
  std::size_t weight() const noexcept { return weight_; }

 private:
  struct Entry {
    Key key;
    Value value;
    std::size_t weight = 0;
  };

  std::size_t most_;
  std::size_t weight_ = 0;
  std::list<Entry> entries_;  // asked for last comes first
  std::map<Key, typename std::list<Entry>::iterator> places_;
};

}  // namespace lockstep::service
