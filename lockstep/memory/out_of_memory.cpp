#include "lockstep/memory/out_of_memory.h"

#include <atomic>
#include <mutex>
#include <unordered_map>

#include <ATen/Context.h>
#include <ATen/ops/_foreach_copy.h>
#include <c10/core/CPUAllocator.h>

#include "lockstep/base/error.h"
#include "lockstep/models/dropout.h"

namespace lockstep::memory {
namespace {

// The memory that was given out under a limit. A caller that frees it has only the
// address, and may be LibTorch itself with the allocator that is current then: so data
// are where the base put them, and the book is the process's.
class Book {
 public:
  struct Allocation {
    std::weak_ptr<std::atomic<std::int64_t>> used;
    std::int64_t num_bytes = 0;
  };

  static Book& of_process() {
    static Book book;
    return book;
  }

  void write(void* data, const std::shared_ptr<std::atomic<std::int64_t>>& used,
             std::int64_t num_bytes) {
    const std::lock_guard lock(mutex_);
    entries_[data] = {used, num_bytes};
  }

  static void free(void* data) {
    if (data == nullptr) return;
    of_process().strike(data);
    c10::GetDefaultCPUAllocator()->raw_deallocate(data);
  }

 private:
  void strike(void* data) {
    const std::lock_guard lock(mutex_);
    const auto found = entries_.find(data);
    if (found == entries_.end()) return;  // from before the limit
    if (const auto used = found->second.used.lock()) *used -= found->second.num_bytes;
    entries_.erase(found);
  }

  std::mutex mutex_;
  std::unordered_map<void*, Allocation> entries_;
};

}  // namespace

class HostMemoryLimit::Allocator : public c10::Allocator {
 public:
  explicit Allocator(std::int64_t bytes) : limit_(bytes) {}

  c10::DataPtr allocate(std::size_t num_bytes) override {
    const auto wanted = static_cast<std::int64_t>(num_bytes);
    const auto before = used_->fetch_add(wanted);
    if (before + wanted > limit_) {
      *used_ -= wanted;
      throw c10::OutOfMemoryError(
          {__func__, __FILE__, static_cast<std::uint32_t>(__LINE__)},
          str("a tensor of ", num_bytes, " bytes does not fit: ", before,
              " bytes of memory.host_limit ", limit_, " are in use"));
    }
    auto peak = peak_.load();
    while (before + wanted > peak &&
           !peak_.compare_exchange_weak(peak, before + wanted)) {
    }
    try {
      auto* data = c10::GetDefaultCPUAllocator()->raw_allocate(num_bytes);
      if (data != nullptr) Book::of_process().write(data, used_, wanted);
      return {data, data, &Book::free, torch::kCPU};
    } catch (...) {
      *used_ -= wanted;
      throw;
    }
  }

  c10::DeleterFnPtr raw_deleter() const override { return &Book::free; }

  void copy_data(void* to, const void* from, std::size_t num_bytes) const override {
    c10::GetDefaultCPUAllocator()->copy_data(to, from, num_bytes);
  }

  std::int64_t used() const noexcept { return *used_; }
  std::int64_t peak() const noexcept { return peak_; }
  void restart_peak() noexcept { peak_ = used(); }
  std::int64_t limit() const noexcept { return limit_; }

 private:
  const std::int64_t limit_;
  const std::shared_ptr<std::atomic<std::int64_t>> used_ =
      std::make_shared<std::atomic<std::int64_t>>(0);
  std::atomic<std::int64_t> peak_ = 0;
};

namespace {
constexpr std::uint8_t kAllocatorPriority = 100;
}

HostMemoryLimit::HostMemoryLimit(std::int64_t bytes)
    : allocator_(std::make_shared<Allocator>(bytes)), before_(c10::GetCPUAllocator()) {
  c10::SetCPUAllocator(allocator_.get(), kAllocatorPriority);
}

HostMemoryLimit::~HostMemoryLimit() {
  c10::SetCPUAllocator(before_, kAllocatorPriority);
}

std::int64_t HostMemoryLimit::used_bytes() const noexcept {
  return allocator_->used();
}

std::int64_t HostMemoryLimit::peak_bytes() const noexcept {
  return allocator_->peak();
}

void HostMemoryLimit::restart_peak() noexcept {
  allocator_->restart_peak();
}

std::int64_t HostMemoryLimit::limit_bytes() const noexcept {
  return allocator_->limit();
}

namespace {

// Returns the generators of the model's dropouts; none if they draw by sample.
std::vector<at::Generator> generators_of(const models::Model& model,
                                         const torch::Device& device) {
  if (!models::draws_from_torch(model)) return {};
  return {at::globalContext().defaultGenerator(device)};
}

}  // namespace

StepStart::StepStart(models::Model& model, const torch::Device& device)
    : buffers_(model.buffers()), draws_(generators_of(model, device)) {
  for (const auto& buffer : buffers_) copies_.push_back(torch::empty_like(buffer));
}

void StepStart::take() {
  const torch::NoGradGuard no_grad;
  if (!buffers_.empty()) at::_foreach_copy_(copies_, buffers_);
  draws_.take();
}

void StepStart::restore() {
  const torch::NoGradGuard no_grad;
  if (!buffers_.empty()) at::_foreach_copy_(buffers_, copies_);
  draws_.restore();
}

void empty_cache(const torch::Device& device) {
  if (device.is_cpu()) return;
  at::getDeviceAllocator(device.type())->emptyCache();
}

}  // namespace lockstep::memory
