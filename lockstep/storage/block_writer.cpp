#include "lockstep/storage/detail/block_writer.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>

#include "lockstep/base/error.h"

namespace lockstep::storage {
namespace {

// Large enough that the disk is busy, small enough that memory held is no matter.
constexpr std::int64_t kBufferBytes = 8 << 20;
constexpr std::int64_t kMostBuffers = 4;  // one is filled, two are written, one waits
constexpr std::int64_t kMostWorkers = 2;
// Copied, then hashed while it is in the cache: memory is read once.
constexpr std::size_t kPortion = 64 << 10;

std::int64_t rounded_up(std::int64_t value, std::int64_t step) {
  return (value + step - 1) / step * step;
}

}  // namespace

BlockWriter::BlockWriter(std::unique_ptr<OutputFile> file, std::int64_t total_bytes,
                         const WriteOptions& options)
    : file_(std::move(file)),
      total_bytes_(total_bytes),
      block_bytes_(options.block_bytes),
      direct_(options.caching == Caching::direct),
      digests_(options.block_bytes) {
  LOCKSTEP_CHECK(block_bytes_ > 0 && (block_bytes_ & (block_bytes_ - 1)) == 0,
                 block_bytes_);
  const auto granule = std::max(block_bytes_, kDirectAlignment);
  capacity_ = std::min(std::max(kBufferBytes, granule),
                       rounded_up(std::max<std::int64_t>(total_bytes, 1), granule));
  num_buffers_ = std::clamp<std::int64_t>(
      rounded_up(total_bytes, capacity_) / capacity_, 1, kMostBuffers);
  for (std::int64_t i = 0; i < num_buffers_; ++i) {
    auto* memory = std::aligned_alloc(static_cast<std::size_t>(kDirectAlignment),
                                      static_cast<std::size_t>(capacity_));
    if (memory == nullptr) throw std::bad_alloc();
    spare_.emplace_back(static_cast<std::byte*>(memory));
  }
  file_->reserve(total_bytes);
  const auto num_workers = std::min(kMostWorkers, num_buffers_);
  for (std::int64_t i = 0; i < num_workers; ++i) {
    workers_.emplace_back([this] { work(); });
  }
}

BlockWriter::~BlockWriter() {
  {
    const std::lock_guard lock(mutex_);
    over_ = true;
    waiting_.clear();
  }
  changed_.notify_all();
  for (auto& worker : workers_) worker.join();
}

BlockWriter::Memory BlockWriter::take_buffer() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return failure_ || !spare_.empty(); });
  if (failure_) std::rethrow_exception(failure_);
  auto memory = std::move(spare_.back());
  spare_.pop_back();
  return memory;
}

void BlockWriter::append(Bytes bytes) {
  LOCKSTEP_CHECK(static_cast<std::int64_t>(bytes.size()) <= total_bytes_ - appended_,
                 bytes.size(), " more bytes than were announced");
  appended_ += static_cast<std::int64_t>(bytes.size());
  while (!bytes.empty()) {
    if (!current_) current_ = take_buffer();
    const auto room = static_cast<std::size_t>(capacity_ - filled_);
    const auto part = bytes.first(std::min({room, bytes.size(), kPortion}));
    std::memcpy(current_.get() + filled_, part.data(), part.size());
    digests_.add(part);
    filled_ += static_cast<std::int64_t>(part.size());
    bytes = bytes.subspan(part.size());
    if (filled_ == capacity_) hand_over();
  }
}

void BlockWriter::hand_over() {
  auto bytes = filled_;
  if (direct_) {
    bytes = rounded_up(filled_, kDirectAlignment);
    std::memset(current_.get() + filled_, 0, static_cast<std::size_t>(bytes - filled_));
  }
  {
    const std::lock_guard lock(mutex_);
    waiting_.push_back({std::move(current_), appended_begin_, bytes});
  }
  changed_.notify_all();
  appended_begin_ += filled_;
  filled_ = 0;
}

std::vector<Digest> BlockWriter::finish() {
  LOCKSTEP_CHECK(appended_ == total_bytes_, appended_, " of ", total_bytes_, " bytes");
  if (filled_ > 0) hand_over();
  {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return failure_ || (waiting_.empty() && busy_ == 0); });
    if (failure_) std::rethrow_exception(failure_);
  }
  if (direct_ && total_bytes_ % kDirectAlignment != 0) file_->truncate(total_bytes_);
  file_->sync();
  file_->close();
  return digests_.finish();
}

void BlockWriter::work() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return over_ || !waiting_.empty(); });
    if (waiting_.empty()) return;
    auto filled = std::move(waiting_.front());
    waiting_.pop_front();
    ++busy_;
    lock.unlock();
    std::exception_ptr failure;
    try {
      file_->write(filled.offset,
                   Bytes(filled.memory.get(), static_cast<std::size_t>(filled.bytes)));
    } catch (...) {
      failure = std::current_exception();
    }
    lock.lock();
    --busy_;
    spare_.push_back(std::move(filled.memory));
    if (failure && !failure_) failure_ = failure;
    changed_.notify_all();
    if (failure_) return;
  }
}

}  // namespace lockstep::storage
