#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "lockstep/storage/file_system.h"
#include "lockstep/storage/manifest.h"
#include "lockstep/storage/publish.h"

namespace lockstep::storage {

// Cuts a stream of bytes into blocks, hashes each, and hands them to the disk in large
// aligned writes that threads of its own make.
class BlockWriter {
 public:
  // `total_bytes` is what will come in all.
  BlockWriter(std::unique_ptr<OutputFile> file, std::int64_t total_bytes,
              const WriteOptions& options);
  ~BlockWriter();

  void append(Bytes bytes);

  // Waits for the writes, syncs and closes. The digests of the blocks.
  std::vector<Digest> finish();

  std::int64_t buffer_bytes() const noexcept { return capacity_ * num_buffers_; }

 private:
  struct Free {
    void operator()(std::byte* memory) const noexcept { std::free(memory); }
  };
  using Memory = std::unique_ptr<std::byte, Free>;
  struct Filled {
    Memory memory;
    std::int64_t offset = 0;
    std::int64_t bytes = 0;
  };

  Memory take_buffer();
  void hand_over();
  void work();

  std::unique_ptr<OutputFile> file_;
  const std::int64_t total_bytes_;
  const std::int64_t block_bytes_;
  const bool direct_;
  std::int64_t capacity_ = 0;  // of a buffer
  std::int64_t num_buffers_ = 0;

  Memory current_;
  std::int64_t filled_ = 0;          // of current_
  std::int64_t appended_begin_ = 0;  // where current_ goes
  std::int64_t appended_ = 0;        // in all
  BlockDigests digests_;

  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  std::deque<Filled> waiting_;
  std::vector<Memory> spare_;
  int busy_ = 0;  // buffers that are being written
  bool over_ = false;
  std::exception_ptr failure_;

  std::vector<std::thread> workers_;
};

}  // namespace lockstep::storage
