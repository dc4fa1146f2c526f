#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>

#include "lockstep/base/files.h"

namespace lockstep::comm::detail {

// Memory that processes of one machine share. It has no name in any file system, so
// nothing is left behind however a process ends, and the size of /dev/shm is no limit.
// All of it is allocated when it is made: too much is an error then, not a signal
// later. Errors are Fault::io.
class SharedMemory {
 public:
  // Others open path_for_others() until close_file().
  static SharedMemory create_nameless(std::size_t num_bytes);

  static SharedMemory open(const files::Path& path, std::size_t num_bytes);

  SharedMemory() = default;
  SharedMemory(SharedMemory&& other) noexcept;
  SharedMemory& operator=(SharedMemory&& other) noexcept;
  ~SharedMemory();

  char* data() const noexcept { return data_; }
  std::size_t num_bytes() const noexcept { return num_bytes_; }
  int descriptor() const noexcept { return file_.get(); }
  void close_file() noexcept { file_.reset(); }

  // Returns the path of create_nameless()'s memory in process `pid`, under its number
  // there.
  static files::Path path_for_others(std::int64_t pid, int descriptor);

 private:
  SharedMemory(files::Descriptor file, const files::Path& path, std::size_t num_bytes);

  files::Descriptor file_;
  char* data_ = nullptr;
  std::size_t num_bytes_ = 0;
};

// A word in shared memory that sleepers watch. Zeroes are a new one.
struct alignas(64) Bell {
  std::atomic<std::uint32_t> rung;  // grows with every ring
  std::atomic<std::uint32_t> sleepers;

  // Wakes all sleepers; a few nanoseconds if there is none.
  void ring() noexcept;

  // Spins for some microseconds and then sleeps, until it has been rung since `rung`
  // was read as `seen`, or `longest` has passed. May return early.
  void sleep(std::uint32_t seen, std::chrono::milliseconds longest) noexcept;
};
static_assert(std::atomic<std::uint32_t>::is_always_lock_free);

}  // namespace lockstep::comm::detail
