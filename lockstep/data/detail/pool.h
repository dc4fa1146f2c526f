#pragma once

#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace lockstep::data::detail {

// Tools that one thread uses at a time and that are worth keeping: buffers, decoders.
// Their number grows to the number of threads that ask at once; from then on nothing is
// allocated.
template <typename T>
class Pool {
 public:
  // A tool that its destructor returns. The pool outlives it.
  class Lease {
   public:
    Lease(Pool& pool, std::unique_ptr<T> tool) : pool_(pool), tool_(std::move(tool)) {}
    ~Lease() { pool_.give_back(std::move(tool_)); }
    Lease(const Lease&) = delete;
    Lease& operator=(const Lease&) = delete;

    T& operator*() const { return *tool_; }
    T* operator->() const { return tool_.get(); }

   private:
    Pool& pool_;
    std::unique_ptr<T> tool_;
  };

  Lease take() {
    {
      const std::lock_guard lock(mutex_);
      if (!free_.empty()) {
        auto tool = std::move(free_.back());
        free_.pop_back();
        return {*this, std::move(tool)};
      }
      free_.reserve(++made_);  // so that giving back allocates nothing
    }
    return {*this, std::make_unique<T>()};
  }

 private:
  void give_back(std::unique_ptr<T> tool) {
    const std::lock_guard lock(mutex_);
    free_.push_back(std::move(tool));
  }

  std::mutex mutex_;
  std::size_t made_ = 0;                  // guarded by mutex_
  std::vector<std::unique_ptr<T>> free_;  // guarded by mutex_
};

}  // namespace lockstep::data::detail
